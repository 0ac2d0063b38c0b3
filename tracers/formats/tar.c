// SPDX-License-Identifier: Apache-2.0
/* See tar.h. Source: POSIX.1-2017 pax, "ustar Interchange Format". */
#include "tracers/formats/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where the fields are. */
enum {
	AT_NAME = 0,
	AT_MODE = 100,
	AT_UID = 108,
	AT_GID = 116,
	AT_SIZE = 124,
	AT_MTIME = 136,
	AT_SUM = 148,
	AT_TYPE = 156,
	AT_MAGIC = 257,
	LEN_SIZE = 12,
	LEN_SUM = 8,
};

static u32 sum_of(const u8 head[TAR_BLOCK])
{
	u32 sum = 0;

	for (u32 i = 0; i < TAR_BLOCK; i++)
		sum += i >= AT_SUM && i < AT_SUM + LEN_SUM ? ' ' : head[i];
	return sum;
}

void tar_head(struct buf *b, const char *name, u64 size, u64 mtime)
{
	static const char magic[8] = { 'u', 's', 't', 'a', 'r', 0, '0', '0' };
	char h[TAR_BLOCK] = { 0 };

	for (u32 i = 0; i < TAR_NAME_MAX && name[i]; i++)
		h[AT_NAME + i] = name[i];
	snprintf(h + AT_MODE, AT_UID - AT_MODE, "0000644");
	snprintf(h + AT_UID, AT_GID - AT_UID, "0000000");
	snprintf(h + AT_GID, AT_SIZE - AT_GID, "0000000");
	if (size <= TAR_SIZE_MAX) {
		snprintf(h + AT_SIZE, LEN_SIZE, "%011llo", (unsigned long long)size);
	} else {
		h[AT_SIZE] = (char)0x80;
		for (u32 i = 0; i < 8; i++)
			h[AT_SIZE + LEN_SIZE - 1 - i] = (char)(size >> 8 * i);
	}
	snprintf(h + AT_MTIME, LEN_SIZE, "%011llo", (unsigned long long)MIN(mtime, TAR_SIZE_MAX));
	h[AT_TYPE] = '0';
	memcpy(h + AT_MAGIC, magic, sizeof(magic));
	snprintf(h + AT_SUM, LEN_SUM, "%06o", sum_of((u8 *)h));
	h[AT_SUM + 7] = ' ';
	buf_add(b, h, sizeof(h));
}

void tar_pad(struct buf *b, u64 size)
{
	static const char zeros[TAR_BLOCK];

	buf_add(b, zeros, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

void tar_end(struct buf *b)
{
	static const char zeros[2 * TAR_BLOCK];

	buf_add(b, zeros, sizeof(zeros));
}

static bool octal(const u8 *p, u32 len, u64 *ret)
{
	u64 v = 0;
	u32 i;

	for (i = 0; i < len && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (u64)(p[i] - '0');
	*ret = v;
	return i && (i == len || p[i] == 0 || p[i] == ' ');
}

static bool size_of(const u8 *p, u64 *ret)
{
	if (p[0] != 0x80)
		return octal(p, LEN_SIZE, ret);
	*ret = 0;
	for (u32 i = 1; i < LEN_SIZE; i++) {
		if (*ret >> 55)
			return false;
		*ret = *ret << 8 | p[i];
	}
	return true;
}

static bool good_name(const char *s)
{
	if (*s == '.' || *s == '-' || !*s)
		return false;
	for (; *s; s++) {
		bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
			     (*s >= '0' && *s <= '9');

		if (!plain && *s != '_' && *s != '-' && *s != '.')
			return false;
	}
	return true;
}

static int take_head(struct tar_reader *t, const struct tar_sink *sink)
{
	char name[TAR_NAME_MAX + 2] = { 0 };
	u64 sum, size;
	bool zero = true;

	t->have = 0;
	for (u32 i = 0; i < TAR_BLOCK && zero; i++)
		zero = !t->head[i];
	if (zero) {
		t->ended = true;
		return 0;
	}
	memcpy(name, t->head, TAR_NAME_MAX + 1);
	if (memcmp(t->head + AT_MAGIC, "ustar", 6) != 0 || t->head[AT_TYPE] != '0' ||
	    !octal(t->head + AT_SUM, LEN_SUM, &sum) || sum != sum_of(t->head) ||
	    !size_of(t->head + AT_SIZE, &size) || !good_name(name))
		return -EBADMSG;
	t->left = size;
	t->pad = (u32)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
	if (!sink->file(sink->arg, name) || (!size && !sink->file(sink->arg, NULL)))
		return -EIO;
	return 0;
}

/* Data of the file under way. Return: how many bytes; -EIO */
static ssize_t take_data(struct tar_reader *t, const struct tar_sink *sink, const u8 *p, size_t len)
{
	size_t n = (size_t)MIN(t->left, (u64)len);

	if (!sink->data(sink->arg, p, n))
		return -EIO;
	t->left -= n;
	if (!t->left && !sink->file(sink->arg, NULL))
		return -EIO;
	return (ssize_t)n;
}

int tar_read(struct tar_reader *t, const struct tar_sink *sink, const void *data, size_t len)
{
	const u8 *p = data, *end = p + len;

	while (p < end && !t->ended) {
		ssize_t n;

		if (t->left) {
			n = take_data(t, sink, p, (size_t)(end - p));
		} else if (t->pad) {
			n = (ssize_t)MIN((size_t)t->pad, (size_t)(end - p));
			t->pad -= (u32)n;
		} else {
			n = (ssize_t)MIN((size_t)(TAR_BLOCK - t->have), (size_t)(end - p));
			memcpy(t->head + t->have, p, (size_t)n);
			t->have += (u32)n;
			if (t->have == TAR_BLOCK) {
				int r = take_head(t, sink);

				if (r < 0)
					return r;
			}
		}
		if (n < 0)
			return (int)n;
		p += n;
	}
	return 0;
}
