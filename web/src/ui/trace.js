// SPDX-License-Identifier: Apache-2.0
// One trace: its state and totals, what can be done with it, and its views.

import { useEffect, useState } from "preact/hooks";
import { download, open, seg, send } from "../api.js";
import { commandLine } from "../command.js";
import { clean, count, plural, since } from "../format.js";
import { follow, go, linkGuest, linkTrace, refresh, state, unfollow } from "../store.js";
import { Change } from "./change.js";
import { Losses } from "./charts.js";
import { FlameView } from "./flame.js";
import { Button, Failure, Menu, State, Tabs, html, useLive } from "./kit.js";
import { ProfileView, RecordsView, SyscallsView } from "./lists.js";
import { Timeline } from "./timeline.js";
import { Tree } from "./tree.js";

/** every format that there may be: [name, words, file's end, media type of the stream or null] */
const FORMATS = [
	["text", "Text, as ftrace prints it", "txt", "text/plain"], ["ndjson", "JSON, a line each", "ndjson", "application/x-ndjson"],
	["recording", "Recording, for hvftrace report", "hvf", "application/vnd.hvftrace.recording"],
	["trace.dat", "trace-cmd, KernelShark", "dat", null], ["trace.dat.v7", "trace-cmd, compressed", "v7.dat", null],
	["perfetto", "Perfetto", "pftrace", null], ["chrome", "Chrome trace events", "json", null],
	["speedscope", "speedscope", "speedscope.json", null], ["folded", "Folded stacks", "folded", null], ["ctf", "CTF, Trace Compass", "ctf.tar", null],
	["falco", "Falco's JSON", "falco.json", "application/vnd.hvftrace.falco"], ["ocsf", "OCSF events", "ocsf.json", "application/vnd.hvftrace.ocsf"],
];

function Downloads({ trace, onProblem }) {
	const [busy, setBusy] = useState("");
	const x = state.export ?? { path: null, formats: [] }, over = trace.state !== "running";
	const timed = trace.tracer !== "function";
	const offered = FORMATS.filter(([id]) => ["falco", "ocsf"].includes(id) ? trace.tracer === "syscalls" : timed || !["folded", "speedscope"].includes(id));
	const listed = x.formats.filter((f) => !FORMATS.some(([id]) => id === f)).map((f) => [f, f, f, null]);
	const save = async ([id, , end, type]) => {
		setBusy(id);
		try {
			if (x.formats.includes(id))
				await download(`${x.path.replace("{g}", seg(trace.guest)).replace("{t}", seg(trace.id))}?format=${seg(id)}`, `${trace.guest}-${trace.id}.${end}`);
			else
				await download(`/v1/traces/${seg(trace.id)}/stream`, `${trace.guest}-${trace.id}.${end}`, type);
		} catch (e) {
			onProblem(e);
		}
		setBusy("");
	};
	return html`<${Menu} icon="down" label="Download">
			${!over && html`<p class="hint">Streams are saved once the trace is stopped.</p>`}
			<ul>${[...offered, ...listed].map((f) => {
				const whole = x.formats.includes(f[0]), can = whole || f[3];
				return html`<li><button type="button" class="menu-item" data-format=${f[0]} disabled=${!(over || whole) || !can || busy}
					onClick=${() => save(f)}>${f[1]}<span class="faint">
					${busy === f[0] ? "…" : can ? `.${f[2]}` : "not by this daemon"}</span></button></li>`;
			})}</ul>
		<//>`;
}

