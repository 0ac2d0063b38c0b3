// SPDX-License-Identifier: Apache-2.0
/* Errors as values. See err.h. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct err_row {
	const char *name;
	int status;
	const char *hint;
};

#define ERR_ROW(id, code, http, text) [id] = { code, http, text },
static const struct err_row rows[] = { ERR_CODES(ERR_ROW) };
#undef ERR_ROW

int(err_set)(struct err *err, int no, enum err_code code, u64 addr, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return no;
	err->no = no;
	err->code = code;
	err->addr = addr;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return no;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
	char old[sizeof(err->msg)];
	va_list ap;
	int n;

	if (!err)
		return -EIO;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	/* a message that does not fit is cut: the front says where, the struct keeps code and address */
	if (n >= 0 && (size_t)n < sizeof(err->msg) &&
	    snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", old) < 0)
		err->msg[n] = 0;
	return err->no ? err->no : -EIO;
}

static const struct err_row *row(enum err_code code)
{
	return (unsigned)code < ERR_CODE_MAX ? &rows[code] : &rows[ERR_NONE];
}

const char *err_code_name(enum err_code code)
{
	return row(code)->name;
}

const char *err_code_hint(enum err_code code)
{
	return row(code)->hint;
}

int err_code_status(enum err_code code)
{
	return row(code)->status;
}
