// SPDX-License-Identifier: Apache-2.0
/* The daemon's guests. See registry.h; traces are in registry_trace.c. */
#include "api/registry.h"

#include "api/docs.h"
#include "api/events.h"
#include "api/names.h"
#include "api/registry_impl.h"
#include "api/systemd.h"
#include "base/cleanup.h"
#include "base/clock.h"
#define LOG_PREFIX "registry"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ATTACH_ENDS_NS (20 * NSEC_PER_SEC)
#define CLOSE_AT_ONCE  16u
#define CLOSE_LONGER \
	"EXTEND_TIMEOUT_USEC=120000000" /* sd_notify(3); what the unit allows from the start */
#define CLOSE_TOLD_NS  (30 * NSEC_PER_SEC) /* so often it is asked for while guests are detached */
#define CLOSE_TOLD_MAX 20u /* and then only when one has been */

int registry_create(const char *state_dir, struct hub *hub, struct events *events,
		    struct registry **ret, struct err *err)
{
	struct registry *reg = calloc(1, sizeof(*reg));
	pthread_condattr_t attr;

	if (reg) {
		reg->state_dir = strdup(state_dir);
		reg->ids = trace_ids_create(state_dir);
	}
	if (!reg || !reg->state_dir || !reg->ids) {
		if (reg) {
			free(reg->state_dir);
			trace_ids_destroy(reg->ids);
		}
		free(reg);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the registry");
	}
	pthread_mutex_init(&reg->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&reg->changed, &attr);
	pthread_condattr_destroy(&attr);
	reg->hub = hub;
	reg->events = events;
	*ret = reg;
	return 0;
}

static struct guest_entry *find_guest(struct registry *reg, const char *name)
{
	struct guest_entry *g;

	for (g = reg->guests; g && strcmp(g->name, name) != 0; g = g->next)
		;
	return g;
}

/* One that can be detached now, if there is one such that nobody would be waited for. */
static struct guest_entry *find_ready(const struct registry *reg)
{
	struct guest_entry *used = NULL;

	for (struct guest_entry *g = reg->guests; g; g = g->next) {
		if (g->state != ENTRY_READY || g->taken)
			continue;
		if (!g->users)
			return g;
		used = used ? used : g;
	}
	return used;
}

static bool all_opening(const struct registry *reg)
{
	const struct guest_entry *g;

	for (g = reg->guests; g && g->state == ENTRY_OPENING; g = g->next)
		;
	return !g;
}

/*
 * The name of a guest that can be detached now, for the caller alone; waits while there are only others, but no
 * longer than ATTACH_ENDS_NS for some that are all still being attached.
 */
static bool next_to_close(struct registry *reg, char name_ret[NAME_MAX_BYTES + 1])
{
	struct timespec until;
	struct guest_entry *g = NULL;
	u64 until_ns = 0;
	int r = 0;

	pthread_mutex_lock(&reg->lock);
	while (reg->guests && r != ETIMEDOUT) {
		g = find_ready(reg);
		if (g) {
			g->taken = true;
			memcpy(name_ret, g->name, sizeof(g->name));
			break;
		}
		if (!all_opening(reg)) {
			until_ns = 0;
			pthread_cond_wait(&reg->changed, &reg->lock);
			continue;
		}
		until_ns = until_ns ? until_ns : monotonic_ns() + ATTACH_ENDS_NS;
		until = timespec_of(until_ns);
		r = pthread_cond_timedwait(&reg->changed, &reg->lock, &until);
	}
	pthread_mutex_unlock(&reg->lock);
	return g;
}

/* It could not be detached. Is somebody else at it? If he gives up, it is there to be taken again. */
static bool leave_to_others(struct registry *reg, const char *name)
{
	struct guest_entry *g;

	pthread_mutex_lock(&reg->lock);
	g = find_guest(reg, name);
	if (g)
		g->taken = false;
	pthread_mutex_unlock(&reg->lock);
	return g;
}

struct closing {
	struct registry *reg;
	atomic_uint n_failed;
	unsigned n_running; /* threads; the registry's lock */
};

