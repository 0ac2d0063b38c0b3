// SPDX-License-Identifier: Apache-2.0
// What bounds the page's memory and the time it takes at once. All powers of two are sizes of rings.

export const KEEP_RECORDS = 1 << 17;	// rows of the list of records
export const KEEP_CALLS = 1 << 17;	// nodes of the call tree, bars of the timeline
export const KEEP_SYSCALLS = 1 << 15;
export const KEEP_SWITCHES = 1 << 15;
export const KEEP_SAMPLES = 900;	// of the charts, one a second
export const KEEP_EVENTS = 500;		// of the daemon
export const KEEP_CONSOLE_LINES = 2000;	// of a guest's console
export const MAX_CONSOLE_LINE = 1000;	// characters of one, then it goes on in the next
export const MAX_ESCAPE = 512;		// characters of an escape sequence
export const CONSOLE_TAIL = 1 << 16;	// bytes of what it said before
export const MAX_TYPED = 1000;		// characters at a time, of four bytes at most
export const MAX_TASKS = 8192;		// call stacks that are followed at a time
export const MAX_NAMES = 1 << 17;	// distinct strings of a trace
export const MAX_NAME = 200;		// characters of one that are kept
export const MAX_NOTE = 400;		// of arguments and results
export const MAX_FLAME_NODES = 1 << 15;
export const MAX_DEPTH = 256;
export const MAX_LINE = 1 << 20;	// characters of a line of a stream
export const BUDGET_MS = 7;		// of a frame that reading records may take
export const REDRAW_MS = 200;		// between two looks at live data
