/* SPDX-License-Identifier: Apache-2.0 */
/* Between registry.c (guests) and registry_trace.c (traces) only. */
#ifndef API_REGISTRY_IMPL_H
#define API_REGISTRY_IMPL_H

#include "api/registry.h"
#include "api/trace_ids.h"

struct registry {
	pthread_mutex_t lock; /* lists, states, counts, totals */
	pthread_cond_t changed; /* any state or count of any entry; CLOCK_MONOTONIC */
	struct guest_entry *guests; /* in the order of attaching */
	struct trace_entry *traces;
	struct hub *hub;
	struct events *events;
	char *state_dir;
	struct trace_ids *ids;
	bool closing;
	bool left_behind; /* a guest was let go that could not be put back */
	struct registry_totals totals;
};

/* A reference less; the lock is held. */
void guest_entry_unref(struct guest_entry *g);
void trace_entry_unref(struct trace_entry *t);

/**
 * registry_new_entry - a trace's, that nobody knows yet, with an id; takes the reference of @request
 *
 * Return: 0; -ENOMEM; what trace_ids_take() returns. Undo: registry_drop_entry(), if it is not published.
 */
must_check int registry_new_entry(struct guest_entry *g, json_t *request, struct trace_entry **ret,
				  struct err *err);
void registry_drop_entry(struct trace_entry *t);
/** registry_publish - into the list; the caller is a user and has a reference */
void registry_publish(struct trace_entry *t);
/** registry_trace_opts - of what was asked for; points into it */
void registry_trace_opts(const struct body_trace *body, struct trace_opts *ret);
/** registry_trace_event - tell what became of @t. Context: a user. */
void registry_trace_event(struct trace_entry *t, const char *type);

/** registry_close_traces - stop and forget every trace of @g, whatever fails */
void registry_close_traces(struct guest_entry *g);

/** registry_trace_go_on - registry_trace_start() of what goes on with a trace that was cut off: never one too many */
must_check int registry_trace_go_on(struct guest_entry *g, const struct body_trace *body,
				    struct trace_entry **ret, struct err *err);

/** registry_running_trace - is a trace of @g running? Its id into @id_ret. */
bool registry_running_trace(struct guest_entry *g, char id_ret[24]);

#endif
