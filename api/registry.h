/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's guests and traces, by name and id, safe for any number of clients at once.
 *
 * An entry has *references*, which keep its memory, and *users*, which keep the guest or trace
 * behind it. Closing refuses new users, waits for those there are, and only then lets the engine
 * take the thing apart; a stream that lost its trace finds out at its next look.
 *
 * Locks, outermost first: trace_entry.op, then the registry's lock. Neither is held while the
 * engine works, except op, which makes stopping and switching one at a time.
 */
#ifndef API_REGISTRY_H
#define API_REGISTRY_H

#include "api/body.h"
#include "api/names.h"
#include "base/err.h"
#include "base/types.h"
#include "patcher/guest.h"
#include "tracers/trace.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

struct events;
struct hub;
struct work;
struct registry;

enum entry_state {
	ENTRY_OPENING,
	ENTRY_READY,
	ENTRY_CLOSING,
	ENTRY_CLOSED
};

struct guest_entry {
	struct registry *reg;
	struct guest_entry *next;
	enum entry_state state;
	unsigned refs, users;
	char name[NAME_MAX_BYTES + 1];
	char target[NAME_MAX_TARGET + 1];
	u64 attached_ns; /* host CLOCK_REALTIME, to be shown */
	u64 since_ns; /* the same by CLOCK_MONOTONIC */
	bool gone_told, silent_told; /* watch.c */
	bool taken; /* by a thread of registry_close(); the registry's lock */
	unsigned snapshots; /* of its traces; the registry's lock */
	struct guest *guest; /* for users only */
};

struct names_kept;

struct trace_entry {
	struct registry *reg;
	struct trace_entry *next;
	enum entry_state state;
	unsigned refs, users, streams;
	char id[24];
	u64 number; /* the id's */
	struct guest_entry *guest; /* a reference */
	json_t *request; /* what was asked for, with a mode; registry_trace_request() */
	char snapshot_of[24]; /* "" for none */
	bool persistent;
	/* the registry's lock: */
	char continued_by[24]; /* after a reboot, the trace that goes on */
	char continues[24]; /* the trace that was cut off before this one */
	bool given_back; /* not persistent: what a snapshot brought of it is out of the guest */
	bool going_on; /* registry_continue() is at it */
	pthread_mutex_t op;
	struct trace *trace; /* for users only */
	struct trace_info last; /* once closed: how it ended */
	atomic_bool switched; /* from one tracer to the other, at some time */
	u64 lost_told, lost_told_ns, captures_told, captures_told_ns, unheeded_told; /* watch.c */
	bool failure_told, forks_told, switches_told;
	_Atomic(struct names_kept *) names; /* names_then.c */
	atomic_ullong lost_readers; /* records that streams were too slow for, all together */
};

/* Sums over everything there ever was; for /metrics. */
struct registry_totals {
	u64 guests_attached, traces_started;
	u64 records, lost, lost_captures; /* of traces that are closed */
};

must_check int registry_create(const char *state_dir, struct hub *hub, struct events *events,
			       struct registry **ret, struct err *err);

/**
 * registry_close - attach no more, stop every trace, detach every guest, several at a time
 *
 * Streams see their traces end. Return: how many guests could not be put back (logged).
 * @n_unended_ret: so many attaches did not end in time (logged), and still use @reg
 */
unsigned registry_close(struct registry *reg, unsigned *n_unended_ret);

/** registry_destroy - free it. Context: closed, and no reference is left; NULL is fine. */
void registry_destroy(struct registry *reg);

/**
 * registry_release_held - let guests go that have been held at boot for longer than @ns
 *
 * Who asked for it may have died. Context: any thread, now and then.
 */
void registry_release_held(struct registry *reg, u64 ns);

/**
 * registry_attach - attach a guest and keep it
 * @target: a "qemu:" one with an absolute path; anything else that is wrong with it is the engine's to say
 * @name:   NULL derives one from @target
 * @opts:   as guest_attach(); the state directory is the registry's
 *
 * Return: 0, *ret has a user; -EINVAL a relative path (target.syntax); -EEXIST the name is taken
 * (conflict); -EBUSY (guest.already_attached); or what guest_attach() returns.
 */
must_check int registry_attach(struct registry *reg, const char *target, const char *name,
			       const struct guest_opts *opts, struct guest_entry **ret,
			       struct err *err);

/**
 * registry_detach - detach a guest and forget it
 * @force: also while traces of it run; stopped traces go with their guest anyhow
 *
 * Return: 0; -ENOENT (not_found); -EBUSY a trace runs (conflict); or what guest_detach() returns: the
 * guest is gone from here then too, and *restore_ret tells what was put back.
 */
must_check int registry_detach(struct registry *reg, const char *name, bool force,
			       struct guest_restore *restore_ret, struct err *err);

