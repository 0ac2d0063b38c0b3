// SPDX-License-Identifier: Apache-2.0
// Calls as they nest, in the kernel's own words: durations with ftrace's marks, "f() {" that opens and closes.

import { useMemo, useRef, useState } from "preact/hooks";
import { NEVER, OPEN, UNFOLLOWED, UNSEEN } from "../calls.js";
import { count, duration, mark, plural } from "../format.js";
import { Button, Empty, html, useLive } from "./kit.js";
import { Virtual } from "./virtual.js";

const MARK_WORDS = { "$": "over 1 s", "@": "over 100 ms", "*": "over 10 ms", "#": "over 1 ms", "!": "over 100 µs", "+": "over 10 µs" };

function took(ns) {
	if (ns === OPEN)
		return html`<span class="faint">inside</span>`;
	if (ns === NEVER)
		return html`<span class="faint">never returns</span>`;
	if (ns === UNFOLLOWED)
		return html`<span class="faint" title="its return was not followed">-</span>`;
	if (ns === UNSEEN)
		return html`<span class="faint" title="its return was lost">not seen</span>`;
	const m = mark(ns);
	return html`<span class=${`took m${"+!#*@$".indexOf(m)}`} title=${m ? MARK_WORDS[m] : null}>
		<span class="mark">${m}</span>${duration(ns)}</span>`;
}

export function Tree({ live, trace }) {
	const version = useLive(live);
	const [folds, setFolds] = useState(0);
	const [text, setText] = useState("");
	const [least, setLeast] = useState(0);
	const closed = useRef(new Set());
	const out = useRef([]);
	const c = live.calls;
	const t = text.trim().toLowerCase();
	const rows = useMemo(() => {
		const only = t || least ? (n) => {
			const i = n & c.mask;
			return (!least || c.dur[i] >= least) && (!t || live.names.text(c.fn[i]).toLowerCase().includes(t) ||
				live.names.text(c.comm[i]).toLowerCase().includes(t) || String(c.pid[i]) === t);
		} : null;
		for (const n of closed.current) {
			if (!c.has(n))
				closed.current.delete(n);
		}
		return c.rows(out.current, closed.current, only);
	}, [version, folds, t, least]);
	const fold = (n, shut) => {
		if (shut)
			closed.current.add(n);
		else
			closed.current.delete(n);
		setFolds((k) => k + 1);
	};
	const kids = (n) => c.has(c.first[n & c.mask]);
	const all = (shut) => {
		closed.current.clear();
		for (let n = c.oldest; shut && n < c.next; n++) {
			if (kids(n) && !c.has(c.up[n & c.mask]))
				closed.current.add(n);
		}
		setFolds((k) => k + 1);
	};
	const onKey = (e, i) => {
		const n = rows[i];
		if (!kids(n) || !["ArrowLeft", "ArrowRight", "Enter", " "].includes(e.key))
			return false;
		fold(n, e.key === "ArrowLeft" || (e.key !== "ArrowRight" && !closed.current.has(n)));
		return true;
	};
	if (c.next === 1)
		return html`<${Empty} title=${trace.state === "running" ? "No calls yet" : "No calls were recorded"}>
			${trace.state === "running" ? "They appear as the guest makes them. Make it do something, or trace more functions." : "Nothing that was traced was called meanwhile."}<//>`;
	const cell = (i) => {
		const n = rows[i], k = n & c.mask, name = live.names.text(c.fn[k]), note = c.notes.get(n) ?? "";
		const open = kids(n), shut = closed.current.has(n), level = Math.min(c.level(n), 60);
		return html`<span role="gridcell" class="num">${took(c.dur[k])}</span>
			<span role="gridcell" class="num faint less">${c.cpu[k]}</span>
			<span role="gridcell" class="faint clip less">${live.names.text(c.comm[k])}-${c.pid[k]}</span>
			<span role="gridcell" class="clip call"
				style=${{ paddingLeft: `${(level - 1) * 14}px`, "--indent": level - 1 }}>
				${open ? html`<span class=${`fold ${shut ? "" : "is-open"}`} aria-hidden="true"
					onClick=${(e) => { e.stopPropagation(); fold(n, !shut); }}></span>` : html`<span class="fold none"></span>`}
				<span class="fn">${name}</span>
					<span class="faint">${note.startsWith("(") ? note : `()${note}`}${open ? (shut ? " { … }" : " {") : ""}</span></span>`;
	};
	return html`<div class="toolbar">
			<label class="search"><span class="hidden">Find outermost calls by function, task or pid</span>
				<input type="search" placeholder="Outermost function, task or pid" value=${text}
					onInput=${(e) => setText(e.target.value)} /></label>
			<label class="inline">At least <select value=${least} onChange=${(e) => setLeast(+e.target.value)}>
				${[[0, "any time"], [1e4, "10 µs"], [1e5, "100 µs"], [1e6, "1 ms"], [1e7, "10 ms"], [1e8, "100 ms"]].map(([v, l]) => html`<option value=${v}>${l}</option>`)}
			</select></label>
			<span class="grow"></span>
			<span class="faint">${plural(rows.length, "row")}${c.oldest > 1 ? `, the newest ${count(c.size)} calls` : ""}</span>
			<${Button} kind="quiet small" onClick=${() => all(false)}>Unfold all<//>
			<${Button} kind="quiet small" onClick=${() => all(true)}>Fold all<//>
		</div>
		${rows.length ? html`<${Virtual} id="tree" role="treegrid" label="Calls as they nest" columns=${4}
			n=${rows.length} keyOf=${(i) => rows[i]}
			template="var(--tree-columns)" live=${trace.state === "running"}
			head=${html`<span role="columnheader" class="num">Duration</span>
				<span role="columnheader" class="num less">CPU</span>
				<span role="columnheader" class="less">Task</span><span role="columnheader">Function calls</span>`}
			rowProps=${(i) => ({ "aria-level": c.level(rows[i]), "aria-expanded": kids(rows[i]) ? !closed.current.has(rows[i]) : null })}
			row=${cell} onKey=${onKey} />` : html`<${Empty} title="No call passes these filters" />`}`;
}
