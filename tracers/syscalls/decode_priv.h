/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the decoder share. */
#ifndef TRACERS_SYSCALLS_DECODE_PRIV_H
#define TRACERS_SYSCALLS_DECODE_PRIV_H

#include "tracers/syscalls/decode.h"
#include "tracers/syscalls/desc.h"

#include <string.h>

struct dec {
	struct buf *b;
	const struct syscall_event *e;
	const struct decode_opts *o;
	u32 max; /* string_max */
	bool ok; /* it returned, and not with an error */
	s32 fd_arg; /* the descriptor that is being shown is this argument, or CAPTURE_RETURN; -1: neither */
	s32 capture; /* the one that was used last; -1 */
	bool unread;
};

static inline u64 load_le(const u8 *p, size_t size)
{
	u64 v = 0;

	memcpy(&v, p, MIN(size, sizeof(v)));
	return v;
}

/** put_val - a value by its kind; those of memory come out as addresses */
void put_val(struct dec *d, u8 kind, const void *tab, u64 v);
/** put_flags - 0 when there are none; @leading: something stands before, as O_RDONLY */
void put_flags(struct buf *b, const struct xlat_table *t, u64 v, bool leading);
void put_signal(struct buf *b, u64 sig);
void put_addr(struct buf *b, u64 v);
void put_sigset(struct buf *b, const u8 *p, size_t n);

/** put_quoted - "...", at most @max of @n bytes; @full more follow that were not captured */
void put_quoted(struct buf *b, const u8 *s, size_t n, size_t max, bool full, bool hex);

/** put_mem - what argument @a, of value @v, points to */
void put_mem(struct dec *d, const struct arg_desc *desc, u8 a, u64 v);
void put_struct(struct dec *d, const struct struct_desc *s, const u8 *p, size_t n, int depth);
void put_sockaddr(struct buf *b, const u8 *p, size_t n);
/** put_iovec, put_msghdr - false: not captured, nothing was written */
bool put_iovec(struct dec *d, u8 a, u64 n_iov, bool out);
bool put_msghdr(struct dec *d, u8 a, bool out);

/** find_capture - as syscall_capture_find(), but remembers it for decoded_arg */
const struct syscall_capture *find_capture(struct dec *d, u8 a, u8 what, const u8 **data_ret);

#endif
