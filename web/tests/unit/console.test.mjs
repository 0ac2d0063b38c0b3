// SPDX-License-Identifier: Apache-2.0
// A guest's console as plain text, whatever the guest says.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ConsoleText } from "../../src/console.js";
import { KEEP_CONSOLE_LINES, MAX_CONSOLE_LINE, MAX_ESCAPE } from "../../src/limits.js";

const shown = (...pieces) => {
	const c = new ConsoleText();
	for (const p of pieces)
		c.add(p);
	return c.text();
};

test("lines, as they end on a serial port", () => {
	assert.equal(shown("Linux version 6.1\r\nlogin: "), "Linux version 6.1\nlogin: ");
	assert.equal(shown("a\nb\n"), "a\nb\n");
	assert.equal(shown("10 %\r20 %\r100 %\r\n"), "100 %\n");
	assert.equal(shown("passwd\b\bxx"), "passxx");
	assert.equal(shown("ls\b \b\b \b"), "  ");
	assert.equal(shown("\b\b\ba"), "a");
	assert.equal(shown("a\tb\r\n12345678\tc"), "a       b\n12345678        c");
});

test("what colours, moves and names windows is left out", () => {
	assert.equal(shown("\u001b[1;31mred\u001b[0m \u001b[?25h\u001b(Bb"), "red b");
	assert.equal(shown("\u001b]0;a title\u0007x\u001b]8;;http://evil\u001b\\y\u001bP1$r\u001b\\z"), "xyz");
	assert.equal(shown("\u001b[2J\u001b[1;1Hclear"), "clear");
	assert.equal(shown("abcdef\r\u001b[Kxy"), "xy");
	// in pieces, wherever they are cut
	const text = "\u001b[1;32mok\u001b[0m\u001b]0;t\u0007!";
	for (let i = 0; i <= text.length; i++)
		assert.equal(shown(text.slice(0, i), text.slice(i)), "ok!");
	assert.equal(shown("a\u0000\u0007\u000e\u007fb"), "ab");
	assert.equal(shown("\u202eevil\u2066\u009b31m\u200b"), "\ufffdevil\ufffd\ufffd31m\ufffd");
	assert.equal(shown("<script>alert(1)</script>"), "<script>alert(1)</script>"); // a text node, like all else
});

test("an escape without an end hides no more than a little", () => {
	assert.equal(shown("\u001b]0;" + "x".repeat(2 * MAX_ESCAPE) + "\nseen").endsWith("\nseen"), true);
	assert.equal(shown("\u001b[" + "1;".repeat(MAX_ESCAPE) + "\nseen").endsWith("seen"), true);
});

test("what is kept has its bound", () => {
	const c = new ConsoleText();
	for (let i = 0; i < 3 * KEEP_CONSOLE_LINES; i++)
		c.add(`line ${i}\r\n`);
	assert.ok(c.lines.length <= 1.25 * KEEP_CONSOLE_LINES);
	assert.equal(c.lines.length + c.dropped, 3 * KEEP_CONSOLE_LINES);
	assert.equal(c.lines.at(-1), `line ${3 * KEEP_CONSOLE_LINES - 1}`);
	c.clear();
	c.add("x".repeat(10 * MAX_CONSOLE_LINE));
	assert.ok(c.line.length <= MAX_CONSOLE_LINE && c.lines.every((l) => l.length <= MAX_CONSOLE_LINE));
	c.add("\t".repeat(10 * MAX_CONSOLE_LINE));
	assert.ok(c.lines.length <= 1.25 * KEEP_CONSOLE_LINES);
});
