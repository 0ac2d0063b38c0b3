// SPDX-License-Identifier: Apache-2.0
// The flame graph: time by stack of calls, outermost on top. Boxes are elements, so they are found by keys and
// screen readers; at most some thousands, as narrower ones are left out.

import { useMemo, useRef, useState } from "preact/hooks";
import { layout, weigh } from "../flame.js";
import { count, duration, percent, plural } from "../format.js";
import { Button, Empty, html, useLive, useSize } from "./kit.js";

const HUES = 7;

const families = new Map();

/** functions of one subsystem look alike: a colour by what their names begin with, another for each as they come */
export function hue(name) {
	const stem = /^_*([a-z0-9]+)/i.exec(name)?.[1] ?? "";
	if (!families.has(stem) && families.size < 4096)
		families.set(stem, families.size % HUES);
	return families.get(stem) ?? 0;
}

function below(node, name, out = []) {
	for (const kid of node.kids.values()) {
		if (name(kid))
			out.push(kid);
		else
			below(kid, name, out);
	}
	return out;
}

function nearest(boxes, from, dx, dy) {
	const mid = from.x + from.w / 2;
	let best = null, score = Infinity;
	for (const b of boxes) {
		if (b === from || (dy ? b.level !== from.level + dy : b.level !== from.level || (dx > 0 ? b.x <= from.x : b.x >= from.x)))
			continue;
		const gap = dy && b.x <= mid && mid <= b.x + b.w ? 0 : Math.abs(b.x + b.w / 2 - mid);
		if (gap < score) {
			score = gap;
			best = b;
		}
	}
	return best;
}

export function FlameView({ live, trace }) {
	const [paused, pause] = useState(false);
	const version = useLive(live, 700);
	const shownVersion = useRef(version);
	if (!paused)
		shownVersion.current = version;
	const [zoom, setZoom] = useState(live.flame.root);
	const [text, setText] = useState("");
	const [focus, setFocus] = useState(live.flame.root);
	const [box, width] = useSize([900, 400]);
	const boxes = useMemo(() => {
		weigh(live.flame.root);
		return layout(zoom, 1.2 / Math.max(width, 300));
	}, [shownVersion.current, zoom, width]);
	const find = text.trim().toLowerCase();
	const nameOf = (node) => node.up ? live.names.text(node.name) : "all";
	const hit = (node) => find && nameOf(node).toLowerCase().includes(find);
	const total = live.flame.root.value ?? 0;
	const levels = Math.max(0, ...boxes.map((b) => b.level)), up = Math.min(0, ...boxes.map((b) => b.level));
	const current = boxes.find((b) => b.node === focus) ?? boxes.find((b) => b.level === 0);
	const found = find ? below(zoom, hit) : [];
	const sum = found.reduce((n, f) => n + f.value, 0);
	const choose = (b) => {
		setFocus(b.node);
		document.getElementById(`flame-${boxes.indexOf(b)}`)?.focus();
	};
	const onKeyDown = (e) => {
		if (!current || e.ctrlKey || e.metaKey || e.altKey)
			return;
		const to = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[e.key];
		const next = to && nearest(boxes, current, ...to);
		if (next)
			choose(next);
		else if (e.key === "Enter" || e.key === " ")
			setZoom(current.node);
		else if (e.key === "Escape")
			setZoom(live.flame.root);
		else if (!to)
			return;
		e.preventDefault();
	};
	if (!total)
		return html`<${Empty} title="No time to show yet">
			${trace.tracer === "function"
				? "The function tracer sees calls, not how long they take. Change this trace to function_graph above."
				: "A flame graph needs calls that returned. They appear here as soon as there are some."}<//>`;
	const node = current?.node ?? zoom;
	const look = (b, name) => ["box", b.node.depth === 0 ? "of-all" : b.node.depth === 1 ? "of-task" : `hue${hue(name)}`,
		b.level < 0 && "is-above", find && (hit(b.node) ? "is-hit" : "is-not")].filter(Boolean).join(" ");
	return html`<div class="toolbar">
			<label class="search"><span class="hidden">Find functions</span>
				<input type="search" placeholder="Find in the graph" value=${text}
					onInput=${(e) => setText(e.target.value)} /></label>
			${find && html`<span role="status">
				${found.length ? html`${plural(found.length, "stack")}, ${percent(sum, zoom.value)} of the time` : "nothing of that name"}</span>`}
			<span class="grow"></span>
			${zoom.up && html`<${Button} kind="quiet small" onClick=${() => setZoom(live.flame.root)}>Show all<//>`}
			${trace.state === "running" && html`<${Button} kind="quiet small" aria-pressed=${paused}
				icon=${paused ? "play" : "stop"} onClick=${() => pause(!paused)}>
				${paused ? "Go on" : "Hold still"}<//>`}
		</div>
		<div class="flame-scroll">
			<div class="flame" ref=${box} role="tree" aria-label="Flame graph: time by stack of calls"
			onKeyDown=${onKeyDown}
			style=${{ height: `${(levels - up + 1) * 22}px` }}>
			${boxes.map((b, i) => {
				const name = nameOf(b.node), px = b.w * width;
				return html`<div id=${`flame-${i}`} key=${i} role="treeitem" aria-level=${b.level - up + 1}
					aria-selected=${b.node === node}
					tabindex=${b === current ? 0 : -1} class=${look(b, name)}
					aria-label=${`${name}, ${duration(b.node.value)}, ${percent(b.node.value, total)}${b.node.depth > 1 ? `, ${plural(b.node.count, "call")}` : ""}`}
					style=${{ left: `${b.x * 100}%`, width: `calc(${b.w * 100}% - 1px)`, top: `${(b.level - up) * 22}px` }}
					onMouseEnter=${() => setFocus(b.node)} onFocus=${() => setFocus(b.node)} onClick=${() => setZoom(b.node)}>${px > 28 ? name : ""}</div>`;
			})}
		</div></div>
		<div class="detail" aria-live="off">
			<strong class="mono">${nameOf(node)}</strong>
			<span>${duration(node.value)}</span>
			<span>${percent(node.value, total)} of all</span>
			${node.up && node.depth > 1 && html`<span>${plural(node.count, "call")}</span>`}
			${node.count > 0 && html`<span>${duration(node.total / node.count)} each</span>`}
			<span>${duration(Math.max(0, node.value - node.inside))} itself</span>
			${live.flame.refused > 0 && html`<span class="warn">
				${count(live.flame.refused)} calls of stacks beyond the page's limit count for their callers</span>`}
		</div>
		<p class="hint keys">Click or Enter: zoom in. Escape: all. Arrows: move. Width is time, colours are families of names.</p>`;
}
