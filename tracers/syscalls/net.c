// SPDX-License-Identifier: Apache-2.0
/* Socket addresses, iovecs and message headers, from captured bytes. */
#include "tracers/syscalls/decode_priv.h"

#include <arpa/inet.h>

#define MSGHDR_WORDS \
	7u /* struct user_msghdr and compat_msghdr, Linux v6.1 include/linux/socket.h */

static u32 load_be16(const u8 *p)
{
	return (u32)p[0] << 8 | p[1];
}

static u32 load_be32(const u8 *p)
{
	return load_be16(p) << 16 | load_be16(p + 2);
}

/* An address with a path in the file system, or a name of the kernel's own ("@"). */
static void put_unix(struct buf *b, const u8 *p, size_t n)
{
	if (n <= 2) {
		buf_adds(b, "AF_UNIX");
		return;
	}
	buf_adds(b, "AF_UNIX, sun_path=");
	p += 2;
	n -= 2;
	if (*p) {
		n = strnlen((const char *)p, n);
	} else {
		buf_adds(b, "@");
		p++;
		n--;
	}
	put_quoted(b, p, n, n, false, false);
}

static void put_inet(struct buf *b, const u8 *p)
{
	buf_addf(b, "AF_INET, sin_port=htons(%u), sin_addr=inet_addr(\"%u.%u.%u.%u\")",
		 load_be16(p + 2), p[4], p[5], p[6], p[7]);
}

static void put_inet6(struct buf *b, const u8 *p, size_t n)
{
	char text[INET6_ADDRSTRLEN] = "";

	if (!inet_ntop(AF_INET6, p + 8, text, sizeof(text)))
		text[0] = 0;
	buf_addf(b,
		 "AF_INET6, sin6_port=htons(%u), sin6_flowinfo=htonl(%u), "
		 "inet_pton(AF_INET6, \"%s\", &sin6_addr)",
		 load_be16(p + 2), load_be32(p + 4), text);
	if (n >= 28)
		buf_addf(b, ", sin6_scope_id=%u", (u32)load_le(p + 24, 4));
}

static void put_netlink(struct buf *b, const u8 *p)
{
	buf_addf(b, "AF_NETLINK, nl_pid=%d, nl_groups=%08x", (s32)load_le(p + 4, 4),
		 (u32)load_le(p + 8, 4));
}

void put_sockaddr(struct buf *b, const u8 *p, size_t n)
{
	u32 family = n >= 2 ? (u32)load_le(p, 2) : 0;
	const char *name = xlat_name(&xlat_af, family);

	buf_adds(b, "{sa_family=");
	if (n < 2)
		buf_adds(b, "...");
	else if (family == AF_UNIX)
		put_unix(b, p, n);
	else if (family == AF_INET && n >= 8)
		put_inet(b, p);
	else if (family == AF_INET6 && n >= 24)
		put_inet6(b, p, n);
	else if (family == AF_NETLINK && n >= 12)
		put_netlink(b, p);
	else {
		if (name)
			buf_adds(b, name);
		else
			buf_addf(b, "%#x /* AF_??? */", family);
		if (n > 2) {
			buf_adds(b, ", sa_data=");
			put_quoted(b, p + 2, n - 2, 14, false, false);
		}
	}
	buf_adds(b, "}");
}

/* Bytes of a pointer or a size of the program's. */
static size_t word_of(const struct dec *d)
{
	return d->e->abi == SYSCALL_ABI_32 ? 4 : 8;
}

/* One element: as much of the data as is its own. @total: bytes that were moved, of all. */
static void put_element(struct dec *d, const u8 *iov, const u8 *data, size_t have, u64 total)
{
	size_t word = word_of(d);
	u64 base = load_le(iov, word), len = load_le(iov + word, word), mine = MIN(len, total);

	buf_adds(d->b, "{iov_base=");
	if (!data || (mine && !have))
		put_addr(d->b, base);
	else
		put_quoted(d->b, data, (size_t)MIN(mine, (u64)have), d->max, mine > have, false);
	buf_addf(d->b, ", iov_len=%llu}", (unsigned long long)len);
}

bool put_iovec(struct dec *d, u8 a, u64 n_iov, bool out)
{
	const u8 *iov, *data = NULL;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_IOVEC, &iov), *bytes;
	u64 total = out ? (u64)d->e->ret : UINT64_MAX, n, have, each;
	size_t word = word_of(d);

	if (!c || d->e->abi == SYSCALL_ABI_X32 || (out && d->e->ret < 0))
		return false;
	bytes = find_capture(d, a, CAPTURE_DATA, &data);
	have = bytes ? bytes->len : 0;
	each = bytes && bytes->count ? bytes->count : UINT64_MAX;
	n = MIN(n_iov, (u64)(c->len / (2 * word)));
	buf_adds(d->b, "[");
	for (u64 i = 0; i < n && i < d->max; i++) {
		u64 mine = MIN(load_le(iov + (2 * i + 1) * word, word), total);

		if (i)
			buf_adds(d->b, ", ");
		put_element(d, iov + 2 * i * word, data, (size_t)MIN(have, each), total);
		if (out)
			total -= mine;
		mine = MIN(MIN(mine, each), have);
		have -= mine;
		if (data)
			data += mine;
	}
	if (n < n_iov || n > d->max)
		buf_adds(d->b, ", ...");
	buf_adds(d->b, "]");
	return true;
}

/* msg_namelen before and after, as recvmsg changes it. */
static void put_namelen(struct dec *d, u8 a, const struct syscall_capture *first, const u8 *p,
			bool out)
{
	size_t word = word_of(d);
	u32 len = (u32)load_le(p + word, 4), after = len;

	for (u32 i = 0; out && i < d->e->n_captures; i++) {
		const struct syscall_capture *c = &d->e->captures[i];

		if (c != first && c->arg == a && c->what == CAPTURE_BYTES && !c->failed &&
		    c->len >= MSGHDR_WORDS * word && c->off <= d->e->data_len &&
		    c->len <= d->e->data_len - c->off)
			after = (u32)load_le(d->e->data + c->off + word, 4);
	}
	buf_addf(d->b, ", msg_namelen=%u", len);
	if (after != len)
		buf_addf(d->b, " => %u", after);
}

bool put_msghdr(struct dec *d, u8 a, bool out)
{
	const u8 *p, *name;
	const struct syscall_capture *c = find_capture(d, a, CAPTURE_BYTES, &p), *addr;
	size_t word = word_of(d);
	u64 control;

	if (!c || c->len < MSGHDR_WORDS * word || d->e->abi == SYSCALL_ABI_X32)
		return false;
	buf_adds(d->b, "{msg_name=");
	addr = find_capture(d, a, CAPTURE_SOCKADDR, &name);
	if (addr && addr->len)
		put_sockaddr(d->b, name, addr->len);
	else
		put_addr(d->b, load_le(p, word));
	put_namelen(d, a, c, p, out);
	buf_adds(d->b, ", msg_iov=");
	if (!put_iovec(d, a, load_le(p + 3 * word, word), out))
		put_addr(d->b, load_le(p + 2 * word, word));
	control = load_le(p + 5 * word, word);
	buf_addf(d->b, ", msg_iovlen=%llu", (unsigned long long)load_le(p + 3 * word, word));
	if (control) {
		buf_adds(d->b, ", msg_control=");
		put_addr(d->b, load_le(p + 4 * word, word));
	}
	buf_addf(d->b, ", msg_controllen=%llu, msg_flags=", (unsigned long long)control);
	put_flags(d->b, &xlat_msg, load_le(p + 6 * word, 4), false);
	buf_adds(d->b, "}");
	return true;
}
