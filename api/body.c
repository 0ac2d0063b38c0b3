// SPDX-License-Identifier: Apache-2.0
/* Request bodies. See body.h. */
#include "api/body.h"

#include "api/names.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int no_memory(struct problem *p)
{
	struct err err = { 0 };

	err_set(&err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the request's body");
	problem_from_err(p, &err);
	return -ENOMEM;
}

/* The member of a "duplicate object key near '"x"'" message, as a pointer: "/x", else "". */
static void duplicate_pointer(const char *text, char *ret, size_t size)
{
	const char *from = strstr(text, "near '\""), *to;

	ret[0] = 0;
	if (!from)
		return;
	from += strlen("near '\"");
	to = strchr(from, '"');
	if (to && to > from && !memchr(from, '/', (size_t)(to - from)) &&
	    !memchr(from, '~', (size_t)(to - from)))
		snprintf(ret, size, "/%.*s", (int)MIN(to - from, 64), from);
}

static int load(const char *data, size_t len, json_t **doc_ret, struct problem *p)
{
	json_error_t e;
	char pointer[80];
	json_t *doc;

	problem_bad_request(p, "the request's body is not what this operation takes");
	doc = json_loadb(len ? data : "", len, JSON_REJECT_DUPLICATES, &e);
	if (!doc && json_error_code(&e) == json_error_out_of_memory)
		return no_memory(p);
	if (!doc && json_error_code(&e) == json_error_duplicate_key) {
		duplicate_pointer(e.text, pointer, sizeof(pointer));
		problem_add(p, pointer, "the member is given twice");
		return -EINVAL;
	}
	if (!doc) {
		problem_bad_request(p, "the request's body is not JSON: line %d, column %d: %s",
				    e.line, e.column, len ? e.text : "it is empty");
		return -EINVAL;
	}
	if (!json_is_object(doc)) {
		json_decref(doc);
		problem_add(p, "", "must be an object");
		return -EINVAL;
	}
	*doc_ret = doc;
	return 0;
}

/* A JSON pointer to member @key; "~" and "/" are escaped (RFC 6901). */
static void pointer_to(const char *key, char ret[96])
{
	size_t n = 0;

	ret[n++] = '/';
	for (; *key && n < 90; key++) {
		if (*key == '~' || *key == '/') {
			ret[n++] = '~';
			ret[n++] = *key == '~' ? '0' : '1';
		} else {
			ret[n++] = *key;
		}
	}
	ret[n] = 0;
}

static void refuse_unknown(json_t *doc, const char *const *known, struct problem *p)
{
	char pointer[96];
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach(doc, key, value)
	{
		for (i = 0; known[i] && strcmp(known[i], key) != 0; i++)
			;
		if (known[i])
			continue;
		pointer_to(key, pointer);
		problem_add(p, pointer, "no such member");
	}
}

static const char *take_string(json_t *v, const char *pointer, size_t max, struct problem *p)
{
	if (!json_is_string(v)) {
		problem_add(p, pointer, "must be a string");
		return NULL;
	}
	/* jansson refuses \u0000 here (no JSON_ALLOW_NUL), so strlen() sees all of it */
	if (!json_string_length(v) || json_string_length(v) > max) {
		problem_add(p, pointer, "must have 1 to %zu bytes", max);
		return NULL;
	}
	return json_string_value(v);
}

bool body_is_empty(const char *data, size_t len)
{
	json_error_t e;
	json_t *doc;
	bool empty;

	if (!len)
		return true;
	doc = json_loadb(data, len, 0, &e);
	empty = json_is_object(doc) && !json_object_size(doc);
	json_decref(doc);
	return empty;
}

/* Member @key, @min to @max; *@ret stays when it is not given or refused. */
static void take_number(json_t *doc, const char *key, u64 min, u64 max, u64 *ret, struct problem *p)
{
	json_t *v = json_object_get(doc, key);
	json_int_t n = json_integer_value(v);
	char pointer[96];

	if (!v)
		return;
	pointer_to(key, pointer);
	if (!json_is_integer(v))
		problem_add(p, pointer, "must be an integer");
	else if (n < (json_int_t)min || n > (json_int_t)max)
		problem_add(p, pointer, "must be %llu to %llu", (unsigned long long)min,
			    (unsigned long long)max);
	else
		*ret = (u64)n;
}

int body_guest_parse(const char *data, size_t len, struct body_guest *ret, struct problem *p)
{
	static const char *const known[] = { "target", "name", "boot_timeout_ns", "window_limit_ns",
					     NULL };
	struct body_guest b = { 0 };
	json_t *v;
	int r;

	r = load(data, len, &b.doc, p);
	if (r < 0)
		return r;
	refuse_unknown(b.doc, known, p);
	v = json_object_get(b.doc, "target");
	if (!v)
		problem_add(p, "/target", "is required");
	else
		b.target = take_string(v, "/target", NAME_MAX_TARGET, p);
	v = json_object_get(b.doc, "name");
	if (v)
		b.name = take_string(v, "/name", NAME_MAX_BYTES, p);
	if (b.name && !name_valid(b.name))
		problem_add(
			p, "/name",
			"must have only letters, digits, '.', '_', '-', and start with none of '.-'");
	take_number(b.doc, "boot_timeout_ns", NSEC_PER_SEC, BODY_MAX_BOOT, &b.boot_ns, p);
	take_number(b.doc, "window_limit_ns", BODY_MIN_WINDOW, BODY_MAX_WINDOW, &b.window_limit_ns,
		    p);
	if (p->n_errors) {
		body_guest_deinit(&b);
		return -EINVAL;
	}
	*ret = b;
	return 0;
}

void body_guest_deinit(struct body_guest *b)
{
	json_decref(b->doc);
	*b = (struct body_guest){ 0 };
}

/* An array of globs. Return: 0, also when it was refused (see @p); -ENOMEM. */
static int take_globs(json_t *doc, const char *key, const char ***ret, size_t *n_ret,
		      struct problem *p)
{
	json_t *v = json_object_get(doc, key), *item;
	char pointer[96];
	size_t i;

	if (!v)
		return 0;
	snprintf(pointer, sizeof(pointer), "/%s", key);
	if (!json_is_array(v)) {
		problem_add(p, pointer, "must be an array of strings");
		return 0;
	}
	if (json_array_size(v) > BODY_MAX_GLOBS) {
		problem_add(p, pointer, "must have at most %d items", BODY_MAX_GLOBS);
		return 0;
	}
	*ret = calloc(json_array_size(v) + 1, sizeof(**ret));
	if (!*ret)
		return no_memory(p);
	json_array_foreach(v, i, item)
	{
		snprintf(pointer, sizeof(pointer), "/%s/%zu", key, i);
		(*ret)[i] = take_string(item, pointer, BODY_MAX_GLOB, p);
	}
	*n_ret = json_array_size(v);
	return 0;
}

static int take_pids(json_t *doc, struct body_trace *b, struct problem *p)
{
	json_t *v = json_object_get(doc, "pids"), *item;
	char pointer[96];
	size_t i;

	if (!v)
		return 0;
	if (!json_is_array(v)) {
		problem_add(p, "/pids", "must be an array of integers");
		return 0;
	}
	if (json_array_size(v) > BODY_MAX_PIDS) {
		problem_add(p, "/pids", "must have at most %d items", BODY_MAX_PIDS);
		return 0;
	}
	b->pids = calloc(json_array_size(v) + 1, sizeof(*b->pids));
	if (!b->pids)
		return no_memory(p);
	json_array_foreach(v, i, item)
	{
		json_int_t n = json_integer_value(item);

		snprintf(pointer, sizeof(pointer), "/pids/%zu", i);
		if (!json_is_integer(item))
			problem_add(p, pointer, "must be an integer");
		else if (n < 1 || n > (json_int_t)BODY_MAX_PID)
			problem_add(p, pointer, "must be a pid of the guest, 1 to %u",
				    BODY_MAX_PID);
		else
			b->pids[i] = (u32)n;
	}
	b->n_pids = json_array_size(v);
	return 0;
}

/* As take_number(). */
static void take_bool(json_t *doc, const char *key, bool *ret, struct problem *p)
{
	json_t *v = json_object_get(doc, key);
	char pointer[96];

	if (!v)
		return;
	pointer_to(key, pointer);
	if (json_is_boolean(v))
		*ret = json_is_true(v);
	else
		problem_add(p, pointer, "must be true or false");
}

static void take_numbers(json_t *doc, struct body_trace *b, struct problem *p)
{
	u64 records = 0, depth = 0, stack_depth = 0;

	take_number(doc, "buffer_records", BODY_MIN_BUFFER, BODY_MAX_BUFFER, &records, p);
	take_number(doc, "max_graph_depth", 0, BODY_MAX_DEPTH, &depth, p);
	take_number(doc, "threshold_ns", 0, BODY_MAX_THRESHOLD, &b->threshold_ns, p);
	take_number(doc, "stack_depth", 1, BODY_MAX_STACK, &stack_depth, p);
	b->stack_depth = (u32)stack_depth;
	b->buffer_records = (u32)records;
	b->max_graph_depth = (u32)depth;
}

static void take_switches(json_t *doc, struct body_trace *b, struct problem *p)
{
	b->irqs = b->sleep_time = true;
	take_bool(doc, "irqs", &b->irqs, p);
	take_bool(doc, "sleep_time", &b->sleep_time, p);
	take_bool(doc, "retval", &b->retval, p);
	take_bool(doc, "args", &b->args, p);
	take_bool(doc, "switches", &b->switches, p);
	take_bool(doc, "persistent", &b->persistent, p);
}

static int take_all_globs(json_t *doc, struct body_trace *b, struct problem *p)
{
	const struct {
		const char *key;
		const char ***globs;
		size_t *n;
	} lists[] = {
		{ "filter", &b->filter, &b->n_filter },
		{ "notrace", &b->notrace, &b->n_notrace },
		{ "graph", &b->graph, &b->n_graph },
		{ "graph_notrace", &b->graph_notrace, &b->n_graph_notrace },
		{ "stack", &b->stack, &b->n_stack },
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists) && r == 0; i++)
		r = take_globs(doc, lists[i].key, lists[i].globs, lists[i].n, p);
	return r;
}

