// SPDX-License-Identifier: Apache-2.0
/* BTF: index the type section once, then look types up by name and members by path. */
#include "symbols/btf.h"

#include "symbols/btf_priv.h"
#include "symbols/sym_table.h"

#include <errno.h>
#include <stdlib.h>

#define BTF_MAGIC         0xeb9fu
#define BTF_HDR_BYTES     24u /* up to str_len; hdr_len may grow */
#define BTF_MEMBER_BYTES  12u
#define BTF_BLOB_MAX      (64u << 20)
#define BTF_NAME_MAX      512u /* longer names are not looked up */
#define BTF_DEPTH_MAX     16u /* anonymous structs in one another */
#define BTF_MEMBER_BUDGET 65536u
#define NAME_TWICE        0x80000000u /* in a hash slot: there is another function of the name */
#define RANK_FUNC         4u
#define RANK_TYPE_MAX     3u

/* Bytes behind the common part; false for a kind that does not exist. */
static bool extra_bytes(u32 kind, u32 vlen, u32 *ret)
{
	static const struct {
		u32 fixed;
		u32 each;
	} sizes[KIND_MAX] = {
		[KIND_INT] = { 4, 0 },     [KIND_ARRAY] = { 12, 0 },   [KIND_STRUCT] = { 0, 12 },
		[KIND_UNION] = { 0, 12 },  [KIND_ENUM] = { 0, 8 },     [KIND_FUNC_PROTO] = { 0, 8 },
		[KIND_VAR] = { 4, 0 },     [KIND_DATASEC] = { 0, 12 }, [KIND_DECL_TAG] = { 4, 0 },
		[KIND_ENUM64] = { 0, 12 },
	};

	if (!kind || kind >= KIND_MAX)
		return false;
	*ret = sizes[kind].fixed + sizes[kind].each * vlen;
	return true;
}

/*
 * Which of several types of one name is meant; 0 is not looked up by name. A function shares its
 * name with a type now and then, and is never asked for as one.
 */
static u32 kind_rank(u32 kind)
{
	switch (kind) {
	case KIND_FUNC:
		return RANK_FUNC;
	case KIND_STRUCT:
	case KIND_UNION:
		return 3;
	case KIND_TYPEDEF:
		return 2;
	case KIND_ENUM:
	case KIND_ENUM64:
	case KIND_INT:
		return 1;
	default:
		return 0;
	}
}

/*
 * A hash slot for @name of @rank: the one that has it, or a free one (half of them are); NULL when
 * @budget ran out, which it does only for names made to collide.
 */
static u32 *hash_slot(const struct btf_types *b, const char *name, u32 rank, u64 *budget)
{
	u32 h = sym_name_hash(name, strlen(name));

	for (u32 probe = 0; (*budget)--; probe++) {
		u32 *slot = &b->hash[(h + probe) & b->hash_mask];
		struct type t;

		if (!*slot)
			return slot;
		t = type_get(b, *slot & ~NAME_TWICE);
		if (kind_rank(t.kind) == rank && !strcmp(string_at(b, t.name), name))
			return slot;
	}
	return NULL;
}

/* Header and strings; sets the bounds of the type section. */
static bool header_read(struct btf_types *b, size_t *types_ret, size_t *end_ret)
{
	const u8 *p = b->blob;
	u64 hdr, type_off, type_len, str_off, str_len;

	if (b->len < BTF_HDR_BYTES || b->len > BTF_BLOB_MAX || load_u16(p) != BTF_MAGIC ||
	    p[2] != 1)
		return false;
	hdr = load_u32(p + 4);
	type_off = load_u32(p + 8);
	type_len = load_u32(p + 12);
	str_off = load_u32(p + 16);
	str_len = load_u32(p + 20);
	if (hdr < BTF_HDR_BYTES || hdr + type_off + type_len > b->len ||
	    hdr + str_off + str_len > b->len || b->strings_first + str_len > UINT32_MAX)
		return false;
	b->strings = hdr + str_off;
	b->strings_end = (u32)(b->strings_first + str_len);
	/* the name "" is the base's */
	if (!b->base && (!str_len || p[b->strings]))
		return false;
	if (str_len && p[b->strings + str_len - 1])
		return false;
	*types_ret = hdr + type_off;
	*end_ret = hdr + type_off + type_len;
	return true;
}

/* Count, or with b->types set record, the types between @pos and @end. */
static bool types_walk(struct btf_types *b, size_t pos, size_t end)
{
	u32 n = b->base ? b->first : 1, n_enums = 0;

	while (pos < end) {
		u32 info, extra, kind;

		if (end - pos < BTF_TYPE_BYTES)
			return false;
		info = load_u32(b->blob + pos + 4);
		kind = info >> 24 & 0x1f;
		if (!extra_bytes(kind, info & 0xffff, &extra) || end - pos - BTF_TYPE_BYTES < extra)
			return false;
		if (load_u32(b->blob + pos) >= b->strings_end)
			return false;
		if (b->types)
			b->types[n - b->first] = (u32)pos;
		if (kind == KIND_ENUM || kind == KIND_ENUM64) {
			if (b->types)
				b->enums[n_enums] = n;
			n_enums++;
			/* Since v6.0 (commit 6089fb325cf7): flag and enum64 came together. */
			if (kind == KIND_ENUM64 || info >> 31)
				b->signed_enums = true;
		}
		pos += BTF_TYPE_BYTES + extra;
		n++;
	}
	b->n_types = n;
	b->n_enums = n_enums;
	return true;
}

