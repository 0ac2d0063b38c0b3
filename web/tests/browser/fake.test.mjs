// SPDX-License-Identifier: Apache-2.0
// The page in Chromium over the daemon's engine without guests: $PAGE_URL, and $PAGE_ASKS one that asks for $PAGE_TOKEN.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { after, before, test } from "node:test";
import { exportFormats } from "../../src/store.js";
import { URL_, accessible, launch, openPage, shot, text } from "./driver.mjs";

const LONG = process.env.HVF_LONG === "1";
let browser, at;

before(async () => { browser = await launch(); });
after(async () => { await at?.close(); await browser.close(); });

const api = async (method, path, body) => {
	const r = await fetch(URL_ + path, { method, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) });
	assert.ok(r.ok, `${method} ${path}: ${r.status}`);
	return r.json();
};
const attach = (kind, name) => api("POST", "/v1/guests", { target: `qemu:/${kind}`, name });
const begin = (name, more = {}) => api("POST", `/v1/guests/${name}/traces`, { tracer: "function_graph", ...more });
const detach = (name) => api("DELETE", `/v1/guests/${name}?force=true`);

async function show(hash, options) {
	await at?.close();
	at = await openPage(browser, { path: `/${hash}`, ...options });
	return at.page;
}

test("a person attaches a guest; what is wrong is said in words", async () => {
	const page = await show("", {});
	await page.getByText("None is attached.").waitFor();
	await accessible(page, "no guests");
	await shot(page, "no-guests");
	await page.getByLabel("Target").fill("what");
	await page.getByRole("button", { name: "Attach", exact: true }).last().click();
	const failure = page.getByRole("alert");
	await failure.waitFor();
	assert.match(await failure.innerText(), /is no target[\s\S]*libvirt:URI[\s\S]*target\.syntax/);
	await accessible(page, "a failure");
	await page.getByLabel("Target").fill("qemu:/fake");
	await page.getByLabel("Name").fill("web1");
	await page.keyboard.press("Enter");
	await page.getByRole("heading", { level: 1, name: "web1" }).waitFor();
	await page.getByRole("navigation", { name: "Guests" }).getByText("6.1.0-fake").waitFor();
	at.quiet(/status of 400/);
});

test("functions are found as they are typed, as many as the daemon says", async () => {
	const page = await show("#/g/web1/functions", {});
	const search = page.getByRole("searchbox"), said = page.locator(".toolbar [role=status] strong");
	for (const glob of ["vfs_*", "*_0[0-4]?", ":mod:fakemod", "vfs_*:mod:fake*", "tcp_fn_00[!1]", "*"]) {
		await search.fill(glob);
		const want = (await api("GET", `/v1/guests/web1/functions?limit=10000&glob=${encodeURIComponent(glob)}`)).items.length;
		await page.waitForFunction(([n]) => document.querySelector(".toolbar [role=status] strong").textContent === n, [want.toLocaleString("en-US")]);
	}
	await search.fill("bad_");
	assert.equal(await said.innerText(), "1");
	const name = await text(page, "#functions-0 .fn");
	assert.equal(name, "bad_\ufffd\u241b[31m_name", "a guest's bytes are shown, not obeyed");
	await search.fill("");
	await page.getByLabel("Module").selectOption("fakemod");
	assert.equal(await said.innerText(), "100");
	await page.getByLabel("State").selectOption("in_use");
	assert.equal(await said.innerText(), "1");
	await page.getByLabel("State").selectOption("");
	await accessible(page, "functions");
	await page.getByRole("grid", { name: "Functions" }).focus();
	for (const key of ["ArrowDown", "ArrowDown", "End"])
		await page.keyboard.press(key);
	assert.equal(await page.locator(".row.is-active .fn").innerText(), "sched_fn_999");
	await shot(page, "functions");
	at.quiet();
});

