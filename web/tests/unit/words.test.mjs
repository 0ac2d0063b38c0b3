// SPDX-License-Identifier: Apache-2.0
// Numbers, commands and places of the page as words.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { DEFAULTS, body, commandLine, curl, mistakes, onlyApi, threshold } from "../../src/command.js";
import { bytes, clean, count, duration, mark, percent, shell, stamp } from "../../src/format.js";
import { exportFormats, readRoute } from "../../src/store.js";

test("durations", () => {
	for (const [ns, want] of [[0, "0 ns"], [999, "999 ns"], [1000, "1.00 µs"], [9999, "10.0 µs"], [12345, "12.3 µs"], [999499, "999 µs"], [999500, "1.00 ms"],
		[1234567, "1.23 ms"], [99.95e6, "100 ms"], [1.5e9, "1.50 s"], [5e12, "5,000 s"], [-1, ""], [NaN, ""]])
		assert.equal(duration(ns), want, String(ns));
	assert.deepEqual([1e4, 10001, 1e5 + 1, 1e6 + 1, 1e7 + 1, 1e8 + 1, 1e9 + 1].map(mark), ["", "+", "!", "#", "*", "@", "$"]);
	assert.equal(stamp(123456789012), "123.456789");
	assert.equal(bytes(536653824), "512 MiB");
	assert.equal(percent(1, 3), "33 %");
	assert.equal(percent(1, 1e6), "<0.01 %");
	assert.equal(percent(0, 0), "0 %");
	assert.equal(count(1234567), "1,234,567");
});

test("what a guest chose cannot change what stands around it", () => {
	assert.equal(clean("a\u001b[31mb\n", 99), "a\u241b[31mb\u240a");
	assert.equal(clean("\u202eabc\u2066", 99), "\ufffdabc\ufffd");
	assert.equal(clean("x".repeat(50), 10).length, 11);
	assert.equal(clean(null, 10), "");
});

test("words of a shell come back as they were", () => {
	const words = ["vfs_*", "a b", "it's", "$(x)", "`x`", "\\", "!x", ";rm", "", "-l", "%file", "a\"b"];
	const line = words.map(shell).join(" ");
	assert.equal(execFileSync("sh", ["-c", `printf '%s\\n' ${line}`], { encoding: "utf8" }), words.join("\n") + "\n");
});

test("a form as a request", () => {
	assert.deepEqual(body(DEFAULTS), { tracer: "function_graph" });
	const f = { ...DEFAULTS, filter: "vfs_* , tcp_*", notrace: "x", pids: "1 22", graph: "vfs_read", max_graph_depth: "3", threshold: "1.5ms", irqs: false,
		sleep_time: false, retval: true, args: true, switches: true, mode: "overwrite", buffer_records: "4096" };
	const b = body(f);
	assert.deepEqual(b, { tracer: "function_graph", filter: ["vfs_*", "tcp_*"], notrace: ["x"], pids: [1, 22], graph: ["vfs_read"], max_graph_depth: 3, threshold_ns: 1500000,
		irqs: false, sleep_time: false, retval: true, args: true, switches: true, mode: "overwrite", buffer_records: 4096 });
	assert.equal(commandLine("http://h:1", "web1", b), "hvftrace -s http://h:1 trace web1 -p function_graph -l 'vfs_*' -l 'tcp_*' -n x -g vfs_read -P 1 -P 22 " +
		"--max-graph-depth 3 --threshold 1500us --no-irqs --no-sleep-time --retval --args --switches");
	assert.deepEqual(onlyApi(b), ["mode", "buffer_records"]);
	assert.deepEqual(body({ ...f, tracer: "function" }), { tracer: "function", filter: ["vfs_*", "tcp_*"], notrace: ["x"], pids: [1, 22], args: true, switches: true, mode: "overwrite", buffer_records: 4096 });
	assert.deepEqual(body({ ...DEFAULTS, tracer: "syscalls", filter: "%file", failed: true, args: true, switches: true }), { tracer: "syscalls", filter: ["%file"], failed: true });
	assert.equal(commandLine("http://h:1", "g", { tracer: "syscalls", filter: ["%file"], failed: true }), "hvftrace -s http://h:1 syscalls g -l %file --failed");
	assert.ok(curl("http://h:1", "g", { tracer: "function", filter: ["it's"] }).includes(`'{"tracer":"function","filter":["it'\\''s"]}'`));
});

test("mistakes are seen before they are sent", () => {
	assert.deepEqual(mistakes(DEFAULTS), {});
	assert.deepEqual(Object.keys(mistakes({ ...DEFAULTS, pids: "0", threshold: "5", max_graph_depth: "x", buffer_records: "12" })).sort(),
		["buffer_records", "max_graph_depth", "pids", "threshold"]);
	assert.equal(threshold("50us"), 50000);
	assert.equal(threshold("2 s"), 2e9);
	assert.equal(threshold("2h"), null);
});

test("places", () => {
	assert.deepEqual(readRoute("#/g/web1/functions"), { place: null, guest: "web1", trace: null, view: "functions" });
	assert.deepEqual(readRoute("#/t/t12"), { place: null, guest: null, trace: "t12", view: null });
	assert.deepEqual(readRoute("#/g/%E0%A4%A"), { place: null, guest: null, trace: null, view: null });
	assert.deepEqual(readRoute(""), { place: null, guest: null, trace: null, view: null });
	assert.equal(readRoute("#/events").place, "events");
});

test("formats are those that the daemon's own description lists", () => {
	const yaml = (e) => `paths:\n  /v1/traces/{t}:\n    get: {}\n  /v1/guests/{g}/traces/{t}/export:\n    get:\n      parameters:\n        - name: format\n          in: query\n          schema:\n            ${e}\n  /x:\n    get:\n      parameters:\n        - name: format\n          schema: {enum: [no]}\n`;
	assert.deepEqual(exportFormats(yaml("enum: [text, 'trace.dat', perfetto]")), { path: "/v1/guests/{g}/traces/{t}/export", formats: ["text", "trace.dat", "perfetto"] });
	assert.deepEqual(exportFormats(yaml("type: string\n            enum:\n              - text\n              - ctf\n")).formats, ["text", "ctf"]);
	assert.deepEqual(exportFormats("paths:\n  /v1/guests:\n"), { path: null, formats: [] });
});
