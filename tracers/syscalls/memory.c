// SPDX-License-Identifier: Apache-2.0
/* What arguments point to, from captured bytes: strings, structs, arrays. */
#include "tracers/syscalls/decode_priv.h"

#include <errno.h>
#include <time.h>

#define STRUCT_DEPTH 4

static bool is_digit(u8 c)
{
	return c >= '0' && c <= '9';
}

static void put_byte(struct buf *b, u8 c, bool digit_follows)
{
	static const char letters[] = "\"\"\\\\\tt\nn\vv\ff\rr";

	for (size_t i = 0; i + 1 < sizeof(letters); i += 2)
		if (c == (u8)letters[i]) {
			buf_addf(b, "\\%c", letters[i + 1]);
			return;
		}
	if (c >= 0x20 && c <= 0x7e)
		buf_add(b, &c, 1);
	else
		buf_addf(b, digit_follows ? "\\%03o" : "\\%o", c);
}

void put_quoted(struct buf *b, const u8 *s, size_t n, size_t max, bool full, bool hex)
{
	size_t shown = MIN(n, max);

	buf_adds(b, "\"");
	for (size_t i = 0; i < shown; i++) {
		if (hex)
			buf_addf(b, "\\x%02x", s[i]);
		else
			put_byte(b, s[i], i + 1 < shown && is_digit(s[i + 1]));
	}
	buf_adds(b, shown < n || full ? "\"..." : "\"");
}

const struct syscall_capture *find_capture(struct dec *d, u8 a, u8 what, const u8 **data_ret)
{
	const struct syscall_capture *c = syscall_capture_find(d->e, a, what, data_ret);

	if (c)
		d->capture = (s32)(c - d->e->captures);
	return c;
}

/* "st_size=5", of a device "st_rdev=makedev(..)"; @p is at st_mode, of @n bytes the last are st_size */
static void put_stat_size(struct dec *d, const u8 *p, size_t n)
{
	u32 type = (u32)load_le(p, 4) & 0170000;

	if (type == 0020000 || type == 0060000) {
		buf_adds(d->b, "st_rdev=");
		put_val(d, K_DEV, NULL, load_le(p + 16, 8));
	} else {
		buf_addf(d->b, "st_size=%lld", (long long)load_le(p + n - 8, 8));
	}
}

static void put_list(struct dec *d, const u8 *p, size_t n, size_t each, const char *sep, u8 kind)
{
	size_t count = n / each;

	buf_adds(d->b, "[");
	for (size_t i = 0; i < count && i < d->max; i++) {
		if (i)
			buf_adds(d->b, sep);
		put_val(d, kind, NULL, load_le(p + i * each, each));
	}
	buf_adds(d->b, count > d->max ? ", ...]" : "]");
}

static void put_field(struct dec *d, const struct field_desc *f, const u8 *p, int depth)
{
	switch (f->kind) {
	case K_STRUCT:
		put_struct(d, f->tab, p, f->size, depth + 1);
		return;
	case K_STR:
		put_quoted(d->b, p, strnlen((const char *)p, f->size), f->size, false, false);
		return;
	case K_SIGSET:
		put_sigset(d->b, p, f->size);
		return;
	case K_STATSIZE:
		put_stat_size(d, p, f->size);
		return;
	case K_LD: /* a struct of a 32-bit program may have long ones */
		buf_addf(d->b, "%lld",
			 (long long)(f->size == 4 ? (s32)load_le(p, 4) : (s64)load_le(p, 8)));
		return;
	case K_RLIM:
		put_val(d, f->kind, NULL,
			f->size == 4 && (u32)load_le(p, 4) == UINT32_MAX ? UINT64_MAX
									 : load_le(p, f->size));
		return;
	case K_LONG:
		put_list(d, p, f->size, 8, ", ", K_LU);
		return;
	case K_POLLEVENTS:
		if ((s32)load_le(p - 4, 4) >= 0) {
			buf_adds(d->b, ", events=");
			put_flags(d->b, f->tab, load_le(p, f->size), false);
		}
		return;
	case K_FSID:
		buf_addf(d->b, "{val=[%#x, %#x]}", (u32)load_le(p, 4), (u32)load_le(p + 4, 4));
		return;
	case K_D:
	case K_FD:
	case K_UID:
		put_val(d, f->kind, f->tab, load_le(p, f->size));
		return;
	default:
		put_val(d, f->kind, f->tab, load_le(p, f->size));
	}
}