function Actions({ trace, onProblem }) {
	const [busy, setBusy] = useState("");
	const act = async (what, fn) => {
		setBusy(what);
		try {
			await fn();
		} catch (e) {
			onProblem(e);
		}
		await refresh();
		setBusy("");
	};
	const stop = () => act("stop", () => send("POST", `/v1/traces/${seg(trace.id)}/stop`, {}));
	const remove = () => act("delete", async () => {
		await open("DELETE", `/v1/traces/${seg(trace.id)}${trace.state === "failed" ? "?force=true" : ""}`);
		unfollow(trace.id);
		go(linkGuest(trace.guest));
	});
	return html`${trace.state === "running" && html`<${Change} trace=${trace} busy=${busy} act=${act} />`}
		<${Downloads} trace=${trace} onProblem=${onProblem} />
		${trace.state === "running" ? html`<${Button} kind="primary" icon="stop" disabled=${!!busy} onClick=${stop}>
			${busy === "stop" ? "Putting back…" : "Stop"}<//>`
			: html`<${Button} kind="quiet" icon="trash" disabled=${!!busy} onClick=${remove}>
				${busy === "delete" ? "Deleting…" : "Delete"}<//>`}`;
}

function Totals({ trace, live }) {
	useLive(live, 500);
	const lost = trace.lost, missed = live.missed(trace);
	const r = trace.restore;
	return html`<dl class="totals">
		<div><dt>Records</dt><dd>${count(Math.max(trace.records, live.lastSeq))}</dd></div>
		<div class=${lost ? "is-warn" : ""}><dt>Lost</dt>
			<dd>${lost ? html`<span aria-hidden="true">▲</span> ${count(lost)}` : "0"}</dd></div>
		${missed > 0 && html`<div class="is-warn"><dt>Not seen here</dt><dd>
			<span aria-hidden="true">▲</span> ${count(missed)}</dd></div>`}
		<div><dt>Call sites</dt><dd>${count(trace.functions)}</dd></div>
		${trace.graph && html`<div><dt>Inside now</dt><dd>${count(trace.graph.inside)}</dd></div>`}
		${trace.syscalls && html`<div><dt>Calls</dt><dd>${count(trace.syscalls.calls)}</dd></div>`}
		<div><dt>${trace.state === "running" ? "Running for" : "Ran for"}</dt>
			<dd>${since(trace.started, trace.stopped ? Date.parse(trace.stopped) : Date.now())}</dd></div>
		${r && html`<div class=${r.verified ? "is-good" : "is-warn"}><dt>Put back</dt>
			<dd>${r.verified ? html`<span aria-hidden="true">✓</span> ${count(r.sites_restored)}, verified` : `${count(r.sites_restored)}, not verified`}</dd></div>`}
		<div><dt>This page</dt><dd><${State} value=${live.state} /></dd></div>
	</dl>`;
}

/** the options that are not as they are by default, in the words of the command */
function summary(trace) {
	const b = { tracer: trace.tracer, filter: trace.filter, notrace: trace.notrace, pids: trace.pids, ...trace.options };
	return clean(commandLine("", "", b).split(" ").slice(5).join(" "), 400);
}

export function TraceView({ trace, view, theme }) {
	const [problem, setProblem] = useState(null);
	const live = follow(trace);
	useEffect(() => () => unfollow(trace.id), [trace.id]);
	const syscalls = trace.tracer === "syscalls", graph = trace.graph && !syscalls;
	const tabs = [graph && ["tree", "Calls"], syscalls && ["syscalls", "System calls"], ["timeline", "Timeline"],
		["flame", "Flame graph"], ["profile", "Profile"], ["records", "Records"], ["losses", "Losses"]].filter(Boolean);
	const tab = tabs.some(([id]) => id === view) ? view : trace.tracer === "function" && !graph ? "records" : tabs[0][0];
	const View = { tree: Tree, syscalls: SyscallsView, timeline: Timeline, flame: FlameView, profile: ProfileView, records: RecordsView, losses: Losses }[tab];
	return html`<header class="page-head">
			<p class="crumbs"><a href=${linkGuest(trace.guest)}>${trace.guest}</a>
				${trace.snapshot_of && html`, a snapshot of <a href=${linkTrace(trace.snapshot_of)}>
				${trace.snapshot_of}</a>`}</p>
			<div class="page-title"><h1>${trace.id}</h1>
				<${State} value=${trace.state === "running" && trace.tracing_on === false ? "paused" : trace.state} />
				<code class="tracer">${trace.tracer}</code><span class="grow"></span>
				<${Actions} trace=${trace} onProblem=${setProblem} /></div>
			<p class="sub mono clip" title="The filters of this trace">${summary(trace) || "all functions"}</p>
			<${Totals} trace=${trace} live=${live} />
		</header>
		${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}
		${trace.error && html`<${Failure} problem=${{ doc: trace.error }} />`}
		${live.state === "broken" && live.problem && html`<${Failure} problem=${live.problem} />`}
		<${Tabs} label=${`Views of ${trace.id}`} current=${tab}
			items=${tabs.map(([id, text]) => [id, text, linkTrace(trace.id, id), id === "losses" && trace.lost ? `▲ ${count(trace.lost)}` : null])} />
		<div class=${`view view-${tab}`} key=${`${trace.id} ${tab}`}>
			<${View} live=${live} trace=${trace} theme=${theme} /></div>
		<p class="hidden" role="status">
			${trace.state === "running" ? "" : `${trace.id} ${trace.state}, ${plural(trace.records, "record")}, ${count(trace.lost)} lost`}</p>`;
}
