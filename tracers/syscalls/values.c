// SPDX-License-Identifier: Apache-2.0
/* Values: numbers, flags, signals, modes. */
#include "tracers/syscalls/decode_priv.h"

#include <string.h>

#define S_IFMT_BITS    0170000u
#define AT_FDCWD_VALUE (-100)

const char *xlat_name(const struct xlat_table *t, u64 val)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->x[i].val == val)
			return t->x[i].name;
	return NULL;
}

void put_addr(struct buf *b, u64 v)
{
	if (v)
		buf_addf(b, "0x%llx", (unsigned long long)v);
	else
		buf_adds(b, "NULL");
}

/* Values of int sign-extended into a register are those of int. */
static u64 as_int(u64 v)
{
	return (u64)(s64)(s32)v == v ? (u32)v : v;
}

static void put_enum(struct buf *b, const struct xlat_table *t, u64 v)
{
	const char *name = xlat_name(t, v);

	if (name) {
		buf_adds(b, name);
		return;
	}
	buf_addf(b, v ? "0x%llx" : "0", (unsigned long long)v);
	if (*t->unknown)
		buf_addf(b, " /* %s */", t->unknown);
}

void put_flags(struct buf *b, const struct xlat_table *t, u64 v, bool leading)
{
	const char *sep = leading ? "|" : "";
	bool any = leading;

	if (!v) {
		const char *zero = xlat_name(t, 0);

		if (!leading)
			buf_adds(b, zero ? zero : "0");
		return;
	}
	for (size_t i = 0; i < t->n; i++) {
		u64 bits = t->x[i].val;

		if (!bits || (v & bits) != bits)
			continue;
		buf_addf(b, "%s%s", sep, t->x[i].name);
		v &= ~bits;
		sep = "|";
		any = true;
	}
	if (v)
		buf_addf(b, "%s0x%llx", sep, (unsigned long long)v);
	if (v && !any && *t->unknown)
		buf_addf(b, " /* %s */", t->unknown);
}

static void put_signal_word(struct buf *b, u64 sig, const char *prefix)
{
	/* of two names the one that strace takes */
	const char *name = sig == 29 ? "IO" : sig < 32 ? sigabbrev_np((int)sig) : NULL;

	if (name)
		buf_addf(b, "%s%s", prefix, name);
	else if (sig == 32)
		buf_addf(b, "%sRTMIN", prefix);
	else if (sig > 32 && sig <= 64)
		buf_addf(b, "%sRT_%u", prefix, (unsigned int)sig - 32);
	else
		buf_addf(b, "%d", (int)sig);
}

void put_signal(struct buf *b, u64 sig)
{
	put_signal_word(b, (u32)sig, "SIG");
}

/* As strace: the complement where more than two thirds are in. */
void put_sigset(struct buf *b, const u8 *p, size_t n)
{
	u64 set = load_le(p, n);
	const char *sep = "";

	if (__builtin_popcountll(set) > 64 * 2 / 3) {
		buf_adds(b, "~");
		set = ~set;
	}
	buf_adds(b, "[");
	for (unsigned int sig = 1; sig <= 64; sig++) {
		if (!(set >> (sig - 1) & 1))
			continue;
		buf_adds(b, sep);
		put_signal_word(b, sig, "");
		sep = " ";
	}
	buf_adds(b, "]");
}

static void put_octal(struct buf *b, u64 v)
{
	buf_addf(b, "%#03o", (unsigned int)v);
}

static void put_typemode(struct buf *b, u64 v)
{
	const char *type = xlat_name(&xlat_file_type, v & S_IFMT_BITS);

	if (type)
		buf_addf(b, "%s|", type);
	else if (v & S_IFMT_BITS)
		buf_addf(b, "%#o|", (unsigned int)(v & S_IFMT_BITS));
	if (v & 04000)
		buf_adds(b, "S_ISUID|");
	if (v & 02000)
		buf_adds(b, "S_ISGID|");
	if (v & 01000)
		buf_adds(b, "S_ISVTX|");
	put_octal(b, v & 0777);
}

static void put_dev(struct buf *b, u64 v)
{
	buf_addf(b, "makedev(%#llx, %#llx)", (unsigned long long)(v >> 8 & 0xfff),
		 (unsigned long long)((v & 0xff) | (v >> 12 & 0xfff00)));
}

static void put_open(struct buf *b, u64 v)
{
	buf_adds(b, xlat_name(&xlat_accmode, v & 3));
	put_flags(b, &xlat_open, v & ~3ull, true);
}

static void put_map(struct buf *b, u64 v)
{
	u64 huge = v >> 26 & 0x3f;

	put_enum(b, &xlat_map_type, v & 0xf);
	put_flags(b, &xlat_map, v & ~0xfull & ~(0x3full << 26), true);
	if (huge)
		buf_addf(b, "|%llu<<MAP_HUGE_SHIFT", (unsigned long long)huge);
}

