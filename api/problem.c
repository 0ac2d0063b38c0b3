// SPDX-License-Identifier: Apache-2.0
/* Problem documents. See problem.h. */
#include "api/problem.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct problem_row {
	const char *name;
	int status;
	const char *hint;
};

#define PROBLEM_ROW(id, code, http, text) [id] = { code, http, text },
static const struct problem_row rows[] = { PROBLEM_CODES(PROBLEM_ROW) };
#undef PROBLEM_ROW

void problem_from_err(struct problem *ret, const struct err *err)
{
	*ret = (struct problem){
		.status = err_code_status(err->code),
		.code = err_code_name(err->code),
		.hint = err_code_hint(err->code),
		.addr = err->addr,
	};
	snprintf(ret->detail, sizeof(ret->detail), "%s",
		 err->msg[0] ? err->msg : "the operation failed");
}

void problem_from_code(struct problem *ret, enum problem_code code, const char *fmt, ...)
{
	va_list ap;

	*ret = (struct problem){
		.status = rows[code].status,
		.code = rows[code].name,
		.hint = rows[code].hint,
	};
	va_start(ap, fmt);
	vsnprintf(ret->detail, sizeof(ret->detail), fmt, ap);
	va_end(ap);
}

void problem_bad_request(struct problem *ret, const char *fmt, ...)
{
	va_list ap;

	*ret = (struct problem){
		.status = err_code_status(ERR_BAD_REQUEST),
		.code = err_code_name(ERR_BAD_REQUEST),
		.hint = err_code_hint(ERR_BAD_REQUEST),
	};
	va_start(ap, fmt);
	vsnprintf(ret->detail, sizeof(ret->detail), fmt, ap);
	va_end(ap);
}

void problem_add(struct problem *p, const char *pointer, const char *fmt, ...)
{
	struct problem_error *e;
	va_list ap;

	if (p->n_errors == PROBLEM_MAX_ERRORS)
		return;
	e = &p->errors[p->n_errors++];
	snprintf(e->pointer, sizeof(e->pointer), "%s", pointer);
	va_start(ap, fmt);
	vsnprintf(e->detail, sizeof(e->detail), fmt, ap);
	va_end(ap);
}

const char *problem_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 413, "Content Too Large" },
		{ 415, "Unsupported Media Type" },
		{ 422, "Unprocessable Content" },
		{ 500, "Internal Server Error" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (reasons[i].status == status)
			return reasons[i].reason;
	}
	return "Error";
}

static int add_errors(json_t *doc, const struct problem *p)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < p->n_errors; i++) {
		json_t *e = json_object();

		/* the _new functions take NULL for a failure, so one test at the end is enough */
		if (json_object_set_new(e, "pointer", json_text(p->errors[i].pointer)) ||
		    json_object_set_new(e, "detail", json_text(p->errors[i].detail)) ||
		    json_array_append_new(list, json_incref(e))) {
			json_decref(e);
			json_decref(list);
			return -1;
		}
		json_decref(e);
	}
	return json_object_set_new(doc, "errors", list);
}

json_t *problem_json(const struct problem *p, const char *request_id)
{
	json_t *doc = json_object();
	char type[96];
	int bad = 0;

	snprintf(type, sizeof(type), "urn:hvftrace:problem:%s", p->code);
	bad |= json_object_set_new(doc, "type", json_text(type));
	bad |= json_object_set_new(doc, "title", json_text(problem_reason(p->status)));
	bad |= json_object_set_new(doc, "status", json_integer(p->status));
	bad |= json_object_set_new(doc, "detail", json_text(p->detail));
	bad |= json_object_set_new(doc, "code", json_text(p->code));
	bad |= json_object_set_new(doc, "hint", json_text(p->hint));
	if (p->addr)
		bad |= json_object_set_new(doc, "address", json_addr(p->addr));
	if (p->oldest_seq)
		bad |= json_object_set_new(doc, "oldest_seq",
					   json_integer((json_int_t)p->oldest_seq));
	if (p->n_errors)
		bad |= add_errors(doc, p);
	if (request_id)
		bad |= json_object_set_new(doc, "request_id", json_text(request_id));
	if (bad) {
		json_decref(doc);
		return NULL;
	}
	return doc;
}

json_t *json_text(const char *s)
{
	_cleanup_buf_ struct buf b = { 0 };
	json_t *ret;
	size_t n, left;

	if (!s)
		return json_null();
	ret = json_string(s);
	if (ret)
		return ret;
	for (left = strlen(s); left; s += n, left -= n) {
		n = utf8_len((const u8 *)s, left);
		if (n)
			buf_add(&b, s, n);
		else
			buf_adds(&b, "\xef\xbf\xbd");
		n += !n;
	}
	return buf_failed(&b) || !b.data ? NULL : json_stringn(b.data, b.len);
}

json_t *json_addr(u64 addr)
{
	return json_sprintf("0x%llx", (unsigned long long)addr);
}

json_t *json_time(u64 ns)
{
	time_t sec = (time_t)(ns / NSEC_PER_SEC);
	char text[48];
	struct tm tm;
	size_t n;

	if (!ns)
		return json_null();
	if (!gmtime_r(&sec, &tm))
		return NULL;
	n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof(text) - n, ".%09lluZ", (unsigned long long)(ns % NSEC_PER_SEC));
	return json_string(text);
}
