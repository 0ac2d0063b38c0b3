/* SPDX-License-Identifier: Apache-2.0 */
/* JSON members, for out_*.c of this folder. Keys are ours and need no escaping. */
#ifndef TRACERS_SYSCALLS_JSON_PRIV_H
#define TRACERS_SYSCALLS_JSON_PRIV_H

#include "tracers/output.h"
#include "tracers/syscalls/output.h"

#include <string.h>

static inline void js_key(struct buf *b, const char *key)
{
	char last = b->len ? b->data[b->len - 1] : '{';

	buf_addf(b, "%s\"%s\":", last == '{' || last == '[' ? "" : ",", key);
}

static inline void js_mem(struct buf *b, const char *key, const void *s, size_t n)
{
	js_key(b, key);
	out_json_string(b, s, n);
}

static inline void js_str(struct buf *b, const char *key, const char *s)
{
	js_mem(b, key, s, strlen(s));
}

static inline void js_u64(struct buf *b, const char *key, u64 v)
{
	js_key(b, key);
	buf_addf(b, "%llu", (unsigned long long)v);
}

static inline void js_s64(struct buf *b, const char *key, s64 v)
{
	js_key(b, key);
	buf_addf(b, "%lld", (long long)v);
}

static inline void js_bool(struct buf *b, const char *key, bool v)
{
	js_key(b, key);
	buf_adds(b, v ? "true" : "false");
}

static inline void js_null(struct buf *b, const char *key)
{
	js_key(b, key);
	buf_adds(b, "null");
}

static inline void js_open(struct buf *b, const char *key)
{
	js_key(b, key);
	buf_adds(b, "{");
}

static inline void js_close(struct buf *b)
{
	buf_adds(b, "}");
}

/** js_comm - the task's name, which need not end in a NUL */
static inline void js_comm(struct buf *b, const char *key, const char *comm)
{
	js_mem(b, key, comm, strnlen(comm, SYSCALL_COMM_LEN));
}

/** sys_args_join - "dfd=AT_FDCWD filename=..." for forms that have one string for all arguments */
void sys_args_join(struct buf *b, const struct syscall_event *e, const struct decoded *d);
/** sys_arg_name - the guest's name of argument @a; NULL: it does not say */
const char *sys_arg_name(const struct syscall_event *e, u8 a);
/** sys_path - the first path that was captured; NULL: none */
const u8 *sys_path(const struct syscall_event *e, size_t *len_ret);
/** sys_has_ret - is there a result that user space sees? */
bool sys_has_ret(const struct syscall_event *e);

#endif
