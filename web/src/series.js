// SPDX-License-Identifier: Apache-2.0
// What the charts show: differences of the daemon's counters between two looks at them, the newest KEEP_SAMPLES.

import { KEEP_SAMPLES } from "./limits.js";

export class Series {
	constructor(keys) {
		this.keys = keys;
		this.columns = [[], ...keys.map(() => [])]; // seconds since 1970, then the values
	}

	push(seconds, values) {
		if (seconds <= this.columns[0].at(-1))
			return;
		this.columns[0].push(seconds);
		this.keys.forEach((k, i) => this.columns[i + 1].push(values[k]));
		if (this.columns[0].length > KEEP_SAMPLES)
			this.columns.forEach((c) => c.shift());
	}
}

const LEAST_S = 0.9; // between two samples, however often the page looks

const rate = (now, before, s) => Math.max(0, (now - before) / s);

export class TraceSeries extends Series {
	constructor() {
		super(["records", "ring", "torn", "readers"]);
		this.before = null;
	}

	look(t, seconds) {
		const b = this.before, dt = b ? seconds - b.seconds : 0;
		if (b && dt < LEAST_S)
			return;
		this.before = { seconds, records: t.records, ring: t.lost_ring, torn: t.lost_torn, readers: t.lost_readers };
		if (dt > 0)
			this.push(seconds, Object.fromEntries(this.keys.map((k) => [k, rate(this.before[k], b[k], dt)])));
	}
}

export class WindowSeries extends Series {
	constructor() {
		super(["count", "mean", "stopped"]);
		this.before = null;
	}

	look(w, seconds) {
		const b = this.before, dt = b ? seconds - b.seconds : 0;
		if (b && dt < LEAST_S)
			return;
		this.before = { seconds, ...w };
		if (!b)
			return;
		const n = Math.max(0, w.count - b.count), ns = Math.max(0, w.total_ns - b.total_ns);
		this.push(seconds, { count: n, mean: n ? ns / n / 1e6 : null, stopped: 100 * ns / 1e9 / dt });
	}
}
