/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of the ABI's structures for the assembler; agent_offsets.c asserts every one. */
#ifndef GUEST_AGENT_AGENT_OFFSETS_H
#define GUEST_AGENT_AGENT_OFFSETS_H

/* struct agent_header */
#define AGENT_HEADER_ENABLED    48
#define AGENT_HEADER_MODE       52
#define AGENT_HEADER_N_PIDS     56
#define AGENT_HEADER_PIDS       64
#define AGENT_HEADER_LOST_NOCPU 320

/* struct agent_cpu */
#define AGENT_CPU_HEAD      0
#define AGENT_CPU_LOST      8
#define AGENT_CPU_LAST_COMM 16
#define AGENT_CPU_LAST_PID  24
#define AGENT_CPU_TAIL      128
#define AGENT_CPU_SHIFT     8 /* log2(AGENT_CPU_BYTES) */

#endif