static void *close_guests(void *arg)
{
	struct closing *c = arg;
	char name[NAME_MAX_BYTES + 1];

	while (next_to_close(c->reg, name)) {
		struct guest_restore restore;
		struct err err = { 0 };
		int r = registry_detach(c->reg, name, true, &restore, &err);

		/* as long as guests go back, nobody is to end us for taking long */
		systemd_notify(CLOSE_LONGER);
		if (r == 0 || leave_to_others(c->reg, name) || err.code == ERR_NOT_FOUND)
			continue;
		log_error("guest %s: %s (%s)", name, err.msg, err_code_name(err.code));
		atomic_fetch_add(&c->n_failed, 1);
	}
	return NULL;
}

static void *run_closer(void *arg)
{
	struct closing *c = arg;

	close_guests(c);
	pthread_mutex_lock(&c->reg->lock);
	c->n_running--;
	pthread_cond_broadcast(&c->reg->changed);
	pthread_mutex_unlock(&c->reg->lock);
	return NULL;
}

/* While guests are being detached, which for a single one may take longer than we were given; not for ever, though. */
static void ask_for_time(struct closing *c)
{
	unsigned n_told = 0;

	pthread_mutex_lock(&c->reg->lock);
	while (c->n_running && n_told++ < CLOSE_TOLD_MAX) {
		struct timespec until = timespec_of(monotonic_ns() + CLOSE_TOLD_NS);
		int r = 0;

		while (c->n_running && r != ETIMEDOUT)
			r = pthread_cond_timedwait(&c->reg->changed, &c->reg->lock, &until);
		if (!c->n_running)
			break;
		pthread_mutex_unlock(&c->reg->lock);
		systemd_notify(CLOSE_LONGER);
		pthread_mutex_lock(&c->reg->lock);
	}
	pthread_mutex_unlock(&c->reg->lock);
}

/* How many guests are still being attached. */
static unsigned tell_unended(struct registry *reg)
{
	unsigned n = 0;

	pthread_mutex_lock(&reg->lock);
	for (struct guest_entry *g = reg->guests; g; g = g->next, n++)
		log_error("guest %s: attaching to %s does not end; it is left to itself", g->name,
			  g->target);
	pthread_mutex_unlock(&reg->lock);
	return n;
}

/* One that takes long, as a VMM that hangs does, must hold up no other: each has a thread, as far as there are enough. */
unsigned registry_close(struct registry *reg, unsigned *n_unended_ret)
{
	struct closing c = { .reg = reg };
	pthread_t thread[CLOSE_AT_ONCE];
	size_t n = 0, n_guests = 0;

	pthread_mutex_lock(&reg->lock);
	reg->closing = true;
	for (struct guest_entry *g = reg->guests; g; g = g->next)
		n_guests++;
	pthread_mutex_unlock(&reg->lock);
	c.n_running = (unsigned)MIN(n_guests, (size_t)CLOSE_AT_ONCE);
	if (n_guests)
		systemd_notify(CLOSE_LONGER);
	while (n < CLOSE_AT_ONCE && n < n_guests &&
	       !pthread_create(&thread[n], NULL, run_closer, &c))
		n++;
	pthread_mutex_lock(&reg->lock);
	c.n_running -= (unsigned)(MIN(n_guests, (size_t)CLOSE_AT_ONCE) - n);
	pthread_mutex_unlock(&reg->lock);
	ask_for_time(&c);
	if (!n)
		close_guests(&c);
	while (n)
		pthread_join(thread[--n], NULL);
	*n_unended_ret = tell_unended(reg);
	return c.n_failed;
}

void registry_destroy(struct registry *reg)
{
	if (!reg)
		return;
	pthread_cond_destroy(&reg->changed);
	pthread_mutex_destroy(&reg->lock);
	trace_ids_destroy(reg->ids);
	free(reg->state_dir);
	free(reg);
}

void guest_entry_unref(struct guest_entry *g)
{
	if (!--g->refs)
		free(g);
}

static void unlink_guest(struct guest_entry *g)
{
	struct registry *reg = g->reg;
	struct guest_entry **at;

	for (at = &reg->guests; *at != g; at = &(*at)->next)
		;
	*at = g->next;
	g->state = ENTRY_CLOSED;
	guest_entry_unref(g);
	pthread_cond_broadcast(&reg->changed);
}

