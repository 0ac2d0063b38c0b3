/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of the ABI's structures for the assembler; agent_offsets.c asserts every one. */
#ifndef GUEST_AGENT_AGENT_OFFSETS_H
#define GUEST_AGENT_AGENT_OFFSETS_H

/* struct agent_header */
#define AGENT_HEADER_ENABLED      48
#define AGENT_HEADER_MODE         52
#define AGENT_HEADER_N_PIDS       56
#define AGENT_HEADER_PIDS         64
#define AGENT_HEADER_LOST_NOCPU   320
#define AGENT_HEADER_RECLAIM_HEAD 352
#define AGENT_HEADER_RECLAIM_TAIL 416

/* struct agent_cpu */
#define AGENT_CPU_HEAD         0
#define AGENT_CPU_LOST         8
#define AGENT_CPU_LAST_COMM    16
#define AGENT_CPU_LAST_PID     24
#define AGENT_CPU_FREE_FRAMES  32
#define AGENT_CPU_LOST_FRAMES  40
#define AGENT_CPU_LOST_RETURNS 48
#define AGENT_CPU_FRAME_ERRORS 56
#define AGENT_CPU_ORPHANS      64
#define AGENT_CPU_TAIL         128
#define AGENT_CPU_SHIFT        8 /* log2(AGENT_CPU_BYTES) */

/* struct agent_frame */
#define AGENT_FRAME_SLOT       0
#define AGENT_FRAME_RET        8
#define AGENT_FRAME_OWNER      16
#define AGENT_FRAME_START_TIME 24
#define AGENT_FRAME_TSC        32
#define AGENT_FRAME_IP         40
#define AGENT_FRAME_PARENT     44
#define AGENT_FRAME_PID        48 /* and state: one store of 8 bytes */
#define AGENT_FRAME_STATE      52
#define AGENT_FRAME_NEXT       56
#define AGENT_FRAME_SHIFT      6 /* log2(AGENT_FRAME_BYTES) */

#endif
