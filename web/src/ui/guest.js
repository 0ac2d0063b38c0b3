// SPDX-License-Identifier: Apache-2.0
// One guest: what it is, a trace to start, its functions, and what tracing cost it.

import { useMemo, useRef, useState } from "preact/hooks";
import { open, seg } from "../api.js";
import { bytes, clean, count, duration, plural, since } from "../format.js";
import { forgetFunctions, functionsOf, modules } from "../functions.js";
import { any } from "../glob.js";
import { changed, go, linkGuest, linkTrace, refresh, state } from "../store.js";
import { Windows } from "./charts.js";
import { Compose } from "./compose.js";
import { ConsoleView } from "./console.js";
import { Button, Empty, Facts, Failure, html, Loading, State, Tabs } from "./kit.js";
import { Virtual } from "./virtual.js";

function FunctionsView({ guest }) {
	const f = functionsOf(guest.name, guest.attached, changed);
	const [text, setText] = useState("");
	const [mod, setMod] = useState("*");
	const [only, setOnly] = useState("");
	const out = useRef([]);
	const mods = useMemo(() => f.list ? modules(f.list) : [], [f.list]);
	const rows = useMemo(() => {
		if (!f.list)
			return out.current;
		const t = text.trim(), test = any(t ? [/[*?[\\]|:mod:/.test(t) ? t : `*${t}*`] : []);
		out.current = f.list.filter((x) => test(x) && (mod === "*" || x.mod === mod) && (!only || x.state === only));
		return out.current;
	}, [f.list, text, mod, only]);
	if (f.problem)
		return html`<${Failure} problem=${f.problem} />`;
	if (!f.list)
		return html`<${Loading} what=${`Fetching functions: ${count(f.got)} of ${count(guest.functions)}`} />`;
	const inMod = (name) => rows.reduce((n, x) => n + (x.mod === name ? 1 : 0), 0);
	const words = { traceable: "", disabled: "never traced", in_use: "in use by the guest" };
	return html`<div class="toolbar">
			<label class="search"><span class="hidden">Search functions: a part of the name, or a glob</span>
				<input type="search" class="mono" spellcheck="false" placeholder="name, vfs_*, :mod:ext4"
				value=${text} onInput=${(e) => setText(e.target.value)} /></label>
			<label class="inline">Module <select value=${mod} onChange=${(e) => setMod(e.target.value)}>
				<option value="*">all</option>${mods.map(([name, n]) => html`<option value=${name}>
				${name || "the kernel itself"} (${count(n)})</option>`)}</select></label>
			<label class="inline">State <select value=${only} onChange=${(e) => setOnly(e.target.value)}>
				<option value="">any</option><option value="traceable">can be traced</option>
				<option value="in_use">in use</option><option value="disabled">never</option></select></label>
			<span class="grow"></span>
			<span role="status"><strong>
				${count(rows.length)}</strong> <span class="faint">of ${count(f.list.length)}${mod === "*" && mods.length > 1 ? `; ${count(inMod(""))} in the kernel itself` : ""}</span></span>
			<${Button} kind="quiet small"
				onClick=${() => { forgetFunctions(guest.name, guest.attached); changed(); }}>Fetch again<//>
		</div>
		${rows.length ? html`<${Virtual} id="functions" label="Functions" columns=${4} n=${rows.length}
			keyOf=${(i) => i} template="var(--function-columns)"
			head=${html`<span role="columnheader">Function</span><span role="columnheader">Module</span>
				<span role="columnheader">Address</span><span role="columnheader">Can be traced</span>`}
			row=${(i) => { const x = rows[i]; return html`<span role="gridcell" class="clip fn">${x.shown}</span>
				<span role="gridcell" class="faint clip">${x.mod}</span>
				<span role="gridcell" class="faint">${x.ip}</span>
				<span role="gridcell" class=${words[x.state] ? "warn clip" : "faint"}>
				${words[x.state] || "yes"}</span>`; }} />`
			: html`<${Empty} title="No function of that name">Try a glob, as <code>*${text.trim().replace(/\*/g, "")}*</code>, or another module.<//>`}`;
}

function Details({ guest }) {
	return html`<${Facts} items=${[["Kernel", clean(guest.release, 80)], ["Target", html`<code>
		${clean(guest.target, 300)}</code>`], ["VMM", html`process ${guest.vmm_pid}, ${guest.accel}`],
		["vCPUs", guest.vcpus], ["RAM", bytes(guest.ram_bytes)], ["Symbols", count(guest.symbols)], ["Functions", count(guest.functions)], ["Can be traced", count(guest.traceable)],
		["In use by the guest", count(guest.in_use)], ["Modules", count(guest.modules)], ["KASLR offset", html`<code>${guest.kaslr_offset}</code>`], ["Page table levels", guest.paging_levels],
		["Found out in", duration(guest.find_ns)], ["Memory lent in", guest.lend_ns ? duration(guest.lend_ns) : "not yet"], ["Build id", html`<code>${clean(guest.build_id, 80)}</code>`]]} />
		<p class="mono faint wrap">${clean(guest.banner, 400)}</p>`;
}

function Detach({ guest }) {
	const [asked, ask] = useState(false);
	const [problem, setProblem] = useState(null);
	const [busy, setBusy] = useState(false);
	const runs = state.traces?.some((t) => t.guest === guest.name && t.state === "running");
	const detach = async () => {
		setBusy(true);
		try {
			await open("DELETE", `/v1/guests/${seg(guest.name)}${runs ? "?force=true" : ""}`);
			go("#/");
			await refresh();
		} catch (e) {
			setProblem(e);
			await refresh();
		}
		setBusy(false);
		ask(false);
	};
	return html`${asked ? html`<span class="ask" role="group" aria-label="Detach?">
		<span>${runs ? "Its trace is stopped first. " : ""}Everything is put back.</span>
			<${Button} kind="danger small" onClick=${detach} disabled=${busy}>
				${busy ? "Putting back…" : `Detach ${guest.name}`}<//>
				<${Button} kind="quiet small" onClick=${() => ask(false)}>Keep<//></span>`
		: html`<${Button} kind="quiet" onClick=${() => ask(true)}>Detach<//>`}
		${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}`;
}

export function GuestView({ guest, view, theme }) {
	const traces = state.traces?.filter((t) => t.guest === guest.name) ?? [];
	const talks = (guest.console ?? "none") !== "none";
	const tab = ["functions", ...(talks ? ["console"] : []), "windows", "details"].includes(view) ? view : "trace";
	return html`<header class="page-head">
			<div class="page-title"><h1>${guest.name}</h1><${State} value=${guest.state} />
				<span class="grow"></span><${Detach} key=${guest.name} guest=${guest} /></div>
			<p class="sub"><span>Linux ${clean(guest.release, 80)}</span>
				<span>${plural(guest.vcpus, "vCPU")} on ${guest.accel === "unknown" ? "an unknown accelerator" : guest.accel.toUpperCase()}</span><span>${bytes(guest.ram_bytes)}</span>
				<span>${count(guest.traceable)} functions can be traced</span>
					<span>${guest.armed ? html`<strong>
					${count(guest.armed)} armed</strong>` : "nothing armed"}</span>
					<span>attached ${since(guest.attached)} ago</span></p>
		</header>
		<${Tabs} label=${`Views of ${guest.name}`} current=${tab}
			items=${[["trace", "Trace", linkGuest(guest.name)], ["functions", "Functions", linkGuest(guest.name, "functions")],
			...(talks ? [["console", "Console", linkGuest(guest.name, "console")]] : []),
			["windows", "Stop windows", linkGuest(guest.name, "windows"), guest.windows.count ? count(guest.windows.count) : null], ["details", "Details", linkGuest(guest.name, "details")]]} />
		<div class="view" key=${tab}>
		${guest.state === "gone" && html`<${Failure} problem=${{ doc: { detail: "the virtual machine is gone", hint: "detach it here; attach it again once it runs", code: "vmm.gone" } }} />`}
		${tab === "trace" && html`
			<${Compose} key=${guest.name} guest=${guest} busy=${traces.find((t) => !t.snapshot_of)} />
			${traces.length > 0 && html`<h2>Traces of this guest</h2><div class="scroll-x"><table class="plain">
				<thead><tr><th scope="col">Trace</th><th scope="col">State</th><th scope="col">Tracer</th>
				<th scope="col">Functions</th><th scope="col" class="num">Records</th>
				<th scope="col" class="num">Lost</th></tr></thead>
				<tbody>${traces.map((t) => html`<tr><td><a href=${linkTrace(t.id)}>${t.id}</a></td><td>
					<${State} value=${t.state} /></td><td class="mono">${t.tracer}</td>
					<td class="mono clip">${clean(t.filter.join(" "), 120) || "all"}</td>
					<td class="num">${count(t.records)}</td>
					<td class="num">${t.lost ? html`<span class="warn">▲ ${count(t.lost)}</span>` : "0"}</td></tr>`)}</tbody></table></div>`}`}
		${tab === "functions" && html`<${FunctionsView} guest=${guest} />`}
		${tab === "console" && html`<${ConsoleView} key=${guest.name} guest=${guest} />`}
		${tab === "windows" && html`<${Windows} guest=${guest} theme=${theme} />`}
		${tab === "details" && html`<${Details} guest=${guest} />`}
		</div>`;
}
