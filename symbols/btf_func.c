// SPDX-License-Identifier: Apache-2.0
/*
 * Prototypes of functions, and where the x86-64 calling convention puts their parameters.
 *
 * A kernel passes integers and pointers only (no SSE), so of the System V psABI (AMD64 1.0, 3.2.3)
 * this is left: a parameter of up to 8 bytes takes the next of six registers; one of 9 to 16 bytes (a
 * struct by value, __int128) the next two, or lies on the stack as a whole when there are not two
 * left; a longer one lies on the stack and takes none, and those after it still get registers. A
 * function that returns more than 16 bytes is passed the place for them in the first register.
 *
 * What BTF cannot tell: a packed struct whose members are not aligned lies on the stack (there is
 * none by value in Linux). pahole writes one FUNC a name: static functions of one name whose
 * prototypes differ are left out (since v1.25, --skip_encoding_btf_inconsistent_proto; before, the
 * first one that it met stands for all). Where the blob itself has two that differ, neither counts.
 */
#include "symbols/btf_priv.h"
#include "symbols/kernel.h"

#include <errno.h>

#define REGS        6u
#define ON_STACK    0xff
#define WORD_BYTES  8u
#define STRUCT_REGS 16u /* bytes; a longer one is passed in memory */

#define INT_SIGNED 1u
#define INT_CHAR   2u
#define INT_BOOL   4u

/* The first name from the outside in: a typedef's, or that of what a pointer leads to. */
static const char *type_name(const struct btf_types *b, u32 id)
{
	for (u32 i = 0; i < BTF_CHAIN_MAX && id && id < b->n_types; i++) {
		struct type t = type_get(b, id);
		const char *name = string_at(b, t.name);

		switch (t.kind) {
		case KIND_PTR:
		case KIND_VOLATILE:
		case KIND_CONST:
		case KIND_RESTRICT:
		case KIND_TYPE_TAG:
			id = t.size;
			break;
		case KIND_ARRAY:
			id = load_u32(t.extra);
			break;
		case KIND_TYPEDEF:
			if (*name)
				return name;
			id = t.size;
			break;
		case KIND_FUNC_PROTO:
			return "";
		default:
			return name;
		}
	}
	return "";
}

static enum kernel_val_kind int_kind(const struct type *t, const char *name)
{
	u32 encoding = load_u32(t->extra) >> 24 & 0xf;

	if (encoding & INT_BOOL)
		return KERNEL_VAL_BOOL;
	/* compilers seldom say "char" in the encoding; the sign is the machine's, or -funsigned-char's */
	if ((encoding & INT_CHAR) || (t->size == 1 && !strcmp(name, "char")))
		return KERNEL_VAL_CHAR;
	return encoding & INT_SIGNED ? KERNEL_VAL_SIGNED : KERNEL_VAL_UNSIGNED;
}

static bool set_kind(const struct type *t, const char *name, struct kernel_val *v)
{
	u32 size = t->size;

	switch (t->kind) {
	case KIND_INT:
		v->kind = int_kind(t, name);
		break;
	case KIND_PTR:
		v->kind = KERNEL_VAL_POINTER;
		size = WORD_BYTES;
		break;
	case KIND_ENUM:
	case KIND_ENUM64:
		v->kind = KERNEL_VAL_ENUM;
		if (*name)
			v->type = name;
		break;
	case KIND_STRUCT:
	case KIND_UNION:
	case KIND_FLOAT:
		v->kind = KERNEL_VAL_OTHER;
		v->size = (u8)MIN(size, (u32)UINT8_MAX);
		return true;
	default: /* nothing that is passed by value */
		return false;
	}
	v->size = (u8)size;
	return size && size <= 2 * WORD_BYTES &&
	       (v->kind == KERNEL_VAL_UNSIGNED || v->kind == KERNEL_VAL_SIGNED ||
		size <= WORD_BYTES);
}

/* false: the type makes no sense */
static bool describe(const struct btf_types *b, u32 id, struct kernel_val *v)
{
	struct type t;
	u32 real;

	*v = (struct kernel_val){ .name = "", .type = "", .btf = b, .btf_id = id, .reg = ON_STACK };
	if (!id)
		return true; /* void */
	v->type = type_name(b, id);
	real = btf_strip(b, id);
	if (!real) { /* a typedef of void, or a chain that does not end */
		v->kind = KERNEL_VAL_VOID;
		return id < b->n_types;
	}
	t = type_get(b, real);
	return set_kind(&t, string_at(b, t.name), v);
}

/* Bytes that @v takes of the registers; 0: it lies on the stack. */
static u32 reg_bytes(const struct btf_types *b, const struct kernel_val *v)
{
	struct type t;

	if (v->kind != KERNEL_VAL_OTHER)
		return v->size;
	t = type_get(b, btf_strip(b, v->btf_id));
	return t.kind != KIND_FLOAT && t.size <= STRUCT_REGS ? t.size : 0;
}

static void allocate(const struct btf_types *b, struct kernel_val *v, u8 *used)
{
	u32 regs = (reg_bytes(b, v) + WORD_BYTES - 1) / WORD_BYTES;

	if (!regs || *used + regs > REGS)
		return;
	v->reg = *used;
	*used = (u8)(*used + regs);
}

static int read_params(const struct btf_types *b, const struct type *proto, struct kernel_func *f)
{
	for (u32 i = 0; i < proto->vlen && f->n_params < KERNEL_FUNC_MAX_PARAMS; i++) {
		const u8 *p = proto->extra + (size_t)i * 8;
		struct kernel_val *v = &f->params[f->n_params];
		u32 type = load_u32(p + 4);

		if (!type && i + 1 == proto->vlen) /* "..." */
			return 0;
		if (!describe(b, type, v) || v->kind == KERNEL_VAL_VOID)
			return -EUCLEAN;
		v->name = string_at(b, load_u32(p));
		allocate(b, v, &f->n_regs);
		f->n_params++;
	}
	return 0;
}

int btf_types_func(const struct btf_types *b, const char *name, struct kernel_func *ret)
{
	u32 id = btf_find_func(b, name), proto;
	struct type t;

	*ret = (struct kernel_func){ 0 };
	if (!id)
		return -ENOENT;
	proto = type_get(b, id).size;
	if (!proto || proto >= b->n_types)
		return -EUCLEAN;
	t = type_get(b, proto);
	if (t.kind != KIND_FUNC_PROTO || !describe(b, t.size, &ret->ret))
		return -EUCLEAN;
	if (ret->ret.kind == KERNEL_VAL_OTHER && !reg_bytes(b, &ret->ret) && ret->ret.size)
		ret->n_regs = 1; /* it is told where to put what it returns */
	return read_params(b, &t, ret);
}

const char *btf_types_enum_name(const struct btf_types *b, u32 id, s64 val)
{
	struct type t;

	id = btf_strip(b, id);
	if (!id)
		return NULL;
	t = type_get(b, id);
	if (t.kind != KIND_ENUM && t.kind != KIND_ENUM64)
		return NULL;
	for (u32 i = 0; i < t.vlen; i++) {
		const char *name;

		if (btf_enum_value(b, &t, i, &name) == val)
			return name;
	}
	return NULL;
}