void put_struct(struct dec *d, const struct struct_desc *s, const u8 *p, size_t n, int depth)
{
	const char *sep = "";

	if (n < s->size || depth > STRUCT_DEPTH) {
		buf_adds(d->b, "{...}");
		return;
	}
	buf_adds(d->b, "{");
	for (u32 i = 0; i < s->n; i++) {
		const struct field_desc *f = &s->fields[i];

		if (f->if_mask && !(load_le(p + f->if_off, 4) & f->if_mask))
			continue;
		if (f->kind != K_POLLEVENTS)
			buf_adds(d->b, sep);
		if (*f->name)
			buf_addf(d->b, "%s=", f->name);
		put_field(d, f, p + f->off, depth);
		sep = ", ";
	}
	buf_adds(d->b, s->more ? ", ...}" : "}");
}

/* utimensat's times say what they mean. */
static void put_utime(struct dec *d, const struct struct_desc *s, const u8 *p)
{
	size_t half = s->size / 2u;
	u64 nsec = load_le(p + half, half);
	time_t sec = half == 4 ? (time_t)(s32)load_le(p, 4) : (time_t)load_le(p, 8);
	char when[64];
	struct tm tm;

	if (nsec == 0x3fffffff || nsec == 0x3ffffffe) {
		buf_adds(d->b, nsec & 1 ? "UTIME_NOW" : "UTIME_OMIT");
		return;
	}
	put_struct(d, s, p, s->size, 0);
	if (!gmtime_r(&sec, &tm))
		return;
	if (!strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm))
		return;
	buf_addf(d->b, " /* %s", when);
	if (nsec && nsec < 1000000000)
		buf_addf(d->b, ".%09llu", (unsigned long long)nsec);
	buf_adds(d->b, "+0000 */");
}

static void put_structs(struct dec *d, const struct struct_desc *s, bool utime, const u8 *p,
			size_t n, bool truncated)
{
	size_t count = n / s->size;

	buf_adds(d->b, "[");
	for (size_t i = 0; i < count && i < d->max; i++) {
		if (i)
			buf_adds(d->b, ", ");
		if (utime)
			put_utime(d, s, p + i * s->size);
		else
			put_struct(d, s, p + i * s->size, s->size, 0);
	}
	buf_adds(d->b, truncated || count > d->max ? ", ...]" : "]");
}

/* Members of struct arrays that count: epoll_wait's result, else all. */
static bool put_struct_arg(struct dec *d, const struct arg_desc *desc, u8 a)
{
	const struct struct_desc *s = struct_layout(desc->tab, d->e->entry, d->e->abi);
	const struct syscall_capture *c;
	const u8 *p;
	size_t n;

	if (desc->kind == K_STRUCTS && desc->out && !d->e->ret) {
		buf_adds(d->b, "[]");
		return true;
	}
	c = find_capture(d, a, CAPTURE_BYTES, &p);
	if (c && c->source == CAPTURE_KERNEL)
		s = desc->tab; /* the kernel's own are laid out for itself */
	if (!c || !s || c->len < s->size)
		return false;
	if (desc->kind == K_STRUCT) {
		put_struct(d, s, p, c->len, 0);
		return true;
	}
	n = c->len;
	if (desc->out && (u64)d->e->ret < n / s->size)
		n = (size_t)d->e->ret * s->size;
	put_structs(d, s, desc->tab == &sd_timespec, p, n, c->truncated);
	return true;
}

static bool put_string_arg(struct dec *d, u8 kind, u8 a)
{
	const u8 *p;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_STRING, &p);
	size_t n;

	if (!c)
		return false;
	n = strnlen((const char *)p, c->len);
	put_quoted(d->b, p, n, kind == K_PATH ? c->len : d->max, c->truncated && n == c->len,
		   false);
	return true;
}

/* How long the guest says that its buffer is: by the next argument, or the result. */
static bool put_buffer(struct dec *d, const struct arg_desc *desc, u8 a)
{
	u64 len = desc->out ? (u64)d->e->ret : a + 1 < SYSCALL_ARGS ? d->e->args[a + 1] : 0;
	const struct syscall_capture *c;
	const u8 *p;

	if (desc->out && d->e->ret < 0)
		return false;
	if (!len) {
		buf_adds(d->b, "\"\"");
		return true;
	}
	c = find_capture(d, a, CAPTURE_BYTES, &p);
	if (!c)
		return false;
	put_quoted(d->b, p, (size_t)MIN(len, (u64)c->len), d->max, len > c->len,
		   desc->kind == K_HEXBUF);
	return true;
}

