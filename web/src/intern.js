// SPDX-License-Identifier: Apache-2.0
// Strings by number, so that columns of numbers can hold them. Bounded: a guest chooses some of them.

import { MAX_NAME, MAX_NAMES } from "./limits.js";
import { clean } from "./format.js";

export class Names {
	constructor(max = MAX_NAMES) {
		this.max = max;
		this.list = ["", "(more names than the page keeps)"];
		this.byText = new Map([["", 0]]);
	}

	id(text) {
		if (text === null || text === undefined)
			return 0;
		let n = this.byText.get(text);
		if (n !== undefined)
			return n;
		if (this.list.length >= this.max)
			return 1;
		n = this.list.push(clean(text, MAX_NAME)) - 1;
		this.byText.set(text.length > 4 * MAX_NAME ? text.slice(0, 4 * MAX_NAME) : text, n);
		return n;
	}

	text(n) {
		return this.list[n] ?? "";
	}
}