static bool choose_name(struct registry *reg, const char *target, char ret[NAME_MAX_BYTES + 1])
{
	char stem[NAME_MAX_BYTES + 1];

	name_derive(target, stem);
	memcpy(ret, stem, sizeof(stem));
	for (unsigned i = 2; find_guest(reg, ret); i++) {
		if (i > 9999)
			return false;
		snprintf(ret, NAME_MAX_BYTES + 1, "%.59s-%u", stem, i);
	}
	return true;
}

/* Put an entry into the list, so that nobody else takes its name or its target meanwhile. */
static int reserve(struct guest_entry *e, const char *name, struct err *err)
{
	struct registry *reg = e->reg;
	struct guest_entry *g, **at;

	if (reg->closing)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0, "the daemon is stopping");
	for (g = reg->guests; g; g = g->next) {
		if (strcmp(g->target, e->target) == 0)
			return err_set(err, -EBUSY, ERR_GUEST_ATTACHED, 0,
				       "%.100s is attached already, as guest %s", e->target,
				       g->name);
	}
	if (name && find_guest(reg, name))
		return err_set(err, -EEXIST, ERR_CONFLICT, 0, "there is a guest %s already", name);
	if (name)
		snprintf(e->name, sizeof(e->name), "%s", name);
	else if (!choose_name(reg, e->target, e->name))
		return err_set(err, -EEXIST, ERR_CONFLICT, 0, "no free name for %.100s; give one",
			       e->target);
	for (at = &reg->guests; *at; at = &(*at)->next)
		;
	*at = e;
	return 0;
}

/* Whose folder a relative path would mean is not known: the client's is not ours. */
static int check_target(const char *target, struct err *err)
{
	if (strncmp(target, "qemu:", 5) != 0 || !target[5] || target[5] == '/')
		return 0;
	return err_set(err, -EINVAL, ERR_TARGET_SYNTAX, 0,
		       "\"%.100s\" names no guest: the socket's path must be absolute", target);
}

int registry_attach(struct registry *reg, const char *target, const char *name,
		    const struct guest_opts *opts, struct guest_entry **ret, struct err *err)
{
	struct guest_opts own = *opts;
	struct guest_entry *e;
	int r;

	r = check_target(target, err);
	if (r < 0)
		return r;
	e = calloc(1, sizeof(*e));
	if (!e)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for another guest");
	e->reg = reg;
	e->state = ENTRY_OPENING;
	e->refs = 1;
	snprintf(e->target, sizeof(e->target), "%s", target);
	pthread_mutex_lock(&reg->lock);
	r = reserve(e, name, err);
	pthread_mutex_unlock(&reg->lock);
	if (r < 0) {
		free(e);
		return r;
	}
	own.state_dir = reg->state_dir;
	r = guest_attach(target, &own, &e->guest, err);
	pthread_mutex_lock(&reg->lock);
	if (r < 0) {
		unlink_guest(e);
	} else {
		e->attached_ns = clock_ns(CLOCK_REALTIME);
		e->since_ns = monotonic_ns();
		e->state = ENTRY_READY;
		e->users++;
		pthread_cond_broadcast(&reg->changed);
		reg->totals.guests_attached++;
		log_info("guest %s: attached to %s", e->name, e->target);
		*ret = e;
	}
	pthread_mutex_unlock(&reg->lock);
	if (r == 0)
		events_add(
			reg->events, "guest_attached",
			json_pack("{s:s, s:o}", "guest", e->name, "target", json_text(e->target)));
	return r;
}

int registry_guest_get(struct registry *reg, const char *name, struct guest_entry **ret,
		       struct err *err)
{
	struct guest_entry *g;
	int r = 0;

	pthread_mutex_lock(&reg->lock);
	g = find_guest(reg, name);
	if (!g || g->state == ENTRY_OPENING) {
		r = err_set(err, -ENOENT, ERR_NOT_FOUND, 0, "there is no guest %.64s", name);
	} else if (g->state != ENTRY_READY) {
		r = err_set(err, -EBUSY, ERR_CONFLICT, 0, "guest %s is being detached", name);
	} else {
		g->users++;
		*ret = g;
	}
	pthread_mutex_unlock(&reg->lock);
	return r;
}

void registry_guest_put(struct guest_entry *g)
{
	struct registry *reg = g->reg;

	pthread_mutex_lock(&reg->lock);
	g->users--;
	pthread_cond_broadcast(&reg->changed);
	pthread_mutex_unlock(&reg->lock);
}

