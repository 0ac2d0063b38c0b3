// SPDX-License-Identifier: Apache-2.0
// Parts that all views use.

import { h, Fragment } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import htm from "htm";
import { subscribe } from "../store.js";
import { REDRAW_MS } from "../limits.js";

export const html = htm.bind(h);
export { Fragment };

/** draw again whenever the store changed */
export function useStore() {
	const [, set] = useState(0);
	useEffect(() => subscribe(() => set((n) => n + 1)), []);
}

/** draw again while `live` brings something, a few times a second */
export function useLive(live, every = REDRAW_MS) {
	const [version, set] = useState(live.version);
	useEffect(() => {
		const look = () => set(live.version);
		look();
		const timer = setInterval(look, every);
		return () => clearInterval(timer);
	}, [live, every]);
	return version;
}

/** [ref, width, height] of an element, kept up to date; the element may come and go */
export function useSize(initial = [800, 400]) {
	const [size, set] = useState(initial);
	const ref = useMemo(() => {
		let observer = null;
		const to = (el) => {
			observer?.disconnect();
			to.current = el;
			if (!el)
				return;
			const look = () => set((old) => old[0] === el.clientWidth && old[1] === el.clientHeight ? old : [el.clientWidth, el.clientHeight]);
			observer = new ResizeObserver(look);
			observer.observe(el);
			look();
		};
		to.current = null;
		return to;
	}, []);
	return [ref, ...size];
}

const PATHS = {
	plus: "M8 3v10M3 8h10", x: "M4 4l8 8M12 4l-8 8", pause: "M5 3.5v9M11 3.5v9", sliders: "M2.5 5h7M12.5 5h1M2.5 11h1M6.5 11h7M11 3.5v3M5 9.5v3",
	copy: "M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z", stop: "M4 4h8v8H4z",
	play: "M5 3.2v9.6L12.5 8z", down: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10", warn: "M8 2.2L14.5 13.5h-13zM8 6.5v3.2M8 11.3v.6",
	ok: "M3 8.5l3.2 3.2L13 4.8", moon: "M13 9.5A5.5 5.5 0 016.5 3a5.5 5.5 0 106.5 6.5z",
	sun: "M8 5a3 3 0 110 6 3 3 0 010-6M8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8L13 13M3 13l1.2-1.2M11.8 4.2L13 3",
	auto: "M8 2a6 6 0 100 12A6 6 0 008 2zM8 2v12", search: "M7 2.5a4.5 4.5 0 110 9 4.5 4.5 0 010-9M10.5 10.5L14 14", menu: "M2 4h12M2 8h12M2 12h12",
	chevron: "M6 3.5L10.5 8 6 12.5", swap: "M3 5.5h9.5L10 3M13 10.5H3.5L6 13", trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 9h5.8l.6-9",
};

/** a drawing beside words; never the only thing that says something */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
	<path d=${PATHS[name]} /></svg>`;

export const Button = ({ icon, children, kind = "", ...rest }) =>
	html`<button type="button" class=${`button ${kind}`} ...${rest}>
		${icon && html`<${Icon} name=${icon} />`}${children}</button>`;

export function CopyButton({ text, what }) {
	const [said, say] = useState("");
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			say("Copied");
		} catch {
			say("Select and copy by hand: the browser does not allow it");
		}
		setTimeout(() => say(""), 2500);
	};
	return html`<${Button} icon=${said ? "ok" : "copy"} kind="quiet small" onClick=${copy}
		aria-label=${`Copy ${what}`}>${said || "Copy"}<//>
		<span class="hidden" role="status">${said}</span>`;
}

const MARKS = { running: "●", live: "●", stopped: "■", ended: "■", gone: "✕", failed: "✕", broken: "✕", connecting: "…", paused: "‖" };

/** a state in words, with a mark */
export const State = ({ value, label = value }) =>
	html`<span class=${`state is-${value}`}><span aria-hidden="true">${MARKS[value] ?? "○"}</span> ${label}</span>`;

/** nothing to show, and why; alone: it is all of the page */
export const Empty = ({ title, alone, children }) =>
	html`<div class="empty">${alone ? html`<h1 class="empty-title">${title}</h1>` : html`<p class="empty-title">
		${title}</p>`}${children && html`<div class="empty-text">${children}</div>`}</div>`;

export const Loading = ({ what }) => html`<p class="loading" role="status">
	<span class="spinner" aria-hidden="true"></span> ${what}</p>`;

/** a failure: what, why, what to do next */
export function Failure({ problem, onClose }) {
	const d = problem.doc ?? { detail: String(problem.message ?? problem), code: "page" };
	return html`<div class="failure" role="alert">
		<${Icon} name="warn" />
		<div class="failure-text">
			<p><strong>${d.detail}</strong>${d.address && html` <code>${d.address}</code>`}</p>
			${d.errors?.map((e) => html`<p><code>${e.pointer}</code> ${e.detail}</p>`)}
			${d.hint && html`<p>${d.hint}</p>`}
			<p class="faint">${d.code}${d.request_id && html`, request ${d.request_id}`}</p>
		</div>
		${onClose && html`<button type="button" class="button quiet small" aria-label="Dismiss" onClick=${onClose}>
			<${Icon} name="x" /></button>`}
	</div>`;
}

/** tabs that are places of the page: links, so they can be opened, kept and gone back to */
export const Tabs = ({ label, items, current }) => html`<nav class="tabs" aria-label=${label}>
	${items.map(([id, text, href, badge]) => html`<a href=${href} aria-current=${id === current ? "page" : null}>
		${text}${badge ? html`<span class="badge">${badge}</span>` : null}</a>`)}
</nav>`;

export const Field = ({ id, label, hint, mistake, children }) => html`<div class=${`field ${mistake ? "has-mistake" : ""}`}>
	<label for=${id}>${label}</label>
	${children}
	${mistake ? html`<p class="mistake" id=${`${id}-hint`}><${Icon} name="warn" /> ${mistake}</p>`
		: hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
</div>`;

export const Check = ({ label, hint, checked, onChange }) => html`<label class="check">
	<input type="checkbox" checked=${checked} onChange=${(e) => onChange(e.target.checked)} />
	<span>${label}${hint && html`<span class="hint">${hint}</span>`}</span>
</label>`;

/** a box that opens under its button; Escape, or leaving it, closes it */
export function Menu({ icon, label, children }) {
	const box = useRef(null);
	const leave = (e) => {
		const escape = e.type === "keydown" && e.key === "Escape";
		if (escape)
			box.current.querySelector("summary").focus();
		if (escape || (e.type !== "keydown" && !box.current.contains(e.relatedTarget)))
			box.current.open = false;
	};
	return html`<details class="menu" ref=${box} onKeyDown=${leave} onFocusOut=${leave}>
		<summary class="button quiet"><${Icon} name=${icon} />${label}</summary>
			<div class="menu-box">${children}</div></details>`;
}

/** facts in a row: [term, value, more] */
export const Facts = ({ items }) => html`<dl class="facts">${items.filter(Boolean).map(([term, value, kind]) =>
	html`<div class=${kind ?? ""}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
