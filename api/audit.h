/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who changed what, when, and what came of it: a file of JSON lines that is only appended to. Whoever
 * rotates it just moves it away. Must not know HTTP.
 */
#ifndef API_AUDIT_H
#define API_AUDIT_H

#include "base/err.h"
#include "base/types.h"

struct audit;

#define AUDIT_MAX_BODY 4096 /* of what was asked for; a longer body is told by its size */

struct audit_entry {
	const char *who, *role;
	u32 pid; /* of the client, on a unix socket; 0 when not known */
	const char *request_id; /* NULL: the daemon's own doing */
	const char *operation; /* "POST /v1/guests/{g}/traces" */
	const char *path; /* as it was asked for */
	const char *
		body; /* JSON, @body_len bytes that may be anything; NULL: told by its size alone */
	size_t body_len;
	int status; /* HTTP */
	const char
		*result; /* answer, of which the code and the new resource are taken; may be NULL */
	size_t result_len;
	u64 duration_ns;
};

/** audit_create - append to @path, mode 0600 when it is made */
must_check int audit_create(const char *path, struct audit **ret, struct err *err);
void audit_destroy(struct audit *a);

/**
 * audit_add - one line, written whole
 *
 * Context: any thread. A failure is logged and counted; what it left of the line is a line of its own.
 */
void audit_add(struct audit *a, const struct audit_entry *e);

/** audit_failures - lines that could not be written */
u64 audit_failures(const struct audit *a);

#endif
