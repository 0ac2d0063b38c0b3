// SPDX-License-Identifier: Apache-2.0
// What the page keeps of a trace: calls that nest, time by stack, profile, records; each bounded, each right after losses.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Calls, NEVER, OPEN, UNSEEN } from "../../src/calls.js";
import { Flame, layout, weigh } from "../../src/flame.js";
import { Names } from "../../src/intern.js";
import { extent, inView, lanes, running, ticks } from "../../src/lanes.js";
import { Live, firstAfter } from "../../src/live.js";
import { KEEP_CALLS, KEEP_RECORDS, KEEP_SYSCALLS, MAX_NOTE } from "../../src/limits.js";
import { TraceSeries, WindowSeries } from "../../src/series.js";
import { Syscalls } from "../../src/syscalls.js";

const make = () => new Live({ id: "t1", records: 0, oldest_seq: 0, state: "running" });
let seq = 0, clock = 1e9;
const rec = (type, fn, depth, more = {}) => ({ seq: ++seq, type, ts_ns: clock += 1000, cpu: 0, pid: 7, tgid: 7, comm: "cat", function: fn, module: null,
	ip: "0x1", parent: "p", context: ".....", depth, ...more });
const enter = (fn, depth, more) => rec("graph_entry", fn, depth, more);
const leave = (fn, depth, ns, more) => rec("graph_return", fn, depth, { duration_ns: ns, parent: null, ...more });
const names = (live) => live.calls.rows([], new Set(), null).map((n) => `${"  ".repeat(live.calls.level(n) - 1)}${live.names.text(live.calls.fn[n & live.calls.mask])}`);

test("calls nest by task, whatever comes between", () => {
	const l = make();
	for (const r of [enter("a", 0), enter("x", 0, { pid: 8 }), enter("b", 1), leave("b", 1, 500), leave("x", 0, 9, { pid: 8 }), enter("c", 1), leave("c", 1, 700), leave("a", 0, 3000), enter("d", 0)])
		l.item(r);
	assert.deepEqual(names(l), ["a", "  b", "  c", "x", "d"]);
	const c = l.calls, of = (name) => c.rows([], new Set(), null).find((n) => l.names.text(c.fn[n & c.mask]) === name);
	assert.equal(c.dur[of("a") & c.mask], 3000);
	assert.equal(c.dur[of("d") & c.mask], OPEN);
	assert.deepEqual(c.rows([], new Set([of("a")]), null).map((n) => l.names.text(c.fn[n & c.mask])), ["a", "x", "d"]);
});

test("a lost return closes what was inside, a lost entry starts no call", () => {
	const l = make();
	for (const r of [enter("a", 0), enter("b", 1), enter("c", 2), leave("a", 0, 9000), leave("z", 3, 5), enter("e", 0), leave("f", 0, 1)])
		l.item(r);
	assert.deepEqual(names(l), ["a", "  b", "    c", "e"]);
	assert.equal(l.calls.dur[3 & l.calls.mask], UNSEEN);
	assert.equal(l.calls.dur[4 & l.calls.mask], UNSEEN, "a return of another function is not taken for its");
});

test("after a loss nothing is hung under calls from before it", () => {
	const l = make();
	for (const r of [enter("a", 0), { type: "lost", count: 12, after: 1 }, enter("b", 1), leave("b", 1, 5)])
		l.item(r);
	assert.deepEqual(names(l), ["a", "b"]);
	assert.equal(l.calls.dur[1], UNSEEN);
	assert.equal(l.lost, 12);
});

test("a call that never returns", () => {
	const l = make();
	l.item(enter("do_exit", 0));
	l.item(rec("graph_never", "do_exit", 0));
	assert.equal(l.calls.dur[1], NEVER);
});

test("arguments and results are kept, cut, and cannot turn the text around", () => {
	const l = make();
	l.item(enter("f", 0, { args: [{ name: "count", type: "size_t", value: "0x5", text: "5" }, { name: null, type: null, value: "0x1", text: "\u202e" + "x".repeat(9999) }] }));
	l.item(leave("f", 0, 5, { retval: { type: "int", value: "0x2", text: "-2 (ENOENT)" } }));
	const note = l.calls.notes.get(1);
	assert.ok(note.startsWith("(count=5, \ufffd"), note);
	assert.ok(note.length <= MAX_NOTE + 1);
	l.item(enter("g", 0));
	l.item(leave("g", 0, 5, { retval: { text: "0" } }));
	assert.equal(l.calls.notes.get(2), " = 0");
});