test("a trace is started from the form, which shows the command for it", async () => {
	const page = await show("#/g/web1", {});
	await page.getByLabel("Functions", { exact: true }).fill("vfs_* tcp_* nope*");
	await page.getByText("nothing matches nope*").waitFor();
	await page.getByLabel("Functions", { exact: true }).fill("vfs_* tcp_*");
	await page.getByText("501 functions").waitFor();
	await page.getByText("Options").click();
	await page.getByLabel("Only calls of at least").fill("5");
	await page.getByText("a time with its unit").waitFor();
	assert.ok(await page.getByRole("button", { name: "Start trace" }).isDisabled());
	await page.getByLabel("Only calls of at least").fill("");
	await page.getByLabel("Return values").check();
	await page.getByLabel("Arguments").check();
	const command = await text(page, ".terminal code");
	assert.equal(command, `hvftrace -s ${URL_} trace web1 -p function_graph -l 'vfs_*' -l 'tcp_*' --retval --args`);
	await page.getByRole("button", { name: "curl" }).click();
	const line = await text(page, ".terminal code");
	assert.deepEqual(JSON.parse(/-d '(.*)'$/s.exec(line)[1]), { tracer: "function_graph", filter: ["vfs_*", "tcp_*"], retval: true, args: true });
	await accessible(page, "the form");
	await shot(page, "start");
	await page.getByRole("button", { name: "Start trace" }).click();
	await page.getByRole("treegrid").waitFor();
	const [trace] = (await api("GET", "/v1/traces")).items;
	assert.deepEqual([trace.filter, trace.options], [["vfs_*", "tcp_*"], { retval: true, args: true }]);
	at.quiet();
});

