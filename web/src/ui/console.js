// SPDX-License-Identifier: Apache-2.0
// A guest's console: what it says as plain text, and a line to type, for who may.

import { useEffect, useRef, useState } from "preact/hooks";
import { open, readBytes, seg } from "../api.js";
import { ConsoleText } from "../console.js";
import { count } from "../format.js";
import { CONSOLE_TAIL, MAX_TYPED, REDRAW_MS } from "../limits.js";
import { Button, Empty, Failure, html } from "./kit.js";

const pathOf = (guest) => `/v1/guests/${seg(guest)}/console`;

/** the text of a guest's console, while it is looked at; again() begins anew */
function useConsole(guest) {
	const [text] = useState(() => new ConsoleText());
	const [round, setRound] = useState(0);
	const [, setDrawn] = useState(0);
	const [status, setStatus] = useState({ follows: true, problem: null });
	useEffect(() => {
		const stop = new AbortController();
		let dirty = false;
		const timer = setInterval(() => {
			if (dirty)
				setDrawn((n) => n + 1);
			dirty = false;
		}, REDRAW_MS);
		text.clear();
		setStatus({ follows: true, problem: null });
		readBytes(`${pathOf(guest)}?follow=true&tail=${CONSOLE_TAIL}`, { signal: stop.signal, onText: (piece) => {
			text.add(piece);
			dirty = true;
		} }).then(() => setStatus({ follows: false, problem: null }),
			(problem) => problem.name === "AbortError" || setStatus({ follows: false, problem }))
			.then(() => setDrawn((n) => n + 1));
		return () => {
			stop.abort();
			clearInterval(timer);
		};
	}, [guest, round]);
	return { text, ...status, again: () => setRound((n) => n + 1) };
}

/** what is typed, with its end as the key Enter sends it; keys that a line has none for are buttons */
function Typing({ guest }) {
	const [line, setLine] = useState("");
	const [problem, setProblem] = useState(null);
	const [busy, setBusy] = useState(false);
	const [why, setWhy] = useState("asking"); // not to type; null: one may
	useEffect(() => { // nothing typed tells whether one may
		let gone = false;
		open("POST", pathOf(guest), { bytes: new Uint8Array(0) }).then(() => null, (e) => e.message)
			.then((answer) => gone || setWhy(answer));
		return () => { gone = true; };
	}, [guest]);
	const type = async (what) => {
		setBusy(true);
		try {
			await open("POST", pathOf(guest), { bytes: new TextEncoder().encode(what) });
			setProblem(null);
			return true;
		} catch (e) {
			setProblem(e);
			return false;
		} finally {
			setBusy(false);
		}
	};
	const submit = async (e) => {
		e.preventDefault();
		if (await type(`${line}\r`))
			setLine("");
	};
	if (why !== null)
		return why === "asking" ? null : html`<p class="hint">Only shown: ${why}</p>`;
	return html`<form class="toolbar console-input" onSubmit=${submit}>
			<label class="search"><span class="hidden">Type at the console</span>
				<input type="text" class="mono" autocomplete="off" autocapitalize="off" spellcheck="false" maxlength=${MAX_TYPED}
				placeholder="a line for the guest" value=${line} onInput=${(e) => setLine(e.target.value)} /></label>
			<${Button} type="submit" kind="small" disabled=${busy}>Send<//>
			<${Button} type="button" kind="quiet small" disabled=${busy} onClick=${() => type("\u0003")}>Ctrl-C<//>
			<${Button} type="button" kind="quiet small" disabled=${busy} onClick=${() => type("\u0004")}>Ctrl-D<//>
		</form>
		${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}`;
}

export function ConsoleView({ guest }) {
	const c = useConsole(guest.name);
	const box = useRef(null);
	const atEnd = useRef(true); // who has scrolled up is left there
	useEffect(() => {
		if (box.current && atEnd.current)
			box.current.scrollTop = box.current.scrollHeight;
	});
	const onScroll = (e) => {
		atEnd.current = e.target.scrollHeight - e.target.scrollTop - e.target.clientHeight < 8;
	};
	if (c.problem)
		return html`<${Failure} problem=${c.problem} /><${Button} kind="quiet" onClick=${c.again}>Try again<//>`;
	const text = c.text.text();
	return html`<div class="toolbar"><span role="status">${c.follows ? "Following" : "It has ended"}${c.text.dropped
			? html` <span class="faint">${count(c.text.dropped)} older lines are not shown</span>` : ""}</span>
			<span class="grow"></span>${!c.follows && html`<${Button} kind="quiet small" onClick=${c.again}>Show again<//>`}</div>
		${text ? html`<pre class="console" ref=${box} tabindex="0" role="region" aria-label="What the guest says" onScroll=${onScroll}>${text}</pre>`
			: html`<${Empty} title=${c.follows ? "Nothing was said yet" : "Nothing was said"} />`}
		${guest.console === "write" ? html`<${Typing} key=${guest.name} guest=${guest.name} />`
			: html`<p class="hint">Only shown: its virtual machine takes nothing typed.</p>`}`;
}
