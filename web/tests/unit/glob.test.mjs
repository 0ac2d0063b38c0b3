// SPDX-License-Identifier: Apache-2.0
// Globs match what the daemon's do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { any, match, words } from "../../src/glob.js";
import { choose, modules } from "../../src/functions.js";

test("each element", () => {
	for (const [glob, name, want] of [
		["vfs_*", "vfs_read", true], ["vfs_*", "vfs_", true], ["vfs_*", "xvfs_read", false], ["*read", "vfs_read", true], ["*", "", true], ["", "", true],
		["", "a", false], ["v?s", "vfs", true], ["v?s", "vs", false], ["tcp_v[46]_*", "tcp_v4_rcv", true], ["tcp_v[46]_*", "tcp_v5_rcv", false],
		["[!a-c]x", "dx", true], ["[!a-c]x", "bx", false], ["[^a]x", "^x", true], ["[]a]x", "]x", true], ["[a-]x", "-x", true], ["[z", "[z", true],
		["\\*x", "*x", true], ["\\*x", "yx", false], ["a*b*c", "axxbyyc", true], ["a*b*c", "axxbyy", false], ["a**c", "abc", true], ["x\\", "x\\", true],
	])
		assert.equal(match(glob, name), want, `${glob} ${name}`);
});

test("a pattern that would make a backtracking matcher hang takes no time", () => {
	const start = performance.now();
	assert.equal(match("*a".repeat(60) + "b", "a".repeat(4000)), false);
	assert.ok(performance.now() - start < 500);
});

test("modules", () => {
	const f = any([":mod:ext4", "tcp_*:mod:ip*"]);
	assert.ok(f({ name: "x", module: "ext4" }));
	assert.ok(!f({ name: "x", module: null }));
	assert.ok(f({ name: "tcp_a", module: "ipv6" }));
	assert.ok(!f({ name: "udp_a", module: "ipv6" }));
	assert.ok(any([])({ name: "x", module: null }));
});

test("words", () => assert.deepEqual(words("  vfs_*, tcp_*\n!x "), ["vfs_*", "tcp_*", "!x"]));

test("what globs choose", () => {
	const list = ["vfs_a", "vfs_b", "vfs_c", "tcp_a"].map((name, i) =>
		({ name, shown: name, module: name === "tcp_a" ? "net" : null, mod: name === "tcp_a" ? "net" : "", state: ["traceable", "disabled", "in_use", "traceable"][i] }));
	assert.deepEqual(choose(list, ["vfs_*", "nope"], []), { matched: 3, traceable: 1, disabled: 1, inUse: 1, sample: ["vfs_a"], none: ["nope"] });
	assert.equal(choose(list, [], ["vfs_*"]).matched, 1);
	assert.deepEqual(modules(list), [["", 3], ["net", 1]]);
});
