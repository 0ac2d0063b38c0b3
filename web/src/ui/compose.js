// SPDX-License-Identifier: Apache-2.0
// The form that starts a trace, with what it will match while it is typed and the same thing for a terminal.

import { useMemo, useState } from "preact/hooks";
import { open, seg, send } from "../api.js";
import { DEFAULTS, body, commandLine, curl, mistakes, onlyApi } from "../command.js";
import { count, plural } from "../format.js";
import { choose, functionsOf } from "../functions.js";
import { words } from "../glob.js";
import { changed, go, linkTrace, refresh } from "../store.js";
import { Button, Check, CopyButton, Failure, Field, Icon, html } from "./kit.js";

const TRACERS = [
	["function_graph", "Calls with times", "function_graph"], ["function", "Calls", "function"], ["syscalls", "System calls", "syscalls"],
];
const PRESETS = {
	function_graph: [["Files", "vfs_* do_sys_open* do_filp_open path_openat"], ["Network", "tcp_* udp_* ip_* sock_*"], ["Block I/O", "blk_* submit_bio* bio_*"],
		["Memory", "handle_mm_fault do_anonymous_page filemap_* __alloc_pages*"], ["Processes", "do_exit copy_process exec_binprm do_wait* wake_up_new_task"]],
	syscalls: [["Files", "%file"], ["Descriptors", "%desc"], ["Network", "%network"], ["Processes", "%process"], ["Memory", "%memory"], ["Signals", "%signal"]],
};
PRESETS.function = PRESETS.function_graph;

const drafts = new Map(); // guest -> form, so that it is still there when one comes back

function Matches({ guest, form }) {
	const f = functionsOf(guest.name, guest.attached, changed);
	const found = useMemo(() => f.list && choose(f.list, words(form.filter), words(form.notrace)), [f.list, form.filter, form.notrace]);
	if (f.problem)
		return html`<p class="hint">The list of functions did not come: ${f.problem.message}</p>`;
	if (!found)
		return html`<p class="hint"
			role="status">Fetching the list of functions: ${count(f.got)} of ${count(guest.functions)}</p>`;
	const left = found.matched - found.traceable, alone = left ? `; ${count(left)} more must be left alone` : "";
	return html`<div class="matches" role="status">
		<span class=${found.traceable ? "matches-count" : "matches-count warn"}>
			${plural(found.traceable, "function")}</span>
		<span class="faint">of ${count(guest.functions)}${words(form.filter).length ? "" : ": all that can be traced"}${alone}</span>
		${found.none.length > 0 && html`<span class="warn">
			<${Icon} name="warn" /> nothing matches ${found.none.slice(0, 3).join(", ")}</span>`}
		${words(form.filter).length > 0 && found.sample.length > 0 && html`<span class="sample mono">
			${found.sample.join("  ")}${found.traceable > found.sample.length ? " …" : ""}</span>`}
	</div>`;
}

function More({ form, set, bad }) {
	const graph = form.tracer === "function_graph", text = (id, label, hint, more = {}) => html`<${Field} id=${`f-${id}`} label=${label} hint=${hint} mistake=${bad[id]}>
		<input id=${`f-${id}`} class="mono" spellcheck="false" autocomplete="off" value=${form[id]}
			aria-describedby=${`f-${id}-hint`} aria-invalid=${bad[id] ? "true" : null}
			onInput=${(e) => set({ [id]: e.target.value })} ...${more} /><//>`;
	return html`<div class="more">
		${form.tracer !== "syscalls" && text("notrace", "Leave out", "globs, as ext4_es_*")}
		${text("pids", "Only these tasks", "pids of the guest")}
		${graph && text("graph", "Only inside of", "functions that a tree begins with")}
		${graph && text("graph_notrace", "Not inside of", "nor what is called there")}
		${graph && text("max_graph_depth", "Levels", "0 or nothing: all", { inputmode: "numeric" })}
		${graph && text("threshold", "Only calls of at least", "50us, 2ms")}
		<${Field} id="f-mode" label="When a ring is full" hint="either way losses are counted">
			<select id="f-mode" value=${form.mode} onChange=${(e) => set({ mode: e.target.value })}
			aria-describedby="f-mode-hint">
			<option value="discard">lose new records</option>
				<option value="overwrite">overwrite the oldest</option></select><//>
		${text("buffer_records", "Records to keep", "for readers, in the daemon", { inputmode: "numeric" })}
		<fieldset class="checks"><legend>Also</legend>
			${form.tracer === "syscalls" && html`<${Check} label="Only calls that failed" checked=${form.failed}
				onChange=${(failed) => set({ failed })} />`}
			${form.tracer !== "syscalls" && html`<${Check} label="Arguments" checked=${form.args}
				onChange=${(args) => set({ args })} />`}
			${graph && html`<${Check} label="Return values" checked=${form.retval}
				onChange=${(retval) => set({ retval })} />
			<${Check} label="Interrupts" checked=${form.irqs} onChange=${(irqs) => set({ irqs })} />
			<${Check} label="Time asleep counts" checked=${form.sleep_time}
				onChange=${(v) => set({ sleep_time: v })} />`}
			${form.tracer !== "syscalls" && html`<${Check} label="Task switches" checked=${form.switches} onChange=${(switches) => set({ switches })} />`}
		</fieldset>
	</div>`;
}

