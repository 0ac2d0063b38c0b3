// SPDX-License-Identifier: Apache-2.0
// Numbers, times and shell words as the page shows them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (n) => whole.format(n ?? 0);

/** "1 call", "2 calls" */
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

/** three significant digits with a unit: "812 ns", "1.24 µs", "13.0 ms" */
export function duration(ns) {
	if (!(ns >= 0))
		return "";
	const [n, unit] = ns < 1e3 ? [ns, "ns"] : ns < 999500 ? [ns / 1e3, "µs"] : ns < 999.5e6 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
	const digits = unit === "ns" || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
	return `${unit === "s" && n >= 1000 ? count(n) : n.toFixed(digits)} ${unit}`;
}

/** ftrace's mark of a long call; Documentation/trace/ftrace.rst "function_graph" */
export function mark(ns) {
	return ns > 1e9 ? "$" : ns > 1e8 ? "@" : ns > 1e7 ? "*" : ns > 1e6 ? "#" : ns > 1e5 ? "!" : ns > 1e4 ? "+" : "";
}

/** the guest's clock as ftrace prints it: seconds and microseconds */
export const stamp = (ns) => (ns / 1e9).toFixed(6);

export function bytes(n) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let i = 0;
	while (n >= 1024 && i < units.length - 1) {
		n /= 1024;
		i++;
	}
	return `${n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}

/** a share: "34 %", "0.6 %" */
export function percent(part, all) {
	const p = all > 0 ? 100 * part / all : 0;
	if (p > 0 && p < 0.005)
		return "<0.01 %";
	return `${p >= 9.95 || p === 0 ? p.toFixed(0) : p.toFixed(p >= 0.095 ? 1 : 2)} %`;
}

/** time since an RFC 3339 time: "4 s", "3 min", "2 h" */
export function since(time, now = Date.now()) {
	const s = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
	return s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

/** a word of a POSIX shell's command line */
export const shell = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** what a guest named something: no control or bidirectional characters, which could change what stands around it */
export function clean(text, max) {
	const s = String(text ?? "");
	// eslint-disable-next-line no-control-regex
	const t = (s.length > max ? s.slice(0, max) + "…" : s).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
		(c) => c < "\u0020" ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd");
	return t;
}
