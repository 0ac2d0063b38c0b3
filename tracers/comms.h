/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tasks by pid: a bounded table that forgets the oldest. One thread. */
#ifndef TRACERS_COMMS_H
#define TRACERS_COMMS_H

#include "tracers/trace.h"

struct comms;

struct comms *comms_create(void); /* NULL: no memory */
void comms_destroy(struct comms *c);
void comms_set(struct comms *c, u32 pid, u32 tgid, const char *comm);
/** comms_get - false when @pid is not known; @comm_ret has room for TRACE_COMM_LEN + 1 */
bool comms_get(const struct comms *c, u32 pid, u32 *tgid_ret, char *comm_ret);

#endif