/** registry_left_behind - was a guest let go since the last call that could not be put back? */
bool registry_left_behind(struct registry *reg);

/** registry_guest_get - a guest by name, as a user; -ENOENT (not_found), -EBUSY it goes (conflict) */
must_check int registry_guest_get(struct registry *reg, const char *name, struct guest_entry **ret,
				  struct err *err);
void registry_guest_put(struct guest_entry *g);

/** registry_guest_next - the first that is ready, or the one after @g; a user of it, and of @g no more. NULL: no other */
struct guest_entry *registry_guest_next(struct registry *reg, struct guest_entry *g);

#define REGISTRY_MAX_ENDED 32u /* traces of a guest, beside snapshots: each keeps its records */

/**
 * registry_trace_start - start a trace of @g, whose user the caller is, and keep it
 *
 * Return: 0, *ret has a user; -EBUSY @g has REGISTRY_MAX_ENDED (trace.ended); -errno no id (journal.failed); or
 * what trace_start() returns.
 */
must_check int registry_trace_start(struct guest_entry *g, const struct body_trace *body,
				    struct trace_entry **ret, struct err *err);

/**
 * registry_continue - after reboots: renew guests that persistent traces were cut off in, and start these again
 *
 * A persistent trace that failed with guest.rebooted or guest.restored gets a successor, persistent as well, as soon as the
 * guest's new kernel is up. The one before the one that was cut off is deleted then: a guest that reboots
 * without end is not to fill our memory. Of any trace that failed with guest.restored what the snapshot
 * brought is put back. Each is tried in a worker of its own. Context: one thread, every now and then.
 */
void registry_continue(struct registry *reg, struct work *work);

/** registry_continued_by - the id of the trace that goes on with @t, or "" */
void registry_continued_by(struct trace_entry *t, char id_ret[24]);

/**
 * registry_trace_change - change a running trace whose user the caller is
 *
 * Tracer, then filters, then whether it records; what came before a failure stays changed. Return: 0; -EBUSY
 * it is not running (conflict); or what trace_set_graph(), trace_set_filter(), trace_set_recording() return.
 */
must_check int registry_trace_change(struct trace_entry *t, const struct body_change *change,
				     struct err *err);

/**
 * registry_trace_mark - put a marker into a trace whose user the caller is
 * @host_ns: when; 0 becomes now. Return: what trace_mark() returns.
 */
must_check int registry_trace_mark(struct trace_entry *t, const char *text, u64 *host_ns,
				   struct err *err);

#define REGISTRY_MAX_SNAPSHOTS 16u /* of a guest: each is as large as its trace */

/**
 * registry_trace_snapshot - as registry_trace_start(), of what @t has now
 *
 * Return: what trace_snapshot() returns; -EBUSY its guest has REGISTRY_MAX_SNAPSHOTS (trace.snapshots).
 */
must_check int registry_trace_snapshot(struct trace_entry *t, struct trace_entry **ret,
				       struct err *err);

/** registry_trace_request - what was asked for, as it is now; a new reference */
json_t *registry_trace_request(struct trace_entry *t);

/** registry_trace_stop - stop a trace whose user the caller is; records stay readable */
must_check int registry_trace_stop(struct trace_entry *t, struct err *err);

/**
 * registry_trace_delete - stop a trace if need be and forget it
 * @force: also when stopping fails
 *
 * Return: 0, *last_ret (a reference) tells how it ended; -ENOENT; what trace_stop() returns: the
 * trace stays, unless its VMM is gone or @force.
 */
must_check int registry_trace_delete(struct registry *reg, const char *id, bool force,
				     struct trace_entry **last_ret, struct err *err);

/** registry_state_dir - where the daemon may write */
const char *registry_state_dir(const struct registry *reg);

/** registry_trace_get - a trace by id, as a user and with a reference; -ENOENT */
must_check int registry_trace_get(struct registry *reg, const char *id, struct trace_entry **ret,
				  struct err *err);
void registry_trace_put(struct trace_entry *t);

/* A reference without a user. */
void registry_trace_ref(struct trace_entry *t); /* context: has one already */
void registry_trace_unref(struct trace_entry *t);

/** registry_traces - all traces, of @guest only unless NULL, as a user of each; an array to free. NULL without memory. */
struct trace_entry **registry_traces(struct registry *reg, const char *guest, size_t *n_ret);

/* References only: a stream keeps one, becomes a user for each look, and tells when it ends. */
void registry_stream_begin(struct trace_entry *t); /* context: a user */
void registry_stream_end(struct trace_entry *t);
/* true: the caller is a user and calls registry_trace_unuse(); false: closed, @t->last is valid. */
bool registry_trace_use(struct trace_entry *t);
void registry_trace_unuse(struct trace_entry *t);

void registry_totals(struct registry *reg, struct registry_totals *ret);

#endif
