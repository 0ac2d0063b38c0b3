/* SPDX-License-Identifier: Apache-2.0 */
/* Short words for the tables of calls_*.c. Include there alone: they are short. */
#ifndef TRACERS_SYSCALLS_CALLS_H
#define TRACERS_SYSCALLS_CALLS_H

#include "tracers/syscalls/desc.h"

/* clang-format off: a table */
#define ARG(k)                \
	{                     \
		.kind = K_##k \
	}
#define OUT(k)                             \
	{                                  \
		.kind = K_##k, .out = true \
	}
#define TAB(k, t)                          \
	{                                  \
		.kind = K_##k, .tab = &(t) \
	}
#define FLAGS(t) TAB(FLAGS, xlat_##t)
#define ENUM(t)  TAB(ENUM, xlat_##t)
#define IN(s)    TAB(STRUCT, sd_##s)
#define OUTS(s)                                               \
	{                                                     \
		.kind = K_STRUCT, .out = true, .tab = &sd_##s \
	}
#define OUTI(s)                                                                         \
	{                                                                               \
		.kind = K_STRUCT, .out = true, .tab = &sd_##s, .when_interrupted = true \
	}
#define INV(s) TAB(STRUCTS, sd_##s)
#define OUTV(s)                                                \
	{                                                      \
		.kind = K_STRUCTS, .out = true, .tab = &sd_##s \
	}
#define AS(n, l, k)                                          \
	{                                                    \
		.kind = K_##k, .from = (n) + 1, .label = (l) \
	}
#define ASIF(n, l, k, a, m)                                                                     \
	{                                                                                       \
		.kind = K_##k, .from = (n) + 1, .label = (l), .if_arg = (a) + 1, .if_mask = (m) \
	}
#define IF(k, a, m)                                              \
	{                                                        \
		.kind = K_##k, .if_arg = (a) + 1, .if_mask = (m) \
	}
#define MODE_IF(a)         IF(O, a, 0x400040) /* O_CREAT, the bit of O_TMPFILE */
#define D                  ARG(D)
#define U                  ARG(U)
#define LD                 ARG(LD)
#define LU                 ARG(LU)
#define X                  ARG(X)
#define LX                 ARG(LX)
#define O                  ARG(O)
#define ADDR               ARG(ADDR)
#define FD                 ARG(FD)
#define AT                 ARG(DIRFD)
#define UID                ARG(UID)
#define SIG                ARG(SIG)
#define OPEN               ARG(OPEN)
#define PATH               ARG(PATH)
#define STR                ARG(STR)
#define BUF                ARG(BUF)
#define BUFOUT             OUT(BUF)
#define IOV                ARG(IOVEC)
#define IOVOUT             OUT(IOVEC)
#define SIGSET             ARG(SIGSET)
#define LONGP              ARG(LONG)
#define CALLS(name, table) const struct call_list name = { table, ARRAY_SIZE(table) }
#define TF                 SC_FILE
#define TD                 SC_DESC
#define TP                 SC_PROCESS
#define TN                 SC_NETWORK
#define TM                 SC_MEMORY
#define TS                 SC_SIGNAL
#define TI                 SC_IPC
#define TC                 SC_CREDS
/* clang-format on */

#endif
