// SPDX-License-Identifier: Apache-2.0
// A guest's console as plain text. A terminal it is not: what moves a cursor, colours or names a window is left out,
// and no more is kept than limits.js says, whatever comes.

import { KEEP_CONSOLE_LINES, MAX_CONSOLE_LINE, MAX_ESCAPE } from "./limits.js";

const TAB = 8;
// shown as what they are not: they would change what stands around them
const HIDDEN = /[\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;

// After an escape character, by ECMA-48: a control sequence to its final byte, a string to its end, or one more character.
const PLAIN = 0, ESCAPE = 1, CONTROL = 2, STRING = 3, STRING_ESCAPE = 4, INTERMEDIATE = 5;

export class ConsoleText {
	constructor() {
		this.clear();
	}

	clear() {
		this.lines = []; // whole ones
		this.dropped = 0; // of lines, before the first
		this.line = []; // characters of the one that is being written
		this.column = 0;
		this.state = PLAIN;
		this.escape = 0; // characters of it so far
	}

	/** what came: any characters at all */
	add(text) {
		for (const c of text)
			this.#take(c);
	}

	/** all that is kept, from the oldest line on */
	text() {
		return this.lines.join("\n") + (this.lines.length ? "\n" : "") + this.line.join("");
	}

	#take(c) {
		const n = c.codePointAt(0);
		if (this.state !== PLAIN && ++this.escape > MAX_ESCAPE)
			this.state = PLAIN; // one that has no end hides nothing more
		switch (this.state) {
		case ESCAPE:
			this.state = c === "[" ? CONTROL : "]PX^_".includes(c) ? STRING : n >= 0x20 && n <= 0x2f ? INTERMEDIATE : PLAIN;
			return;
		case INTERMEDIATE:
			if (n < 0x20 || n > 0x2f)
				this.state = PLAIN;
			return;
		case CONTROL:
			if (n >= 0x40 && n <= 0x7e)
				this.#control(c);
			if (n >= 0x40 || c === "\n")
				this.state = PLAIN;
			return;
		case STRING:
			this.state = c === "\u0007" ? PLAIN : c === "\u001b" ? STRING_ESCAPE : STRING;
			return;
		case STRING_ESCAPE:
			this.state = c === "\\" ? PLAIN : STRING;
			return;
		}
		if (n < 0x20 || n === 0x7f)
			this.#act(c);
		else
			this.#put(HIDDEN.test(c) ? "\ufffd" : c);
	}

	#act(c) {
		if (c === "\u001b") {
			this.state = ESCAPE;
			this.escape = 0;
		} else if (c === "\n" || c === "\v" || c === "\f") {
			this.#end();
		} else if (c === "\r") {
			this.column = 0;
		} else if (c === "\b") {
			this.column = Math.max(0, this.column - 1);
		} else if (c === "\t") {
			do
				this.#put(" ");
			while (this.column % TAB);
		}
	}

	// Of all that moves only what a shell's line editor needs: erase the rest of the line.
	#control(c) {
		if (c === "K")
			this.line.length = Math.min(this.line.length, this.column);
	}

	#put(c) {
		if (this.column === MAX_CONSOLE_LINE)
			this.#end();
		this.line[this.column++] = c;
	}

	#end() {
		this.lines.push(this.line.join("").trimEnd());
		this.line = [];
		this.column = 0;
		if (this.lines.length > KEEP_CONSOLE_LINES + KEEP_CONSOLE_LINES / 4) {
			this.dropped += this.lines.length - KEEP_CONSOLE_LINES;
			this.lines = this.lines.slice(-KEEP_CONSOLE_LINES);
		}
	}
}
