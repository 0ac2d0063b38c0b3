// SPDX-License-Identifier: Apache-2.0
// A long list of rows of one height, of which only those in view are in the document. Sticks to its end while
// live, until somebody scrolls up. Keys move a row that is told to screen readers by aria-activedescendant.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../format.js";
import { Button, html, useSize } from "./kit.js";

export const ROW = 24;
const EXTRA = 8;

/** keys that move within a list; the new place, or null when the key is none of them */
export function moved(key, at, last, page) {
	const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last }[key];
	return to === undefined ? null : Math.max(0, Math.min(last, to));
}

/**
 * role, label: of the grid; head: its header row; n: how many rows; keyOf(i): a number that stays with a row;
 * row(i, active): its cells; rowProps(i): more attributes; onKey(event, i): true when it took the key
 */
export function Virtual({ id, role = "grid", label, columns, head, n, keyOf, row, rowProps, onKey, onPick, live, template }) {
	const [box, , height] = useSize();
	const [top, setTop] = useState(0);
	const [stick, setStick] = useState(!!live);
	const [activeKey, setActive] = useState(null);
	const shown = Math.ceil(height / ROW);
	const from = Math.max(0, Math.floor(top / ROW) - EXTRA), to = Math.min(n, from + shown + 2 * EXTRA);
	const active = useRef(0);

	useLayoutEffect(() => {
		if (stick && live)
			box.current.scrollTop = n * ROW;
	}, [n, stick, live]);
	useEffect(() => { if (live) setStick(true); }, [live]);

	const onScroll = (e) => {
		const el = e.currentTarget;
		setTop(el.scrollTop);
		setStick(el.scrollTop + el.clientHeight >= el.scrollHeight - 2 * ROW);
	};
	const find = () => {
		for (let i = from; i < to; i++) {
			if (keyOf(i) === activeKey)
				return i;
		}
		return activeKey === null ? -1 : Math.min(active.current, n - 1);
	};
	const at = find();
	const choose = (i) => {
		active.current = i;
		setActive(keyOf(i));
		const el = box.current, y = i * ROW;
		if (i !== n - 1)
			setStick(false);
		if (y < el.scrollTop)
			el.scrollTop = y;
		else if (y + 2 * ROW > el.scrollTop + el.clientHeight)
			el.scrollTop = y + 2 * ROW - el.clientHeight;
	};
	const onKeyDown = (e) => {
		if (e.target !== e.currentTarget || !n || e.ctrlKey || e.metaKey || e.altKey)
			return;
		const here = at < 0 ? Math.min(n - 1, Math.floor(top / ROW)) : at;
		const next = at < 0 && moved(e.key, 0, n - 1, 1) !== null && e.key !== "End" && e.key !== "Home" ? here : moved(e.key, here, n - 1, shown - 2);
		if (next !== null)
			choose(next);
		else if (!(at >= 0 && onKey?.(e, at)))
			return;
		e.preventDefault();
	};
	const rows = [];
	for (let i = from; i < to; i++) {
		const key = keyOf(i);
		rows.push(html`<div key=${key} id=${`${id}-${key}`} role="row" aria-rowindex=${i + 2}
			class=${`row ${i === at ? "is-active" : ""}`}
			style=${{ transform: `translateY(${i * ROW}px)`, gridTemplateColumns: template }}
			onClick=${() => { choose(i); onPick?.(i); }} ...${rowProps?.(i)}>${row(i)}</div>`);
	}
	return html`<div class="virtual">
		<div class="virtual-box" ref=${box} tabindex="0" role=${role} aria-label=${label} aria-rowcount=${n + 1}
			aria-colcount=${columns}
			aria-activedescendant=${at >= from && at < to && at >= 0 ? `${id}-${keyOf(at)}` : null} onScroll=${onScroll} onKeyDown=${onKeyDown}>
			<div class="row head" role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>
				${head}</div>
			<div class="virtual-rows" role="rowgroup" style=${{ height: `${n * ROW}px` }}>${rows}</div>
		</div>
		${live && !stick && html`<${Button} kind="floating" icon="down"
			onClick=${() => setStick(true)}>Newest (${count(n)})<//>`}
	</div>`;
}
