/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of a profile: an address and what was there. Of one address there are several where a module came
 * to where another was. Names are copied. One thread; memory grows with what there was, up to OUTPUT_ADDRS_MAX functions or OUTPUT_NAMES_MAX
 * bytes of them: all that are new then are OUTPUT_SHARED_NAME. Private to profile.c.
 */
#ifndef TRACERS_PROFILE_FUNCS_H
#define TRACERS_PROFILE_FUNCS_H

#include "tracers/output.h"

struct func {
	u64 ip;
	const char *name, *module; /* NULL: not known; the kernel's own, or not known */
	u32 row; /* the profile's: 1 + index; 0: none yet */
	u32 hash; /* of the names */
	u32 when; /* of the names that it was asked of last */
};

struct funcs;

struct funcs *funcs_create(void); /* NULL: no memory */
void funcs_destroy(struct funcs *f);
/** funcs_get - the number of what is at @ip now, 1, 2, 3 ...; 0: no memory */
u32 funcs_get(struct funcs *f, u64 ip, const struct output_names *names);
/** funcs_shared - how often something was OUTPUT_SHARED_NAME */
u64 funcs_shared(const struct funcs *f);
/** funcs_at - by number, which funcs_get() gave; valid until the next funcs_get(), its strings as long as @f */
struct func *funcs_at(const struct funcs *f, u32 id);

#endif
