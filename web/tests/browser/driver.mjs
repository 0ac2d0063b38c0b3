// SPDX-License-Identifier: Apache-2.0
// Chromium on the page: what the tests in it share. $PAGE_URL is the daemon, $PAGE_SHOTS a folder for pictures.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync"];

export const URL_ = process.env.PAGE_URL;

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: FLAGS });

/** a page whose console and policy must stay silent: {page, quiet(), close()} */
export async function openPage(browser, { width = 1280, height = 800, dark = false, path = "/" } = {}) {
	const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce" });
	const page = await context.newPage();
	const said = [], asked = [];
	page.on("console", (m) => { if (["error", "warning"].includes(m.type())) said.push(m.text()); });
	page.on("pageerror", (e) => said.push(String(e)));
	page.on("request", (r) => asked.push(r.url()));
	page.setDefaultTimeout(15000);
	await page.goto(URL_ + path);
	return {
		page, said,
		/** nothing was complained about, but for answers that a test asked for, and nothing came from elsewhere */
		quiet(allowed = /^$/) {
			assert.deepEqual(said.filter((s) => !allowed.test(s)), []);
			assert.deepEqual(asked.filter((u) => !u.startsWith(URL_) && !u.startsWith("blob:" + URL_)), []);
		},
		close: () => context.close(),
	};
}

export async function shot(page, name) {
	if (process.env.PAGE_SHOTS)
		await page.screenshot({ path: join(process.env.PAGE_SHOTS, `page-${name}.png`) });
}

/** axe finds nothing, in the colours that are shown; it works in a world of its own, so the page's policy stays as it is */
export async function accessible(page, name) {
	const cdp = await page.context().newCDPSession(page);
	const { frameTree } = await cdp.send("Page.getFrameTree");
	const { executionContextId } = await cdp.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
	const run = async (expression) => {
		const r = await cdp.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
		assert.ok(!r.exceptionDetails, JSON.stringify(r.exceptionDetails));
		return r.result.value;
	};
	await run(AXE + "; true");
	const found = await run(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) =>
		({bad: r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? "")).join(" | ")), passed: r.passes.length}))`);
	await cdp.detach();
	assert.deepEqual(found.bad, [], `axe on ${name}`);
	assert.ok(found.passed > 10, `axe looked at nothing on ${name}`);
}

export const text = (page, selector) => page.locator(selector).first().innerText();
