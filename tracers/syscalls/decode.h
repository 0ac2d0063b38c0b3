/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's arguments and result as strace writes them (strace 6.1, no options), each by itself.
 * Bytes of the guest come out escaped: the text is printable ASCII, whatever was captured.
 */
#ifndef TRACERS_SYSCALLS_DECODE_H
#define TRACERS_SYSCALLS_DECODE_H

#include "base/buf.h"
#include "tracers/syscalls/event.h"

#define DECODE_STRING_MAX 32 /* strace -s: of strings that are no paths, and of arrays */
#define DECODE_ARGS       8

struct decode_opts {
	u32 string_max; /* 0: DECODE_STRING_MAX */
};

struct decoded_arg {
	u8 arg; /* which of the event's */
	s32 capture; /* which of the event's its text is from; -1: none */
	bool pointer; /* its value is an address of the guest */
	bool unread; /* the memory that it points to could not be read */
	const char *label; /* "flags=", or NULL */
	u32 off, len; /* in text */
};

struct decoded {
	struct buf text;
	struct decoded_arg
		args[DECODE_ARGS]; /* in strace's order; what strace leaves out is not here */
	u32 n;
	bool cut; /* unfinished: what only a return tells is missing */
	u32 ret_off, ret_len; /* "3", "-1 ENOENT (No such file or directory)", "?" */
};

/**
 * decode_event - @d may be used again and again; it must have been zeroed once
 *
 * Any event is accepted, also one whose captures make no sense. Time and memory are bounded by the
 * captures' bytes. Failures of allocation: buf_failed(&d->text). Undo: decoded_deinit().
 */
void decode_event(struct decoded *d, const struct syscall_event *e, const struct decode_opts *o);
void decoded_deinit(struct decoded *d);

/** decode_classes - strace's classes of a call (SC_* in desc.h); 0 when it has none */
u32 decode_classes(const char *name);

/** decode_class - the bit of class @name ("file", also "%file" and "trace=file"'s word); 0: none */
u32 decode_class(const char *name);

/** decode_errno - "ENOENT", also of the kernel's own (ERESTARTSYS); NULL: none. @no is positive */
const char *decode_errno(int no);

#endif
