// SPDX-License-Identifier: Apache-2.0
// What happened to the daemon, its guests and traces, newest first.

import { clean, count, plural } from "../format.js";
import { linkGuest, linkTrace, state } from "../store.js";
import { Empty, html } from "./kit.js";

const WORDS = {
	daemon_started: "The daemon started", daemon_stopping: "The daemon is stopping", guests_restored: "Guests of an earlier run were put back",
	guest_attached: "Attached", guest_detached: "Detached", guest_gone: "The virtual machine is gone", guest_rebooted: "The guest rebooted",
	trace_started: "Trace started", trace_changed: "Trace changed", trace_stopped: "Trace stopped", trace_failed: "Trace failed",
	trace_deleted: "Trace deleted", records_lost: "Records were lost",
	captures_lost: "Pieces of arguments were lost", vmm_silent: "The virtual machine's monitor does not answer", vmm_answers: "It answers again",
	functions_unheeded: "Functions traced without all that was asked", tasks_missed: "Some tasks were missed", marker: "Marker",
};
const BAD = new Set(["guest_gone", "guest_rebooted", "trace_failed", "records_lost", "captures_lost", "functions_unheeded", "tasks_missed", "vmm_silent"]);

function more(e) {
	return [
		e.version && `version ${e.version}`, e.target, e.tracer, e.functions !== undefined && e.type === "trace_started" && plural(e.functions, "function"),
		e.count !== undefined && count(e.count), e.missed?.join(" and "), e.records !== undefined && e.type !== "trace_started" && plural(e.records, "record"),
		e.lost ? `${count(e.lost)} lost` : null, e.verified === true && "all is as before", e.verified === false && "not verified", e.code, e.detail, e.text,
	].filter(Boolean).map((s) => clean(s, 300)).join(", ");
}

export function EventsView() {
	const list = state.events.slice(-200).reverse();
	return html`<header class="page-head"><h1>Events</h1>
		<p class="lead">What happened to the daemon, its guests and traces, whoever did it.</p></header>
		${list.length ? html`<div class="scroll-x"><table class="plain"><thead><tr><th scope="col">Time</th>
			<th scope="col">What</th><th scope="col">Guest</th><th scope="col">Trace</th>
			<th scope="col">More</th></tr></thead>
			<tbody>${list.map((e) => html`<tr key=${e.seq ?? e.after}>
				<td class="mono">${e.time ? new Date(e.time).toLocaleTimeString("en-GB") : ""}</td>
				<td>${BAD.has(e.type) ? html`<span class="warn">
					<span aria-hidden="true">▲</span> ${WORDS[e.type]}</span>` : e.type === "lost" ? html`<span class="warn">${count(e.count)} events were missed</span>` : WORDS[e.type] ?? clean(e.type, 60)}</td>
				<td>${e.guest && html`<a href=${linkGuest(e.guest)}>${e.guest}</a>`}</td>
					<td>${e.trace && html`<a href=${linkTrace(e.trace)}>${e.trace}</a>`}</td>
					<td>${more(e)}</td></tr>`)}</tbody></table></div>`
			: html`<${Empty} title="Nothing happened yet" />`}`;
}