static bool put_strings(struct dec *d, u8 a)
{
	const u8 *p, *end, *nul;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_STRINGS, &p);
	u32 i = 0;

	if (!c)
		return false;
	end = p + c->len;
	buf_adds(d->b, "[");
	for (; p < end && i < d->max; i++) {
		nul = memchr(p, 0, (size_t)(end - p));
		if (i)
			buf_adds(d->b, ", ");
		put_quoted(d->b, p, (size_t)((nul ? nul : end) - p), d->max, !nul, false);
		p = nul ? nul + 1 : end;
	}
	if (i < c->count || p < end || c->truncated)
		buf_adds(d->b, i ? ", ..." : "...");
	buf_adds(d->b, "]");
	return true;
}

static bool put_env(struct dec *d, u8 a, u64 v)
{
	const u8 *p;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_COUNT, &p);

	if (!c)
		return put_strings(d, a);
	put_addr(d->b, v);
	buf_addf(d->b, " /* %u var%s */", c->count, c->count == 1 ? "" : "s");
	return true;
}

/* Entries of struct linux_dirent64, when all of them are here; d_reclen is at 16. */
static bool dents_count(const u8 *p, size_t n, u32 *ret)
{
	*ret = 0;
	while (n) {
		size_t len = n < 19 ? 0 : (size_t)load_le(p + 16, 2);

		if (len < 19 || len > n)
			return false;
		p += len;
		n -= len;
		++*ret;
	}
	return true;
}

static bool put_dents(struct dec *d, u8 a, u64 v)
{
	const u8 *p = NULL;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_COUNT, &p);
	u32 n = c ? c->count : 0;

	if (!c && d->e->ret) {
		c = find_capture(d, a, CAPTURE_BYTES, &p);
		if (!c || c->len != (u64)d->e->ret || !dents_count(p, c->len, &n))
			return false;
	}
	put_addr(d->b, v);
	buf_addf(d->b, " /* %u entr%s */", n, n == 1 ? "y" : "ies");
	return true;
}

static void put_wait_status(struct buf *b, u32 s)
{
	u32 sig = s & 0x7f;

	buf_adds(b, "[{");
	if (s == 0xffff) {
		buf_adds(b, "WIFCONTINUED(s)");
	} else if (!sig) {
		buf_addf(b, "WIFEXITED(s) && WEXITSTATUS(s) == %u", s >> 8 & 0xff);
	} else if (sig == 0x7f) {
		buf_adds(b, "WIFSTOPPED(s) && WSTOPSIG(s) == ");
		put_signal(b, s >> 8 & 0x7f);
		if (s >> 8 & 0x80)
			buf_adds(b, " | 0x80");
	} else {
		buf_adds(b, "WIFSIGNALED(s) && WTERMSIG(s) == ");
		put_signal(b, sig);
		if (s & 0x80)
			buf_adds(b, " && WCOREDUMP(s)");
	}
	buf_adds(b, "}]");
}

static void put_bits(struct dec *d, const u8 *p, size_t n_bits)
{
	const char *sep = "";

	buf_adds(d->b, "[");
	for (size_t i = 0; i < n_bits; i++) {
		if (!(p[i / 8] >> (i % 8) & 1))
			continue;
		buf_addf(d->b, "%s%zu", sep, i);
		sep = " ";
	}
	buf_adds(d->b, "]");
}

/* A socket option's value by its length, as that is all that is the same for all of them. */
static void put_int_value(struct dec *d, const u8 *p, size_t n)
{
	bool opt = !strcmp(d->e->entry->name, "setsockopt");

	if (n == 4 || !opt)
		buf_addf(d->b, "[%d]", (s32)load_le(p, n));
	else if (n == sd_linger.size && (u32)d->e->args[2] == 13)
		put_struct(d, &sd_linger, p, n, 0);
	else if (n == sd_timeval.size && ((u32)d->e->args[2] == 20 || (u32)d->e->args[2] == 21))
		put_struct(d, &sd_timeval, p, n, 0);
	else
		put_quoted(d->b, p, n, d->max, false, false);
}

