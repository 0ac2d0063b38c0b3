// SPDX-License-Identifier: Apache-2.0
// What can be done with a trace while it runs: pause it, switch its tracer, change its filters, keep a copy, mark a moment.

import { useState } from "preact/hooks";
import { seg, send } from "../api.js";
import { words } from "../glob.js";
import { go, linkTrace } from "../store.js";
import { Icon, Menu, html } from "./kit.js";

export function Change({ trace, busy, act }) {
	const [filter, setFilter] = useState(trace.filter.join(" "));
	const [text, setText] = useState("");
	const path = `/v1/traces/${seg(trace.id)}`, other = trace.tracer === "function" ? "function_graph" : "function";
	const patch = (what, body) => act(what, () => send("PATCH", path, body));
	const item = (icon, label, onClick) => html`<li>
		<button type="button" class="menu-item" disabled=${!!busy} onClick=${onClick}>
		<span><${Icon} name=${icon} /> ${label}</span></button></li>`;
	const apply = (e) => {
		e.preventDefault();
		patch("filter", { filter: words(filter) });
	};
	const mark = (e) => {
		e.preventDefault();
		act("mark", async () => {
			await send("POST", `${path}/markers`, { text: text.trim() });
			setText("");
		});
	};
	return html`<${Menu} icon="sliders" label=${busy ? "Changing…" : "Change"}>
		<ul>
			${trace.tracing_on === false ? item("play", "Go on recording", () => patch("go on", { tracing_on: true }))
				: item("pause", "Pause recording", () => patch("pause", { tracing_on: false }))}
			${trace.tracer !== "syscalls" && item("swap", `To ${other}`, () => patch("switch", { tracer: other }))}
			${item("copy", "Keep a snapshot", () => act("snapshot", async () => go(linkTrace((await send("POST", `${path}/snapshot`, {})).id))))}
		</ul>
		<form class="menu-form" onSubmit=${apply}>
			<label for="c-filter">${trace.tracer === "syscalls" ? "System calls" : "Functions"}</label>
			<div><input id="c-filter" class="mono" spellcheck="false" autocomplete="off" value=${filter}
				onInput=${(e) => setFilter(e.target.value)} />
				<button type="submit" class="button" disabled=${!!busy}>Apply</button></div></form>
		<form class="menu-form" onSubmit=${mark}><label for="c-mark">Mark this moment</label>
			<div><input id="c-mark" maxlength="200" autocomplete="off" required value=${text}
				onInput=${(e) => setText(e.target.value)} />
				<button type="submit" class="button" disabled=${!!busy || !text.trim()}>Mark</button></div></form>
	<//>`;
}
