// SPDX-License-Identifier: Apache-2.0
/*
 * BTF: raw bytes, or a sound blob with damage (first byte odd); as it is, or as going on from another (its
 * third bit). Every string of the blob is asked for as type, member, enumerator and function; answers must be
 * the same twice and members lie as C lays them out.
 */
#include "symbols/btf.h"
#include "symbols/kernel.h"

#include "tests/unit/test_symbols_fake.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STRINGS_MAX 64

static void count(void *arg, const char *name, s64 val)
{
	(void)val;
	*(size_t *)arg += strlen(name) + 1;
}

static void check_pair(const struct btf_types *b, const char *type, const char *member)
{
	char path[256];
	u32 off = 1, size = 2, off2 = 3, size2 = 4;
	int rc = btf_types_member(b, type, member, &off, &size);

	if (rc != btf_types_member(b, type, member, &off2, &size2))
		abort();
	if (!rc && (off != off2 || size != size2))
		abort();
	if (strlen(member) > 100)
		return;
	memcpy(path, member, strlen(member) + 1);
	strcat(path, ".");
	strcat(path, member);
	(void)!btf_types_member(b, type, path, &off, &size);
}

static void check_val(const struct btf_types *b, const struct kernel_val *v, u32 n_regs)
{
	const char *name = btf_types_enum_name(b, v->btf_id, v->size);

	if (strlen(v->name) + strlen(v->type) > 2 * b->strings_end)
		abort();
	if (name && strlen(name) > b->strings_end)
		abort();
	if (v->reg != 0xff && (v->reg >= n_regs || !v->size))
		abort();
	if (v->kind > KERNEL_VAL_OTHER || v->btf_id >= b->n_types)
		abort();
}

/* Registers are given out in order, each once. */
static void check_func(const struct btf_types *b, const char *name)
{
	struct kernel_func f, again;
	int rc = btf_types_func(b, name, &f);
	u32 next = 0;

	if (rc != btf_types_func(b, name, &again) || (!rc && memcmp(&f, &again, sizeof(f)) != 0))
		abort();
	if (rc)
		return;
	if (f.n_params > KERNEL_FUNC_MAX_PARAMS || f.n_regs > 6)
		abort();
	f.ret.name = "";
	check_val(b, &f.ret, 1);
	for (u32 i = 0; i < f.n_params; i++) {
		check_val(b, &f.params[i], f.n_regs);
		if (f.params[i].reg == 0xff)
			continue;
		if (f.params[i].reg < next)
			abort();
		next = f.params[i].reg + (f.params[i].size + 7u) / 8;
	}
	if (next > f.n_regs)
		abort();
}

static void ask_all(const struct btf_types *b)
{
	const char *s[STRINGS_MAX];
	size_t n = 0, sum = 0;

	for (u32 at = 0; at < b->strings_end - b->strings_first && n < STRINGS_MAX;) {
		s[n] = (const char *)b->blob + b->strings + at;
		at += (u32)strlen(s[n++]) + 1;
	}
	for (size_t i = 0; i < n; i++) {
		u32 size;
		s64 val;

		check_func(b, s[i]);
		(void)!btf_types_size(b, s[i], &size);
		if (!btf_types_enum(b, s[i], &val) && btf_types_enum_each(b, s[i], count, &sum))
			abort();
		for (size_t k = 0; k < n; k++)
			check_pair(b, s[i], s[k]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct btf_types base;
	struct btf_types b;
	u32 len = (u32)size;
	u8 *blob;

	if (size && data[0] % 2) {
		struct fake_patches p;

		blob = fake_btf(data[0] & 2, &len);
		fake_patch(&p, blob, len, data + 1, size - 1);
	} else {
		blob = malloc(size + 1);
		memcpy(blob, data, size);
	}
	if (size && data[0] & 4 && !base.blob) {
		u32 base_len;
		u8 *base_blob = fake_btf(false, &base_len);

		if (btf_types_init(&base, base_blob, base_len))
			abort();
	}
	if (size && data[0] & 4 ? btf_types_init_split(&b, &base, blob, len)
				: btf_types_init(&b, blob, len)) {
		free(blob);
		return 0;
	}
	ask_all(&b);
	btf_types_deinit(&b);
	return 0;
}
