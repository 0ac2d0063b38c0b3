// SPDX-License-Identifier: Apache-2.0
/* Log lines. See log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static enum log_level max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_line(enum log_level level, const char *prefix, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (level > max_level)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* JOURNAL_STREAM: stderr goes to the journal, which takes a <priority> prefix (sd-daemon(3)) */
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s: %s\n", (int)level, prefix, line);
	else
		fprintf(stderr, "%s: %s\n", prefix, line);
}
