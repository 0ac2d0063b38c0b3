/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's initcalls and how long each took, as the kernel's own initcall_debug prints them (Linux v6.1
 * init/main.c trace_initcall_start_cb(), trace_initcall_finish_cb()), from records of function_graph of
 * do_one_initcall() with its argument and return value:
 *
 *   [    0.104212] calling  init_hw_perf_events+0x0/0x5b0 @ 1
 *   [    0.104319] initcall init_hw_perf_events+0x0/0x5b0 returned 0 after 107 usecs
 */
#ifndef TRACERS_OUT_INITCALLS_H
#define TRACERS_OUT_INITCALLS_H

#include "tracers/output.h"

struct out_initcalls;

/** out_initcalls_create - NULL: no memory */
struct out_initcalls *out_initcalls_create(void);
void out_initcalls_destroy(struct out_initcalls *o);

/** out_initcalls_record - lines for what @r is of an initcall; nothing for other records */
void out_initcalls_record(struct out_initcalls *o, struct buf *b, const struct trace_record *r,
			  const struct output_names *names);

/** out_initcalls_count - those that began so far */
u64 out_initcalls_count(const struct out_initcalls *o);

#endif
