// SPDX-License-Identifier: Apache-2.0
// A stock Debian guest, attached, traced and let go by hand in the page: $PAGE_URL, $PAGE_TARGET what to attach.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { URL_, accessible, launch, openPage, shot, text } from "./driver.mjs";

let browser, at, page;

before(async () => {
	browser = await launch();
	at = await openPage(browser, {});
	page = at.page;
	page.setDefaultTimeout(60000);
});
after(async () => { await browser.close(); });

const get = async (path) => (await fetch(URL_ + path)).json();
const begin = async (filter, label) => {
	await page.getByLabel(label, { exact: true }).fill(filter);
	await page.getByRole("button", { name: "Start trace" }).click();
};

test("it is found on the host and attached", async () => {
	const row = page.locator(".machines li", { hasText: process.env.PAGE_TARGET });
	await row.getByRole("button").click();
	await page.getByText(/functions can be traced/).waitFor();
});

test("functions that the form counts are those that get armed", async () => {
	const { name } = (await get("/v1/guests")).items[0];
	await page.getByLabel("Functions", { exact: true }).fill("vfs_* do_sys_open* path_openat");
	const counted = page.locator(".matches-count");
	await counted.waitFor();
	const n = parseInt(await counted.innerText(), 10);
	await page.getByText("Options").click();
	await page.getByLabel("Task switches").check();
	await begin("vfs_* do_sys_open* path_openat", "Functions");
	await page.getByRole("treegrid").waitFor();
	const [t] = (await get("/v1/traces")).items;
	assert.equal(t.functions, n);
	assert.equal((await get(`/v1/guests/${name}`)).armed, n + 1, "and the one by which task switches are seen");
});

test("calls of the guest nest as the kernel makes them", async () => {
	await page.getByRole("searchbox").fill("do_sys_openat2");
	await page.locator(".row[aria-level='1'] .fn", { hasText: "do_sys_openat2" }).first().waitFor();
	await page.locator(".row[aria-level='2'] .fn", { hasText: "path_openat" }).first().waitFor();
	await shot(page, "guest-tree");
	await page.getByRole("link", { name: "Flame graph" }).click();
	await page.getByRole("treeitem", { name: /^path_openat, / }).first().waitFor();
	await shot(page, "guest-flame");
	await page.getByRole("link", { name: "Timeline" }).click();
	await page.locator(".view-timeline tbody tr").first().waitFor();
	await shot(page, "guest-timeline");
	await accessible(page, "a guest's timeline");
	await page.getByRole("link", { name: "Records" }).click();
	await page.getByText(/^switch$/).first().waitFor();
	await page.getByRole("link", { name: "Profile" }).click();
	await page.locator("td", { hasText: "vfs_read" }).first().waitFor();
});

test("stopping puts everything back and says so", async () => {
	await page.getByRole("button", { name: "Stop" }).click();
	await page.locator(".totals .is-good").waitFor();
	const [t] = (await get("/v1/traces")).items;
	assert.equal(t.restore.verified, true);
	assert.match(await text(page, ".totals .is-good"), new RegExp(`${t.restore.sites_restored}.*verified`));
});

test("system calls come as a table, filtered and added up", async () => {
	await page.locator(".crumbs a").click();
	await page.getByLabel("System calls").check();
	await begin("%file", "System calls");
	await page.getByRole("grid", { name: "System calls" }).waitFor();
	await page.getByRole("searchbox").first().fill("/nowhere");
	await page.getByLabel("Failed only").check();
	const row = page.locator(".virtual-rows .row", { hasText: "/nowhere" }).first();
	await row.waitFor();
	assert.match(await row.innerText(), /-1 ENOENT/);
	await accessible(page, "system calls");
	await shot(page, "guest-syscalls");
	await page.getByRole("button", { name: "Summary" }).click();
	await page.locator("td", { hasText: /^openat$/ }).waitFor();
	await page.getByRole("button", { name: "Stop" }).click();
	await page.locator(".totals .is-good").waitFor();
});

test("its stop windows are drawn, and it is let go", async () => {
	await page.locator(".crumbs a").click();
	await page.getByRole("link", { name: /Stop windows/ }).click();
	await page.locator("canvas").first().waitFor();
	await shot(page, "guest-windows");
	await page.getByRole("button", { name: "Detach" }).click();
	const gone = page.waitForResponse((r) => r.request().method() === "DELETE" && r.url().includes("/v1/guests/"));
	await page.getByRole("button", { name: /^Detach / }).click();
	const answer = await gone; // the list has it no more while it is still being put back
	assert.equal(answer.status(), 200); // what is left in the guest, test_page.py compares
	await page.getByText("None is attached.").waitFor();
	at.quiet();
});
