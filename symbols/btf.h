/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets, sizes and enumerators out of a BTF blob (Documentation/bpf/btf.rst). A parser of our
 * own: the blob is a guest's, so every size is checked once when it is indexed and every walk
 * afterwards has a budget. Must not know where the blob came from.
 */
#ifndef SYMBOLS_BTF_H
#define SYMBOLS_BTF_H

#include "base/types.h"

struct kernel_func;

struct btf_types {
	u8 *blob;
	size_t len;
	const struct btf_types
		*base; /* a module's types go on where the kernel's end; NULL: the kernel's */
	u32 first; /* id of the first type of the blob */
	u32 *types; /* by id - first: position of its struct btf_type in the blob; the kernel's [0] is void */
	u32 n_types; /* ids are 1 .. n_types - 1, the base's among them */
	u32 *enums; /* ids of enum and enum64 types */
	u32 n_enums;
	u32 *hash; /* ids of named types */
	u32 hash_mask;
	size_t strings;
	u32 strings_first; /* offset that the blob's own strings begin at */
	u32 strings_end; /* offsets are below */
	bool signed_enums; /* the kind flag tells signed enums from unsigned ones */
};

/**
 * btf_types_init - take over @blob (from malloc) and index it
 *
 * On failure @blob stays the caller's. Return: 0; -EUCLEAN not sound BTF; -ENOMEM.
 */
must_check int btf_types_init(struct btf_types *b, u8 *blob, size_t len);

/**
 * btf_types_init_split - as btf_types_init(), of a module's blob, whose ids and strings go on where @base's end
 *
 * Names are looked up in the blob alone. @base must outlive @b.
 */
must_check int btf_types_init_split(struct btf_types *b, const struct btf_types *base, u8 *blob,
				    size_t len);
void btf_types_deinit(struct btf_types *b);

/**
 * btf_types_member - where a member lies and how long it is
 * @type: struct, union or typedef
 * @path: dotted; crosses anonymous members, and arrays by their element 0
 * @off_ret, @size_ret: bytes; may be NULL. Of a bit field: the byte it starts in, its type's size
 *
 * Return: 0; -ENOENT no such type or member; -EUCLEAN the types do not make sense.
 */
must_check int btf_types_member(const struct btf_types *b, const char *type, const char *path,
				u32 *off_ret, u32 *size_ret);

/** btf_types_size - sizeof(@type); -ENOENT, -EUCLEAN */
must_check int btf_types_size(const struct btf_types *b, const char *type, u32 *size_ret);

/** btf_types_enum - value of the first enumerator called so; -ENOENT */
must_check int btf_types_enum(const struct btf_types *b, const char *enumerator, s64 *val_ret);

/**
 * btf_types_enum_each - all enumerators of the type that has @enumerator
 *
 * Return: 0; -ENOENT.
 */
must_check int btf_types_enum_each(const struct btf_types *b, const char *enumerator,
				   void (*fn)(void *arg, const char *name, s64 val), void *arg);

/**
 * btf_types_func - prototype of a function, and the registers that its parameters come in
 *
 * Return: 0; -ENOENT no function of that name, or several that differ; -EUCLEAN the types do not make
 * sense. kernel_btf_func()'s contract otherwise.
 */
must_check int btf_types_func(const struct btf_types *b, const char *name, struct kernel_func *ret);

/** btf_types_enum_name - name of @val in the enum @id (typedefs are followed); NULL when it has none */
const char *btf_types_enum_name(const struct btf_types *b, u32 id, s64 val);

#endif
