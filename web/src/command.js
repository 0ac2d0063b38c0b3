// SPDX-License-Identifier: Apache-2.0
// A trace as the form has it: the body of the request, and the same thing for a terminal.

import { shell } from "./format.js";
import { words } from "./glob.js";

export const DEFAULTS = {
	tracer: "function_graph", filter: "", notrace: "", pids: "", graph: "", graph_notrace: "", max_graph_depth: "", threshold: "",
	irqs: true, sleep_time: true, retval: false, args: false, switches: false, failed: false, mode: "discard", buffer_records: "",
};

const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };

/** "50us" in nanoseconds; null when it is no time with its unit */
export function threshold(text) {
	const m = /^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\s*$/.exec(text);
	const ns = m ? Math.round(m[1] * UNITS[m[2]]) : null;
	return ns !== null && ns <= 3600e9 ? ns : null;
}

const graphOnly = (f) => f.tracer === "function_graph";

/** what is wrong with the form: {field: sentence} */
export function mistakes(f) {
	const bad = {};
	for (const p of words(f.pids)) {
		if (!/^[1-9]\d{0,6}$/.test(p) || +p > 4194304)
			bad.pids = `"${p}" is no pid`;
	}
	if (words(f.pids).length > 64)
		bad.pids = "at most 64 tasks";
	if (graphOnly(f) && f.threshold && threshold(f.threshold) === null)
		bad.threshold = "a time with its unit, as 50us or 2ms, at most an hour";
	if (graphOnly(f) && f.max_graph_depth && !(/^\d+$/.test(f.max_graph_depth) && +f.max_graph_depth <= 65535))
		bad.max_graph_depth = "a number of levels, 0 for all";
	if (f.buffer_records && !(/^\d+$/.test(f.buffer_records) && +f.buffer_records >= 1024 && +f.buffer_records <= 8388608))
		bad.buffer_records = "1024 to 8388608 records";
	return bad;
}

function graphMembers(f, b) {
	for (const key of ["graph", "graph_notrace"]) {
		if (words(f[key]).length)
			b[key] = words(f[key]);
	}
	if (+f.max_graph_depth)
		b.max_graph_depth = +f.max_graph_depth;
	if (threshold(f.threshold))
		b.threshold_ns = threshold(f.threshold);
	for (const key of ["irqs", "sleep_time"]) {
		if (!f[key])
			b[key] = false;
	}
	if (f.retval)
		b.retval = true;
}

/** the body of POST /v1/guests/{g}/traces */
export function body(f) {
	const b = { tracer: f.tracer };
	for (const key of f.tracer === "syscalls" ? ["filter"] : ["filter", "notrace"]) {
		if (words(f[key]).length)
			b[key] = words(f[key]);
	}
	if (words(f.pids).length)
		b.pids = words(f.pids).map(Number);
	if (graphOnly(f))
		graphMembers(f, b);
	if (f.tracer === "syscalls" ? f.failed : f.args)
		b[f.tracer === "syscalls" ? "failed" : "args"] = true;
	if (f.switches && f.tracer !== "syscalls")
		b.switches = true;
	if (f.mode !== "discard")
		b.mode = f.mode;
	if (f.buffer_records)
		b.buffer_records = +f.buffer_records;
	return b;
}

/** "hvftrace ..." for a body, or null and why there is no such command */
export function commandLine(origin, guest, b) {
	const w = ["hvftrace", "-s", origin, b.tracer === "syscalls" ? "syscalls" : "trace", guest];
	if (b.tracer === "function_graph")
		w.push("-p", "function_graph");
	const lists = { filter: "-l", notrace: "-n", graph: "-g", graph_notrace: "--graph-notrace", pids: "-P" };
	for (const [key, option] of Object.entries(lists)) {
		for (const v of b[key] ?? [])
			w.push(option, String(v));
	}
	if (b.max_graph_depth)
		w.push("--max-graph-depth", String(b.max_graph_depth));
	if (b.threshold_ns)
		w.push("--threshold", b.threshold_ns % 1e3 ? `${b.threshold_ns}ns` : `${b.threshold_ns / 1e3}us`);
	const flags = { irqs: [false, "--no-irqs"], sleep_time: [false, "--no-sleep-time"], retval: [true, "--retval"],
		args: [true, "--args"], switches: [true, "--switches"], failed: [true, "--failed"] };
	for (const [key, [value, option]] of Object.entries(flags)) {
		if (b[key] === value)
			w.push(option);
	}
	return w.map(shell).join(" ");
}

/** what the command has no option for */
export const onlyApi = (b) => ["mode", "buffer_records"].filter((k) => k in b);

export function curl(origin, guest, b) {
	return `curl ${shell(`${origin}/v1/guests/${guest}/traces`)} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(JSON.stringify(b))}`;
}