/* One of the first @n. NULL: it was refused. */
static const char *take_tracer(json_t *doc, size_t n, struct problem *p)
{
	static const char *const tracers[] = { "function", "function_graph", "syscalls" };
	json_t *v = json_object_get(doc, "tracer");
	const char *tracer = NULL;

	if (!v)
		problem_add(p, "/tracer", "is required");
	else
		tracer = take_string(v, "/tracer", 32, p);
	for (size_t i = 0; tracer && i < n; i++) {
		if (strcmp(tracer, tracers[i]) == 0)
			return tracer;
	}
	if (tracer)
		problem_add(p, "/tracer", "must be \"function\"%s \"function_graph\"%s",
			    n > 2 ? "," : " or", n > 2 ? " or \"syscalls\"" : "");
	return NULL;
}

/* Of the tracer syscalls: which calls, and how much of them. */
static void take_calls(json_t *doc, struct body_trace *b, struct problem *p)
{
	json_t *comm = json_object_get(doc, "comm"), *path = json_object_get(doc, "path");
	u64 uid = 0, strings = 0;

	b->comm = comm ? take_string(comm, "/comm", BODY_MAX_COMM, p) : NULL;
	b->path = path ? take_string(path, "/path", BODY_MAX_PATH, p) : NULL;
	b->has_uid = json_object_get(doc, "uid");
	b->has_cgroup = json_object_get(doc, "cgroup");
	take_bool(doc, "failed", &b->failed, p);
	take_bool(doc, "follow_forks", &b->follow_forks, p);
	take_bool(doc, "fd_paths", &b->fd_paths, p);
	take_bool(doc, "env", &b->env, p);
	take_bool(doc, "raw", &b->raw, p);
	take_number(doc, "uid", 0, UINT32_MAX - 1, &uid, p);
	take_number(doc, "cgroup", 1, INT64_MAX, &b->cgroup, p);
	take_number(doc, "string_max", BODY_MIN_STRING, BODY_MAX_STRING, &strings, p);
	b->uid = (u32)uid;
	b->string_max = (u32)strings;
}

