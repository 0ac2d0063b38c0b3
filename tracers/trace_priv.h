/* SPDX-License-Identifier: Apache-2.0 */
/* struct trace, for trace*.c alone. */
#ifndef TRACERS_TRACE_PRIV_H
#define TRACERS_TRACE_PRIV_H

#include "patcher/tracing.h"
#include "tracers/choose.h"
#include "tracers/clock.h"
#include "tracers/drain.h"
#include "tracers/stacks.h"
#include "tracers/store.h"
#include "tracers/trace.h"

#include <pthread.h>
#include <stdatomic.h>

#define TRACE_BATCH 256u

struct trace_markers;

/* Calls that will never return, as the patcher found them. */
struct unreturned {
	struct tracing_unreturned *call;
	size_t n, cap;
};

/* What trace_set_graph() is at, as the trace's thread has to know it. */
enum trace_turn {
	TRACE_TURN_NONE,
	TRACE_TURN_GRAPH, /* about to; for the thread to take */
	TRACE_TURN_FUNCTION,
	TRACE_TURN_TAKEN, /* the guest's turn */
	TRACE_TURN_DONE, /* for the thread to take */
	TRACE_TURN_FAILED,
	TRACE_TURN_ENDS, /* until all that was recorded before is handed on */
};

struct trace_sys;

/* What the thread that looks after the guest has for the one that drains: see trace_care.c. */
struct trace_post {
	struct unreturned never;
	struct trace_clock clock; /* cpus NULL: none */
	u64 asked,
		taken; /* how often one of the following was asked for, and of them those that are done */
	bool new_epoch;
	u32 epoch; /* of what is recorded from now on */
	bool switches_lost;
	bool failed;
	struct err why;
};

/* Records from @seq on were made in @epoch: see kernel_epoch(). */
struct trace_mark {
	u64 seq;
	u32 epoch;
};

struct trace {
	struct guest *g;
	struct trace_markers *markers; /* NULL before the first */
	struct kernel *k; /* the one that is traced: a reference */
	struct trace_sys *sys; /* syscalls: what that needs; else NULL */
	struct sym_mem mem;
	/* from here to tended: under the guest's lock */
	struct trace_clock clock; /* as it was read last */
	struct trace_opts opts; /* a copy, of lists too */
	u64 taken; /* as tracing_taken() said last */
	bool unarmed; /* functions of new modules could not be armed yet */
	bool left; /* some sites are the guest's own for now */
	u64 taken_told; /* of taken: the draining thread was told that switches may be lost */
	bool strayed; /* who is followed may have forked, or ended, unseen: tracing_follow() is still to be done */
	u32 epoch; /* of kernel tables when sites were chosen last */
	bool tended; /* sites are armed, and somebody looks after them: what arms or records more asks for it */
	/* from here to n_batch: the draining thread's, if there is one */
	struct drain *drain;
	struct trace_clock drain_clock;
	struct trace_record batch[TRACE_BATCH];
	size_t n_batch;
	struct store *store;
	pthread_t thread, care_thread;
	bool thread_runs, care_runs;
	bool armed;
	atomic_bool graph; /* returns are followed now */
	atomic_bool ever_graph; /* or were; set after base */
	bool needs_graph; /* an option of function_graph's was given */
	u64 lost_nocpu; /* when we began */
	struct stacks *stacks; /* opts.stack; else NULL */
	struct tracing_stacks stack_base; /* when we began */
	struct tracing_graph base; /* when we began */
	struct unreturned late; /* found by trace_stop() */

	pthread_mutex_t
		control; /* stopping and turning, one at a time; taken before the guest's lock */
	pthread_mutex_t lock; /* all below; taken after it */
	pthread_cond_t wake, care_wake;
	bool stop, care_stop;
	struct trace_post post;
	struct trace_info info;
	enum trace_turn turn;
	pthread_cond_t turned; /* the thread has set turn, or has ended */
	bool thread_ended;
	struct unreturned turn_late; /* found before returns were given up */
	void (*notify)(void *arg);
	void *notify_arg;
	struct trace_mark *marks; /* oldest first */
	size_t n_marks;
};

/* drain_opts' callbacks */
u64 trace_record_clock(void *arg, u32 cpu, u64 tsc48);
u64 trace_record_duration(void *arg, u64 ticks);
void trace_take_record(void *arg, const struct trace_record *r);
/** trace_keep_record - into the store, as it is */
void trace_keep_record(void *arg, const struct trace_record *r);

/** trace_thread - drains until trace.stop; a pthread's start. It waits for nobody who has the guest's lock. */
void *trace_thread(void *arg);

/* trace_care.c */
/** trace_start_threads - -EAGAIN: one of them could not be started. Undo: trace_end_threads() */
must_check int trace_start_threads(struct trace *t, struct err *err);
/** trace_end_threads - they may not run at all. Context: guest lock not held */
void trace_end_threads(struct trace *t);
/** trace_post_epoch - records that the draining thread reads from its next round on are of @epoch */
void trace_post_epoch(struct trace *t, u32 epoch);
/** trace_post_switches_lost - see drain_switches_lost() */
void trace_post_switches_lost(struct trace *t);
/** trace_post_is_taken - what the two above have asked for is done */
bool trace_post_is_taken(struct trace *t);
/**
 * trace_take_post - do what the other thread has for this one
 *
 * Return: 0; -ECANCELED the trace is to end, as *@err says. Context: the draining thread, or there is none.
 */
