// SPDX-License-Identifier: Apache-2.0
// Globs of functions as the daemon matches them: * ? [a-z] [!a-z] \x, and GLOB:mod:NAME. Linear in the
// name for each star, so a pattern cannot make the page hang.

/** The class that begins after the "[" at p[i - 1]: [is c in it, where the pattern goes on], null when it has no "]". */
function inClass(p, i, c) {
	const not = p[i] === "!";
	let hit = false;
	if (not)
		i++;
	for (const first = i; i < p.length && (p[i] !== "]" || i === first); i++) {
		const low = p[i];
		let high = low;
		if (p[i + 1] === "-" && i + 2 < p.length && p[i + 2] !== "]") {
			high = p[i + 2];
			i += 2;
		}
		hit ||= low <= c && c <= high;
	}
	return i < p.length ? [hit !== not, i + 1] : null;
}

/** One element of the pattern at i against c: [does it match, where the next element is]. */
function step(p, i, c) {
	if (p[i] === "?")
		return [true, i + 1];
	if (p[i] === "[") {
		const found = inClass(p, i + 1, c);
		if (found)
			return found;
	}
	if (p[i] === "\\" && i + 1 < p.length)
		i++;
	return [p[i] === c, i + 1];
}

export function match(p, name) {
	let i = 0, k = 0, star = -1, mark = 0;
	while (k < name.length) {
		if (p[i] === "*") {
			star = ++i;
			mark = k;
			continue;
		}
		if (i < p.length) {
			const [ok, next] = step(p, i, name[k]);
			if (ok) {
				i = next;
				k++;
				continue;
			}
		}
		if (star < 0)
			return false;
		i = star;
		k = ++mark;
	}
	while (p[i] === "*")
		i++;
	return i === p.length;
}

/** {name, module}: the two globs of "GLOB:mod:NAME"; module is null for any. */
export function parse(glob) {
	const at = glob.indexOf(":mod:");
	return at < 0 ? { name: glob, module: null } : { name: glob.slice(0, at) || "*", module: glob.slice(at + 5) };
}

/** A test of functions {name, module} that passes what one of these globs matches; all when there is none. */
export function any(globs) {
	const parsed = globs.map(parse);
	return (f) => !parsed.length || parsed.some((g) =>
		(g.module === null || (f.module !== null && match(g.module, f.module))) && match(g.name, f.name));
}

/** What a person typed into one line: words with blanks or commas between. */
export const words = (text) => text.split(/[\s,]+/).filter(Boolean);
