// SPDX-License-Identifier: Apache-2.0
/*
 * What a VMM's monitor may send: the framing of JSON objects, the memory tree and the registers.
 * Properties: an object ends in its closing brace, framing does not depend on how bytes arrive,
 * ranges of RAM are not empty and names end.
 */
#include "vmm/mtree.h"
#include "vmm/qmp.h"
#include "vmm/regs_x86.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void frame(const char *data, size_t size)
{
	struct qmp_scan whole = { 0 };
	struct qmp_scan bytes = { 0 };
	ssize_t n = qmp_scan_object(&whole, data, size);
	ssize_t k = 0;

	for (size_t i = 1; i <= size && k == 0; i++)
		k = qmp_scan_object(&bytes, data, i);
	if (n != k)
		abort();
	if (n < 0 && n != -EPROTO)
		abort();
	if (n > 0 && ((size_t)n > size || (data[n - 1] != '}' && data[n - 1] != ']')))
		abort();
	if (n > 0)
		json_decref(json_loadb(data, (size_t)n, 0, NULL));
}

static void tree(const char *text)
{
	static struct mtree_range r[16];
	size_t n = 0;
	int rc = mtree_parse(text, r, 16, &n);

	if (rc != 0 && rc != -ENOENT && rc != -E2BIG && rc != -EPROTO)
		abort();
	if (rc != 0)
		return;
	if (n == 0 || n > 16)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (r[i].start >= r[i].end || !memchr(r[i].name, 0, sizeof(r[i].name)))
			abort();
	}
	if (r[0].start == 0 && !mtree_is_guest_ram(&r[0], &r[0], NULL, 0))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vm_regs regs;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	frame((const char *)data, size);
	tree(text);
	if (regs_parse_hmp(text, &regs) && !strstr(text, "CR3="))
		abort();
	free(text);
	return 0;
}