static void put_clone(struct buf *b, u64 v)
{
	u64 flags = v & ~0xffull, sig = v & 0xff;

	if (flags || !sig)
		put_flags(b, &xlat_clone, flags, false);
	if (!sig)
		return;
	if (flags)
		buf_adds(b, "|");
	put_signal(b, sig);
}

static void put_futex_op(struct buf *b, u64 v)
{
	const char *name = xlat_name(&xlat_futex_op, v & 0x7f);

	if (!name) {
		put_enum(b, &xlat_futex_op, v);
		return;
	}
	buf_addf(b, "%s%s", name, v & 0x80 ? "_PRIVATE" : "");
	if (v & 0x100)
		buf_adds(b, "|FUTEX_CLOCK_REALTIME");
	if (v & ~0x1ffull)
		buf_addf(b, "|0x%llx", (unsigned long long)(v & ~0x1ffull));
}

static void put_rlim(struct dec *d, u64 v)
{
	if (v == UINT64_MAX)
		buf_adds(d->b, *d->e->entry->name == 'p' ? "RLIM64_INFINITY" : "RLIM_INFINITY");
	else if (v > 1024 && v % 1024 == 0)
		buf_addf(d->b, "%llu*1024", (unsigned long long)(v / 1024));
	else
		buf_addf(d->b, "%llu", (unsigned long long)v);
}

static void put_ipc_mode(struct buf *b, const struct xlat_table *t, u64 v)
{
	u64 flags = v & ~0777ull;

	if (flags) {
		put_flags(b, t, flags, false);
		buf_adds(b, "|");
	}
	put_octal(b, v & 0777);
}

static void put_ioctl(struct buf *b, u64 v)
{
	static const char *const dirs[] = { "_IOC_NONE", "_IOC_WRITE", "_IOC_READ",
					    "_IOC_READ|_IOC_WRITE" };
	const char *name = xlat_name(&xlat_ioctl, (u32)v);

	if (name)
		buf_adds(b, name);
	else
		buf_addf(b, "_IOC(%s, %#x, %#x, %#x)", dirs[v >> 30 & 3], (u32)v >> 8 & 0xff,
			 (u32)v & 0xff, (u32)v >> 16 & 0x3fff);
}

static void put_path_byte(struct buf *b, u8 c)
{
	if (c < 0x20 || c > 0x7e || c == '>' || c == '\\')
		buf_addf(b, "\\%o", c);
	else
		buf_add(b, &c, 1);
}

/* Files that are in no directory: Linux v6.1 include/uapi/linux/magic.h */
static const struct {
	u64 magic;
	const char *name;
	bool numbered;
} fd_kinds[] = {
	{ 0x534f434b, "socket:", true },
	{ 0x50495045, "pipe:", true },
	{ 0x09041934, "anon_inode:", false },
};

static void put_fd_path(struct buf *b, const struct syscall_capture *c, const u8 *p)
{
	u64 magic = load_le(p + 8, 8);
	bool numbered = false;

	buf_adds(b, "<");
	for (size_t i = 0; i < ARRAY_SIZE(fd_kinds); i++) {
		if (fd_kinds[i].magic != magic)
			continue;
		buf_adds(b, fd_kinds[i].name);
		numbered = fd_kinds[i].numbered;
	}
	if (numbered)
		buf_addf(b, "[%llu]", (unsigned long long)load_le(p, 8));
	else if (c->len == CAPTURE_FD_PATH)
		buf_adds(b, "/");
	for (u32 i = CAPTURE_FD_PATH; !numbered && i < c->len; i++)
		put_path_byte(b, p[i]);
	buf_adds(b, c->count ? ">(deleted)" : ">");
}

static void put_fd(struct dec *d, u64 v)
{
	const struct syscall_capture *c;
	const u8 *p;

	if ((s32)v == AT_FDCWD_VALUE)
		buf_adds(d->b, "AT_FDCWD");
	else
		buf_addf(d->b, "%d", (s32)v);
	if (d->fd_arg < 0 || (d->fd_arg < SYSCALL_ARGS && (s32)d->e->args[d->fd_arg] != (s32)v))
		return;
	c = syscall_capture_find(d->e, (u8)d->fd_arg, CAPTURE_FD, &p);
	if (c && c->len >= CAPTURE_FD_PATH)
		put_fd_path(d->b, c, p);
}

static void put_proto(struct dec *d, u64 v)
{
	u32 family = (u32)d->e->args[0];

	if (family == 2 || family == 10)
		put_enum(d->b, &xlat_ipproto, (u32)v);
	else if (family == 16)
		put_enum(d->b, &xlat_netlink, (u32)v);
	else
		buf_addf(d->b, "%u", (u32)v);
}

