// SPDX-License-Identifier: Apache-2.0
// A guest's list of functions, fetched once and searched here, so that counts follow each key that is typed.

import { allFunctions } from "./api.js";
import { clean } from "./format.js";
import { any } from "./glob.js";

const lists = new Map(); // guest -> {promise, list, got}

/** the guest's functions: {list or null, got, problem}; asks for them at the first call */
export function functionsOf(guest, attached, onChange) {
	const key = `${guest} ${attached}`;
	let f = lists.get(key);
	if (!f) {
		for (const old of [...lists.keys()].slice(0, Math.max(0, lists.size - 3)))
			lists.delete(old);
		f = { list: null, got: 0, problem: null };
		lists.set(key, f);
		allFunctions(guest, undefined, (n) => { f.got = n; onChange(); })
			.then((items) => { f.list = items.map((i) => ({ ...i, shown: clean(i.name, 120), mod: i.module === null ? "" : clean(i.module, 64) })); })
			.catch((e) => { f.problem = e; lists.delete(key); })
			.finally(onChange);
	}
	return f;
}

export function forgetFunctions(guest, attached) {
	lists.delete(`${guest} ${attached}`);
}

/** what these globs choose: {matched, traceable, disabled, inUse, sample, none}; none: globs that match nothing */
export function choose(list, globs, notGlobs = [], sampleSize = 8) {
	const yes = any(globs), not = any(notGlobs), single = globs.map((g) => [g, any([g])]);
	const found = { matched: 0, traceable: 0, disabled: 0, inUse: 0, sample: [], none: [] };
	const seen = new Set();
	for (const f of list) {
		if (!yes(f))
			continue;
		for (const [g, test] of single) {
			if (!seen.has(g) && test(f))
				seen.add(g);
		}
		if (notGlobs.length && not(f))
			continue;
		found.matched++;
		found.traceable += f.state === "traceable" ? 1 : 0;
		found.disabled += f.state === "disabled" ? 1 : 0;
		found.inUse += f.state === "in_use" ? 1 : 0;
		if (found.sample.length < sampleSize && f.state === "traceable")
			found.sample.push(f.shown);
	}
	found.none = globs.filter((g) => !seen.has(g));
	return found;
}

/** how many functions each module has: [[name or "", count]], the kernel's own first */
export function modules(list) {
	const map = new Map();
	for (const f of list)
		map.set(f.mod, (map.get(f.mod) ?? 0) + 1);
	return [...map].sort((a, b) => (a[0] === "" ? -1 : b[0] === "" ? 1 : a[0].localeCompare(b[0])));
}
