// SPDX-License-Identifier: Apache-2.0
/* The types of a kernel that symbols/ needs, written by libbpf: not by the code that reads them. */
#include "test_symbols_fake.h"

#include <bpf/btf.h>
#include <linux/btf.h>
#include <stdlib.h>
#include <string.h>

struct ids {
	int u32_id, u64_id, char_id, ptr, list_head, name;
};

static void field(struct btf *b, const char *name, int type, u32 byte)
{
	if (btf__add_field(b, name, type, byte * 8, 0))
		abort();
}

static void add_ftrace(struct btf *b, const struct ids *t)
{
	btf__add_struct(b, "dyn_ftrace", 16);
	field(b, "ip", t->u64_id, 0);
	field(b, "flags", t->u64_id, 8);
	btf__add_struct(b, "ftrace_page", 24);
	field(b, "next", t->ptr, 0);
	field(b, "records", t->ptr, 8);
	field(b, "index", t->u32_id, 16);
	field(b, "order", t->u32_id, 20);
	btf__add_enum(b, NULL, 4);
	btf__add_enum_value(b, "FTRACE_FL_ENABLED", 1ll << 31);
	btf__add_enum_value(b, "FTRACE_FL_REGS", 1ll << 30);
	btf__add_enum_value(b, "FTRACE_FL_IPMODIFY", 1ll << 27);
	btf__add_enum_value(b, "FTRACE_FL_DISABLED", 1ll << 26);
	btf__add_enum_value(b, "FTRACE_FL_DIRECT", 1ll << 25);
	btf__add_enum_value(b, "FTRACE_FL_TOUCHED", 1ll << 20);
	btf__add_enum64(b, "wide", 8, false);
	btf__add_enum64_value(b, "WIDE_ENUMERATOR", 0x123456789abcdefull);
}

static void add_mem_array(struct btf *b, const struct ids *t)
{
	int memory, array;

	memory = btf__add_struct(b, "module_memory", 16);
	field(b, "base", t->ptr, 0);
	field(b, "size", t->u32_id, 8);
	array = btf__add_array(b, t->u32_id, memory, 7);
	btf__add_enum(b, "mod_mem_type", 4);
	btf__add_enum_value(b, "MOD_TEXT", 0);
	btf__add_enum_value(b, "MOD_INIT_TEXT", 4);
	btf__add_struct(b, "module", 256);
	field(b, "mem", array, 104);
}

static void add_layouts(struct btf *b, const struct ids *t)
{
	int layout;

	layout = btf__add_struct(b, "module_layout", 24);
	field(b, "base", t->ptr, 0);
	field(b, "size", t->u32_id, 8);
	field(b, "text_size", t->u32_id, 12);
	btf__add_struct(b, "module", 256);
	field(b, "core_layout", layout, 104);
	field(b, "init_layout", layout, 128);
}

static void add_module(struct btf *b, const struct ids *t, bool mem_array)
{
	int state, ks;

	state = btf__add_enum(b, "module_state", 4);
	btf__add_enum_value(b, "MODULE_STATE_LIVE", 0);
	btf__add_enum_value(b, "MODULE_STATE_UNFORMED", 3);
	btf__add_struct(b, "kernel_symbol", 12);
	field(b, "value_offset", t->u32_id, 0);
	ks = btf__add_struct(b, "mod_kallsyms", 32);
	field(b, "symtab", t->ptr, 0);
	field(b, "num_symtab", t->u32_id, 8);
	field(b, "strtab", t->ptr, 16);
	field(b, "typetab", t->ptr, 24);
	ks = btf__add_ptr(b, ks);
	if (mem_array)
		add_mem_array(b, t);
	else
		add_layouts(b, t);
	field(b, "state", state, 0);
	field(b, "list", t->list_head, 8);
	field(b, "name", t->name, 24);
	field(b, "syms", t->ptr, 80);
	field(b, "num_syms", t->u32_id, 88);
	field(b, "kallsyms", ks, 96);
}

/* ssize_t fake_read(struct list_head *list, u32 mode, struct list_head by_value, ...); */
static void add_func(struct btf *b, const struct ids *t)
{
	int ssize = btf__add_typedef(b, "ssize_t", btf__add_int(b, "long", 8, BTF_INT_SIGNED));
	int list = btf__add_ptr(b, btf__add_const(b, t->list_head));
	int proto = btf__add_func_proto(b, ssize);

	if (btf__add_func_param(b, "list", list) || btf__add_func_param(b, "mode", t->u32_id) ||
	    btf__add_func_param(b, "by_value", t->list_head) || btf__add_func_param(b, NULL, 0) ||
	    btf__add_func(b, "fake_read", BTF_FUNC_STATIC, proto) < 0)
		abort();
}

u8 *fake_btf(bool mem_array, u32 *bytes_ret)
{
	struct btf *b = btf__new_empty();
	struct ids t;
	const void *raw;
	int bits;
	u8 *copy;

	if (!b)
		abort();
	t.u32_id = btf__add_int(b, "unsigned int", 4, 0);
	t.u64_id = btf__add_int(b, "long unsigned int", 8, 0);
	t.char_id = btf__add_int(b, "char", 1, BTF_INT_CHAR);
	t.ptr = btf__add_ptr(b, 0);
	t.name = btf__add_array(b, t.u32_id, t.char_id, 56);
	t.list_head = btf__add_struct(b, "list_head", 16);
	field(b, "next", t.ptr, 0);
	field(b, "prev", t.ptr, 8);
	add_ftrace(b, &t);
	add_module(b, &t, mem_array);
	bits = btf__add_array(b, t.u32_id, t.u64_id, 2);
	btf__add_struct(b, "cpumask", 16);
	field(b, "bits", bits, 0);
	add_func(b, &t);
	raw = btf__raw_data(b, bytes_ret);
	copy = malloc(*bytes_ret);
	if (!raw || !copy)
		abort();
	memcpy(copy, raw, *bytes_ret);
	btf__free(b);
	return copy;
}