static bool put_bytes_kind(struct dec *d, const struct arg_desc *desc, u8 a)
{
	const u8 *p;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_BYTES, &p);
	size_t bits;

	if (!c || !c->len)
		return false;
	switch (desc->kind) {
	case K_INT:
		put_int_value(d, p, c->len);
		return true;
	case K_INTS:
		put_list(d, p, c->len, 4, ", ", K_D);
		return true;
	case K_LONG:
		put_list(d, p, c->len, 8, ", ", K_LD);
		return true;
	case K_SIGSET:
		put_sigset(d->b, p, c->len);
		return true;
	case K_WSTATUS:
		if (!d->e->ret)
			return false;
		put_wait_status(d->b, (u32)load_le(p, MIN(c->len, 4u)));
		return true;
	case K_FDSET:
		bits = (size_t)c->len * 8;
		put_bits(d, p, MIN(bits, (size_t)(u32)d->e->args[0]));
		return true;
	case K_FDSETBITS:
		put_bits(d, p, (size_t)c->len * 8);
		return true;
	default:
		return false;
	}
}

/* The first and the last capture of an integer: what it was, and what the kernel made of it. */
static bool before_after(struct dec *d, u8 a, size_t size, u64 *first_ret, u64 *last_ret)
{
	bool any = false;

	for (u32 i = 0; i < d->e->n_captures; i++) {
		const struct syscall_capture *c = &d->e->captures[i];

		if (c->arg != a || c->what != CAPTURE_BYTES || c->failed || c->len < size ||
		    c->off > d->e->data_len || c->len > d->e->data_len - c->off)
			continue;
		*last_ret = load_le(d->e->data + c->off, size);
		if (!any)
			*first_ret = *last_ret;
		any = true;
		d->capture = (s32)i;
	}
	return any;
}

/* [16], or [128 => 16] where the kernel changed it */
static bool put_socklen(struct dec *d, u8 a)
{
	u64 first, last;

	if (!before_after(d, a, 4, &first, &last))
		return false;
	if (first != last && d->ok)
		buf_addf(d->b, "[%u => %u]", (u32)first, (u32)last);
	else
		buf_addf(d->b, "[%u]", (u32)first);
	return true;
}

static bool put_offset(struct dec *d, u8 a)
{
	u64 first, last;

	if (!before_after(d, a, 8, &first, &last))
		return false;
	buf_addf(d->b, "[%lld]", (long long)first);
	if (first != last && d->ok)
		buf_addf(d->b, " => [%lld]", (long long)last);
	return true;
}

static bool put_captured(struct dec *d, const struct arg_desc *desc, u8 a, u64 v)
{
	const struct syscall_capture *c;
	const u8 *p;

	switch (desc->kind) {
	case K_PATH:
	case K_STR:
		return put_string_arg(d, desc->kind, a);
	case K_BUF:
	case K_HEXBUF:
		return put_buffer(d, desc, a);
	case K_STRV:
		return put_strings(d, a);
	case K_ENVP:
		return put_env(d, a, v);
	case K_DENTS:
		return put_dents(d, a, v);
	case K_STRUCT:
	case K_STRUCTS:
		return put_struct_arg(d, desc, a);
	case K_SOCKADDR:
		c = find_capture(d, a, CAPTURE_SOCKADDR, &p);
		if (c)
			put_sockaddr(d->b, p, c->len);
		return c != NULL;
	case K_SOCKLEN:
		return put_socklen(d, a);
	case K_OFFSET:
		return put_offset(d, a);
	case K_IOVEC:
		return put_iovec(d, a, a + 1 < SYSCALL_ARGS ? d->e->args[a + 1] : 0, desc->out);
	case K_MSGHDR:
		return put_msghdr(d, a, desc->out);
	default:
		return put_bytes_kind(d, desc, a);
	}
}

/* Is what the kernel writes there? */
static bool is_written(const struct dec *d, const struct arg_desc *desc)
{
	if (desc->when_interrupted)
		return d->e->ret == -EINTR || syscall_restart(d->e->ret) != RESTART_NOT;
	return !desc->out || d->ok || desc->kind == K_SOCKLEN;
}

void put_mem(struct dec *d, const struct arg_desc *desc, u8 a, u64 v)
{
	if (!v) {
		buf_adds(d->b, "NULL");
		return;
	}
	if (is_written(d, desc) && put_captured(d, desc, a, v))
		return;
	for (u32 i = 0; i < d->e->n_captures; i++)
		d->unread |= d->e->captures[i].arg == a && d->e->captures[i].failed;
	put_addr(d->b, v);
}
