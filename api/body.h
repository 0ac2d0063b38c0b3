/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies: JSON from anybody to structures. Strict: unknown members, wrong types, duplicate
 * keys and trailing bytes are refused, each with a pointer to it. Must not know HTTP.
 */
#ifndef API_BODY_H
#define API_BODY_H

#include "api/auth.h"
#include "api/problem.h"
#include "base/types.h"

#include <jansson.h>

#define BODY_MAX_GLOBS     65536 /* in each list; a guest may have some 60,000 functions */
#define BODY_MAX_GLOB      511
#define BODY_MAX_PIDS      64 /* what the agent compares with; guest-agent/agent_abi.h AGENT_MAX_PIDS */
#define BODY_MAX_PID       4194304u /* PID_MAX_LIMIT, Linux v6.12 include/linux/threads.h */
#define BODY_MIN_BUFFER    1024u
#define BODY_MAX_BUFFER    8388608u
#define BODY_MAX_DEPTH     65535u
#define BODY_MAX_COMM      64u
#define BODY_MAX_PATH      4095u
#define BODY_MIN_STRING    8u
#define BODY_MAX_STRING    4096u
#define BODY_MAX_BOOT      (3600 * NSEC_PER_SEC)
#define BODY_MIN_WINDOW    NSEC_PER_MSEC
#define BODY_MAX_WINDOW    NSEC_PER_SEC
#define BODY_MAX_STACK     64
#define BODY_MAX_THRESHOLD (3600 * NSEC_PER_SEC)

/* POST /v1/guests. Strings live in @doc. */
struct body_guest {
	json_t *doc;
	const char *target;
	const char *name; /* NULL when not given */
	u64 boot_ns; /* start it and hold it; 0 when not given */
	u64 window_limit_ns; /* 0 when not given */
};

/* POST /v1/guests/{g}/traces. Strings live in @doc. */
struct body_trace {
	json_t *doc;
	const char *tracer;
	const char **filter;
	size_t n_filter;
	const char **notrace;
	size_t n_notrace;
	u32 *pids;
	size_t n_pids;
	const char **graph;
	size_t n_graph;
	const char **graph_notrace;
	size_t n_graph_notrace;
	const char **stack;
	size_t n_stack;
	u32 stack_depth; /* 0: as many as there can be */
	u32 max_graph_depth; /* 0: all */
	u64 threshold_ns; /* 0: none */
	bool irqs, sleep_time; /* true when not given */
	bool retval, args, switches;
	/* syscalls */
	bool failed, follow_forks;
	const char *comm, *path; /* NULL when not given */
	bool has_uid, has_cgroup;
	u32 uid;
	u64 cgroup;
	u32 string_max; /* 0 when not given */
	bool persistent;
	bool fd_paths, env, raw;
	bool overwrite;
	u32 buffer_records; /* 0 when not given */
};

/**
 * body_guest_parse / body_trace_parse - read a body
 * @data: @len bytes that may be anything; not NUL-terminated
 * @p:    filled on failure: a problem of status 400, or 503 without memory
 *
 * Context: any thread. Return: 0, to be freed with the matching _deinit(); -EINVAL; -ENOMEM.
 */
must_check int body_guest_parse(const char *data, size_t len, struct body_guest *ret,
				struct problem *p);
void body_guest_deinit(struct body_guest *b);
must_check int body_trace_parse(const char *data, size_t len, struct body_trace *ret,
				struct problem *p);
void body_trace_deinit(struct body_trace *b);

/* PATCH /v1/traces/{t}: what of it is to change. */
struct body_change {
	json_t *doc;
	bool has_tracer, graph;
	bool has_on, on;
	bool has_filter; /* @doc has a filter, notrace or pids; they are looked at with the rest of the trace's */
};

/** body_change_parse - as body_trace_parse() */
must_check int body_change_parse(const char *data, size_t len, struct body_change *ret,
				 struct problem *p);
void body_change_deinit(struct body_change *b);

#define BODY_MAX_MARKER 255

/* POST /v1/traces/{t}/markers. */
struct body_marker {
	json_t *doc;
	const char *text;
	u64 time_ns; /* CLOCK_REALTIME; 0 when not given */
};

/** body_marker_parse - as body_trace_parse() */
must_check int body_marker_parse(const char *data, size_t len, struct body_marker *ret,
				 struct problem *p);
void body_marker_deinit(struct body_marker *b);

/** body_is_empty - nothing, or an empty JSON object: what operations without a body take */
bool body_is_empty(const char *data, size_t len);

#endif