must_check int trace_take_post(struct trace *t, struct err *err);

/* trace.c, for trace_control.c */
int trace_check_pids(struct guest *g, const struct trace_opts *opts, struct err *err);
/** trace_agent_opts - what the agent is asked for, but sites and threshold */
void trace_agent_opts(const struct trace *t, const struct trace_opts *opts,
		      struct tracing_opts *ret);
void trace_free(struct trace *t);
/** trace_refuse - -EBUSY (conflict): it was stopped, or it has failed and nobody looks after what is armed (!tended) */
int trace_refuse(struct err *err);

/* trace_mark.c */
void trace_markers_destroy(struct trace_markers *m);
/** trace_markers_copy - for a snapshot. Return: 0; -ENOMEM. */
must_check int trace_markers_copy(struct trace *from, struct trace *to, struct err *err);
/**
 * trace_take_markers - into the store, those that their time is known of
 * @all: also the others
 *
 * Return: how many. Context: the trace's thread, or there is none.
 */
size_t trace_take_markers(struct trace *t, bool all);
/** trace_fill_markers - their texts into what was read. Context: any thread. */
void trace_fill_markers(struct trace *t, struct trace_page *page);

/* Context: the trace's thread, or there is none. */
void trace_flush(struct trace *t);
void trace_update_losses(struct trace *t);
void trace_update_graph(struct trace *t);
/** trace_pass_unreturned - into the stream, and empty @u */
void trace_pass_unreturned(struct trace *t, struct unreturned *u);

/** trace_choose - which call sites, and what of them; @later: choose_input. Context: guest lock held */
must_check int trace_choose(struct trace *t, const struct trace_opts *opts, bool later,
			    struct choice *ret, struct err *err);

/* trace_sys.c: of the tracer syscalls. */
must_check int trace_sys_create(struct trace *t, const struct trace_opts *opts, struct err *err);
void trace_sys_destroy(struct trace_sys *s);
/**
 * trace_sys_choose - which sites; then records go to trace_sys_take()
 *
 * @to: what the agent is asked for; points into t->sys. Context: guest lock held.
 */
must_check int trace_sys_choose(struct trace *t, struct choice *ret, struct tracing_opts *to,
				struct err *err);
void trace_sys_take(struct trace *t, const struct trace_record *r);
/** trace_sys_finish - no more records come */
void trace_sys_finish(struct trace *t);
/** trace_sys_counts - into t->info; t->lock held */
void trace_sys_counts(struct trace *t);
/** trace_sys_copy - for a snapshot: names of calls and their arguments. Return: 0; -ENOMEM. */
must_check int trace_sys_copy(const struct trace *from, struct trace *to, struct err *err);
/** trace_sys_func - trace_func() */
bool trace_sys_func(struct trace *t, u64 ip, struct kernel_func *ret);

/* trace_life.c: of a guest that changes. */

/** trace_life_init - keep @opts, and begin. Return: 0; -ENOMEM */
must_check int trace_life_init(struct trace *t, const struct trace_opts *opts, struct err *err);
void trace_life_deinit(struct trace *t);
/** trace_life_set_opts - what new modules' functions are chosen by from now on. Context: guest lock held. */
must_check int trace_life_set_opts(struct trace *t, const struct trace_opts *opts, struct err *err);
/** trace_life_copy - names of a snapshot @t are those of @from. Return: 0; -ENOMEM */
must_check int trace_life_copy(struct trace *from, struct trace *t, struct err *err);
/** trace_life_begin - sites are about to be armed. Context: guest lock held, no thread runs yet */
void trace_life_begin(struct trace *t);
/** trace_life_mark - what comes into the store from now on is of @epoch. Context: as trace_flush() */
void trace_life_mark(struct trace *t, u32 epoch);
/**
 * trace_life_look - modules that came or went, sites that the guest's own tracing took or gave back
 * @again_ret: what was posted has to be taken first: look again as soon as trace_post_is_taken()
 *
 * Context: guest lock held. Return: 0; -ESRCH (vmm.gone); -EBUSY (guest.migrating), and every site is back. What else
 * fails is tried again at the next look, and functions of new modules are armed at the first one for which
 * trace_post_is_taken().
 */
must_check int trace_life_look(struct trace *t, bool *again_ret, struct err *err);

/** trace_note_unreturned - tracing_collect()'s callback; @arg: struct unreturned */
void trace_note_unreturned(void *arg, const struct tracing_unreturned *call);
void trace_notify(struct trace *t);
/**
 * trace_give_up - the agent off, as a trace failed; nobody looks after it any more
 * @err: why; a guest that was rebooted explains more than what was found first, as rings that make no sense
 *
 * Context: guest lock not held.
 */
void trace_give_up(struct trace *t, struct err *err);
void trace_failed(struct trace *t, const struct err *err);

#endif
