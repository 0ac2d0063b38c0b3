// SPDX-License-Identifier: Apache-2.0
// Rates of records and losses, and the times for which all vCPUs stood still, by uPlot; each with its numbers as a table.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { count, duration } from "../format.js";
import { rates, windows } from "../store.js";
import { Empty, Facts, html, useSize, useStore } from "./kit.js";

const HEIGHT = 190;
const LEAST_S = 60; // seconds that a chart shows
const PATTERNS = [[], [6, 4], [2, 3], [9, 3, 2, 3]]; // lines differ by more than colour

function options(width, lines, el, unit) {
	const s = getComputedStyle(el), v = (name) => s.getPropertyValue(name).trim();
	const axis = { stroke: v("--muted"), grid: { stroke: v("--line"), width: 1 }, ticks: { show: false }, font: `11px ${v("--sans")}` };
	return {
		width, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 6 } }, padding: [10, 8, 0, 0],
		axes: [
			{ ...axis, space: 90, size: 30, values: (u, list) => list.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")) },
			{ ...axis, size: 64, values: (u, list) => list.map((n) => n === null ? "" : unit(n)) },
		],
		scales: {
			x: { range: (u, min, max) => [Math.min(min, max - LEAST_S), max] },
			y: { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] },
		},
		series: [{}, ...lines.map((l, i) => ({
			label: l.label, stroke: v(l.colour), width: 1.75, dash: PATTERNS[i], spanGaps: false,
			points: { show: l.points ?? false, size: 5, fill: v(l.colour) },
			fill: i === 0 ? v("--accent-weak") : undefined,
		}))],
	};
}

function Chart({ title, lines, data, unit, theme }) {
	const [box, width] = useSize([600, HEIGHT]);
	const plot = useRef(null);
	const [at, setAt] = useState(null);
	useEffect(() => {
		const el = box.current;
		plot.current = new uPlot({ ...options(width, lines, el, unit), hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] } }, data, el);
		return () => plot.current.destroy();
	}, [width, theme]);
	useEffect(() => plot.current?.setData(data), [data[0].length, data[0].at(-1)]);
	const i = at !== null && at < data[0].length ? at : data[0].length - 1;
	return html`<figure class="chart">
		<figcaption><strong>${title}</strong>
			<ul class="legend">${lines.map((l, k) => html`<li><svg aria-hidden="true" viewBox="0 0 22 8">
				<line x1="0" y1="4" x2="22" y2="4" stroke=${`var(${l.colour})`} stroke-width="2"
				stroke-dasharray=${PATTERNS[k].join(" ")} /></svg>
				${l.label} <span class="mono">
					${i >= 0 && data[k + 1][i] !== null ? unit(data[k + 1][i]) : "-"}</span></li>`)}</ul></figcaption>
		<div class="plot" ref=${box} aria-hidden="true"></div>
		<details class="numbers"><summary>As a table</summary>
			<div class="scroll-x"><table class="plain"><caption class="hidden">${title}</caption><thead><tr>
				<th scope="col">Time</th>${lines.map((l) => html`<th scope="col" class="num">
				${l.label}</th>`)}</tr></thead>
			<tbody>${data[0].slice(-20).map((t, k, last) => {
				const n = data[0].length - last.length + k;
				return html`<tr key=${t}>
					<td>${new Date(t * 1000).toLocaleTimeString()}</td>${lines.map((l, j) => html`<td class="num">
					${data[j + 1][n] === null ? "-" : unit(data[j + 1][n])}</td>`)}</tr>`;
			})}</tbody></table></div></details>
	</figure>`;
}

const perSecond = (n) => n >= 1e6 ? `${(n / 1e6).toFixed(1)} M/s` : n >= 1e4 ? `${(n / 1e3).toFixed(0)} k/s` : `${count(n)}/s`;
const ms = (n) => `${n >= 100 ? n.toFixed(0) : n.toFixed(2)} ms`;
const copy = (columns) => columns.map((c) => c.slice());

export function Losses({ trace, live, theme }) {
	useStore();
	const s = rates.get(trace.id);
	const data = useMemo(() => s ? copy(s.columns) : null, [s?.columns[0].length, s?.columns[0].at(-1)]);
	const all = trace.records + trace.lost;
	return html`<${Facts} items=${[
			["Records", count(trace.records)],
			["Lost", trace.lost ? html`<span class="warn">▲ ${count(trace.lost)}</span> (${(100 * trace.lost / Math.max(1, all)).toFixed(3)} %)` : "none"],
			["Ring was full", count(trace.lost_ring)], ["Failed its check", count(trace.lost_torn)], ["Readers were slow", count(trace.lost_readers)],
			["Not seen by this page", count(live.missed(trace))],
			live.skipped > 0 && ["Older, not read", count(live.skipped)],
			trace.lost_captures > 0 && ["Pieces of arguments", count(trace.lost_captures)],
			trace.syscalls?.forgotten > 0 && ["Calls forgotten, too many at once", count(trace.syscalls.forgotten)],
			trace.unheeded > 0 && ["Functions without all that was asked", count(trace.unheeded)],
			trace.missed?.length > 0 && ["Missed, as the guest's own tracing had the functions", trace.missed.join(" and ")],
			trace.graph && ["Returns not followed", count(trace.graph.lost_frames)]]} />
		${data && data[0].length > 1 ? html`
			<${Chart} title="Records" theme=${theme} data=${[data[0], data[1]]} unit=${perSecond}
				lines=${[{ label: "drained", colour: "--accent" }]} />
			<${Chart} title="Losses" theme=${theme} data=${[data[0], data[2], data[3], data[4]]} unit=${perSecond}
				lines=${[{ label: "a ring was full", colour: "--warn" }, { label: "check failed", colour: "--bad" }, { label: "slow readers", colour: "--muted" }]} />`
		: html`<${Empty} title=${trace.state === "running" ? "Watching" : "Not watched while it ran"}>Rates are drawn from what this page saw, once a second.<//>`}`;
}

export function Windows({ guest, theme }) {
	useStore();
	const s = windows.get(guest.name), w = guest.windows;
	const data = useMemo(() => s ? copy(s.columns) : null, [s?.columns[0].length, s?.columns[0].at(-1)]);
	return html`<p class="lead spaced">While call sites change, all vCPUs of the guest stand still for a moment. This is what tracing cost it.</p>
		<${Facts} items=${[["Stop windows", count(w.count)], ["Longest", duration(w.max_ns)], ["Last", duration(w.last_ns)], ["All together", duration(w.total_ns)],
			["Mean", w.count ? duration(w.total_ns / w.count) : "-"], ["Memory lent", guest.agent.loaded ? `${(guest.agent.bytes / 1048576).toFixed(1)} MiB` : "none"]]} />
		${data && data[0].length > 1 ? html`
			<${Chart} title="Stop windows" theme=${theme} data=${[data[0], data[1]]}
				unit=${(n) => Number.isInteger(n) ? count(n) : ""} lines=${[{ label: "each second", colour: "--accent" }]} />
			<${Chart} title="Mean length" theme=${theme} data=${[data[0], data[2]]} unit=${ms}
				lines=${[{ label: "of those", colour: "--accent", points: true }]} />
			<${Chart} title="Share of time stopped" theme=${theme} data=${[data[0], data[3]]}
				unit=${(n) => `${n.toFixed(2)} %`} lines=${[{ label: "all vCPUs", colour: "--accent" }]} />`
		: html`<${Empty} title="Watching">Once a second; start or stop a trace to see windows.<//>`}`;
}
