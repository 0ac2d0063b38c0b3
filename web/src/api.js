// SPDX-License-Identifier: Apache-2.0
// The daemon's API by fetch(). A failure is a Problem: the daemon's own document, or what went wrong on the way.

import { BUDGET_MS, MAX_LINE } from "./limits.js";

export class Problem extends Error {
	constructor(doc) {
		super(doc.detail || doc.title);
		this.doc = doc;
	}

	get code() {
		return this.doc.code;
	}

	get hint() {
		return this.doc.hint;
	}
}

function unreachable(cause) {
	return new Problem({ code: "unreachable", status: 0, title: "No answer", detail: "the daemon does not answer",
		hint: "is hvftraced running? The page goes on as soon as it is", cause: String(cause) });
}

async function refused(r) {
	try {
		return new Problem(await r.json());
	} catch {
		return new Problem({ code: "http", status: r.status, title: r.statusText, detail: `the daemon answered ${r.status}`, hint: "see its log" });
	}
}

// Of this tab and this origin alone, port and all; a cookie would go to every service of the host.
const TOKEN = "hvftrace-token";

function readToken() {
	try {
		return sessionStorage.getItem(TOKEN);
	} catch {
		return null; // a browser that keeps nothing
	}
}

let token = readToken();

function keepToken(text) {
	token = text;
	try {
		if (text)
			sessionStorage.setItem(TOKEN, text);
		else
			sessionStorage.removeItem(TOKEN);
	} catch { /* until the page is loaded anew */ }
}

export async function open(method, path, { body, bytes, accept, signal, as = token } = {}) {
	const headers = {};
	if (as)
		headers.Authorization = `Bearer ${as}`;
	if (body !== undefined)
		headers["Content-Type"] = "application/json";
	if (bytes !== undefined)
		headers["Content-Type"] = "application/octet-stream";
	if (accept)
		headers.Accept = accept;
	let r;
	try {
		r = await fetch(path, { method, headers, signal, body: body === undefined ? bytes : JSON.stringify(body), cache: "no-store" });
	} catch (e) {
		throw e.name === "AbortError" ? e : unreachable(e);
	}
	if (r.status === 401 && as && as === token)
		keepToken(null); // it was removed
	if (!r.ok)
		throw await refused(r);
	return r;
}

export const get = async (path, options) => (await open("GET", path, options)).json();
export const send = async (method, path, body, options) => (await open(method, path, { ...options, body })).json();
/** from now on this token goes with everything, if it is good for anything */
export async function useToken(text) {
	await open("GET", "/v1/guests", { as: text });
	keepToken(text);
}

export const hasToken = () => !!token;
export const seg = encodeURIComponent;

/**
 * The lines of a stream, as strings: onLines(array) is awaited before more is read, so a page that is slow
 * makes the daemon count losses instead of piling up here. Return: when the stream ended.
 */
export async function readLines(path, { signal, onLines, accept = "application/x-ndjson" }) {
	const r = await open("GET", path, { signal, accept });
	const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		let got;
		try {
			got = await reader.read();
		} catch (e) {
			throw e.name === "AbortError" || signal?.aborted ? e : unreachable(e);
		}
		if (got.done)
			break;
		const lines = (rest + got.value).split("\n");
		rest = lines.pop();
		if (rest.length > MAX_LINE)
			throw new Problem({ code: "line_too_long", detail: "a line of the stream is too long", hint: "this is a fault of hvftrace" });
		if (lines.length)
			await onLines(lines);
	}
	if (rest)
		await onLines([rest]);
}

/** What comes as bytes, as text: onText(string). A page that is slow reads less, and the daemon says what was missed. */
export async function readBytes(path, { signal, onText }) {
	const r = await open("GET", path, { signal });
	const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
	let since = performance.now();
	for (;;) {
		let got;
		try {
			got = await reader.read();
		} catch (e) {
			throw e.name === "AbortError" || signal?.aborted ? e : unreachable(e);
		}
		if (got.done)
			return;
		onText(got.value);
		if (performance.now() - since < BUDGET_MS)
			continue;
		await new Promise((go) => { setTimeout(go, 16); }); // the page is drawn meanwhile
		since = performance.now();
	}
}

/** save what a GET gives as a file of the browser's user */
export async function download(path, name, accept) {
	const r = await open("GET", path, { accept });
	const url = URL.createObjectURL(await r.blob());
	const a = document.createElement("a");
	a.href = url;
	a.download = /filename="([\w.-]+)"/.exec(r.headers.get("Content-Disposition") ?? "")?.[1] ?? name;
	a.click();
	setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** all functions of a guest, page by page */
export async function allFunctions(guest, signal, onPage) {
	const list = [];
	let cursor = null;
	do {
		const page = await get(`/v1/guests/${seg(guest)}/functions?limit=10000${cursor === null ? "" : `&cursor=${seg(cursor)}`}`, { signal });
		list.push(...page.items);
		cursor = page.next_cursor;
		onPage?.(list.length);
	} while (cursor !== null);
	return list;
}
