// SPDX-License-Identifier: Apache-2.0
/* Names of tasks by pid. See comms.h. */
#include "tracers/comms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 4-way sets: a pid that is not found again was replaced by a later one, and shows as "<...>". */
#define SETS 4096u
#define WAYS 4u

struct entry {
	u32 pid, tgid;
	char comm[TRACE_COMM_LEN + 1];
};

struct comms {
	struct entry entry[SETS][WAYS];
	u8 next[SETS]; /* the way to replace */
};

struct comms *comms_create(void)
{
	return calloc(1, sizeof(struct comms));
}

void comms_destroy(struct comms *c)
{
	free(c);
}

static struct entry *find(struct comms *c, u32 pid)
{
	for (u32 w = 0; w < WAYS; w++) {
		struct entry *e = &c->entry[pid % SETS][w];

		if (e->pid == pid && e->comm[0])
			return e;
	}
	return NULL;
}

void comms_set(struct comms *c, u32 pid, u32 tgid, const char *comm)
{
	struct entry *e = find(c, pid);
	u32 set = pid % SETS;

	if (!e) {
		e = &c->entry[set][c->next[set]];
		c->next[set] = (u8)((c->next[set] + 1) % WAYS);
	}
	e->pid = pid;
	e->tgid = tgid;
	snprintf(e->comm, sizeof(e->comm), "%s", comm);
}

bool comms_get(const struct comms *c, u32 pid, u32 *tgid_ret, char *comm_ret)
{
	const struct entry *e = find((struct comms *)(uintptr_t)c, pid);

	if (!e)
		return false;
	*tgid_ret = e->tgid;
	memcpy(comm_ret, e->comm, sizeof(e->comm));
	return true;
}
