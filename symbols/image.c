// SPDX-License-Identifier: Apache-2.0
/* Bytes of the kernel image; grows the window until kallsyms is whole. */
#include "symbols/image.h"

#include "symbols/arch.h"
#include "symbols/mem.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNK_BYTES (2u << 20)

void image_deinit(struct image *im)
{
	free(im->data);
	*im = (struct image){ 0 };
}

/* As much as there is of @len bytes, in halves down to a page: RAM may end behind the image. */
static size_t read_some(const struct sym_mem *mem, u64 addr, u8 *buf, size_t len)
{
	size_t got = 0;

	while (len - got >= PAGE_SIZE) {
		size_t n = len - got;

		while (n >= PAGE_SIZE && mem_phys(mem, addr + got, buf + got, n))
			n = n / 2 & PAGE_MASK;
		if (n < PAGE_SIZE)
			break;
		got += n;
	}
	return got;
}

int image_read(const struct sym_mem *mem, gpa_t base, size_t limit, u64 *steps, struct image *ret)
{
	struct image im = { .base = base };
	u64 most = MIN(*steps, KALLSYMS_STEPS), left = most;
	size_t from = 0;
	int rc = -ENOENT;

	while (im.len < limit) {
		u8 *data = realloc(im.data, im.len + CHUNK_BYTES);
		size_t got;

		if (!data) {
			rc = -ENOMEM;
			break;
		}
		im.data = data;
		got = read_some(mem, base.v + im.len, data + im.len, CHUNK_BYTES);
		im.len += got;
		rc = kallsyms_find(im.data, im.len, &from, &left, &im.kallsyms);
		if (rc != -ENOENT || got < CHUNK_BYTES)
			break;
	}
	*steps -= most - left;
	if (!rc) {
		*ret = im;
		return 0;
	}
	image_deinit(&im);
	return rc == -E2BIG && *steps ? -ENOENT : rc;
}

/*
 * Asked 512 times for each GiB of RAM: memchr() for the rarest letter is ten times memmem()'s
 * speed.
 */
bool image_is_rodata(const u8 *data, size_t len)
{
	static const char *const marks[] = { "Linux version ", "%s version %s" };
	static const size_t before[] = { 6, 3 }; /* the 'v' in each */
	const u8 *p = data, *end = data + len;

	while ((p = memchr(p, 'v', (size_t)(end - p)))) {
		for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
			size_t n = strlen(marks[i]);

			if ((size_t)(p - data) >= before[i] && (size_t)(end - p) >= n - before[i] &&
			    !memcmp(p - before[i], marks[i], n))
				return true;
		}
		p++;
	}
	return false;
}

int image_of_kernel(const struct sym_mem *mem, gpa_t first, struct image *ret)
{
	u64 step = sym_arch()->image_align_bytes;
	u8 page[IMAGE_PEEK_BYTES];
	u64 steps = IMAGE_STEPS;

	for (u64 at = 0; at < IMAGE_SEARCH; at += step) {
		int rc;

		if (mem_phys(mem, first.v + at, page, sizeof(page)) ||
		    !image_is_rodata(page, sizeof(page)))
			continue;
		rc = image_read(mem, gpa(first.v + at), IMAGE_RODATA_SEARCH, &steps, ret);
		if (rc != -ENOENT)
			return rc;
	}
	return image_read(mem, first, IMAGE_SEARCH, &steps, ret);
}
