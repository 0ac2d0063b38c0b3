/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which recorded call sites a trace arms: ftrace's globs, minus what must be left alone. Must not
 * know how sites are armed.
 */
#ifndef TRACERS_FILTER_H
#define TRACERS_FILTER_H

#include "base/err.h"
#include "base/types.h"
#include "symbols/kernel.h"
#include "tracers/trace.h"

#define FILTER_BITMAP_WORDS(n) (((n) + 63) / 64)
/* Globs in one list that are compared with every site, a few milliseconds each: the guest is locked. */
#define FILTER_MAX_WILDCARDS 256
/* What comparing one list may cost, in filter_match_cost()'s steps: 256 globs of two stars with 60,000 functions do not. */
#define FILTER_MAX_COST (512ull << 20)

struct filter_input {
	const struct ftrace_site *sites;
	size_t n;
	u32 version; /* kernel_version() */
	bool later; /* each glob has matched something once: what it meant may have gone since */
};

struct filter_counts {
	size_t n_selected;
	size_t n_disabled; /* matched, but SITE_DISABLED */
	size_t n_in_use; /* matched, but SITE_IN_USE */
	size_t n_denied; /* matched, but not safe to trace: filter_denied() */
};

/**
 * glob_match - does all of @name match @glob?
 *
 * As ftrace's MATCH_GLOB (Linux v6.1 lib/glob.c): `*`, `?`, `[a-z]`, `[!a-z]`, and `\` takes the
 * next character as it is; a `[` without its `]` is itself. Time: at most |glob| * |name|, and as much more as classes
 * are long.
 */
bool glob_match(const char *glob, const char *name);

/**
 * filter_match - does @filter choose a function?
 * @filter: GLOB, GLOB:mod:MODULE or :mod:MODULE; MODULE may be a glob. A GLOB alone also finds
 *	    functions of modules, as in set_ftrace_filter
 * @module: NULL for the kernel's own
 */
bool filter_match(const char *filter, const char *name, const char *module);
/** filter_match_cost - the same; adds to @cost what it took, in steps of some ns */
bool filter_match_cost(const char *filter, const char *name, const char *module, u64 *cost);

/**
 * filter_denied - why a recorded function must not be traced, although ftrace has a record of it
 *
 * Return: a reason for the user; NULL when it may be traced.
 */
const char *filter_denied(const char *name, u32 version);

/**
 * filter_mark - set the bits of all sites that any of some globs matches, whatever their state
 * @what:   what they are called in messages: "filter"
 * @globs:  thousands of names without a wildcard cost little: they are looked up, not compared
 * @bitmap: FILTER_BITMAP_WORDS(@in->n) words, to which bits are added
 *
 * Return: 0; -ENOENT a glob matches nothing, unless @in->later (filter.no_match; names the glob, and a name
 * much like it if there is one); -EINVAL an empty glob, or more than FILTER_MAX_WILDCARDS that are not a name alone or
 * before ":mod:" (bad_request); -E2BIG they take longer than FILTER_MAX_COST (filter.too_costly); -ENOMEM.
 */
must_check int filter_mark(const struct filter_input *in, const char *what,
			   const char *const *globs, size_t n_globs, u64 *bitmap, struct err *err);

/** filter_sift - clear the bits of sites that may not be armed, and count */
void filter_sift(const struct filter_input *in, u64 *bitmap, struct filter_counts *ret);

/**
 * filter_select - choose the sites that @opts asks for
 * @opts:   filter, notrace and graph are used: what is in graph is armed as well
 * @bitmap: FILTER_BITMAP_WORDS(@in->n) words; bit i is set when @in->sites[i] is to be armed
 * @graph:  as many words; the bits that graph matches, whatever their state
 * @ret:    counts, also when it fails
 *
 * Context: any thread; the caller holds what protects the sites. Return: 0; -ENOENT a glob matches
 * nothing, or nothing that may be armed is left, unless @in->later (filter.no_match; names the glob, and a name much
 * like it if there is one); -EINVAL, -ENOMEM as filter_mark().
 */
must_check int filter_select(const struct filter_input *in, const struct trace_opts *opts,
			     u64 *bitmap, u64 *graph, struct filter_counts *ret, struct err *err);

static inline bool filter_bit(const u64 *bitmap, size_t i)
{
	return bitmap[i / 64] >> (i % 64) & 1;
}

#endif
