// SPDX-License-Identifier: Apache-2.0
// Time by stack of calls: a tree of task name, function, callee ..., with the time that calls took and
// how many there were. Bounded: what does not fit counts for its caller.

import { MAX_DEPTH, MAX_FLAME_NODES, MAX_TASKS } from "./limits.js";

export class Flame {
	constructor(max = MAX_FLAME_NODES) {
		this.max = max;
		this.nodes = [{ name: 0, up: null, total: 0, count: 0, kids: new Map(), depth: 0 }];
		this.stacks = new Map(); // pid -> nodes by depth of the call
		this.refused = 0; // calls that found no room
	}

	get root() {
		return this.nodes[0];
	}

	/** the callee of this name; what stands for it, {refused: its caller}, when there is no room */
	child(node, name) {
		node = node.refused ?? node;
		let kid = node.kids.get(name);
		if (kid)
			return kid;
		if (this.nodes.length >= this.max || node.depth >= MAX_DEPTH) {
			this.refused++;
			return { name, refused: node };
		}
		kid = { name, up: node, total: 0, count: 0, kids: new Map(), depth: node.depth + 1 };
		node.kids.set(name, kid);
		this.nodes.push(kid);
		return kid;
	}

	enter(fn, comm, pid, depth) {
		let s = this.stacks.get(pid);
		if (!s) {
			if (this.stacks.size >= MAX_TASKS)
				this.stacks.delete(this.stacks.keys().next().value);
			s = [];
			this.stacks.set(pid, s);
		}
		depth = Math.min(depth, MAX_DEPTH);
		s.length = Math.min(s.length, depth);
		let above = null;
		for (let d = depth - 1; d >= 0 && !above; d--)
			above = s[d];
		s[depth] = this.child(above ?? this.child(this.root, comm), fn);
	}

	leave(fn, pid, depth, dur) {
		const s = this.stacks.get(pid);
		depth = Math.min(depth, MAX_DEPTH);
		const node = s?.[depth];
		if (s)
			s.length = Math.min(s.length, depth);
		if (node && node.name === fn)
			this.count(node, dur);
	}

	/** a caller's time has that of its callees already; a task has none but what its calls took */
	count(node, dur) {
		if (node.refused) {
			if (node.refused.depth <= 1)
				node.refused.total += dur;
			return;
		}
		node.total += dur;
		node.count++;
	}

	/** a call that stands alone, as a system call does */
	add(fn, comm, dur) {
		this.count(this.child(this.child(this.root, comm), fn), dur);
	}

	forgetOpen() {
		this.stacks.clear();
	}
}

/** a node's width: its own time, or its callees' when it has not returned yet */
export function weigh(node) {
	let inside = 0;
	for (const kid of node.kids.values())
		inside += weigh(kid);
	node.inside = inside;
	node.value = node.depth <= 1 ? node.total + inside : Math.max(node.total, inside);
	return node.value;
}

/**
 * The boxes of a picture: [{node, level, x, w}], x and w as shares of `zoom`; narrower ones than `least` are left
 * out. Callers of `zoom` come first, full width, at negative levels.
 */
export function layout(zoom, least, maxBoxes = 2500) {
	const boxes = [];
	const above = [];
	for (let u = zoom.up; u; u = u.up)
		above.unshift(u);
	above.forEach((node, i) => boxes.push({ node, level: i - above.length, x: 0, w: 1 }));
	const all = zoom.value || 1;
	let row = [{ node: zoom, level: 0, x: 0, w: 1 }];
	while (row.length && boxes.length < maxBoxes) {
		boxes.push(...row);
		const next = [];
		for (const b of row) {
			let x = b.x;
			for (const kid of b.node.kids.values()) { // in the order of coming: what is live does not jump
				const w = kid.value / all;
				if (w >= least)
					next.push({ node: kid, level: b.level + 1, x, w });
				x += w;
			}
		}
		row = next;
	}
	return boxes.slice(0, maxBoxes);
}
