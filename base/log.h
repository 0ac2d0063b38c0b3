/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to stderr, with a syslog priority prefix when stderr is the journal. A file says
 * `#define LOG_PREFIX "qmp"` before it includes this. Log once, where an error is handled.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/types.h"

#ifndef LOG_PREFIX
#define LOG_PREFIX "hvftrace"
#endif

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARN = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

/** log_set_level - show lines of @level and more urgent ones; default LOG_LEVEL_INFO */
void log_set_level(enum log_level level);

/** log_line - write one line; use the log_*() macros. Context: any thread. */
void log_line(enum log_level level, const char *prefix, const char *fmt, ...) printf_like(3, 4);

#define log_error(...) log_line(LOG_LEVEL_ERROR, LOG_PREFIX, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, LOG_PREFIX, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, LOG_PREFIX, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, LOG_PREFIX, __VA_ARGS__)

#endif