static bool name_indexed(const struct btf_types *b, const struct type *t)
{
	const char *name = string_at(b, t->name);

	return *name && kind_rank(t->kind) && strnlen(name, BTF_NAME_MAX) < BTF_NAME_MAX;
}

static bool names_index(struct btf_types *b)
{
	u64 budget = 65536 + 16ull * b->n_types;

	for (u32 id = MAX(b->first, 1u); id < b->n_types; id++) {
		struct type t = type_get(b, id);
		u32 *slot;

		if (!name_indexed(b, &t))
			continue;
		slot = hash_slot(b, string_at(b, t.name), kind_rank(t.kind), &budget);
		if (!slot)
			return false;
		if (!*slot)
			*slot = id;
		else if (t.kind == KIND_FUNC)
			*slot |= NAME_TWICE;
	}
	return true;
}

static u32 names_count(const struct btf_types *b)
{
	u32 n = 0;

	for (u32 id = MAX(b->first, 1u); id < b->n_types; id++) {
		struct type t = type_get(b, id);

		n += name_indexed(b, &t);
	}
	return n;
}

static int index_build(struct btf_types *b)
{
	size_t pos, end;
	u32 size = 64, names;

	if (!header_read(b, &pos, &end) || !types_walk(b, pos, end))
		return -EUCLEAN;
	b->types = calloc(b->n_types - b->first + 1, sizeof(*b->types));
	b->enums = calloc(b->n_enums + 1, sizeof(*b->enums));
	if (!b->types || !b->enums)
		return -ENOMEM;
	if (!types_walk(b, pos, end))
		return -EUCLEAN;
	names = names_count(b);
	while (size / 2 < names)
		size *= 2;
	b->hash = calloc(size, sizeof(*b->hash));
	b->hash_mask = size - 1;
	if (!b->hash)
		return -ENOMEM;
	return names_index(b) ? 0 : -EUCLEAN;
}

