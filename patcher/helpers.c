// SPDX-License-Identifier: Apache-2.0
/* See helpers.h. */
#include "patcher/helpers.h"

#include "patcher/options.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>

static const struct {
	u32 bit;
	const char *refusal;
} helpers[] = {
	{ TRACING_FORKS,
	  "forks cannot be followed: wake_up_new_task() is in use by the guest's own tracing" },
	{ TRACING_EXITS,
	  "forks cannot be followed: release_task() is in use by the guest's own tracing" },
	{ TRACING_SWITCHES,
	  "task switches cannot be told: finish_task_switch() is in use by the guest's own tracing" },
};
_Static_assert(ARRAY_SIZE(helpers) == ARRAY_SIZE(((struct guest_agent *)0)->helper_ip),
	       "one for each");

int helpers_find_switch(struct guest *g, size_t *ret, struct err *err)
{
	const struct ftrace_site *sites = kernel_sites(g->k);
	size_t n = kernel_site_count(g->k);

	for (size_t i = 0; i < n; i++) {
		if (sites[i].module || !options_is_switch(sites[i].name) ||
		    sites[i].state == SITE_DISABLED)
			continue;
		*ret = i;
		return sites[i].state == SITE_OK ? 0
						 : err_set(err, -EBUSY, ERR_CONFLICT, sites[i].ip,
							   "%s", helpers[2].refusal);
	}
	return err_set(err, -ENOENT, ERR_FILTER_EMPTY, 0,
		       "task switches cannot be told: this kernel's finish_task_switch() cannot be "
		       "traced");
}

void helpers_note(struct guest *g, const struct tracing_opts *opts, u64 switch_ip)
{
	u64 *ip = g->agent.helper_ip;

	ip[0] = ip[1] = 0;
	ip[2] = switch_ip;
	g->agent.helpers_missed = 0;
	for (size_t i = 0; opts->follow && i < opts->n_sites; i++) {
		u64 at = kernel_sites(g->k)[opts->sites[i].site].ip;

		if (opts->sites[i].what & AGENT_SITE_FORK)
			ip[0] = at;
		if (opts->sites[i].what & AGENT_SITE_EXIT)
			ip[1] = at;
	}
}

static int by_addr(const void *a, const void *b)
{
	const struct text_change *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool is_armed(const struct guest *g, u64 ip)
{
	const struct text_change key = { .addr = ip }, *c;

	c = g->n_armed ? bsearch(&key, g->armed, g->n_armed, sizeof(key), by_addr) : NULL;
	return c && (c->result == TEXT_DONE || c->result == TEXT_ALREADY);
}

u32 helpers_away(const struct guest *g)
{
	u32 away = 0;

	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		if (g->agent.helper_ip[i] && !is_armed(g, g->agent.helper_ip[i]))
			away |= helpers[i].bit;
	}
	return away;
}

int helpers_armed(struct guest *g, struct err *err)
{
	u32 away = helpers_away(g);

	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		if (away & helpers[i].bit)
			return err_set(err, -EBUSY, ERR_CONFLICT, g->agent.helper_ip[i], "%s",
				       helpers[i].refusal);
	}
	return 0;
}

void helpers_look(struct guest *g)
{
	g->agent.helpers_missed |= helpers_away(g);
}

u32 helpers_missed(struct guest *g)
{
	u32 missed = g->agent.helpers_missed | helpers_away(g);

	g->agent.helpers_missed = 0;
	return missed;
}
