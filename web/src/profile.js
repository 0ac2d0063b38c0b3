// SPDX-License-Identifier: Apache-2.0
// Calls and times by function, as `hvftrace profile` counts them: time with callees, and without the traced ones.

import { MAX_DEPTH, MAX_TASKS } from "./limits.js";

export class Profile {
	constructor() {
		this.byFn = new Map();
		this.inside = new Map(); // pid -> time of callees by depth
	}

	of(fn) {
		let p = this.byFn.get(fn);
		if (!p) {
			p = { fn, hits: 0, returned: 0, total: 0, self: 0, max: 0 };
			this.byFn.set(fn, p);
		}
		return p;
	}

	hit(fn) {
		this.of(fn).hits++;
	}

	add(fn, dur, callees) {
		const p = this.of(fn);
		p.hits++;
		p.returned++;
		p.total += dur;
		p.self += Math.max(0, dur - callees);
		p.max = Math.max(p.max, dur);
	}

	enter(pid, depth) {
		let s = this.inside.get(pid);
		if (!s) {
			if (this.inside.size >= MAX_TASKS)
				this.inside.delete(this.inside.keys().next().value);
			s = [];
			this.inside.set(pid, s);
		}
		if (depth < MAX_DEPTH)
			s[depth] = 0;
	}

	leave(fn, pid, depth, dur) {
		const s = this.inside.get(pid);
		this.add(fn, dur, s?.[depth] ?? 0);
		if (!s)
			return;
		s.length = Math.min(s.length, depth);
		if (depth > 0 && depth <= MAX_DEPTH)
			s[depth - 1] = (s[depth - 1] ?? 0) + dur;
	}

	never(pid, depth) {
		const s = this.inside.get(pid);
		if (s)
			s.length = Math.min(s.length, depth);
	}

	rows(key = "total") {
		return [...this.byFn.values()].sort((a, b) => b[key] - a[key] || b.hits - a.hits);
	}
}
