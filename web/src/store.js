// SPDX-License-Identifier: Apache-2.0
// What the page knows of the daemon, asked once a second while somebody looks; and which place of the page is shown.

import { get, readLines } from "./api.js";
import { KEEP_EVENTS } from "./limits.js";
import { Live } from "./live.js";
import { TraceSeries, WindowSeries } from "./series.js";

const POLL_MS = 1000;
const MACHINES_EVERY = 5; // polls
const SOON_MS = 150;

const listeners = new Set();

export const state = {
	version: null, guests: null, traces: null, machines: null, machinesNote: null, formats: [], problem: null, needsToken: false,
	events: [],
	route: { place: null, guest: null, trace: null, view: null },
};
export const windows = new Map();	// guest -> WindowSeries
export const rates = new Map();		// trace -> TraceSeries
let live = null;
let polls = 0;
let timer = 0;
let polling = false;
let soon = 0;

export function subscribe(fn) {
	listeners.add(fn);
	return () => listeners.delete(fn);
}

export function changed() {
	for (const fn of listeners)
		fn();
}

/** "#/g/NAME/VIEW" or "#/t/ID/VIEW" */
export function readRoute(hash) {
	const [kind, name, view] = hash.replace(/^#\/?/, "").split("/").map((s) => { try { return decodeURIComponent(s); } catch { return ""; } });
	return { place: kind === "events" ? kind : null, guest: kind === "g" && name ? name : null, trace: kind === "t" && name ? name : null, view: view || null };
}

export const go = (hash) => { location.hash = hash; };
export const linkGuest = (name, view) => `#/g/${encodeURIComponent(name)}${view ? "/" + view : ""}`;
export const linkTrace = (id, view) => `#/t/${encodeURIComponent(id)}${view ? "/" + view : ""}`;

export const guestNamed = (name) => state.guests?.find((g) => g.name === name) ?? null;
export const traceNamed = (id) => state.traces?.find((t) => t.id === id) ?? null;

/** the trace that is being followed; one at a time, as it takes memory */
export function follow(trace) {
	if (live?.id === trace.id)
		return live;
	live?.stop();
	live = new Live(trace);
	live.run();
	return live;
}

export function unfollow(id) {
	if (live && (!id || live.id === id)) {
		live.stop();
		live = null;
	}
}

function series(map, key, make) {
	if (!map.has(key))
		map.set(key, make());
	return map.get(key);
}

function sample() {
	const now = Date.now() / 1000;
	for (const g of state.guests)
		series(windows, g.name, () => new WindowSeries()).look(g.windows, now);
	for (const t of state.traces) {
		if (t.state === "running" || rates.has(t.id))
			series(rates, t.id, () => new TraceSeries()).look(t, now);
	}
	for (const key of windows.keys())
		if (!guestNamed(key))
			windows.delete(key);
	for (const key of rates.keys())
		if (!traceNamed(key))
			rates.delete(key);
}

/** the formats of the export operation, if this daemon's own description has one */
export function exportFormats(yaml) {
	const at = /^ {2}(\/v1\/\S*\{t\}\/export):/m.exec(yaml);
	if (!at)
		return { path: null, formats: [] };
	const rest = yaml.slice(at.index + at[0].length);
	const end = /^ {2}\/|^\S/m.exec(rest);
	const own = end ? rest.slice(0, end.index) : rest;
	const list = /name: format[\s\S]*?enum:\s*(?:\[([^\]]*)\]|((?:\s*- \S+\n)+))/.exec(own);
	const words = list ? (list[1] ?? list[2]).split(/[\s,]+/).map((w) => w.replace(/^['"]|['"]$/g, "")).filter((w) => w && w !== "-") : [];
	return { path: at[1], formats: words };
}

async function once() {
	if (!state.version)
		state.version = await get("/version");
	if (!polls) {
		const r = await fetch("/openapi.yaml");
		state.export = r.ok ? exportFormats(await r.text()) : { path: null, formats: [] };
	}
	const [guests, traces] = await Promise.all([get("/v1/guests"), get("/v1/traces")]);
	state.guests = guests.items;
	state.traces = traces.items;
	if (polls++ % MACHINES_EVERY === 0) {
		const machines = await get("/v1/machines").catch(() => null);
		state.machines = machines?.items ?? [];
		state.machinesNote = machines?.note ?? null;
	}
}

export async function poll() {
	if (polling)
		return;
	polling = true;
	try {
		await once();
		state.problem = null;
		state.needsToken = false;
		sample();
	} catch (e) {
		state.problem = e;
		state.needsToken = e.doc?.status === 401;
	}
	polling = false;
	changed();
}

/** look again at once, machines too: after something was changed */
export function refresh() {
	polls -= polls % MACHINES_EVERY;
	return poll();
}

function event(text) {
	const e = JSON.parse(text);
	if (e.type === "heartbeat" || e.type === "end")
		return;
	const last = state.events.at(-1);
	if (e.type === "records_lost" && last?.type === e.type && last.trace === e.trace)
		state.events[state.events.length - 1] = { ...e, count: last.count + e.count }; // a row for all of a bad time
	else
		state.events.push(e);
	if (state.events.length > KEEP_EVENTS)
		state.events.splice(0, state.events.length - KEEP_EVENTS);
	if (!soon)
		soon = setTimeout(() => { soon = 0; poll(); }, SOON_MS); // so that what others do shows at once
	if (e.type.startsWith("guest"))
		polls -= polls % MACHINES_EVERY;
}

/** follows the daemon's events, again and again; where it has none the once-a-second look is all there is */
async function followEvents() {
	for (let wait = 1000; ; wait = Math.min(2 * wait, 15000)) {
		const after = state.events.at(-1)?.seq ?? 0;
		try {
			await readLines(`/v1/events/stream?after=${after}`, { onLines: (lines) => {
				lines.filter(Boolean).forEach(event);
				wait = 1000;
			} });
		} catch (e) {
			if (e.code === "records.gone") // another run of the daemon counts anew
				state.events = [];
		}
		await new Promise((done) => setTimeout(done, wait));
	}
}

export function start() {
	const tick = async () => {
		if (!document.hidden)
			await poll();
		timer = setTimeout(tick, POLL_MS);
	};
	const move = () => { state.route = readRoute(location.hash); changed(); };
	addEventListener("hashchange", move);
	document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
	clearTimeout(timer);
	move();
	tick();
	followEvents();
}