test("calls nest, fold by keys, and say so", async () => {
	const [trace] = (await api("GET", "/v1/traces")).items;
	const page = await show(`#/t/${trace.id}/tree`, {});
	const grid = page.getByRole("treegrid");
	await page.locator("#tree-7").or(page.locator(".virtual-rows .row")).first().waitFor();
	await grid.focus();
	await page.keyboard.press("Home");
	const first = page.locator(".row.is-active");
	assert.equal(await first.getAttribute("aria-level"), "1");
	assert.equal(await first.getAttribute("aria-expanded"), "true");
	assert.match(await first.innerText(), /3\.00 µs[\s\S]*\(file=0xffff888100bd2a00, count=0x[0-9a-f]+\) = -2 \(ENOENT\) \{/);
	const id = await first.getAttribute("id");
	assert.equal(await grid.getAttribute("aria-activedescendant"), id);
	const under = page.locator(`#${id} + .row`);
	assert.equal(await under.getAttribute("aria-level"), "2");
	await page.keyboard.press("ArrowLeft");
	assert.equal(await first.getAttribute("aria-expanded"), "false");
	assert.equal(await under.getAttribute("aria-level"), "1");
	await page.keyboard.press("ArrowRight");
	assert.equal(await first.getAttribute("aria-expanded"), "true");
	assert.ok(await page.locator(".virtual-rows .row").count() < 120, "only rows in view are in the document");
	at.quiet();
});

test("every view, in both colours and widths, is clean and fits", async () => {
	const [trace] = (await api("GET", "/v1/traces")).items;
	for (const [width, dark] of [[1280, false], [390, true]]) {
		await show("", { width, height: width < 500 ? 844 : 800, dark });
		for (const view of LONG || width > 1000 ? ["tree", "timeline", "flame", "profile", "records", "losses"] : ["tree", "timeline"]) {
			await at.page.evaluate((h) => { location.hash = h; }, `#/t/${trace.id}/${view}`);
			await at.page.locator(`.view-${view}`).waitFor();
			await at.page.locator({ tree: "[role=treegrid]", timeline: "canvas", flame: "[role=treeitem]", profile: "tbody tr", records: "[role=grid]", losses: "canvas" }[view]).first().waitFor();
			await accessible(at.page, `${view} at ${width}, ${dark ? "dark" : "light"}`);
			const [wide, room] = await at.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
			assert.ok(wide <= room, `${view} is ${wide} wide at ${room}`);
			await shot(at.page, `${view}-${width}-${dark ? "dark" : "light"}`);
		}
		for (const place of LONG || width > 1000 ? ["#/g/web1", "#/g/web1/windows", "#/g/web1/details", "#/events", "#/t/t999"] : ["#/g/web1"]) {
			await at.page.evaluate((h) => { location.hash = h; }, place);
			await at.page.waitForTimeout(150);
			await accessible(at.page, `${place} at ${width}`);
			assert.ok(await at.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${place} is too wide at ${width}`);
		}
		at.quiet();
	}
});

test("the flame graph: time by stack, found, zoomed by keys", async () => {
	const [trace] = (await api("GET", "/v1/traces")).items;
	const page = await show(`#/t/${trace.id}/flame`, {});
	await page.getByRole("button", { name: "Hold still" }).click();
	const boxes = page.getByRole("treeitem");
	const label = (i) => boxes.nth(i).getAttribute("aria-label");
	assert.match(await label(0), /^all, .*100 %$/); // it is no call, nor is a task
	assert.match(await label(1), /^sh, .*100 %$/);
	const [, caller, callee] = await Promise.all([label(1), label(2), label(3)]);
	assert.match(caller, /calls?$/);
	const ns = (s) => { const m = /, ([\d.]+) (ns|µs|ms|s),/.exec(s); return m[1] * { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9 }[m[2]]; };
	assert.ok(Math.abs(ns(caller) / ns(callee) - 3) < 0.1, `${caller} is 3 times ${callee}`);
	await page.getByRole("searchbox").fill("tcp_");
	await page.getByText(/stacks?, .* of the time/).waitFor();
	await boxes.nth(0).focus();
	for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"])
		await page.keyboard.press(key);
	await page.getByRole("button", { name: "Show all" }).waitFor();
	await page.keyboard.press("Escape");
	await page.getByRole("button", { name: "Show all" }).waitFor({ state: "detached" });
	at.quiet();
});

test("the timeline is moved by keys, and its table follows", async () => {
	const [trace] = (await api("GET", "/v1/traces")).items;
	const page = await show(`#/t/${trace.id}/timeline`, {});
	await page.getByRole("button", { name: "Task" }).click();
	const canvas = page.getByRole("application");
	await canvas.focus();
	/* to the next call: there may be none yet */
	for (let i = 0; i < 50 && !await page.locator(".detail strong").isVisible(); i++) {
		await page.keyboard.press("n");
		await page.waitForTimeout(200);
	}
	await page.locator(".detail strong").waitFor();
	assert.equal(await page.getByRole("button", { name: "Follow" }).getAttribute("aria-pressed"), "false");
	const shown = () => text(page, ".toolbar .faint");
	const before = await shown();
	await page.keyboard.press("+");
	await page.waitForFunction((b) => document.querySelector(".toolbar .faint").innerText !== b, before);
	assert.ok(await page.locator(".view tbody tr").count() > 0);
	const drawn = await canvas.evaluate((el) => new Set(el.getContext("2d").getImageData(0, 0, el.width, el.height).data).size);
	assert.ok(drawn > 20, "the canvas is empty");
	at.quiet();
});

test("a trace is switched, stopped and saved", async () => {
	const [trace] = (await api("GET", "/v1/traces")).items;
	const page = await show(`#/t/${trace.id}/records`, {});
	await page.getByText("Change", { exact: true }).click();
	await accessible(page, "the menu of changes");
	await page.getByLabel("Mark this moment").fill("here <b>it</b> is");
	await page.getByRole("button", { name: "Mark", exact: true }).click();
	await page.getByRole("searchbox").fill("no such function");
	await page.getByText("◆ here <b>it</b> is").waitFor();
	await page.getByRole("searchbox").fill("");
	await page.getByText("Change", { exact: true }).click();
	await page.getByRole("button", { name: "Pause recording" }).click();
	await page.getByText("paused").waitFor();
	assert.equal((await api("GET", `/v1/traces/${trace.id}`)).tracing_on, false);
	await page.keyboard.press("Escape");
	await page.getByText("Download").click();
	assert.ok(await page.getByRole("button", { name: /^Text, as/ }).isDisabled());
	await page.getByRole("button", { name: "Stop" }).click();
	await page.getByText("verified").waitFor();
	await page.getByText("ended").waitFor();
	const want = { text: /^# tracer: function_graph\n/, ndjson: /^\{"seq":\d+/ };
	for (const [name, start] of [[/^Text, as/, want.text], [/^JSON, a line/, want.ndjson]]) {
		if (!await page.getByRole("button", { name }).isVisible())
			await page.getByText("Download", { exact: true }).click();
		const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
		assert.match(readFileSync(await file.path(), "utf8").slice(0, 200), start);
		assert.match(file.suggestedFilename(), /^web1-t\d+\./);
	}
	const { formats } = exportFormats(await (await fetch(URL_ + "/openapi.yaml")).text());
	for (const format of formats) { // each that this daemon writes
		const button = page.locator(`[data-format="${format}"]`);
		if (!await button.isVisible())
			await page.getByText("Download", { exact: true }).click();
		const [file] = await Promise.all([page.waitForEvent("download"), button.click()]);
		const bytes = readFileSync(await file.path());
		assert.ok(bytes.length > 100, `${format}: ${bytes.length} bytes`);
		if (["chrome", "speedscope"].includes(format))
			JSON.parse(bytes.toString());
	}
	await shot(page, "stopped");
	await page.getByRole("button", { name: "Delete" }).click();
	await page.getByRole("heading", { name: "web1" }).waitFor();
	assert.equal((await api("GET", "/v1/traces")).items.length, 0);
	at.quiet();
});

test("losses are shown as such", async () => {
	await attach("fake-lossy", "lossy");
	const t = await begin("lossy");
	const page = await show(`#/t/${t.id}/losses`, {});
	await page.locator(".totals .is-warn dd").first().waitFor();
	assert.match(await page.locator(".totals .is-warn").first().innerText(), /Lost\s+▲ \d+/);
	await page.evaluate((h) => { location.hash = h; }, `#/t/${t.id}/records`);
	await page.getByRole("searchbox").fill("no such function");
	await page.getByText(/▲ \d+ records lost here/).first().waitFor();
	await accessible(page, "losses");
	await detach("lossy");
	at.quiet();
});

test("a console is plain text, and takes a line", async () => {
	await attach("fake-console", "talks");
	await attach("fake-shown", "shows");
	const page = await show("#/g/talks", {});
	await page.getByRole("link", { name: "Console" }).click();
	const said = page.getByRole("region", { name: "What the guest says" });
	await page.getByText("fake login:").waitFor();
	assert.equal(await said.innerText(), "Linux version 6.1.0-fake\nfake login: ");
	const line = page.getByLabel("Type at the console");
	await line.fill("<img src=x onerror=alert(1)>\u001b[31mred\u202e");
	await page.keyboard.press("Enter");
	await said.filter({ hasText: "red" }).waitFor();
	// carriage return first, as a serial port has it: what comes next is written over it
	assert.match(await said.innerText(), /fake login: <img src=x onerror=alert\(1\)>red\ufffd$/m);
	assert.equal(await page.locator(".console img").count(), 0);
	assert.equal(await line.inputValue(), "");
	await accessible(page, "a console");
	await shot(page, "console");
	await page.getByRole("button", { name: "Ctrl-C" }).click();
	// much of it: the page keeps little, and goes on
	const type = (text) => fetch(`${URL_}/v1/guests/talks/console`, { method: "POST", body: text, headers: { "Content-Type": "application/octet-stream" } });
	for (let i = 0; i < 8; i++)
		assert.equal((await type("\nflood 1000000\n")).status, 200);
	assert.equal((await type("end\n")).status, 200);
	await page.getByText("It has ended").waitFor();
	await page.getByText("last words").waitFor();
	assert.ok((await said.innerText()).length < 200000);
	await page.evaluate((h) => { location.hash = h; }, "#/g/shows/console");
	await page.getByText("Only shown: its virtual machine takes nothing typed.").waitFor();
	assert.equal(await page.getByLabel("Type at the console").count(), 0);
	await detach("talks");
	await detach("shows");
	at.quiet();
});

test("a million records a second do not freeze it, nor fill the memory; what it cannot take it says", async () => {
	await attach("fake-fast", "fast");
	const t = await begin("fast", { args: true });
	const page = await show(`#/t/${t.id}/tree`, {});
	await page.getByRole("treegrid").waitFor();
	const cdp = await page.context().newCDPSession(page);
	const heap = async () => { await cdp.send("HeapProfiler.collectGarbage"); return (await cdp.send("Runtime.getHeapUsage")).usedSize / 1048576; };
	const gaps = () => page.evaluate(() => new Promise((done) => {
		const list = [], end = performance.now() + 3000;
		let last = performance.now();
		const step = (now) => { list.push(now - last); last = now; now < end ? requestAnimationFrame(step) : done(list.sort((a, b) => a - b)); };
		requestAnimationFrame(step);
	}));
	const list = await gaps();
	assert.ok(list.length > 15 && list.at(-1) < 700, `${list.length} frames in 3 s, the longest ${list.at(-1)} ms`);
	const start = performance.now();
	await page.getByRole("link", { name: "Profile" }).click();
	await page.locator(".view-profile tbody tr").first().waitFor();
	assert.ok(performance.now() - start < 2500, "a click takes its time");
	await page.getByText("Not seen here").waitFor();
	const used = await heap();
	assert.ok(used < 260, `${used} MiB of memory`);
	console.log(`fast: ${list.length} frames in 3 s, the longest ${list.at(-1).toFixed(0)} ms; ${used.toFixed(0)} MiB`);
	await detach("fast");
});

test("a daemon that is away is missed and found again", async () => {
	const page = await show("#/g/web1", {});
	await page.getByRole("heading", { name: "web1" }).waitFor();
	await page.context().setOffline(true);
	await page.getByText("what is shown may be old").waitFor();
	await accessible(page, "no daemon");
	await shot(page, "no-daemon");
	await page.context().setOffline(false);
	await page.getByText("what is shown may be old").waitFor({ state: "detached" });
	await detach("web1");
	await page.getByText("No guest web1 is attached").waitFor();
});

test("a daemon that asks for a token gets it, in a header, and no other port does", async () => {
	await at?.close();
	const context = await browser.newContext();
	const page = await context.newPage();
	await page.goto(process.env.PAGE_ASKS);
	await page.getByLabel("Token").fill("hvft_" + "0".repeat(64));
	await page.getByRole("button", { name: "Go on" }).click();
	await page.getByRole("alert").waitFor();
	await accessible(page, "the token form");
	await page.getByLabel("Token").fill(process.env.PAGE_TOKEN);
	await page.getByRole("button", { name: "Go on" }).click();
	await page.getByText("None is attached.").waitFor();
	assert.equal(await page.evaluate(() => document.cookie), "");
	assert.deepEqual(await context.cookies(), []);
	// the same host on another port: what a cookie would not tell apart
	const heard = [];
	const other = http.createServer((rq, reply) => { heard.push(JSON.stringify([rq.url, rq.headers])); reply.end("<title>other</title>"); });
	await new Promise((done) => other.listen(0, "127.0.0.1", done));
	const next = await context.newPage();
	await next.goto(`http://127.0.0.1:${other.address().port}/`);
	assert.equal(await next.evaluate(() => sessionStorage.length), 0);
	other.close();
	assert.ok(heard.length > 0);
	assert.ok(!heard.join().includes(process.env.PAGE_TOKEN));
	// loaded anew it goes on without asking; a file of metrics comes with the token, too
	await page.reload();
	await page.getByText("None is attached.").waitFor();
	const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Metrics" }).click()]);
	assert.match(await readFile(await file.path(), "utf8"), /^hvftrace_/m);
	await context.close();
	at = null;
});
