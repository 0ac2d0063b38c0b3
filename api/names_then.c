// SPDX-License-Identifier: Apache-2.0
/* Names as of the time of a record. See names_then.h. */
#include "api/names_then.h"

#include "api/registry.h"

#include <stdlib.h>

struct names_kept {
	pthread_mutex_t lock; /* all below; only ever tried */
	u64 when; /* trace_names_when() of what is in the cache */
	u32 changes; /* of that */
	struct names_cache cache;
	struct output_names cached;
};

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	struct names_then *n = arg;

	return trace_sym_then(n->trace, n->seq, addr, ret, off_ret);
}

static bool func(void *arg, u64 ip, struct kernel_func *ret)
{
	struct names_then *n = arg;

	return trace_func_then(n->trace, n->seq, ip, ret);
}

static const char *enumerator(void *arg, const struct kernel_val *v, s64 val)
{
	struct names_then *n = arg;

	return trace_enumerator(n->trace, v, val);
}

static struct output_names names_of(struct names_then *n)
{
	return (struct output_names){ sym, n, func, enumerator, &n->changes };
}

void names_then_init(struct names_then *n)
{
	*n = (struct names_then){ .when = 0 };
}

static struct names_kept *keep(void)
{
	struct names_kept *k = calloc(1, sizeof(*k));
	struct output_names none = { sym, NULL, func, enumerator, NULL };

	if (!k || names_cache_init(&k->cache, &none, NAMES_CACHE_SLOTS, &k->cached) < 0) {
		free(k);
		return NULL;
	}
	k->cache.below.when = &k->changes;
	pthread_mutex_init(&k->lock, NULL);
	return k;
}

void names_kept_destroy(struct names_kept *k)
{
	if (!k)
		return;
	names_cache_deinit(&k->cache);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

/* What is kept of @t, made by the first who asks. */
static struct names_kept *kept_of(struct trace_entry *t)
{
	struct names_kept *k = atomic_load(&t->names), *mine;

	if (k)
		return k;
	mine = keep();
	if (!mine || atomic_compare_exchange_strong(&t->names, &k, mine))
		return mine;
	names_kept_destroy(mine);
	return k;
}

static void turn_to(struct names_then *n, u64 when)
{
	n->changes += n->when != when;
	n->when = when;
	if (!n->kept)
		return;
	n->kept->changes += n->kept->when != when;
	n->kept->when = when;
}

void names_then_begin(struct names_then *n, struct trace_entry *t, u64 first)
{
	struct names_kept *k = kept_of(t);
	u64 when;

	trace_names_lock(t->trace);
	n->trace = t->trace;
	n->seq = first;
	n->names = names_of(n);
	if (k && pthread_mutex_trylock(&k->lock) == 0) {
		n->kept = k;
		k->cache.below.arg = n;
		n->names = k->cached;
		n->names.when = &n->changes;
	}
	when = trace_names_when(n->trace, first);
	n->mixed = trace_names_when(n->trace, UINT64_MAX) != when;
	turn_to(n, when);
}

void names_then_end(struct names_then *n)
{
	if (n->kept)
		pthread_mutex_unlock(&n->kept->lock);
	n->kept = NULL;
	trace_names_unlock(n->trace);
	n->trace = NULL;
}

void names_then_at(struct names_then *n, u64 seq)
{
	n->seq = seq;
	if (n->mixed)
		turn_to(n, trace_names_when(n->trace, seq));
}
