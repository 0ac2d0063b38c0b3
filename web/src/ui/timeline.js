// SPDX-License-Identifier: Apache-2.0
// Calls over the guest's clock, a lane for each vCPU or task, on a canvas; the table below it says the same in words.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { NEVER, OPEN, UNSEEN } from "../calls.js";
import { count, duration, plural, stamp } from "../format.js";
import { MAX_ROWS, extent, inView, lanes, running, ticks } from "../lanes.js";
import { hue } from "./flame.js";
import { Button, Empty, html, useLive, useSize } from "./kit.js";

const BAR = 16, GAP = 10, AXIS = 22, LABEL = 132;
const FOLLOW_NS = 2e9;
const HELP = "Plus and minus zoom, arrows move, n and p step through calls. The table below has the same in words.";

const css = (el) => {
	const s = getComputedStyle(el), v = (name) => s.getPropertyValue(name).trim();
	return { text: v("--text"), muted: v("--muted"), line: v("--line"), surface: v("--surface"), sunken: v("--sunken"), accent: v("--accent"),
		hues: [0, 1, 2, 3, 4, 5, 6].map((i) => v(`--hue${i}`)), ink: v("--hue-ink"), task: v("--task"), mono: v("--mono"), sans: v("--sans") };
};

/** room above a lane's calls for which task the vCPU runs, if task switches were recorded */
const stripOf = (live, by) => by === "cpu" && live.switches.length ? BAR : 0;

function drawStrip(ctx, look, { live, lane, y, from, to, scale }) {
	ctx.font = `11px ${look.mono}`;
	for (const r of running(live.switches, lane.key, from, to)) {
		const x = LABEL + (r.from - from) * scale, w = Math.max(1, (r.to - r.from) * scale);
		const label = `${live.names.text(r.comm)}-${r.pid}`, fits = Math.floor((w - 8) / 6.7);
		ctx.fillStyle = look.task;
		ctx.fillRect(x, y, w > 3 ? w - 1 : w, BAR - 3);
		if (fits >= 5) {
			ctx.fillStyle = look.text;
			ctx.fillText(label.length <= fits ? label : label.slice(0, fits - 1) + "…", x + 4, y + 10);
		}
	}
}

/** draws everything; returns boxes {n, x, y, w} for the pointer */
function draw(ctx, look, p) {
	const { width, height, from, to, list, live, by, picked, scroll } = p;
	const c = live.calls, scale = (width - LABEL) / (to - from), boxes = [];
	ctx.clearRect(0, 0, width, height);
	ctx.save();
	ctx.beginPath();
	ctx.rect(0, AXIS, width, height - AXIS);
	ctx.clip();
	let y = AXIS + GAP / 2 - scroll;
	for (const lane of list) {
		const strip = stripOf(live, by), h = lane.rows * BAR + strip;
		if (y + h >= AXIS && y <= height) {
			ctx.fillStyle = look.sunken;
			ctx.fillRect(LABEL, y - 2, width - LABEL, h + 3);
			if (strip)
				drawStrip(ctx, look, { live, lane, y, from, to, scale });
			drawLane(ctx, look, { ...p, lane, y: y + strip, c, scale, boxes });
			ctx.fillStyle = look.text;
			ctx.font = `12px ${look.sans}`;
			const label = by === "cpu" ? `vCPU ${lane.key}` : `${live.names.text(live.tasks.get(lane.key) ?? 0)}-${lane.key}`;
			ctx.fillText(label, 8, y + 12, LABEL - 16);
			ctx.fillStyle = look.muted;
			if (lane.rows > 1)
				ctx.fillText(plural(lane.calls.length, "call"), 8, y + 12 + BAR, LABEL - 16);
		}
		y += h + GAP;
	}
	ctx.restore();
	ctx.font = `11px ${look.sans}`;
	ctx.fillStyle = look.muted;
	ctx.strokeStyle = look.line;
	for (const t of ticks(from, to, (width - LABEL) / 130)) {
		const x = Math.round(LABEL + (t.ts - from) * scale) + 0.5;
		ctx.beginPath();
		ctx.moveTo(x, AXIS - 5);
		ctx.lineTo(x, height);
		ctx.globalAlpha = 0.6;
		ctx.stroke();
		ctx.globalAlpha = 1;
		ctx.fillText(t.label, x + 4, 13);
	}
	if (picked && c.has(picked)) {
		const b = boxes.find((k) => k.n === picked);
		if (b) {
			ctx.strokeStyle = look.text;
			ctx.lineWidth = 2;
			ctx.strokeRect(b.x, b.y, Math.max(3, b.w), BAR - 1);
			ctx.lineWidth = 1;
		}
	}
	return boxes;
}

