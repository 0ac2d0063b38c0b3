// SPDX-License-Identifier: Apache-2.0
/* Where a message of QMP ends. See qmp.h. */
#include "vmm/qmp.h"

#include <errno.h>

ssize_t qmp_scan_object(struct qmp_scan *scan, const char *data, size_t len)
{
	while (scan->pos < len) {
		char c = data[scan->pos++];

		if (scan->in_string) {
			if (scan->escaped)
				scan->escaped = false;
			else if (c == '\\')
				scan->escaped = true;
			else if (c == '"')
				scan->in_string = false;
			continue;
		}
		if (!scan->started) {
			if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
				continue;
			if (c != '{')
				return -EPROTO;
			scan->started = true;
			scan->depth = 1;
			continue;
		}
		if (c == '"') {
			scan->in_string = true;
		} else if (c == '{' || c == '[') {
			scan->depth++;
		} else if (c == '}' || c == ']') {
			if (--scan->depth == 0)
				return (ssize_t)scan->pos;
		}
	}
	return 0;
}