static void put_sockopt(struct dec *d, u64 v)
{
	static const struct {
		u32 level;
		const struct xlat_table *names;
	} levels[] = {
		{ 0, &xlat_ip },    { 1, &xlat_so },       { 6, &xlat_tcp },
		{ 41, &xlat_ipv6 }, { 270, &xlat_nl_opt },
	};

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (levels[i].level == (u32)d->e->args[1]) {
			put_enum(d->b, levels[i].names, (u32)v);
			return;
		}
	buf_addf(d->b, "%#x", (u32)v);
}

static void put_handler(struct buf *b, u64 v)
{
	if (v == 0)
		buf_adds(b, "SIG_DFL");
	else if (v == 1)
		buf_adds(b, "SIG_IGN");
	else
		put_addr(b, v);
}

/* The kinds that are plain numbers. false: it is another. */
static bool put_number(struct dec *d, u8 kind, u64 v)
{
	bool narrow = d->e->abi == SYSCALL_ABI_32;

	switch (kind) {
	case K_D:
		buf_addf(d->b, "%d", (s32)v);
		return true;
	case K_U:
		buf_addf(d->b, "%u", (u32)v);
		return true;
	case K_LD:
		buf_addf(d->b, "%lld", (long long)(narrow ? (s64)(s32)v : (s64)v));
		return true;
	case K_LU:
		buf_addf(d->b, "%llu", (unsigned long long)v);
		return true;
	case K_X:
		buf_addf(d->b, "%#x", (u32)v);
		return true;
	case K_LX:
	case K_LXZ:
		buf_addf(d->b, "%#llx", (unsigned long long)v);
		return true;
	case K_X8:
		buf_addf(d->b, "%08x", (u32)v);
		return true;
	case K_O:
		put_octal(d->b, v);
		return true;
	case K_UID:
		buf_addf(d->b, "%lld", (u32)v == UINT32_MAX ? -1ll : (long long)(u32)v);
		return true;
	default:
		return false;
	}
}

static void put_socktype(struct buf *b, u64 v)
{
	put_enum(b, &xlat_sock_type, v & 0xf);
	put_flags(b, &xlat_sock_flags, (u32)v & ~0xfu, true);
}

static void put_bitset(struct buf *b, u64 v)
{
	if ((u32)v == UINT32_MAX)
		buf_adds(b, "FUTEX_BITSET_MATCH_ANY");
	else
		buf_addf(b, "%#x", (u32)v);
}

/* Those that know more of their value than its digits. false: it is another. */
static bool put_special(struct dec *d, u8 kind, u64 v)
{
	static void (*const plain[K_KINDS])(struct buf * b, u64 v) = {
		[K_SIG] = put_signal,      [K_TYPEMODE] = put_typemode, [K_DEV] = put_dev,
		[K_OPEN] = put_open,       [K_MAP] = put_map,           [K_SOCKTYPE] = put_socktype,
		[K_CLONE] = put_clone,     [K_FUTEXOP] = put_futex_op,  [K_IOCTL] = put_ioctl,
		[K_HANDLER] = put_handler, [K_BITSET] = put_bitset,
	};
	static void (*const knowing[K_KINDS])(struct dec * d, u64 v) = {
		[K_FD] = put_fd,
		[K_RLIM] = put_rlim,
		[K_PROTO] = put_proto,
		[K_SOCKOPT] = put_sockopt,
	};

	if (kind < K_KINDS && plain[kind])
		plain[kind](d->b, kind == K_HANDLER ? v : as_int(v));
	else if (kind < K_KINDS && knowing[kind])
		knowing[kind](d, v);
	else
		return false;
	return true;
}

void put_val(struct dec *d, u8 kind, const void *tab, u64 v)
{
	if (put_number(d, kind, v) || put_special(d, kind, v))
		return;
	switch (kind) {
	case K_DIRFD:
		put_fd(d, v);
		return;
	case K_ENUM:
		put_enum(d->b, tab, as_int(v));
		return;
	case K_FLAGS:
		put_flags(d->b, tab, as_int(v), false);
		return;
	case K_STATX: /* how to synchronize is a value, not bits: 0 has a name */
		buf_adds(d->b, v & 0x6000 ? "" : "AT_STATX_SYNC_AS_STAT");
		if (v)
			put_flags(d->b, &xlat_at_statx, (u32)v, !(v & 0x6000));
		return;
	case K_FLAGS_RWF:
		put_flags(d->b, &xlat_rwf, (u32)v, false);
		return;
	case K_IPCMODE:
		put_ipc_mode(d->b, tab, as_int(v));
		return;
	case K_EPOLL_DATA:
		buf_addf(d->b, "{u32=%u, u64=%llu}", (u32)v, (unsigned long long)v);
		return;
	default:
		put_addr(d->b, v);
	}
}
