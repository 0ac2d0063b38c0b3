// SPDX-License-Identifier: Apache-2.0
// Records as they came, system calls, and the profile: the views that are tables.

import { useMemo, useRef, useState } from "preact/hooks";
import { count, duration, mark, percent, plural, stamp } from "../format.js";
import { KINDS } from "../records.js";
import { Check, Empty, html, useLive } from "./kit.js";
import { Virtual } from "./virtual.js";

const col = (name, cls = "") => html`<span role="columnheader" class=${cls}>${name}</span>`;

function recordWords(live, n) {
	const r = live.records, i = n & r.mask, kind = KINDS[r.kind[i]], fn = live.names.text(r.fn[i]), note = r.notes.get(n) ?? "";
	const pad = "\u00a0\u00a0".repeat(Math.min(r.depth[i], 30));
	switch (kind) {
	case "lost":
		return html`<span class="warn">▲ ${count(+note)} records lost here</span>`;
	case "marker":
		return html`<strong>◆ ${note}</strong>`;
	case "tracer":
		return html`<span class="faint">the trace was switched to</span> ${fn}`;
	case "switch":
		return html`<span class="faint">switch</span> ${note}`;
	case "graph_entry":
		return html`${pad}<span class="fn">${fn}</span><span class="faint">${note || "()"} {</span>`;
	case "graph_return":
		return html`${pad}<span class="faint">}</span> <span class="faint">/* ${fn}${note} */</span> ${duration(r.dur[i])}${mark(r.dur[i]) && html` <span class="mark">${mark(r.dur[i])}</span>`}`;
	case "graph_never":
		return html`${pad}<span class="fn">${fn}</span> <span class="faint">never returns</span>`;
	case "syscall":
		return html`<span class="fn">${fn}</span><span class="faint">${note}</span>`;
	default:
		return html`<span class="fn">${fn}</span>
			<span class="faint">${note} ← ${live.names.text(r.parent[i])}</span>`;
	}
}

export function RecordsView({ live, trace }) {
	const version = useLive(live);
	const [text, setText] = useState("");
	const out = useRef([]);
	const r = live.records, t = text.trim().toLowerCase();
	const rows = useMemo(() => {
		out.current.length = 0;
		for (let n = r.oldest; n < r.next; n++) {
			const i = n & r.mask;
			const has = (name) => live.names.text(name).toLowerCase().includes(t);
			if (!t || ["lost", "marker"].includes(KINDS[r.kind[i]]) || has(r.fn[i]) || has(r.comm[i]) || String(r.pid[i]) === t)
				out.current.push(n);
		}
		return out.current;
	}, [version, t]);
	if (r.next === 1)
		return html`<${Empty} title="No records yet">They appear as the guest makes calls.<//>`;
	const cells = (k) => {
		const n = rows[k], i = n & r.mask, kind = KINDS[r.kind[i]], lost = kind === "lost" || (kind === "marker" && !r.ts[i]);
		return html`<span role="gridcell" class="num">${lost ? "" : stamp(r.ts[i])}</span>
			<span role="gridcell" class="num faint less">${lost || kind === "marker" ? "" : r.cpu[i]}</span>
			<span role="gridcell" class="faint clip less">
				${lost || kind === "marker" || kind === "tracer" ? "" : `${live.names.text(r.comm[i])}-${r.pid[i]}`}</span><span role="gridcell" class="clip">${recordWords(live, n)}</span>`;
	};
	return html`<div class="toolbar">
			<label class="search"><span class="hidden">Filter by function, task or pid</span>
				<input type="search" placeholder="Function, task or pid" value=${text}
				onInput=${(e) => setText(e.target.value)} /></label>
			<span class="grow"></span>
				<span class="faint">${plural(rows.length, "row")}${r.oldest > 1 ? `, the newest of ${count(r.next - 1)}` : ""}</span>
		</div>
		<${Virtual} id="records" label="Records as they came" columns=${4} n=${rows.length} keyOf=${(k) => rows[k]}
			template="var(--record-columns)"
			live=${trace.state === "running"} row=${cells}
			head=${html`${col("Time", "num")}${col("CPU", "num less")}${col("Task", "less")}${col("Record")}`} />`;
}

function Summary({ live }) {
	const [key, sort] = useState("total");
	const list = [...live.syscalls.byName.values()].sort((a, b) => key === "name" ? a.name.localeCompare(b.name) : b[key] - a[key]).slice(0, 400);
	const all = list.reduce((n, s) => n + s.total, 0);
	return html`<div class="scroll-x"><table class="plain sortable">
		<caption class="hidden">System calls by name</caption>
		<thead><tr>${[["name", "Call"], ["calls", "Calls", 1], ["errors", "Errors", 1], ["total", "Time", 1], ["max", "Longest", 1]].map(([k, l, num]) =>
			html`<th scope="col" class=${num ? "num" : ""}
				aria-sort=${k === key ? k === "name" ? "ascending" : "descending" : null}>
				<button type="button" onClick=${() => sort(k)}>
				${l}</button></th>`)}<th scope="col" class="num">Share</th></tr></thead>
		<tbody>${list.map((s) => html`<tr key=${s.name}><td class="mono">${s.name}</td>
			<td class="num">${count(s.calls)}</td>
			<td class="num">${s.errors ? html`<span class="bad">${count(s.errors)}</span>` : "0"}</td>
			<td class="num">${duration(s.total)}</td><td class="num">${duration(s.max)}</td><td class="num">
				<span class="bar" style=${{ "--share": all ? s.total / all : 0 }}></span>
				<span class="share">${percent(s.total, all)}</span></td></tr>`)}</tbody>
	</table></div>`;
}

