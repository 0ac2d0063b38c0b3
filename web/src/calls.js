// SPDX-License-Identifier: Apache-2.0
// Calls as they nest, from graph_entry and graph_return records, in columns of fixed size: the newest
// KEEP_CALLS. A call's number only grows; those that were overwritten are below `oldest`.

import { KEEP_CALLS, MAX_DEPTH, MAX_NOTE, MAX_TASKS } from "./limits.js";
import { clean } from "./format.js";

export const OPEN = -1;		// has not returned yet
export const NEVER = -2;	// its task ended inside
export const UNFOLLOWED = -3;	// its return is not followed
export const UNSEEN = -4;	// its return was lost, or can no longer be told

export class Calls {
	constructor(size = KEEP_CALLS) {
		this.size = size;
		this.mask = size - 1;
		this.next = 1; // number of the next call; 0 is none
		for (const [name, type] of Object.entries({
			fn: Uint32Array, comm: Uint32Array, pid: Int32Array, cpu: Uint16Array, depth: Uint16Array, ts: Float64Array,
			dur: Float64Array, up: Float64Array, first: Float64Array, last: Float64Array, sibling: Float64Array,
		}))
			this[name] = new type(size);
		this.notes = new Map(); // number -> text after the name
		this.roots = []; // numbers, ascending
		this.rootsFrom = 0;
		this.stacks = new Map(); // pid -> [number of the open call at each depth]
	}

	get oldest() {
		return Math.max(1, this.next - this.size);
	}

	has(n) {
		return n > 0 && n >= this.oldest && n < this.next;
	}

	/** a new call; its number */
	add(fn, r, comm, dur) {
		const n = this.next++, i = n & this.mask;
		this.notes.delete(n - this.size);
		this.fn[i] = fn;
		this.comm[i] = comm;
		this.pid[i] = r.pid;
		this.cpu[i] = r.cpu;
		this.depth[i] = Math.min(r.depth ?? 0, 65535);
		this.ts[i] = r.ts_ns;
		this.dur[i] = dur;
		this.up[i] = this.first[i] = this.last[i] = this.sibling[i] = 0;
		return n;
	}

	note(n, text) {
		if (text && this.has(n))
			this.notes.set(n, clean((this.notes.get(n) ?? "") + text, MAX_NOTE));
	}

	/** hang call n under `up`, or make it a root */
	hang(n, up) {
		if (!this.has(up)) {
			this.roots.push(n);
			this.forgetRoots();
			return;
		}
		const i = n & this.mask, u = up & this.mask;
		this.up[i] = up;
		if (this.has(this.last[u]))
			this.sibling[this.last[u] & this.mask] = n;
		else
			this.first[u] = n;
		this.last[u] = n;
	}

	forgetRoots() {
		const oldest = this.oldest;
		while (this.rootsFrom < this.roots.length && this.roots[this.rootsFrom] < oldest)
			this.rootsFrom++;
		if (this.rootsFrom > 4096 && this.rootsFrom * 2 > this.roots.length) {
			this.roots.splice(0, this.rootsFrom);
			this.rootsFrom = 0;
		}
	}

	stack(pid) {
		let s = this.stacks.get(pid);
		if (!s) {
			if (this.stacks.size >= MAX_TASKS)
				this.stacks.delete(this.stacks.keys().next().value);
			s = [];
			this.stacks.set(pid, s);
		}
		return s;
	}

	/** a call began; its number */
	enter(fn, comm, r) {
		const s = this.stack(r.pid), depth = Math.min(r.depth ?? 0, MAX_DEPTH);
		const n = this.add(fn, r, comm, OPEN);
		this.cut(s, depth);
		this.hang(n, this.above(s, depth));
		s[depth] = n;
		return n;
	}

	/** a call whose return is not followed: a leaf */
	leaf(fn, comm, r, dur = UNFOLLOWED) {
		const s = this.stacks.get(r.pid);
		const n = this.add(fn, r, comm, dur);
		this.hang(n, s ? this.above(s, s.length) : 0);
		return n;
	}

	above(s, depth) {
		for (let d = depth - 1; d >= 0; d--) {
			if (s[d])
				return s[d];
		}
		return 0;
	}

	/** a call returned: its number, 0 when its entry was lost or is no longer kept */
	leave(fn, r, dur = r.duration_ns) {
		const s = this.stacks.get(r.pid), depth = Math.min(r.depth ?? 0, MAX_DEPTH);
		const n = s?.[depth] ?? 0, known = this.has(n) && this.fn[n & this.mask] === fn;
		if (known)
			this.dur[n & this.mask] = dur;
		if (s)
			this.cut(s, depth);
		return known ? n : 0;
	}

	/** calls from this depth on are over, also those whose return did not come */
	cut(s, depth) {
		for (let d = depth; d < s.length; d++) {
			if (this.has(s[d]) && this.dur[s[d] & this.mask] === OPEN)
				this.dur[s[d] & this.mask] = UNSEEN;
		}
		s.length = Math.min(s.length, depth);
	}

	/** what is open can no longer be told: records were lost */
	forgetOpen() {
		for (const s of this.stacks.values())
			this.cut(s, 0);
		this.stacks.clear();
	}

	/**
	 * Rows of the tree as it is shown, into `out` (cleared): numbers of calls, parents before children.
	 * closed: numbers that are folded; only: test of a root, or null
	 */
	rows(out, closed, only, max = this.size) {
		out.length = 0;
		this.forgetRoots();
		for (let k = this.rootsFrom; k < this.roots.length && out.length < max; k++) {
			const root = this.roots[k];
			if (this.has(root) && (!only || only(root)))
				this.walk(root, out, closed);
		}
		return out;
	}

	walk(root, out, closed) {
		let n = root;
		while (n) {
			out.push(n);
			let i = n & this.mask;
			if (this.has(this.first[i]) && !closed.has(n)) {
				n = this.first[i];
				continue;
			}
			while (n !== root && !this.has(this.sibling[n & this.mask]))
				n = this.up[n & this.mask];
			if (n === root)
				return;
			n = this.sibling[n & this.mask];
		}
	}

	/** how deep call n is in what is shown */
	level(n) {
		let level = 1;
		for (let u = this.up[n & this.mask]; this.has(u); u = this.up[u & this.mask])
			level++;
		return level;
	}
}