function drawLane(ctx, look, p) {
	const { lane, y, c, scale, from, to, width, boxes, live, now } = p;
	const filled = new Float64Array(MAX_ROWS).fill(-1); // up to which pixel each row is drawn
	ctx.font = `11px ${look.mono}`;
	for (const n of lane.calls) {
		const i = n & c.mask, row = Math.min(MAX_ROWS - 1, c.depth[i]), d = c.dur[i];
		const end = d === OPEN ? now : c.ts[i] + Math.max(0, d);
		const x0 = Math.max(LABEL, LABEL + (c.ts[i] - from) * scale), x1 = Math.min(width, LABEL + (Math.min(end, to) - from) * scale);
		const w = Math.max(1, x1 - x0);
		if (x0 + w <= filled[row] + 0.5)
			continue; // nothing new would be seen
		const name = live.names.text(c.fn[i]), top = y + row * BAR;
		ctx.fillStyle = look.hues[hue(name)];
		ctx.globalAlpha = d === OPEN ? 0.45 : 1;
		ctx.fillRect(x0, top, w > 3 ? w - 1 : w, BAR - 1);
		ctx.globalAlpha = 1;
		filled[row] = x0 + w;
		boxes.push({ n, x: x0, y: top, w });
		if (w > 44) {
			const fits = Math.floor((w - 8) / 6.7);
			ctx.fillStyle = d === OPEN ? look.text : look.ink;
			ctx.fillText(name.length <= fits ? name : name.slice(0, fits - 1) + "…", x0 + 4, top + 11.5);
		}
	}
}

const at = (boxes, x, y) => boxes.find((b) => x >= b.x - 1 && x <= b.x + Math.max(3, b.w) && y >= b.y && y < b.y + BAR);

function CallWords({ live, n }) {
	const c = live.calls, i = n & c.mask, d = c.dur[i];
	return html`<strong class="mono">${live.names.text(c.fn[i])}</strong>
		<span>${d >= 0 ? duration(d) : d === OPEN ? "still inside" : d === NEVER ? "never returns" : d === UNSEEN ? "its return was lost" : "a call"}</span>
		<span>at ${stamp(c.ts[i])} s</span><span>vCPU ${c.cpu[i]}</span>
			<span>${live.names.text(c.comm[i])}-${c.pid[i]}</span>
		<span class="mono clip">${c.notes.get(n) ?? ""}</span>`;
}