test("memory has its bounds, and what is old goes", () => {
	const c = new Calls(64), n = new Names(10);
	for (let i = 0; i < 1000; i++) {
		const id = c.enter(1, 0, { pid: 1, cpu: 0, depth: i % 3, ts_ns: i });
		c.note(id, "x");
	}
	assert.equal(c.rows([], new Set(), null).filter((k) => !c.has(k)).length, 0);
	assert.ok(c.rows([], new Set(), null).length <= 64);
	assert.ok(c.notes.size <= 64 && c.roots.length - c.rootsFrom <= 64);
	for (let i = 0; i < 50; i++)
		n.id(`n${i}`);
	assert.equal(n.list.length, 10);
	assert.equal(n.text(n.id("n49")), "(more names than the page keeps)");
	const l = make();
	for (let i = 0; i < KEEP_CALLS + KEEP_RECORDS + 10; i++)
		l.item(rec("function", "f", 0, { pid: i, args: i % 7 ? undefined : [{ text: "1" }] }));
	assert.ok(l.calls.notes.size <= KEEP_CALLS && l.records.notes.size <= KEEP_RECORDS && l.calls.roots.length < 2 * KEEP_CALLS + 8192);
	const s = new Syscalls();
	for (let i = 0; i < KEEP_SYSCALLS + 5; i++)
		s.add({ seq: i, syscall: `s${i % 3}`, args: [], ret_text: "0", error: i % 2 ? "ENOENT" : null, duration_ns: 5, ts_ns: i, pid: 1, comm: "a" });
	assert.equal(s.rows([]).length, KEEP_SYSCALLS);
	assert.equal([...s.byName.values()].reduce((k, x) => k + x.calls, 0), KEEP_SYSCALLS + 5);
	assert.equal(s.rows([], { failed: true, text: "S1".toLowerCase() }).every((k) => s.at(k).error && s.at(k).name === "s1"), true);
});

test("time by stack adds up, whether calls returned or not", () => {
	const l = make();
	for (const r of [enter("a", 0), enter("b", 1), leave("b", 1, 400), enter("b", 1), leave("b", 1, 100), leave("a", 0, 900), enter("a", 0), enter("b", 1), leave("b", 1, 1000)])
		l.item(r);
	weigh(l.flame.root);
	const task = [...l.flame.root.kids.values()][0], a = [...task.kids.values()][0], b = [...a.kids.values()][0];
	assert.deepEqual([l.names.text(task.name), l.names.text(a.name), l.names.text(b.name)], ["cat", "a", "b"]);
	assert.deepEqual([a.count, a.total, b.count, b.total], [1, 900, 3, 1500]);
	assert.equal(a.value, 1500, "an open call is as wide as what returned inside it");
	const boxes = layout(l.flame.root, 0.001);
	assert.deepEqual(boxes.map((x) => x.level), [0, 1, 2, 3]);
	for (const x of boxes)
		assert.ok(x.x >= 0 && x.x + x.w <= 1.0000001);
	const zoomed = layout(b, 0.001);
	assert.deepEqual(zoomed.map((x) => x.level), [-3, -2, -1, 0]);
});

test("a flame graph has its bound, and no time is lost by it", () => {
	const f = new Flame(8);
	for (let i = 0; i < 100; i++)
		f.add(i + 1, 500, 10);
	assert.ok(f.nodes.length <= 8);
	assert.ok(f.refused > 0);
	assert.equal(weigh(f.root), 1000);
	const g = new Flame(4); // all, the task, and two functions
	for (const [fn, depth] of [[11, 0], [12, 1], [13, 2], [14, 3]])
		g.enter(fn, 500, 7, depth);
	for (const [fn, depth, dur] of [[14, 3, 10], [13, 2, 20], [12, 1, 30], [11, 0, 40]])
		g.leave(fn, 7, depth, dur);
	g.enter(15, 500, 7, 0);
	g.leave(15, 7, 0, 60);
	assert.equal(weigh(g.root), 100, "callees without room are in their callers' time, outermost ones in their task's");
});

test("self time is without traced callees", () => {
	const l = make();
	for (const r of [enter("a", 0), enter("b", 1), leave("b", 1, 400), enter("c", 1), leave("c", 1, 100), leave("a", 0, 900)])
		l.item(r);
	const a = l.profile.rows().find((p) => l.names.text(p.fn) === "a");
	assert.deepEqual([a.hits, a.total, a.self, a.max], [1, 900, 400, 900]);
});