static void take_words(json_t *doc, struct body_trace *b, struct problem *p)
{
	json_t *v = json_object_get(doc, "mode");
	const char *mode;

	b->tracer = take_tracer(doc, 3, p);
	mode = v ? take_string(v, "/mode", 32, p) : NULL;
	if (mode && strcmp(mode, "overwrite") == 0)
		b->overwrite = true;
	else if (mode && strcmp(mode, "discard") != 0)
		problem_add(p, "/mode", "must be \"discard\" or \"overwrite\"");
}

int body_trace_parse(const char *data, size_t len, struct body_trace *ret, struct problem *p)
{
	static const char *const known[] = { "tracer",
					     "filter",
					     "notrace",
					     "pids",
					     "graph",
					     "graph_notrace",
					     "max_graph_depth",
					     "threshold_ns",
					     "irqs",
					     "sleep_time",
					     "retval",
					     "args",
					     "switches",
					     "mode",
					     "buffer_records",
					     "failed",
					     "follow_forks",
					     "comm",
					     "path",
					     "uid",
					     "cgroup",
					     "string_max",
					     "persistent",
					     "fd_paths",
					     "env",
					     "raw",
					     "stack",
					     "stack_depth",
					     NULL };
	struct body_trace b = { 0 };
	int r;

	r = load(data, len, &b.doc, p);
	if (r < 0)
		return r;
	refuse_unknown(b.doc, known, p);
	take_words(b.doc, &b, p);
	take_numbers(b.doc, &b, p);
	take_switches(b.doc, &b, p);
	take_calls(b.doc, &b, p);
	r = take_all_globs(b.doc, &b, p);
	if (r == 0)
		r = take_pids(b.doc, &b, p);
	if (r == 0 && p->n_errors)
		r = -EINVAL;
	if (r < 0) {
		body_trace_deinit(&b);
		return r;
	}
	*ret = b;
	return 0;
}

