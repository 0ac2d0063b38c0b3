// SPDX-License-Identifier: Apache-2.0
/* Fault points. See fault.h. */
#include "base/fault.h"

#ifdef HVF_FAULT_POINTS
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fault_point(const char *name)
{
	static atomic_ulong passed;
	const char *want = getenv("HVF_FAULT");
	size_t len = strlen(name);
	unsigned long nth = 1;

	if (!want || strncmp(want, name, len) != 0 || (want[len] && want[len] != ':'))
		return;
	if (want[len])
		nth = strtoul(want + len + 1, NULL, 10);
	if (atomic_fetch_add(&passed, 1) + 1 == nth)
		kill(getpid(), SIGKILL);
}
#endif
