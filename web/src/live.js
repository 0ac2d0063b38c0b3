// SPDX-License-Identifier: Apache-2.0
// One trace as the page follows it: reads its stream within a budget of each frame, and keeps what the views show.

import { Problem, readLines, seg } from "./api.js";
import { Calls, NEVER, UNFOLLOWED } from "./calls.js";
import { Flame } from "./flame.js";
import { Names } from "./intern.js";
import { BUDGET_MS, KEEP_RECORDS, KEEP_SWITCHES } from "./limits.js";
import { Profile } from "./profile.js";
import { Records } from "./records.js";
import { Syscalls } from "./syscalls.js";

const frame = () => new Promise((done) => {
	if (typeof requestAnimationFrame !== "function" || document.hidden)
		setTimeout(done, 50);
	else {
		const late = setTimeout(done, 250); // a tab that is hidden meanwhile gets no frames
		requestAnimationFrame(() => { clearTimeout(late); done(); });
	}
});

const argsText = (r) => r.args ? r.args.map((a) => a.name ? `${a.name}=${a.text}` : a.text).join(", ") : "";

/**
 * From where to read: no more than would be kept, and while the daemon overwrites its oldest records not those, as
 * they will be gone before they are asked for.
 */
export function firstAfter(trace) {
	const before = Math.max(0, trace.oldest_seq - 1), kept = trace.records - before;
	const margin = before && trace.state === "running" ? Math.ceil(kept / 4) : 0;
	return Math.max(before + margin, trace.records - 2 * KEEP_RECORDS, 0);
}

export class Live {
	constructor(trace) {
		this.id = trace.id;
		this.names = new Names();
		this.records = new Records();
		this.calls = new Calls();
		this.flame = new Flame();
		this.profile = new Profile();
		this.syscalls = new Syscalls();
		this.switches = []; // {ts, cpu, pid, comm}
		this.tasks = new Map(); // pid -> comm
		this.state = "connecting";
		this.problem = null;
		this.end = null;
		this.read = 0;		// records that came
		this.lost = 0;		// said to be lost in the stream
		this.gaps = 0;		// of these, overwritten while the page was away
		this.unparsed = 0;	// lines that are no JSON
		this.lastSeq = 0;
		this.skipped = 0;	// older records, not read since they would not be kept
		this.gone = false;	// what came after lastSeq was overwritten: go on with the oldest that is kept
		this.fresh = false;	// at the beginning of a stream of all that is kept
		this.before = 0;	// what such a stream says was lost before its first record
		this.version = 0;
		this.abort = new AbortController();
		this.lastSeq = this.skipped = firstAfter(trace);
	}

	/** how many records the daemon had and this page did not get */
	missed(trace) {
		const slow = Math.max(0, this.lost - this.gaps - trace.lost);
		return this.gaps + Math.min(slow, trace.lost_readers);
	}

	stop() {
		this.abort.abort();
		this.state = "closed";
	}

	/** reads until the trace ends or stop(); begins again where it was when the connection breaks */
	async run() {
		for (let wait = 250; this.state !== "closed" && !this.end; wait = Math.min(2 * wait, 5000)) {
			const before = this.read, after = this.gone ? 0 : this.lastSeq;
			this.fresh = after === 0;
			this.before = 0;
			try {
				await readLines(`/v1/traces/${seg(this.id)}/stream?after=${after}`, {
					signal: this.abort.signal,
					onLines: (lines) => this.take(lines),
				});
				if (!this.end)
					throw new Problem({ code: "cut", detail: "the stream was cut", hint: "the page goes on where it was" });
			} catch (e) {
				if (this.state === "closed")
					return;
				if (e.code === "records.gone" && !this.gone) {
					this.gone = true;
					continue;
				}
				this.problem = e;
				this.state = "broken";
				this.version++;
				if (e.code === "not_found")
					return;
			}
			if (this.read > before)
				wait = 250;
			if (!this.end)
				await new Promise((done) => setTimeout(done, wait));
		}
	}

	async take(lines) {
		let until = performance.now() + BUDGET_MS;
		this.state = "live";
		this.problem = null;
		for (let i = 0; i < lines.length; i++) {
			if (lines[i])
				this.line(lines[i]);
			if ((i & 31) === 31 && performance.now() > until) {
				this.version++;
				await frame();
				if (this.state === "closed")
					return;
				until = performance.now() + BUDGET_MS;
			}
		}
		this.version++;
	}

