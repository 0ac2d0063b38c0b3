// SPDX-License-Identifier: Apache-2.0
/* Fault points. See fault.h. */
#include "base/fault.h"

#ifdef HVF_FAULT_POINTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fault_point(const char *name)
{
	const char *want = getenv("HVF_FAULT");

	if (want && !strcmp(want, name))
		kill(getpid(), SIGKILL);
}
#endif
