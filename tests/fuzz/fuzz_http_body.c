// SPDX-License-Identifier: Apache-2.0
/*
 * Request bodies from anybody. A body is either parsed, and then everything in the structure is within
 * what openapi.yaml says, or refused with a problem of the client's making that can be written down
 * and read back. The first byte says which operation the rest is for.
 */
#include "api/body.h"
#include "api/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void check_problem(int r, const struct problem *p)
{
	const char *pointer;
	json_t *doc, *back;
	char *text;

	if (r == -ENOMEM) {
		CHECK(p->status == 503);
		return;
	}
	CHECK(r == -EINVAL && p->status == 400 && strcmp(p->code, "bad_request") == 0);
	CHECK(p->detail[0] && p->hint[0] && p->n_errors <= PROBLEM_MAX_ERRORS);
	for (size_t i = 0; i < p->n_errors; i++) {
		pointer = p->errors[i].pointer;
		CHECK(!pointer[0] || pointer[0] == '/');
		CHECK(p->errors[i].detail[0]);
		/* "~" only as an escape (RFC 6901) */
		for (const char *c = strchr(pointer, '~'); c; c = strchr(c + 1, '~'))
			CHECK(c[1] == '0' || c[1] == '1');
	}
	doc = problem_json(p, "0123456789abcdef");
	CHECK(doc);
	text = json_dumps(doc, JSON_COMPACT);
	CHECK(text);
	back = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	CHECK(back && json_equal(back, doc));
	json_decref(back);
	json_decref(doc);
	free(text);
}

static void check_globs(const char *const *globs, size_t n)
{
	CHECK(n <= BODY_MAX_GLOBS);
	for (size_t i = 0; i < n; i++)
		CHECK(globs[i] && globs[i][0] && strlen(globs[i]) <= BODY_MAX_GLOB);
}

static void fuzz_guest(const char *data, size_t len)
{
	struct body_guest b;
	struct problem p;
	int r;

	r = body_guest_parse(data, len, &b, &p);
	if (r < 0) {
		check_problem(r, &p);
		return;
	}
	CHECK(b.doc && b.target && b.target[0] && strlen(b.target) <= NAME_MAX_TARGET);
	CHECK(!b.name || name_valid(b.name));
	CHECK(json_object_size(b.doc) == 1 + (size_t) !!b.name);
	body_guest_deinit(&b);
}

static void fuzz_trace(const char *data, size_t len)
{
	struct body_trace b;
	struct problem p;
	int r;

	r = body_trace_parse(data, len, &b, &p);
	if (r < 0) {
		check_problem(r, &p);
		return;
	}
	CHECK(b.doc &&
	      (strcmp(b.tracer, "function") == 0 || strcmp(b.tracer, "function_graph") == 0));
	check_globs(b.filter, b.n_filter);
	check_globs(b.notrace, b.n_notrace);
	check_globs(b.graph, b.n_graph);
	check_globs(b.graph_notrace, b.n_graph_notrace);
	CHECK(b.max_graph_depth <= BODY_MAX_DEPTH && b.threshold_ns <= BODY_MAX_THRESHOLD);
	CHECK(b.n_pids <= BODY_MAX_PIDS);
	for (size_t i = 0; i < b.n_pids; i++)
		CHECK(b.pids[i] >= 1 && b.pids[i] <= BODY_MAX_PID);
	CHECK(!b.buffer_records ||
	      (b.buffer_records >= BODY_MIN_BUFFER && b.buffer_records <= BODY_MAX_BUFFER));
	body_trace_deinit(&b);
}

static void fuzz_change(const char *data, size_t len)
{
	struct body_change change;
	struct body_marker marker;
	struct problem p;
	int r;

	r = body_change_parse(data, len, &change, &p);
	if (r < 0)
		check_problem(r, &p);
	else
		body_change_deinit(&change);
	r = body_marker_parse(data, len, &marker, &p);
	if (r < 0)
		check_problem(r, &p);
	else
		body_marker_deinit(&marker);
}

static void fuzz_name(const char *data, size_t len)
{
	char target[NAME_MAX_TARGET + 1], name[NAME_MAX_BYTES + 1];

	len = MIN(len, sizeof(target) - 1);
	memcpy(target, data, len);
	target[len] = 0;
	name_derive(target, name);
	CHECK(name_valid(name));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	const char *rest = (const char *)data + 1;

	if (!size)
		return 0;
	switch (data[0] % 5) {
	case 0:
		fuzz_guest(rest, size - 1);
		break;
	case 1:
		fuzz_trace(rest, size - 1);
		break;
	case 2:
		fuzz_change(rest, size - 1);
		break;
	case 3:
		fuzz_name(rest, size - 1);
		break;
	default:
		(void)body_is_empty(rest, size - 1);
	}
	return 0;
}
