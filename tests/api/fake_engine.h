/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files of the fake engine. */
#ifndef TESTS_API_FAKE_ENGINE_H
#define TESTS_API_FAKE_ENGINE_H

#include "patcher/guest.h"

#include <pthread.h>

#define FAKE_FUNCTIONS 1000
#define FAKE_TOGETHER  8

struct kernel {
	struct ftrace_site sites[FAKE_FUNCTIONS];
	char names[FAKE_FUNCTIONS][32];
	struct kernel_module modules[2];
};

struct guest {
	char target[256];
	char kind[64]; /* the target's last word: "fake", "fake-fast" ... */
	pthread_mutex_t lock;
	struct kernel kernel;
	size_t n_armed;
	bool has_trace, agent_loaded, held;
	unsigned n_stops; /* trace_stop() calls so far */
	struct vm_windows windows;
	u64 window_limit_ns;
	struct fake_console *console; /* NULL: none */
};

/** fake_code - the error code called @name; ERR_CODE_MAX when there is none */
enum err_code fake_code(const char *name);

/** fake_gate - wait until the file that HVFTRACE_FAKE_GATE names exists */
void fake_gate(void);

/* fake_console.c; @takes: what is typed */
struct fake_console *fake_console_create(bool takes);
void fake_console_destroy(struct fake_console *c); /* NULL is fine */
bool fake_console_ended(const struct fake_console *c);
const char *fake_console_state(const struct fake_console *c);

/** fake_is - is the guest of this kind? */
bool fake_is(const struct guest *g, const char *kind);

#endif
