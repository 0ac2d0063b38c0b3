/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tasks by pid: a bounded table that forgets the oldest. One thread. */
#ifndef TRACERS_COMMS_H
#define TRACERS_COMMS_H

#include "tracers/trace.h"

#include <string.h>

struct comms;

/** comms_words - @comm, of TRACE_COMM_LEN bytes at least, to compare and hash: all 0 from its end on */
static inline void comms_words(const char *comm, u64 ret[2])
{
	const u64 ones = 0x0101010101010101;

	_Static_assert(TRACE_COMM_LEN == 2 * sizeof(u64), "two words");
	memcpy(ret, comm, TRACE_COMM_LEN);
	for (int i = 0; i < 2; i++) {
		u64 ends = (ret[i] - ones) & ~ret[i] &
			   ones << 7; /* the lowest bit is the first NUL's */

		if (!ends)
			continue;
		ret[i] &= ((ends & -ends) >> 7) - 1;
		if (!i)
			ret[1] = 0;
		return;
	}
}

struct comms *comms_create(void); /* NULL: no memory */
void comms_destroy(struct comms *c);
void comms_set(struct comms *c, u32 pid, u32 tgid, const char *comm);
/** comms_get - false when @pid is not known; @comm_ret has room for TRACE_COMM_LEN + 1 */
bool comms_get(const struct comms *c, u32 pid, u32 *tgid_ret, char *comm_ret);

#endif
