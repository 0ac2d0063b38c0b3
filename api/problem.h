/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Problem documents (RFC 9457): how every failure reaches a client. Codes come from
 * base/err_codes.h; those that only HTTP knows are listed here.
 */
#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "base/err.h"
#include "base/types.h"

#include <jansson.h>

#define PROBLEM_MEDIA_TYPE "application/problem+json"
#define PROBLEM_MAX_ERRORS 8

/* clang-format off: a table */
#define PROBLEM_CODES(X)                                                                          \
	X(PROBLEM_NO_ROUTE, "not_found", 404, "/openapi.yaml lists what exists")                  \
	X(PROBLEM_METHOD, "method_not_allowed", 405,                                              \
	  "the Allow header says what this resource takes")                                       \
	X(PROBLEM_ACCEPT, "not_acceptable", 406, "see /openapi.yaml for the media types")         \
	X(PROBLEM_BODY_SIZE, "body_too_large", 413, "a request's body may have 2 MiB")            \
	X(PROBLEM_MEDIA_TYPE_IN, "unsupported_media_type", 415,                                   \
	  "send Content-Type: application/json")                                                  \
	X(PROBLEM_ORIGIN, "forbidden_origin", 403, "another site's page may not use this daemon") \
	X(PROBLEM_WHO, "unauthorized", 401,                                                       \
	  "send Authorization: Bearer TOKEN (hvftrace token add), or a client certificate")       \
	X(PROBLEM_ROLE, "forbidden", 403, "ask who runs the daemon; --allow gives roles")         \
	X(PROBLEM_STREAMS, "streams.limit", 503, "close a stream that nobody reads any more")     \
	X(PROBLEM_STOPPING, "shutting_down", 503,                                                 \
	  "the daemon is stopping; try again once it is back")
/* clang-format on */

#define PROBLEM_ENUM(id, code, status, hint) id,
enum problem_code {
	PROBLEM_CODES(PROBLEM_ENUM) PROBLEM_CODE_MAX
};
#undef PROBLEM_ENUM

/* What is wrong with one member of a request. */
struct problem_error {
	char pointer[96]; /* JSON pointer into the body, or "?name" for the query */
	char detail[128];
};

struct problem {
	int status;
	const char *code; /* static storage */
	const char *hint; /* static storage */
	char detail[256];
	u64 addr; /* guest address concerned; 0 when none */
	u64 oldest_seq; /* with records.gone; 0 otherwise */
	struct problem_error errors[PROBLEM_MAX_ERRORS];
	size_t n_errors;
};

/** problem_from_err - the problem of a failure of the engine */
void problem_from_err(struct problem *ret, const struct err *err);

/** problem_from_code - the problem of a failure that only HTTP knows */
void problem_from_code(struct problem *ret, enum problem_code code, const char *fmt, ...)
	printf_like(3, 4);

/** problem_bad_request - the start of a 400; add what is wrong with problem_add() */
void problem_bad_request(struct problem *ret, const char *fmt, ...) printf_like(2, 3);

/** problem_add - say what is wrong with one member; those past PROBLEM_MAX_ERRORS are left out */
void problem_add(struct problem *p, const char *pointer, const char *fmt, ...) printf_like(3, 4);

/** problem_json - the document; NULL without memory */
json_t *problem_json(const struct problem *p, const char *request_id);

/** problem_reason - the reason phrase of an HTTP status that this daemon uses */
const char *problem_reason(int status);

/**
 * json_text - a JSON string of bytes that may be anything (a guest chose them)
 *
 * What is not UTF-8 becomes U+FFFD. NULL gives JSON null. Return: new reference; NULL without memory.
 */
json_t *json_text(const char *s);

/** json_addr - an address as a string, "0xffffffff81000000": JSON numbers lose bits past 2^53 */
json_t *json_addr(u64 addr);

/** json_time - nanoseconds of CLOCK_REALTIME as RFC 3339; 0 gives JSON null */
json_t *json_time(u64 ns);

#endif
