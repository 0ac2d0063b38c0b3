// SPDX-License-Identifier: Apache-2.0
/* Names as of the time of a record. See names_then.h. */
#include "api/names_then.h"

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	struct names_then *n = arg;

	*ret = (struct kernel_sym){ 0 };
	*off_ret = 0;
	return n->trace && trace_sym_then(n->trace, n->seq, addr, ret, off_ret);
}

static bool func(void *arg, u64 ip, struct kernel_func *ret)
{
	struct names_then *n = arg;

	return n->trace && trace_func(n->trace, ip, ret);
}

static const char *enumerator(void *arg, const struct kernel_val *v, s64 val)
{
	struct names_then *n = arg;

	return n->trace ? trace_enumerator(n->trace, v, val) : NULL;
}

int names_then_init(struct names_then *n)
{
	struct output_names below = { sym, n, func, enumerator, &n->changes };

	*n = (struct names_then){ 0 };
	return names_cache_init(&n->cache, &below, NAMES_THEN_SLOTS, &n->names);
}

void names_then_deinit(struct names_then *n)
{
	names_cache_deinit(&n->cache);
}

static void turn_to(struct names_then *n, u64 when)
{
	if (n->when == when)
		return;
	n->when = when;
	n->changes++;
}

void names_then_begin(struct names_then *n, struct trace *t, u64 first)
{
	u64 when;

	trace_names_lock(t);
	n->trace = t;
	n->seq = first;
	when = trace_names_when(t, first);
	n->mixed = trace_names_when(t, UINT64_MAX) != when;
	turn_to(n, when);
}

void names_then_end(struct names_then *n)
{
	struct trace *t = n->trace;

	n->trace = NULL;
	trace_names_unlock(t);
}

void names_then_at(struct names_then *n, u64 seq)
{
	n->seq = seq;
	if (n->mixed)
		turn_to(n, trace_names_when(n->trace, seq));
}
