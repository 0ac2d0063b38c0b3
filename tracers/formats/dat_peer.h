/* SPDX-License-Identifier: Apache-2.0 */
/* What a host's trace.dat says of itself, for a guest's that is to be merged with it. */
#ifndef TRACERS_FORMATS_DAT_PEER_H
#define TRACERS_FORMATS_DAT_PEER_H

#include "base/err.h"
#include "base/types.h"

#include <stdio.h>

struct dat_peer {
	u64 trace_id; /* 0: it has none */
	char clock[32]; /* "local", "mono" ...; "" : not known */
};

/**
 * dat_peer_read - of @f, a trace.dat of version 6 or 7 by a little-endian host
 *
 * Hostile input: bounded walks; what it claims is not allocated. Return: 0; -EBADMSG (file.format).
 */
must_check int dat_peer_read(FILE *f, struct dat_peer *ret, struct err *err);

#endif
