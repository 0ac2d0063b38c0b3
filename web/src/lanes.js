// SPDX-License-Identifier: Apache-2.0
// What the timeline draws: lanes of calls, by vCPU or by task, within a span of the guest's clock.

import { OPEN } from "./calls.js";

export const MAX_LANES = 64;
export const MAX_ROWS = 8; // depths of calls of a lane

/** the first and the last moment that is kept: [from, to] */
export function extent(calls) {
	let from = Infinity, to = -Infinity;
	for (let n = calls.oldest; n < calls.next; n++) {
		const i = n & calls.mask;
		from = Math.min(from, calls.ts[i]);
		to = Math.max(to, calls.ts[i] + Math.max(0, calls.dur[i]));
	}
	return from <= to ? [from, to] : [0, 1];
}

/**
 * Lanes of calls that touch [from, to]: [{key, calls, rows, busy}], the busiest first up to MAX_LANES (vCPUs by
 * number), each with the numbers of its calls in order. hidden: how many lanes were left out.
 */
export function lanes(calls, by, from, to, now) {
	const map = new Map();
	for (let n = calls.oldest; n < calls.next; n++) {
		const i = n & calls.mask, ts = calls.ts[i], d = calls.dur[i];
		const end = d === OPEN ? now : ts + Math.max(0, d);
		if (end < from || ts > to)
			continue;
		const key = by === "cpu" ? calls.cpu[i] : calls.pid[i];
		let lane = map.get(key);
		if (!lane) {
			lane = { key, calls: [], rows: 1, busy: 0 };
			map.set(key, lane);
		}
		lane.calls.push(n);
		lane.rows = Math.max(lane.rows, Math.min(MAX_ROWS, calls.depth[i] + 1));
		if (!calls.depth[i])
			lane.busy += Math.max(1, Math.min(end, to) - Math.max(ts, from));
	}
	const all = [...map.values()].sort(by === "cpu" ? (a, b) => a.key - b.key : (a, b) => b.busy - a.busy);
	return { lanes: all.slice(0, MAX_LANES), hidden: Math.max(0, all.length - MAX_LANES) };
}

/** functions within [from, to]: [{fn, count, time}], the longest first */
export function inView(calls, from, to, max = 12) {
	const map = new Map();
	for (let n = calls.oldest; n < calls.next; n++) {
		const i = n & calls.mask, ts = calls.ts[i], d = Math.max(0, calls.dur[i]);
		if (ts + d < from || ts > to)
			continue;
		let f = map.get(calls.fn[i]);
		if (!f) {
			f = { fn: calls.fn[i], count: 0, time: 0 };
			map.set(calls.fn[i], f);
		}
		f.count++;
		f.time += Math.min(to, ts + d) - Math.max(from, ts);
	}
	return [...map.values()].sort((a, b) => b.time - a.time || b.count - a.count).slice(0, max);
}

/** moments of an axis: [{ts, label}], 1, 2 or 5 times a power of ten apart */
export function ticks(from, to, want) {
	const raw = (to - from) / Math.max(1, want), power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || 1;
	const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(step) + 1e-9)));
	const out = [];
	for (let ts = Math.ceil(from / step) * step; ts <= to && out.length < 100; ts += step)
		out.push({ ts, label: `${(ts / 1e9).toFixed(digits)} s` });
	return out;
}

/**
 * What ran on a vCPU within [from, to], from its task switches in order: [{pid, comm, from, to}], the idle task left
 * out. Before the first switch nothing is known.
 */
export function running(switches, cpu, from, to) {
	const out = [];
	let last = null;
	const end = (ts) => {
		if (last?.pid && ts > from && last.ts < to)
			out.push({ pid: last.pid, comm: last.comm, from: Math.max(from, last.ts), to: Math.min(to, ts) });
	};
	for (const s of switches) {
		if (s.cpu !== cpu)
			continue;
		end(s.ts);
		last = s;
	}
	end(to);
	return out;
}