test("lanes and axes", () => {
	const l = make();
	for (const r of [enter("a", 0, { cpu: 1, ts_ns: 1000 }), enter("b", 1, { cpu: 1, ts_ns: 1100 }), leave("b", 1, 100), leave("a", 0, 500), enter("q", 0, { pid: 9, ts_ns: 5000 }), leave("q", 0, 10, { pid: 9 })])
		l.item(r);
	assert.deepEqual(extent(l.calls), [1000, 5010]);
	const all = lanes(l.calls, "cpu", 0, 6000, 6000).lanes;
	assert.deepEqual(all.map((x) => [x.key, x.calls.length, x.rows]), [[0, 1, 1], [1, 2, 2]]);
	assert.deepEqual(lanes(l.calls, "task", 0, 2000, 6000).lanes.map((x) => x.key), [7]);
	assert.deepEqual(inView(l.calls, 1000, 1150).map((f) => [l.names.text(f.fn), f.count, f.time]), [["a", 1, 150], ["b", 1, 50]]);
	const t = ticks(0, 1e9, 5);
	assert.ok(t.length >= 4 && t.length <= 11 && t[1].label === "0.2 s", JSON.stringify(t));
	assert.ok(ticks(5, 5, 3).length < 101);
});

test("which task a vCPU runs, by its switches", () => {
	const s = [[10, 0, 5], [20, 1, 9], [30, 0, 0], [40, 0, 6]].map(([ts, cpu, pid]) => ({ ts, cpu, pid, comm: pid }));
	assert.deepEqual(running(s, 0, 0, 100), [{ pid: 5, comm: 5, from: 10, to: 30 }, { pid: 6, comm: 6, from: 40, to: 100 }]);
	assert.deepEqual(running(s, 0, 15, 25), [{ pid: 5, comm: 5, from: 15, to: 25 }]);
	assert.deepEqual(running(s, 2, 0, 100), []);
});

test("bytes of a stream that are no record do no harm", () => {
	const l = make();
	for (const text of ["", "{", "null", "3", "[]", '{"type":"what"}', '{"type":"lost"}', '{"type":"graph_return"}', '{"type":"syscall","args":[null]}', '{"type":"switch"}'])
		l.line(text);
	assert.equal(l.unparsed, 2);
	l.line(JSON.stringify({ type: "end", reason: "stopped" }));
	assert.equal(l.state, "ended");
});

test("records that were overwritten while the page was away are a loss, those before it came are not", () => {
	const l = make(), n = () => [l.lost, l.skipped, l.lastSeq];
	l.fresh = true;
	l.item({ type: "lost", count: 510, after: 0 });
	l.item(rec("function", "f", 0, { seq: 501 }));
	assert.deepEqual(n(), [10, 500, 501], "of 510 before the first record 10 were lost in the guest");
	l.item({ type: "lost", count: 3, after: 501 });
	l.fresh = l.gone = true;
	l.item({ type: "lost", count: 600, after: 0 });
	l.item(rec("function", "f", 0, { seq: 601 }));
	assert.deepEqual(n(), [112, 500, 601]);
	assert.equal(l.gone, false);
	assert.deepEqual([[13, 0], [10, 0], [10, 3]].map(([lost, lost_readers]) => l.missed({ lost, lost_readers })), [99, 99, 102]);
});

test("where reading begins", () => {
	const at = (records, oldest_seq, state) => firstAfter({ records, oldest_seq, state });
	assert.equal(at(0, 0, "running"), 0);
	assert.equal(at(1000, 1, "running"), 0);
	assert.equal(at(100000, 34465, "stopped"), 34464);
	assert.equal(at(100000, 34465, "running"), 34464 + Math.ceil(65536 / 4));
	assert.equal(at(9e6, 1, "stopped"), 9e6 - 2 * KEEP_RECORDS);
});

test("charts show differences, also after a daemon began anew", () => {
	const s = new TraceSeries(), t = (records) => ({ records, lost_ring: records / 10, lost_torn: 0, lost_readers: 0 });
	s.look(t(100), 1);
	s.look(t(300), 3);
	s.look(t(50), 4);
	assert.deepEqual(s.columns[1], [100, 0]);
	assert.deepEqual(s.columns[2], [10, 0]);
	const w = new WindowSeries();
	w.look({ count: 1, total_ns: 1e6 }, 1);
	w.look({ count: 3, total_ns: 5e6 }, 2);
	w.look({ count: 3, total_ns: 5e6 }, 3);
	assert.deepEqual(w.columns.slice(1), [[2, 0], [2, null], [0.4, 0]]);
});
