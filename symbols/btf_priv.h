/* SPDX-License-Identifier: Apache-2.0 */
/* How types lie in a BTF blob, for btf*.c alone. */
#ifndef SYMBOLS_BTF_PRIV_H
#define SYMBOLS_BTF_PRIV_H

#include "symbols/btf.h"
#include "symbols/mem.h"

#define BTF_CHAIN_MAX  32u /* typedef of const of ... */
#define BTF_TYPE_BYTES 12u /* name_off, info, size or type */

/* include/uapi/linux/btf.h v6.12 */
enum kind {
	KIND_INT = 1,
	KIND_PTR,
	KIND_ARRAY,
	KIND_STRUCT,
	KIND_UNION,
	KIND_ENUM,
	KIND_FWD,
	KIND_TYPEDEF,
	KIND_VOLATILE,
	KIND_CONST,
	KIND_RESTRICT,
	KIND_FUNC,
	KIND_FUNC_PROTO,
	KIND_VAR,
	KIND_DATASEC,
	KIND_FLOAT,
	KIND_DECL_TAG,
	KIND_TYPE_TAG,
	KIND_ENUM64,
	KIND_MAX,
};

struct type {
	const u8 *extra; /* what follows the common part */
	u32 name;
	u32 size; /* or the type that it refers to */
	u32 vlen;
	u32 kind;
	bool flag;
};

/* @id is below n_types and not 0; the positions were checked when indexed. */
static inline struct type type_get(const struct btf_types *b, u32 id)
{
	const struct btf_types *own = id < b->first ? b->base : b;
	const u8 *p = own->blob + own->types[id - own->first];
	u32 info = load_u32(p + 4);

	return (struct type){ .extra = p + BTF_TYPE_BYTES,
			      .name = load_u32(p),
			      .size = load_u32(p + 8),
			      .vlen = info & 0xffff,
			      .kind = info >> 24 & 0x1f,
			      .flag = info >> 31 };
}

static inline const char *string_at(const struct btf_types *b, u32 off)
{
	const struct btf_types *own = off < b->strings_first ? b->base : b;

	if (off >= own->strings_end)
		return "";
	return (const char *)own->blob + own->strings + (off - own->strings_first);
}

/** btf_strip - through typedefs and qualifiers to the type itself; 0 when there is none */
u32 btf_strip(const struct btf_types *b, u32 id);

/** btf_find_func - id of the one function called @name; 0: there is none, or several */
u32 btf_find_func(const struct btf_types *b, const char *name);

/** btf_enum_value - enumerator @i; before the flag existed values were read as signed (libbpf does, too) */
s64 btf_enum_value(const struct btf_types *b, const struct type *t, u32 i, const char **name_ret);

#endif
