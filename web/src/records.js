// SPDX-License-Identifier: Apache-2.0
// Records one after another as they came: the newest KEEP_RECORDS, in columns. Losses stand where they happened.

import { KEEP_RECORDS, MAX_NOTE } from "./limits.js";
import { clean } from "./format.js";

export const KINDS = ["function", "graph_entry", "graph_return", "graph_never", "switch", "tracer", "syscall", "lost", "marker"];
const KIND = new Map(KINDS.map((name, i) => [name, i]));

export class Records {
	constructor(size = KEEP_RECORDS) {
		this.size = size;
		this.mask = size - 1;
		this.next = 1;
		for (const [name, type] of Object.entries({
			kind: Uint8Array, fn: Uint32Array, parent: Uint32Array, comm: Uint32Array, pid: Int32Array, cpu: Uint16Array,
			depth: Uint16Array, ts: Float64Array, dur: Float64Array, seq: Float64Array,
		}))
			this[name] = new type(size);
		this.notes = new Map();
	}

	get oldest() {
		return Math.max(1, this.next - this.size);
	}

	/** n numbers: of functions and tasks, see Names; note: what comes behind, "" for none */
	add(type, r, fn, parent, comm, note) {
		const n = this.next++, i = n & this.mask;
		this.notes.delete(n - this.size);
		this.kind[i] = KIND.get(type) ?? 0;
		this.fn[i] = fn;
		this.parent[i] = parent;
		this.comm[i] = comm;
		this.pid[i] = r.pid ?? 0;
		this.cpu[i] = r.cpu ?? 0;
		this.depth[i] = Math.min(r.depth ?? 0, 65535);
		this.ts[i] = r.ts_ns ?? 0;
		this.dur[i] = r.duration_ns ?? -1;
		this.seq[i] = r.seq ?? 0;
		if (note)
			this.notes.set(n, clean(note, MAX_NOTE));
	}
}
