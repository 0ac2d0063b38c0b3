// SPDX-License-Identifier: Apache-2.0
// System calls that are over: the newest KEEP_SYSCALLS, and counts by name of all of them.

import { KEEP_SYSCALLS, MAX_NAMES, MAX_NOTE } from "./limits.js";
import { clean } from "./format.js";

export class Syscalls {
	constructor(size = KEEP_SYSCALLS) {
		this.size = size;
		this.next = 1;
		this.ring = new Array(size);
		this.byName = new Map();
	}

	get oldest() {
		return Math.max(1, this.next - this.size);
	}

	at(n) {
		return this.ring[n & (this.size - 1)];
	}

	add(r) {
		const args = (r.args ?? []).map((a) => a?.text ?? "").join(", ");
		const call = {
			n: this.next, seq: r.seq, ts: r.ts_ns, cpu: r.cpu, pid: r.pid, comm: clean(r.comm, 32), name: clean(r.syscall, 64),
			args: clean(args, MAX_NOTE), ret: clean(r.ret_text ?? "?", 80), error: r.error ? clean(r.error, 32) : "",
			dur: r.duration_ns ?? -1, state: r.state,
		};
		this.ring[this.next++ & (this.size - 1)] = call;
		let sum = this.byName.get(call.name);
		if (!sum) {
			if (this.byName.size >= MAX_NAMES)
				return call;
			sum = { name: call.name, calls: 0, errors: 0, total: 0, max: 0 };
			this.byName.set(call.name, sum);
		}
		sum.calls++;
		sum.errors += call.error ? 1 : 0;
		if (call.dur >= 0) {
			sum.total += call.dur;
			sum.max = Math.max(sum.max, call.dur);
		}
		return call;
	}

	/** those that pass: numbers, oldest first */
	rows(out, { text = "", failed = false, task = "", least = 0 } = {}) {
		const t = text.toLowerCase(), k = task.toLowerCase();
		out.length = 0;
		for (let n = this.oldest; n < this.next; n++) {
			const c = this.at(n);
			if ((failed && !c.error) || (least && c.dur < least) ||
			    (k && !c.comm.toLowerCase().includes(k) && String(c.pid) !== k) ||
			    (t && !c.name.includes(t) && !c.args.toLowerCase().includes(t) && !c.error.toLowerCase().includes(t)))
				continue;
			out.push(n);
		}
		return out;
	}
}