static int take_over(struct btf_types *b)
{
	int rc = index_build(b);

	if (rc) {
		b->blob = NULL; /* stays the caller's */
		btf_types_deinit(b);
	}
	return rc;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is owned and freed from here on */
int btf_types_init(struct btf_types *b, u8 *blob, size_t len)
{
	*b = (struct btf_types){ .blob = blob, .len = len };
	return take_over(b);
}

int btf_types_init_split(struct btf_types *b, const struct btf_types *base,
			 /* NOLINTNEXTLINE(readability-non-const-parameter): as above */
			 u8 *blob, size_t len)
{
	*b = (struct btf_types){ .blob = blob,
				 .len = len,
				 .base = base,
				 .first = base->n_types,
				 .strings_first = base->strings_end,
				 .signed_enums = base->signed_enums };
	return take_over(b);
}

void btf_types_deinit(struct btf_types *b)
{
	free(b->blob);
	free(b->types);
	free(b->enums);
	free(b->hash);
	*b = (struct btf_types){ 0 };
}

u32 btf_strip(const struct btf_types *b, u32 id)
{
	for (u32 i = 0; i < BTF_CHAIN_MAX; i++) {
		struct type t;

		if (!id || id >= b->n_types)
			return 0;
		t = type_get(b, id);
		switch (t.kind) {
		case KIND_TYPEDEF:
		case KIND_VOLATILE:
		case KIND_CONST:
		case KIND_RESTRICT:
		case KIND_TYPE_TAG:
			id = t.size;
			break;
		default:
			return id;
		}
	}
	return 0;
}

static int size_of(const struct btf_types *b, u32 id, u32 *ret)
{
	u64 n = 1;

	for (u32 i = 0; i < BTF_CHAIN_MAX; i++) {
		struct type t;

		id = btf_strip(b, id);
		if (!id)
			return -EUCLEAN;
		t = type_get(b, id);
		if (t.kind == KIND_ARRAY) {
			n *= load_u32(t.extra + 8);
			id = load_u32(t.extra);
			if (n > UINT32_MAX)
				return -EUCLEAN;
			continue;
		}
		if (t.kind == KIND_PTR)
			n *= 8; /* 64-bit guests only */
		else if ((kind_rank(t.kind) && t.kind != KIND_FUNC) || t.kind == KIND_FLOAT)
			n *= t.size;
		else
			return -EUCLEAN;
		if (n > UINT32_MAX)
			return -EUCLEAN;
		*ret = (u32)n;
		return 0;
	}
	return -EUCLEAN;
}

static u32 find_type(const struct btf_types *b, const char *name)
{
	if (!*name || !b->hash)
		return 0;
	for (u32 rank = RANK_TYPE_MAX; rank >= 1; rank--) {
		u64 budget = 65536;
		const u32 *slot = hash_slot(b, name, rank, &budget);

		if (slot && *slot)
			return *slot;
	}
	return 0;
}

u32 btf_find_func(const struct btf_types *b, const char *name)
{
	u64 budget = 65536;
	const u32 *slot = *name && b->hash ? hash_slot(b, name, RANK_FUNC, &budget) : NULL;

	return slot && !(*slot & NAME_TWICE) ? *slot : 0;
}

struct search {
	const struct btf_types *b;
	const char *name;
	size_t len;
	u32 budget;
	u64 bit_off; /* out */
	u32 type; /* out */
};

/* Depth first through anonymous members, as C resolves them. */
static int member_find(struct search *s, u32 id, u64 bit_base, u32 depth)
{
	struct type t;

	id = btf_strip(s->b, id);
	if (!id || depth > BTF_DEPTH_MAX)
		return -EUCLEAN;
	t = type_get(s->b, id);
	if (t.kind != KIND_STRUCT && t.kind != KIND_UNION)
		return -ENOENT;
	for (u32 i = 0; i < t.vlen; i++) {
		const u8 *m = t.extra + (size_t)i * BTF_MEMBER_BYTES;
		const char *name = string_at(s->b, load_u32(m));
		u32 off = load_u32(m + 8);
		u64 bits = bit_base + (t.flag ? off & 0xffffff : off);

		if (!s->budget--)
			return -EUCLEAN;
		if (!*name) {
			int rc = member_find(s, load_u32(m + 4), bits, depth + 1);

			if (rc != -ENOENT)
				return rc;
		} else if (!strncmp(name, s->name, s->len) && !name[s->len]) {
			s->bit_off = bits;
			s->type = load_u32(m + 4);
			return 0;
		}
	}
	return -ENOENT;
}

/* An array is crossed by its first element. */
static u32 element(const struct btf_types *b, u32 id)
{
	for (u32 i = 0; i < BTF_CHAIN_MAX; i++) {
		struct type t;

		id = btf_strip(b, id);
		if (!id)
			return 0;
		t = type_get(b, id);
		if (t.kind != KIND_ARRAY)
			return id;
		id = load_u32(t.extra);
	}
	return 0;
}

int btf_types_member(const struct btf_types *b, const char *type, const char *path, u32 *off_ret,
		     u32 *size_ret)
{
	struct search s = { .b = b, .budget = BTF_MEMBER_BUDGET };
	u32 id = find_type(b, type);
	u64 bits = 0;

	if (!id)
		return -ENOENT;
	for (;;) {
		int rc;

		s.name = path;
		s.len = strcspn(path, ".");
		if (!s.len)
			return -ENOENT;
		rc = member_find(&s, id, bits, 0);
		if (rc)
			return rc;
		bits = s.bit_off;
		if (bits / 8 > UINT32_MAX)
			return -EUCLEAN;
		if (!path[s.len])
			break;
		path += s.len + 1;
		id = element(b, s.type);
	}
	if (off_ret)
		*off_ret = (u32)(bits / 8);
	return size_ret ? size_of(b, s.type, size_ret) : 0;
}

int btf_types_size(const struct btf_types *b, const char *type, u32 *size_ret)
{
	u32 id = find_type(b, type);

	return id ? size_of(b, id, size_ret) : -ENOENT;
}

s64 btf_enum_value(const struct btf_types *b, const struct type *t, u32 i, const char **name_ret)
{
	const u8 *e = t->extra + (size_t)i * (t->kind == KIND_ENUM64 ? 12 : 8);
	u32 low = load_u32(e + 4);

	*name_ret = string_at(b, load_u32(e));
	if (t->kind == KIND_ENUM64)
		return (s64)(low | (u64)load_u32(e + 8) << 32);
	if (t->flag || !b->signed_enums)
		return (s32)low;
	return low;
}

static u32 enum_find(const struct btf_types *b, const char *enumerator, s64 *val_ret)
{
	for (u32 k = 0; k < b->n_enums; k++) {
		struct type t = type_get(b, b->enums[k]);

		for (u32 i = 0; i < t.vlen; i++) {
			const char *name;
			s64 val = btf_enum_value(b, &t, i, &name);

			if (!strcmp(name, enumerator)) {
				*val_ret = val;
				return b->enums[k];
			}
		}
	}
	return 0;
}

int btf_types_enum(const struct btf_types *b, const char *enumerator, s64 *val_ret)
{
	return *enumerator && enum_find(b, enumerator, val_ret) ? 0 : -ENOENT;
}

int btf_types_enum_each(const struct btf_types *b, const char *enumerator,
			void (*fn)(void *arg, const char *name, s64 val), void *arg)
{
	s64 val;
	u32 id = *enumerator ? enum_find(b, enumerator, &val) : 0;
	struct type t;

	if (!id)
		return -ENOENT;
	t = type_get(b, id);
	for (u32 i = 0; i < t.vlen; i++) {
		const char *name;

		val = btf_enum_value(b, &t, i, &name);
		fn(arg, name, val);
	}
	return 0;
}