function Terminal({ guest, request }) {
	const [which, show] = useState("hvftrace");
	const left = onlyApi(request), text = which === "curl" ? curl(location.origin, guest.name, request) : commandLine(location.origin, guest.name, request);
	return html`<section class="terminal" aria-label="The same in a terminal">
		<div class="terminal-bar">
			<div class="segments" role="group" aria-label="The same in a terminal">
				${["hvftrace", "curl"].map((w) => html`<button type="button" aria-pressed=${which === w}
				onClick=${() => show(w)}>${w}</button>`)}</div>
			<span class="grow"></span><${CopyButton} text=${text} what="the command" />
		</div>
		<pre tabindex="0" aria-label="Command"><code>${text}</code></pre>
		${which === "hvftrace" && left.length > 0 && html`<p class="hint">
			${left.join(" and ")}: only by the API, so not in this line.</p>`}
	</section>`;
}

export function Compose({ guest, busy }) {
	const [form, setForm] = useState(drafts.get(guest.name) ?? DEFAULTS);
	const [problem, setProblem] = useState(null);
	const [starting, setStarting] = useState(false);
	const set = (change) => {
		const next = { ...form, ...change };
		drafts.set(guest.name, next);
		setForm(next);
	};
	const bad = mistakes(form), wrong = Object.keys(bad).length > 0;
	const request = body(form);
	const running = busy?.state === "running" ? busy : null, old = busy && !running ? busy : null;
	const start = async (e) => {
		e.preventDefault();
		setProblem(null);
		setStarting(true);
		try {
			if (old)
				await open("DELETE", `/v1/traces/${seg(old.id)}${old.state === "failed" ? "?force=true" : ""}`);
			const t = await send("POST", `/v1/guests/${seg(guest.name)}/traces`, request);
			await refresh();
			go(linkTrace(t.id));
		} catch (p) {
			setProblem(p);
		}
		setStarting(false);
	};
	return html`<form class="compose" onSubmit=${start} aria-label="Start a trace">
		<div class="compose-form">
			<fieldset class="tracers"><legend class="hidden">What to record</legend>
				${TRACERS.map(([id, label, name]) => html`<label class=${form.tracer === id ? "is-chosen" : ""}>
					<input type="radio" name="tracer" value=${id} checked=${form.tracer === id}
						onChange=${() => set({ tracer: id, filter: (id === "syscalls") === (form.tracer === "syscalls") ? form.filter : "" })} />
					<span>${label}</span><code>${name}</code></label>`)}
			</fieldset>
			<${Field} id="f-filter" label=${form.tracer === "syscalls" ? "System calls" : "Functions"}
				hint=${form.tracer === "syscalls" ? "Names, globs, classes as %file; ! before one: not those. Nothing: all." : "Names and globs: vfs_*, tcp_v[46]_*, :mod:ext4. Nothing: all."}>
				<input id="f-filter" class="mono wide" spellcheck="false" autocomplete="off" autocapitalize="off"
					placeholder=${form.tracer === "syscalls" ? "%file !close" : "vfs_* do_sys_open*"}
					value=${form.filter} onInput=${(e) => set({ filter: e.target.value })} aria-describedby="f-filter-hint" /><//>
			<div class="presets" role="group" aria-label="Examples">${PRESETS[form.tracer].map(([label, globs]) =>
				html`<button type="button" class="chip" aria-pressed=${form.filter === globs}
					onClick=${() => set({ filter: form.filter === globs ? "" : globs })}>${label}</button>`)}</div>
			${form.tracer !== "syscalls" && html`<${Matches} guest=${guest} form=${form} />`}
			<details class="options"><summary>Options</summary>
				<${More} form=${form} set=${set} bad=${bad} /></details>
			${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}
			<div class="actions">
				<button type="submit" class="button primary" disabled=${starting || wrong || !!running}
					aria-describedby=${busy ? "busy" : null}>
					<${Icon} name="play" />${starting ? "Arming call sites…" : "Start trace"}</button>
				${busy && html`<span id="busy" class="hint">
					<a href=${linkTrace(busy.id)}>
					${busy.id}</a> ${running ? "runs: one trace at a time a guest." : "is deleted then, with its records: one trace at a time a guest."}</span>`}
				${wrong && html`<span class="mistake">Some options need a look.</span>`}
			</div>
		</div>
		<${Terminal} guest=${guest} request=${request} />
	</form>`;
}