export function SyscallsView({ live, trace }) {
	const version = useLive(live);
	const [f, setF] = useState({ text: "", task: "", failed: false, least: 0 });
	const [summary, setSummary] = useState(false);
	const out = useRef([]);
	const s = live.syscalls;
	const rows = useMemo(() => s.rows(out.current, { ...f, text: f.text.trim(), task: f.task.trim() }), [version, f]);
	const set = (change) => setF({ ...f, ...change });
	if (trace.tracer !== "syscalls")
		return html`<${Empty} title="This trace does not follow system calls">Start one with the tracer syscalls.<//>`;
	if (s.next === 1)
		return html`<${Empty} title="No system calls yet">A call appears when it is over.<//>`;
	const cells = (k) => {
		const c = s.at(rows[k]);
		return html`<span role="gridcell" class="num less">${stamp(c.ts)}</span>
			<span role="gridcell" class="faint clip less">${c.comm}-${c.pid}</span>
			<span role="gridcell" class="clip"><span class="fn">${c.name}</span>
				<span class="faint">(${c.args})</span></span>
			<span role="gridcell" class="clip">${c.error ? html`<span class="bad">
				<span aria-hidden="true">✕</span> ${c.ret}</span>` : c.ret}</span>
			<span role="gridcell" class="num">${c.dur >= 0 ? duration(c.dur) : html`<span class="faint">
				${c.state}</span>`}</span>`;
	};
	return html`<div class="toolbar">
			<div class="segments" role="group" aria-label="Show">
				<button type="button" aria-pressed=${!summary} onClick=${() => setSummary(false)}>Calls</button>
				<button type="button" aria-pressed=${summary}
					onClick=${() => setSummary(true)}>Summary</button></div>
			${!summary && html`<label class="search"><span class="hidden">Call, argument or error</span>
				<input type="search" placeholder="Call, argument or error" value=${f.text}
				onInput=${(e) => set({ text: e.target.value })} /></label>
			<label class="search short"><span class="hidden">Task or pid</span>
				<input type="search" placeholder="Task or pid" value=${f.task}
				onInput=${(e) => set({ task: e.target.value })} /></label>
			<${Check} label="Failed only" checked=${f.failed} onChange=${(failed) => set({ failed })} />
			<label class="inline">At least <select value=${f.least}
				onChange=${(e) => set({ least: +e.target.value })}>
				${[[0, "any time"], [1e5, "100 µs"], [1e6, "1 ms"], [1e7, "10 ms"], [1e8, "100 ms"]].map(([v, l]) => html`<option value=${v}>${l}</option>`)}</select></label>`}
			<span class="grow"></span>
				<span class="faint">${plural(summary ? s.byName.size : rows.length, summary ? "name" : "call")}${!summary && s.oldest > 1 ? `, the newest of ${count(s.next - 1)}` : ""}</span>
		</div>
		${summary ? html`<${Summary} live=${live} />` : !rows.length ? html`<${Empty} title="No call passes these filters" />` :
			html`<${Virtual} id="syscalls" label="System calls" columns=${5} n=${rows.length}
				keyOf=${(k) => rows[k]} template="var(--syscall-columns)" live=${trace.state === "running"} row=${cells}
				head=${html`${col("Time", "num less")}${col("Task", "less")}${col("Call")}${col("Result")}${col("Took", "num")}`} />`}`;
}

export function ProfileView({ live, trace }) {
	useLive(live, 500);
	const timed = trace.tracer !== "function";
	const [key, sort] = useState(timed ? "total" : "hits");
	const [text, setText] = useState("");
	const t = text.trim().toLowerCase();
	const all = live.profile.rows(key).filter((p) => !t || live.names.text(p.fn).toLowerCase().includes(t));
	const list = all.slice(0, 300), self = all.reduce((n, p) => n + p.self, 0);
	if (!live.profile.byFn.size)
		return html`<${Empty} title="Nothing to add up yet">
			${timed ? "Calls count when they have returned." : "Calls appear as the guest makes them."}<//>`;
	const columns = [["hits", "Calls"], ...(timed ? [["total", "Total"], ["self", "Self"], ["max", "Longest"]] : [])];
	return html`<div class="toolbar"><label class="search"><span class="hidden">Find functions</span>
		<input type="search" placeholder="Function" value=${text}
		onInput=${(e) => setText(e.target.value)} /></label>
			<span class="grow"></span>
				<span class="faint">${plural(all.length, "function")}${all.length > list.length ? `, the first ${list.length} shown` : ""}</span></div>
		<div class="scroll-x"><table class="plain sortable">
			<caption class="hidden">Calls and times by function</caption>
		<thead><tr><th scope="col">Function</th>
			${columns.map(([k, l]) => html`<th scope="col" class="num" aria-sort=${k === key ? "descending" : null}>
			<button type="button" onClick=${() => sort(k)}>${l}</button></th>`)}
			${timed && html`<th scope="col" class="num">Mean</th>
				<th scope="col" class="num">Share of self</th>`}</tr></thead>
		<tbody>${list.map((p) => html`<tr key=${p.fn}><td class="mono">${live.names.text(p.fn)}</td>
			<td class="num">${count(p.hits)}</td>
			${timed && html`<td class="num">${p.returned ? duration(p.total) : "-"}</td>
				<td class="num">${p.returned ? duration(p.self) : "-"}</td>
				<td class="num">${p.returned ? duration(p.max) : "-"}</td>
				<td class="num">${p.returned ? duration(p.total / p.returned) : "-"}</td>
			<td class="num"><span class="bar" style=${{ "--share": self ? p.self / self : 0 }}></span>
				<span class="share">${percent(p.self, self)}</span></td>`}</tr>`)}</tbody></table></div>`;
}