void body_trace_deinit(struct body_trace *b)
{
	free(b->filter);
	free(b->notrace);
	free(b->graph);
	free(b->graph_notrace);
	free(b->stack);
	free(b->pids);
	json_decref(b->doc);
	*b = (struct body_trace){ 0 };
}

/* In a change, a tracer that a trace may turn into, or nothing. */
static void take_turn(struct body_change *b, struct problem *p)
{
	const char *tracer;

	b->has_tracer = json_object_get(b->doc, "tracer");
	if (!b->has_tracer)
		return;
	tracer = take_tracer(b->doc, 2, p);
	b->graph = tracer && strcmp(tracer, "function_graph") == 0;
}

int body_change_parse(const char *data, size_t len, struct body_change *ret, struct problem *p)
{
	static const char *const known[] = { "tracer",  "tracing_on", "filter",
					     "notrace", "pids",       NULL };
	struct body_change b = { 0 };
	struct body_trace lists = { 0 };
	int r;

	r = load(data, len, &b.doc, p);
	if (r < 0)
		return r;
	refuse_unknown(b.doc, known, p);
	take_turn(&b, p);
	b.has_on = json_object_get(b.doc, "tracing_on");
	take_bool(b.doc, "tracing_on", &b.on, p);
	b.has_filter = json_object_get(b.doc, "filter") || json_object_get(b.doc, "notrace") ||
		       json_object_get(b.doc, "pids");
	/* looked at here, too, so that what is wrong is told before anything is changed */
	r = take_all_globs(b.doc, &lists, p);
	if (r == 0)
		r = take_pids(b.doc, &lists, p);
	body_trace_deinit(&lists);
	if (!json_object_size(b.doc))
		problem_add(p, "", "must have a member: nothing is to be changed");
	if (r == 0 && p->n_errors)
		r = -EINVAL;
	if (r < 0)
		body_change_deinit(&b);
	else
		*ret = b;
	return r;
}

void body_change_deinit(struct body_change *b)
{
	json_decref(b->doc);
	*b = (struct body_change){ 0 };
}

/* "Z", "+01:30" or "-08:00": seconds to take away. false: it is none of that. */
static bool parse_offset(const char *text, time_t *ret)
{
	static const char form[] = "s00:00";
	int n[4] = { 0 }, k = 0;

	*ret = 0;
	if (strcmp(text, "Z") == 0)
		return true;
	if (strlen(text) != strlen(form) || (*text != '+' && *text != '-'))
		return false;
	for (size_t i = 1; form[i]; i++) {
		if (form[i] == ':' ? text[i] != ':' : text[i] < '0' || text[i] > '9')
			return false;
		if (form[i] != ':')
			n[k++] = text[i] - '0';
	}
	*ret = (n[0] * 10 + n[1]) * 3600 + (n[2] * 10 + n[3]) * 60;
	if (*text == '-')
		*ret = -*ret;
	return true;
}

/* RFC 3339. false: it is none, or of no time that the clock can have. */
static bool parse_time(const char *text, u64 *ns_ret)
{
	struct tm tm = { 0 };
	const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	u64 ns = 0, unit = NSEC_PER_SEC / 10;
	time_t sec, offset;

	if (!at)
		return false;
	if (*at == '.') {
		for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10)
			ns += (u64)(*at - '0') * unit;
	}
	if (!parse_offset(at, &offset))
		return false;
	sec = timegm(&tm) - offset;
	if (sec <= 0 || sec > (time_t)(INT64_MAX / NSEC_PER_SEC))
		return false;
	*ns_ret = (u64)sec * NSEC_PER_SEC + ns;
	return true;
}

int body_marker_parse(const char *data, size_t len, struct body_marker *ret, struct problem *p)
{
	static const char *const known[] = { "text", "time", NULL };
	struct body_marker b = { 0 };
	const char *at;
	json_t *v;
	int r;

	r = load(data, len, &b.doc, p);
	if (r < 0)
		return r;
	refuse_unknown(b.doc, known, p);
	v = json_object_get(b.doc, "text");
	if (!v)
		problem_add(p, "/text", "is required");
	else
		b.text = take_string(v, "/text", BODY_MAX_MARKER, p);
	v = json_object_get(b.doc, "time");
	at = v ? take_string(v, "/time", 64, p) : NULL;
	if (at && !parse_time(at, &b.time_ns))
		problem_add(p, "/time", "must be a time as 2026-01-31T23:59:59.123Z (RFC 3339)");
	if (b.time_ns > clock_ns(CLOCK_REALTIME) + NSEC_PER_SEC)
		problem_add(p, "/time", "must not be in the future");
	if (p->n_errors) {
		body_marker_deinit(&b);
		return -EINVAL;
	}
	*ret = b;
	return 0;
}

void body_marker_deinit(struct body_marker *b)
{
	json_decref(b->doc);
	*b = (struct body_marker){ 0 };
}
