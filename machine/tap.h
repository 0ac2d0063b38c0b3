/* SPDX-License-Identifier: Apache-2.0 */
/* A tap device of the host's: the other end of a guest's network card. */
#ifndef MACHINE_TAP_H
#define MACHINE_TAP_H

#include "base/err.h"
#include "base/types.h"

#define MAC_BYTES 6

/* What a network card is connected to. */
struct net_source {
	const char *tap; /* interface; NULL: fd */
	int fd; /* a tap that whoever started us opened */
	u8 mac[MAC_BYTES]; /* all zeros: one is made up, from the host's name and the tap's */
};

struct tap {
	int fd; /* -1: none */
	u32 header; /* bytes of virtio-net header before each packet: 0 or 12 */
	u32 offloads; /* TUN_F_*: what it can be told to leave to us */
	u8 mac[MAC_BYTES];
};

/**
 * tap_open - open or take over a tap, non-blocking
 *
 * Return: 0; -ENODEV there is no such interface; -EPERM; -EBUSY another process has it; -EINVAL it is no
 * tap; a system error. tap_close() is fine after a failure.
 */
must_check int tap_open(struct tap *t, const struct net_source *source, struct err *err);
void tap_close(struct tap *t);

/** tap_offload - packets may come without checksum or unsegmented, as @offloads (TUN_F_*) says; false: as before */
bool tap_offload(const struct tap *t, u32 offloads);

#endif
