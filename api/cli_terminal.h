/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files of the verb console: of a guest that this user runs, and of one that the daemon has attached. */
#ifndef API_CLI_TERMINAL_H
#define API_CLI_TERMINAL_H

#include "api/cli.h"

#include <signal.h>
#include <termios.h>

#define TERMINAL_LEAVE 0x1d /* Ctrl-], as of other consoles */

/* Standard input, if it is a terminal whose keys go to a guest as they are; all zeros: it is not. */
struct terminal_keys {
	bool raw;
	struct termios before;
};

/** terminal_make_raw - keys as they are pressed, Ctrl-C, too. Undo: terminal_restore(). */
void terminal_make_raw(struct terminal_keys *k);
/** terminal_restore - after a guest's console was shown; what is typed, or was answered, and not read is dropped */
void terminal_restore(const struct terminal_keys *k);

/** terminal_signals - those that end it set what is returned; a reader that left is an error of writing */
const volatile sig_atomic_t *terminal_signals(void);

/** terminal_write - all of it, unless a signal came. Return: false when nobody takes it. */
bool terminal_write(int fd, const char *p, size_t n);

/**
 * console_attached - the console of a guest that the daemon has attached, until it ends or is left
 * @fallback: say nothing when the daemon has no such guest, but return CONSOLE_NO_GUEST
 */
int console_attached(struct cli *c, const char *guest, bool fallback);
#define CONSOLE_NO_GUEST 255

#endif