/* One after the other: a guest that is waited for is not to keep others from being detached. */
struct guest_entry *registry_guest_next(struct registry *reg, struct guest_entry *g)
{
	struct guest_entry *next;

	pthread_mutex_lock(&reg->lock);
	for (next = g ? g->next : reg->guests; next && next->state != ENTRY_READY;
	     next = next->next)
		;
	if (next)
		next->users++;
	if (g) {
		g->users--; /* it was in the list as long as it had one */
		pthread_cond_broadcast(&reg->changed);
	}
	pthread_mutex_unlock(&reg->lock);
	return next;
}

static void release_if_old(struct guest_entry *g, u64 ns)
{
	struct err err = { 0 };

	if (!guest_is_held(g->guest) || monotonic_ns() - g->since_ns < ns)
		return;
	if (guest_release(g->guest, &err))
		log_error("guest %s: %s", g->name, err.msg);
	else
		log_warn("guest %s: nobody let it go; it runs on", g->name);
}

void registry_release_held(struct registry *reg, u64 ns)
{
	struct guest_entry *g = NULL;

	while ((g = registry_guest_next(reg, g)))
		release_if_old(g, ns);
}

static int refuse_running(struct guest_entry *g, struct err *err)
{
	char id[24];

	if (!registry_running_trace(g, id))
		return 0;
	return err_set(err, -EBUSY, ERR_CONFLICT, 0,
		       "trace %s of guest %s is running; stop it first, or detach with force=true",
		       id, g->name);
}

/* Refuse new users and wait for those there are. Called and returns with the lock held. */
static void begin_closing(struct guest_entry *g)
{
	g->state = ENTRY_CLOSING;
	while (g->users)
		pthread_cond_wait(&g->reg->changed, &g->reg->lock);
}

int registry_detach(struct registry *reg, const char *name, bool force,
		    struct guest_restore *restore_ret, struct err *err)
{
	struct guest_entry *g = NULL;
	int r;

	*restore_ret = (struct guest_restore){ 0 };
	r = registry_guest_get(reg, name, &g, err);
	if (r < 0)
		return r;
	/* asked before anything is closed, so that a refusal disturbs nobody */
	r = force ? 0 : refuse_running(g, err);
	pthread_mutex_lock(&reg->lock);
	g->users--;
	pthread_cond_broadcast(&reg->changed);
	if (r == 0 && g->state != ENTRY_READY) /* another client was faster */
		r = err_set(err, -EBUSY, ERR_CONFLICT, 0, "guest %s is being detached", name);
	if (r < 0) {
		pthread_mutex_unlock(&reg->lock);
		return r;
	}
	begin_closing(g);
	pthread_mutex_unlock(&reg->lock);
	/* and again: one may have started while we waited */
	r = force ? 0 : refuse_running(g, err);
	if (r < 0) {
		pthread_mutex_lock(&reg->lock);
		g->state = ENTRY_READY;
		pthread_cond_broadcast(&reg->changed);
		pthread_mutex_unlock(&reg->lock);
		return r;
	}
	registry_close_traces(g);
	r = guest_detach(g->guest, restore_ret, err);
	log_info("guest %s: detached, %llu sites put back%s", g->name,
		 (unsigned long long)restore_ret->sites_restored,
		 restore_ret->verified ? ", verified" : "");
	events_add(reg->events, "guest_detached",
		   json_pack("{s:s, s:o, s:o}", "guest", g->name, "restore",
			     restore_doc(restore_ret), "code",
			     r < 0 ? json_string(err_code_name(err->code)) : json_null()));
	pthread_mutex_lock(&reg->lock);
	g->guest = NULL;
	reg->left_behind |= r < 0;
	unlink_guest(g);
	pthread_mutex_unlock(&reg->lock);
	return r;
}

bool registry_left_behind(struct registry *reg)
{
	bool ret;

	pthread_mutex_lock(&reg->lock);
	ret = reg->left_behind;
	reg->left_behind = false;
	pthread_mutex_unlock(&reg->lock);
	return ret;
}

void registry_totals(struct registry *reg, struct registry_totals *ret)
{
	pthread_mutex_lock(&reg->lock);
	*ret = reg->totals;
	pthread_mutex_unlock(&reg->lock);
}

const char *registry_state_dir(const struct registry *reg)
{
	return reg->state_dir;
}
