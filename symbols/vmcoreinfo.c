// SPDX-License-Identifier: Apache-2.0
/* Lines of KEY=value; SYMBOL() and KERNELOFFSET are hexadecimal, NUMBER() is decimal and signed. */
#include "symbols/vmcoreinfo.h"

#include <errno.h>
#include <string.h>

#define FIRST_KEY "OSRELEASE="

static bool starts_with(const char *line, size_t len, const char *key, size_t *key_len)
{
	*key_len = strlen(key);
	return len >= *key_len && !memcmp(line, key, *key_len);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* All of @s must be a number that fits; -1 is written as the kernel writes it, with a sign. */
static bool number(const char *s, size_t len, unsigned int base, u64 *ret)
{
	bool minus = len && *s == '-';
	u64 v = 0;

	if (minus) {
		s++;
		len--;
	}
	if (!len)
		return false;
	for (size_t i = 0; i < len; i++) {
		int d = digit(s[i]);

		if (d < 0 || (unsigned int)d >= base)
			return false;
		if (__builtin_mul_overflow(v, (u64)base, &v) || add_overflows(v, (u64)d, &v))
			return false;
	}
	*ret = minus ? 0 - v : v;
	return true;
}

static bool text(const char *s, size_t len, char *ret, size_t cap)
{
	if (!len || len >= cap)
		return false;
	for (size_t i = 0; i < len; i++)
		if (s[i] < 0x21 || s[i] > 0x7e)
			return false;
	memcpy(ret, s, len);
	ret[len] = '\0';
	return true;
}

static bool hex_text(const char *s, size_t len, char *ret, size_t cap)
{
	for (size_t i = 0; i < len; i++)
		if (digit(s[i]) < 0)
			return false;
	return text(s, len, ret, cap);
}

static void parse_line(const char *s, size_t len, struct vmcoreinfo *v)
{
	const struct {
		const char *key;
		u64 *to;
	} symbols[] = {
		{ "SYMBOL(_stext)=", &v->stext },
		{ "SYMBOL(swapper_pg_dir)=", &v->swapper_pg_dir },
		{ "SYMBOL(kallsyms_names)=", &v->kallsyms_names },
		{ "SYMBOL(kallsyms_token_index)=", &v->kallsyms_token_index },
		{ "SYMBOL(kallsyms_offsets)=", &v->kallsyms_offsets },
	};
	size_t k;
	u64 n;

	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
		if (starts_with(s, len, symbols[i].key, &k) && number(s + k, len - k, 16, &n))
			*symbols[i].to = n;
	if (starts_with(s, len, "NUMBER(phys_base)=", &k))
		v->has_phys_base = number(s + k, len - k, 10, &v->phys_base);
	if (starts_with(s, len, "KERNELOFFSET=", &k))
		v->has_kernel_offset = number(s + k, len - k, 16, &v->kernel_offset);
	if (starts_with(s, len, "NUMBER(pgtable_l5_enabled)=", &k) &&
	    number(s + k, len - k, 10, &n) && n <= 1)
		v->l5_enabled = (int)n;
	if (starts_with(s, len, "BUILD-ID=", &k) &&
	    !hex_text(s + k, len - k, v->build_id, sizeof(v->build_id)))
		v->build_id[0] = '\0';
}

int vmcoreinfo_parse(const void *data, size_t len, struct vmcoreinfo *ret)
{
	const char *s = data;
	const char *end = s + strnlen(s, MIN(len, (size_t)VMCOREINFO_BYTES_MAX));
	struct vmcoreinfo v = { .l5_enabled = -1 };
	const char *nl = memchr(s, '\n', (size_t)(end - s));
	size_t k;

	if (!nl || !starts_with(s, (size_t)(nl - s), FIRST_KEY, &k))
		return -ENOENT;
	if (!text(s + k, (size_t)(nl - s) - k, v.release, sizeof(v.release)))
		return -ENOENT;
	while (nl) {
		s = nl + 1;
		nl = memchr(s, '\n', (size_t)(end - s));
		if (nl)
			parse_line(s, (size_t)(nl - s), &v);
	}
	*ret = v;
	return 0;
}
