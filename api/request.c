// SPDX-License-Identifier: Apache-2.0
/* A request's query and its reply. See request.h. */
#include "api/request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *request_query(const struct request *rq, const char *name)
{
	for (size_t i = 0; i < rq->n_query; i++) {
		if (strcmp(rq->query[i].name, name) == 0)
			return rq->query[i].value ? rq->query[i].value : "";
	}
	return NULL;
}

int request_query_u64(struct request *rq, const char *name, u64 fallback, u64 max, u64 *ret)
{
	const char *text = request_query(rq, name);
	u64 n = 0;

	*ret = fallback;
	if (!text)
		return 0;
	for (const char *c = text; *c || c == text; c++) {
		if (*c < '0' || *c > '9' || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (u64)(*c - '0'), &n) || n > max) {
			request_refuse(rq, name, "must be a number, 0 to %llu",
				       (unsigned long long)max);
			return -EINVAL;
		}
	}
	*ret = n;
	return 0;
}

int request_query_bool(struct request *rq, const char *name, bool *ret)
{
	const char *text = request_query(rq, name);

	*ret = text && strcmp(text, "true") == 0;
	if (!text || *ret || strcmp(text, "false") == 0)
		return 0;
	request_refuse(rq, name, "must be true or false");
	return -EINVAL;
}

void request_text(struct request *rq, int status, const char *type, struct buf *body)
{
	buf_deinit(&rq->reply.body);
	rq->reply.status = status;
	rq->reply.type = type;
	rq->reply.body = *body;
	*body = (struct buf){ 0 };
}

static int dump(const char *data, size_t len, void *arg)
{
	buf_add(arg, data, len);
	return 0;
}

static void answer(struct request *rq, int status, const char *type, json_t *doc)
{
	struct buf body = { 0 };

	if (doc)
		json_dump_callback(doc, dump, &body, JSON_COMPACT);
	buf_adds(&body, "\n");
	json_decref(doc);
	if (buf_failed(&body))
		buf_deinit(&body); /* a status without a document is all that is left to say */
	request_text(rq, status, type, &body);
}

void request_json(struct request *rq, int status, json_t *doc)
{
	struct err err = { 0 };

	if (doc) {
		answer(rq, status, "application/json", doc);
		return;
	}
	err_set(&err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the answer");
	request_error(rq, &err);
}

void request_problem(struct request *rq, const struct problem *p)
{
	answer(rq, p->status, PROBLEM_MEDIA_TYPE, problem_json(p, rq->id));
}

void request_error(struct request *rq, const struct err *err)
{
	struct problem p;

	problem_from_err(&p, err);
	request_problem(rq, &p);
}

void request_refuse(struct request *rq, const char *name, const char *fmt, ...)
{
	char detail[128], pointer[80];
	struct problem p;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	snprintf(pointer, sizeof(pointer), "?%s", name);
	problem_bad_request(&p, "the query's %.64s %s", name, detail);
	problem_add(&p, pointer, "%s", detail);
	request_problem(rq, &p);
}