	line(text) {
		let r;
		try {
			r = JSON.parse(text);
		} catch {
			this.unparsed++;
			return;
		}
		if (r && typeof r === "object")
			this.item(r);
	}

	item(r) {
		switch (r.type) {
		case "heartbeat":
			return;
		case "end":
			this.end = r;
			this.state = "ended";
			return;
		case "lost":
			if (this.fresh) {
				this.before += r.count;
				return;
			}
			this.lost += r.count;
			this.records.add("lost", r, 0, 0, 0, String(r.count));
			this.calls.forgetOpen();
			this.flame.forgetOpen();
			return;
		default:
			if (this.fresh)
				this.first(r);
			this.read++;
			this.lastSeq = Math.max(this.lastSeq, r.seq || 0);
			this.record(r);
		}
	}

	/** the first record of all that is kept: what is missing before it was overwritten, or lost in the guest */
	first(r) {
		const older = Math.max(0, (r.seq || 1) - 1);
		const missed = this.read ? older - this.lastSeq : this.before - older;
		this.fresh = this.gone = false;
		if (!this.read)
			this.skipped = older;
		else
			this.gaps += Math.max(0, missed);
		if (missed > 0)
			this.item({ type: "lost", count: missed });
	}

	record(r) {
		const comm = this.names.id(r.comm);
		if (r.type === "marker") {
			this.records.add("marker", r, 0, 0, 0, String(r.text));
			return;
		}
		if (r.type === "switch") {
			this.switched(r, comm);
		} else if (r.type === "tracer") {
			this.calls.forgetOpen();
			this.flame.forgetOpen();
			this.records.add("tracer", r, this.names.id(String(r.tracer)), 0, 0, "");
			return;
		} else if (r.type === "syscall") {
			this.syscall(r, comm);
		} else {
			this.call(r, comm);
		}
		if (this.tasks.size < 65536 || this.tasks.has(r.pid))
			this.tasks.set(r.pid, comm);
	}

	switched(r, comm) {
		this.records.add("switch", r, 0, 0, comm, `from ${r.prev_pid}`);
		this.switches.push({ ts: r.ts_ns, cpu: r.cpu, pid: r.pid, comm });
		if (this.switches.length > 2 * KEEP_SWITCHES)
			this.switches.splice(0, KEEP_SWITCHES);
	}

	syscall(r, comm) {
		const c = this.syscalls.add(r);
		const fn = this.names.id(c.name), note = `(${c.args}) = ${c.ret}`;
		this.records.add("syscall", r, fn, 0, comm, note);
		const n = this.calls.leaf(fn, comm, r, r.duration_ns ?? NEVER);
		this.calls.note(n, note);
		if (c.dur >= 0) {
			this.flame.add(fn, comm, c.dur);
			this.profile.add(fn, c.dur, 0);
		}
	}

	call(r, comm) {
		const fn = this.names.id(r.function), parent = this.names.id(r.parent), args = argsText(r);
		const ret = r.retval ? ` = ${r.retval.text}` : "";
		this.records.add(r.type, r, fn, parent, comm, (args ? `(${args})` : "") + ret);
		if (r.type === "function") {
			this.calls.note(this.calls.leaf(fn, comm, r, UNFOLLOWED), args ? `(${args})` : "");
			this.profile.hit(fn);
		} else if (r.type === "graph_entry") {
			this.calls.note(this.calls.enter(fn, comm, r), args ? `(${args})` : "");
			this.flame.enter(fn, comm, r.pid, r.depth);
			this.profile.enter(r.pid, r.depth);
		} else if (r.type === "graph_return") {
			this.calls.note(this.calls.leave(fn, r), ret);
			this.flame.leave(fn, r.pid, r.depth, r.duration_ns);
			this.profile.leave(fn, r.pid, r.depth, r.duration_ns);
		} else if (r.type === "graph_never") {
			this.calls.leave(fn, r, NEVER);
			this.flame.leave(fn, r.pid, r.depth, 0);
			this.profile.never(r.pid, r.depth);
		}
	}
}
