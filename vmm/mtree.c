// SPDX-License-Identifier: Apache-2.0
/*
 * "info mtree -f" of QEMU (softmmu/memory.c:mtree_print_flatview, 7.2):
 *
 *   FlatView #2
 *    AS "memory", root: system
 *    AS "cpu-memory-0", root: system
 *    Root memory region: system
 *     0000000000000000-00000000000bffff (prio 0, ram): pc.ram
 *     0000000100000000-000000023fffffff (prio 0, ram): pc.ram @00000000c0000000 KVM
 *
 * The name is a user's (a backend's id) and may hold anything but a newline.
 */
#include "vmm/mtree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool starts_with(const char *p, size_t len, const char *what)
{
	size_t n = strlen(what);

	return len >= n && memcmp(p, what, n) == 0;
}

/* Exactly 16 hexadecimal digits. */
static bool hex16(const char *p, size_t len, u64 *ret)
{
	u64 v = 0;

	if (len < 16)
		return false;
	for (int i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef";
		const char *d = p[i] ? strchr(digits, p[i]) : NULL;

		if (!d)
			return false;
		v = v << 4 | (u64)(d - digits);
	}
	*ret = v;
	return true;
}

/* Cuts "@0000000000100000" and the accelerator's name off the end of a range's name. */
static size_t name_len(const char *p, size_t len)
{
	static const char *const accels[] = { " KVM", " HVF", " WHPX", " NVMM", " MSHV" };
	u64 off;

	for (size_t i = 0; i < ARRAY_SIZE(accels); i++) {
		size_t n = strlen(accels[i]);

		if (len > n && memcmp(p + len - n, accels[i], n) == 0)
			len -= n;
	}
	if (len > 18 && p[len - 18] == ' ' && p[len - 17] == '@' && hex16(p + len - 16, 16, &off))
		len -= 18;
	return len;
}

/* 1: a RAM range; 0: something else; -EPROTO. @p is a line without leading blanks. */
static int parse_range(const char *p, size_t len, struct mtree_range *ret)
{
	static const char *const types[] = { ", ram): ", ", nv-ram): " };
	u64 start;
	u64 last;

	if (!hex16(p, len, &start))
		return 0;
	if (len < 34 || p[16] != '-' || !hex16(p + 17, len - 17, &last) || last < start ||
	    last == UINT64_MAX)
		return -EPROTO;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		/* the type stands before the first ": ", the name after it */
		const char *colon = memmem(p, len, "): ", 3);
		size_t n = strlen(types[i]);
		const char *name;
		size_t left;

		if (!colon || (size_t)(colon + 3 - p) < n ||
		    memcmp(colon + 3 - n, types[i], n) != 0)
			continue;
		name = colon + 3;
		left = name_len(name, len - (size_t)(name - p));
		left = MIN(left, sizeof(ret->name) - 1);
		ret->start = start;
		ret->end = last + 1;
		memcpy(ret->name, name, left);
		ret->name[left] = '\0';
		return 1;
	}
	return 0;
}

int mtree_parse(const char *text, struct mtree_range *ret, size_t max, size_t *n_ret)
{
	bool ours = false; /* in the flat view whose address spaces include "memory" */
	size_t n = 0;

	for (const char *p = text; *p && !(n && !ours);) {
		size_t len = strcspn(p, "\r\n");
		const char *next = p + len + strspn(p + len, "\r\n");
		struct mtree_range r;
		int rc = 0;

		while (len && *p == ' ') {
			p++;
			len--;
		}
		if (starts_with(p, len, "FlatView #"))
			ours = false;
		else if (starts_with(p, len, "AS \"memory\""))
			ours = true;
		else if (ours)
			rc = parse_range(p, len, &r);
		if (rc < 0)
			return rc;
		if (rc == 1) {
			if (n == max)
				return -E2BIG;
			ret[n++] = r;
		}
		p = next;
	}
	*n_ret = n;
	return n ? 0 : -ENOENT;
}

bool mtree_is_guest_ram(const struct mtree_range *r, const struct mtree_range *first,
			const char *const *backends, size_t n_backends)
{
	/* the board's default RAM was no backend before QEMU 5.0 */
	if (first->start == 0 && strcmp(r->name, first->name) == 0)
		return true;
	for (size_t i = 0; i < n_backends; i++) {
		/* a canonical path ("/objects/ram0") where x-use-canonical-path-for-ramblock-id is on */
		const char *base = strrchr(r->name, '/');

		if (strcmp(backends[i], r->name) == 0 ||
		    (base && strcmp(backends[i], base + 1) == 0))
			return true;
	}
	return false;
}