export function Timeline({ live, trace }) {
	const version = useLive(live, 250);
	const [by, setBy] = useState("cpu");
	const [view, setView] = useState(null); // [from, to], null: follow
	const [picked, pick] = useState(0);
	const [scroll, setScroll] = useState(0);
	const [box, width, height] = useSize([900, 360]);
	const canvas = useRef(null), boxes = useRef([]), drag = useRef(null);
	const c = live.calls;
	const whole = useMemo(() => extent(c), [version]);
	const span = view ?? (trace.state === "running" ? [Math.max(whole[0], whole[1] - FOLLOW_NS), whole[1] + 1] : [whole[0], whole[1] + 1]);
	const [from, to] = span;
	const picture = useMemo(() => lanes(c, by, from, to, whole[1]), [version, by, from, to]);
	const table = useMemo(() => inView(c, from, to), [version, from, to]);
	const full = picture.lanes.reduce((h, l) => h + l.rows * BAR + stripOf(live, by) + GAP, AXIS + GAP);
	const far = Math.max(0, full - height);
	const down = Math.min(scroll, far);

	useEffect(() => {
		const el = canvas.current;
		if (!el)
			return;
		const ratio = Math.min(3, devicePixelRatio || 1);
		if (el.width !== Math.round(width * ratio) || el.height !== Math.round(height * ratio)) {
			el.width = Math.round(width * ratio);
			el.height = Math.round(height * ratio);
		}
		const ctx = el.getContext("2d");
		ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
		boxes.current = draw(ctx, css(el), { width, height, from, to, list: picture.lanes, live, by, picked, scroll: down, now: whole[1] });
	});

	const move = (f, t) => {
		const least = 200, most = (whole[1] - whole[0]) * 1.2 + 1000, w = Math.max(least, Math.min(most, t - f)), mid = (f + t) / 2;
		setView([mid - w / 2, mid + w / 2]);
	};
	const zoomBy = (k, x = 0.5) => move(from + (to - from) * x * (1 - k), to - (to - from) * (1 - x) * (1 - k));
	const panBy = (share) => move(from + (to - from) * share, to + (to - from) * share);
	useEffect(() => {
		const el = canvas.current;
		if (!el)
			return undefined;
		const onWheel = (e) => {
			const x = Math.max(0, (e.offsetX - LABEL) / (width - LABEL));
			if (e.ctrlKey || e.metaKey)
				zoomBy(e.deltaY > 0 ? 1.25 : 0.8, x);
			else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))
				panBy((e.deltaX || e.deltaY) / width);
			else if (far > 0 && (e.deltaY > 0 ? down < far : down > 0))
				setScroll(Math.max(0, Math.min(far, down + e.deltaY)));
			else
				return;
			e.preventDefault();
		};
		el.addEventListener("wheel", onWheel, { passive: false });
		return () => el.removeEventListener("wheel", onWheel);
	});
	const step = (way) => {
		const list = boxes.current, i = list.findIndex((b) => b.n === picked);
		const next = list[i < 0 ? 0 : Math.max(0, Math.min(list.length - 1, i + way))];
		if (next) {
			pick(next.n);
			if (!view)
				setView(span);
		}
	};
	const onKeyDown = (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey)
			return;
		const acts = { "+": () => zoomBy(0.6), "=": () => zoomBy(0.6), "-": () => zoomBy(1 / 0.6), ArrowLeft: () => panBy(-0.2), ArrowRight: () => panBy(0.2),
			ArrowDown: () => setScroll(Math.min(far, down + 40)), ArrowUp: () => setScroll(Math.max(0, down - 40)), Home: () => setView([...whole]),
			f: () => setView(null), n: () => step(1), p: () => step(-1) };
		if (acts[e.key]) {
			acts[e.key]();
			e.preventDefault();
		}
	};
	const onPointerDown = (e) => {
		drag.current = { x: e.offsetX, from, to, moved: false };
		e.currentTarget.setPointerCapture(e.pointerId);
	};
	const onPointerMove = (e) => {
		const d = drag.current;
		if (!d) {
			e.currentTarget.style.cursor = at(boxes.current, e.offsetX, e.offsetY) ? "pointer" : "grab";
			return;
		}
		const by = (d.x - e.offsetX) / (width - LABEL) * (d.to - d.from);
		if (Math.abs(d.x - e.offsetX) > 3)
			d.moved = true;
		if (d.moved)
			move(d.from + by, d.to + by);
	};
	const onPointerUp = (e) => {
		const b = drag.current && !drag.current.moved && at(boxes.current, e.offsetX, e.offsetY);
		drag.current = null;
		if (b) {
			pick(b.n);
			if (!view)
				setView(span);
		}
	};
	if (c.next === 1)
		return html`<${Empty} title="Nothing to draw yet">Calls appear on the guest's clock as they are made.<//>`;
	const n = picked && c.has(picked) ? picked : 0;
	return html`<div class="toolbar">
			<div class="segments" role="group" aria-label="A lane for each">
				${[["cpu", "vCPU"], ["task", "Task"]].map(([v, l]) => html`<button type="button"
					aria-pressed=${by === v} onClick=${() => { setBy(v); setScroll(0); }}>${l}</button>`)}
			</div>
			<span class="faint">${duration(to - from)} shown${picture.hidden ? html`; <span class="warn">
				${count(picture.hidden)} quieter tasks are not</span>` : ""}</span>
			<span class="grow"></span>
			<${Button} kind="quiet small" onClick=${() => zoomBy(0.5)} aria-label="Zoom in">+<//>
			<${Button} kind="quiet small" onClick=${() => zoomBy(2)} aria-label="Zoom out">−<//>
			<${Button} kind="quiet small" onClick=${() => setView([...whole])}>All<//>
			${trace.state === "running" && html`<${Button} kind="quiet small" aria-pressed=${!view} icon="play"
				onClick=${() => setView(view ? null : span)}>Follow<//>`}
		</div>
		<div class="timeline" ref=${box} style=${{ height: `${Math.max(180, Math.min(460, full + 6))}px` }}>
			<canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="timeline"
				aria-label=${`Calls by ${by === "cpu" ? "vCPU" : "task"}, ${plural(picture.lanes.length, "lane")}. ${HELP}`}
				onKeyDown=${onKeyDown} onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${onPointerUp} onPointerCancel=${() => { drag.current = null; }}></canvas>
		</div>
		<div class="detail" aria-live="polite">
			${n ? html`<${CallWords} live=${live}
			n=${n} />` : html`<span class="faint">Click a bar, or press n and p, to see a call. Drag or arrows: move. Ctrl + wheel, + and −: zoom.</span>`}</div>
		<h2>In view</h2>
		<div class="scroll-x"><table class="plain">
			<thead><tr><th scope="col">Function</th><th scope="col" class="num">Calls</th>
				<th scope="col" class="num">Time</th></tr></thead>
			<tbody>${table.map((f) => html`<tr><td class="mono">${live.names.text(f.fn)}</td>
				<td class="num">${count(f.count)}</td>
				<td class="num">${f.time > 0 ? duration(f.time) : "-"}</td></tr>`)}</tbody>
		</table></div>`;
}
