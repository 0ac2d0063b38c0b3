// SPDX-License-Identifier: Apache-2.0
/* Definitions in a recording: names, tasks, prototypes. Hostile input, as in rec_reader.c. */
#include "tracers/addr_hash.h"
#include "tracers/rec_priv.h"
#include "tracers/rec_varint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK (64u << 10)
#define ON_STACK    0xff
#define WHICH_SYMS  (1u << 24) /* symbols whose enums have names: struct rec_enum */

struct arena_block {
	struct arena_block *next;
	_Alignas(16) char bytes[];
};

/* @len bytes, less than a block, at a multiple of @align; NULL: no memory */
static void *arena_get(struct rec_reader *r, size_t len, size_t align)
{
	struct arena_block *b = r->arena;
	char *p;

	r->arena_left -= r->arena_left % align; /* a block's end is aligned */
	if (!b || r->arena_left < len) {
		b = malloc(sizeof(*b) + ARENA_BLOCK); /* > REC_NAME_MAX, > any prototype */
		if (!b)
			return NULL;
		r->kept += ARENA_BLOCK;
		b->next = r->arena;
		r->arena = b;
		r->arena_left = ARENA_BLOCK;
	}
	p = b->bytes + ARENA_BLOCK - r->arena_left;
	r->arena_left -= len;
	return p;
}

static char *arena_string(struct rec_reader *r, const void *s, size_t len)
{
	char *p = arena_get(r, len + 1, 1);

	if (!p)
		return NULL;
	memcpy(p, s, len);
	p[len] = 0;
	return p;
}

static size_t addr_home(const struct rec_reader *r, u64 addr)
{
	return addr_hash(addr, r->key) & (r->by_addr_slots - 1);
}

void rec_use_sym(struct rec_reader *r, u32 i)
{
	size_t h = addr_home(r, r->syms[i].addr);

	while (r->by_addr[h] && r->syms[r->by_addr[h] - 1].addr != r->syms[i].addr)
		h = (h + 1) & (r->by_addr_slots - 1);
	if (r->by_addr[h] == i + 1)
		return;
	if (r->by_addr[h]) {
		r->redefined = true;
		r->when++;
	}
	r->by_addr[h] = i + 1;
}

static int grow_syms(struct rec_reader *r)
{
	size_t cap = r->syms_cap ? r->syms_cap * 2 : 1024;
	struct rec_sym *syms = reallocarray(r->syms, cap, sizeof(*syms));
	u32 *by_addr;

	if (!syms)
		return -ENOMEM;
	r->syms = syms;
	by_addr = calloc(cap * 2, sizeof(*by_addr));
	if (!by_addr)
		return -ENOMEM;
	free(r->by_addr);
	r->by_addr = by_addr;
	r->by_addr_slots = cap * 2;
	r->syms_cap = cap;
	for (size_t i = 0; i < r->n_syms; i++)
		rec_use_sym(r, (u32)i);
	return 0;
}

/* A string with a 16-bit length; a NUL inside would hide the rest, so there is none. */
static int get_name(struct rec_reader *r, const char **ret)
{
	const u8 *s;
	u16 len;

	if (!cursor_u16(&r->cur, &len) || len > REC_NAME_MAX)
		return -EBADMSG;
	s = r->cur.data + r->cur.pos;
	if (!cursor_skip(&r->cur, len) || memchr(s, 0, len))
		return -EBADMSG;
	*ret = NULL;
	if (len) {
		*ret = arena_string(r, s, len);
		if (!*ret)
			return -ENOMEM;
	}
	return 0;
}

int rec_read_sym(struct rec_reader *r)
{
	struct rec_sym sym = { .proto = NULL };
	int rc;

	if (!cursor_u64(&r->cur, &sym.addr) || !get_varint(&r->cur, &sym.off) ||
	    !get_varint(&r->cur, &sym.size_bytes) || !cursor_u8(&r->cur, (u8 *)&sym.type))
		return -EBADMSG;
	rc = get_name(r, &sym.name);
	if (!rc)
		rc = get_name(r, &sym.module);
	if (rc)
		return rc;
	if (!sym.type != !sym.name || (sym.module && !sym.name) || r->n_syms >= WHICH_SYMS)
		return -EBADMSG;
	if (r->n_syms == r->syms_cap) {
		rc = grow_syms(r);
		if (rc)
			return rc;
	}
	r->syms[r->n_syms++] = sym;
	rec_use_sym(r, (u32)r->n_syms - 1);
	return 0;
}

int rec_read_task(struct rec_reader *r)
{
	u64 slot, pid, tgid;
	struct rec_task *t;
	u8 len;

	if (!get_varint_max(&r->cur, REC_TASK_SLOTS - 1, &slot) ||
	    !get_varint_max(&r->cur, UINT32_MAX, &pid) ||
	    !get_varint_max(&r->cur, UINT32_MAX, &tgid) || !cursor_u8(&r->cur, &len) ||
	    len > TRACE_COMM_LEN)
		return -EBADMSG;
	t = &r->tasks[slot];
	*t = (struct rec_task){ .pid = (u32)pid, .tgid = (u32)tgid };
	return cursor_bytes(&r->cur, t->comm, len) ? 0 : -EBADMSG;
}

/* As get_name(), "" for an empty one. */
static int get_val_name(struct rec_reader *r, const char **ret)
{
	int rc = get_name(r, ret);

	if (!rc && !*ret)
		*ret = "";
	return rc;
}

static int get_val(struct rec_reader *r, u64 sym, u8 which, struct kernel_val *v)
{
	u8 kind;
	int rc;

	*v = (struct kernel_val){ .name = "",
				  .btf_id = sym < WHICH_SYMS ? (u32)sym << 8 | which : UINT32_MAX };
	if (!cursor_u8(&r->cur, &kind) || !cursor_u8(&r->cur, &v->size) ||
	    !cursor_u8(&r->cur, &v->reg) || kind > KERNEL_VAL_OTHER ||
	    (v->reg >= TRACE_MAX_ARGS && v->reg != ON_STACK))
		return -EBADMSG;
	v->kind = kind;
	rc = get_val_name(r, &v->name);
	return rc ? rc : get_val_name(r, &v->type);
}

int rec_read_proto(struct rec_reader *r)
{
	struct rec_proto *p;
	u8 n_regs, n_params;
	u64 sym;
	int rc;

	if (r->version < REC_VERSION_3 || !get_varint(&r->cur, &sym) || sym >= r->n_syms ||
	    !cursor_u8(&r->cur, &n_regs) || !cursor_u8(&r->cur, &n_params) ||
	    n_regs > TRACE_MAX_ARGS || n_params > KERNEL_FUNC_MAX_PARAMS)
		return -EBADMSG;
	p = arena_get(r, sizeof(*p) + n_params * sizeof(p->params[0]), sizeof(void *));
	if (!p)
		return -ENOMEM;
	p->n_regs = n_regs;
	p->n_params = n_params;
	rc = get_val(r, sym, UINT8_MAX, &p->ret);
	for (u32 i = 0; i < n_params && !rc; i++)
		rc = get_val(r, sym, (u8)i, &p->params[i]);
	if (!rc)
		r->syms[sym].proto = p;
	return rc;
}

/* Where (@which, @val) is, or the empty place for it. */
static struct rec_enum *enum_place(const struct rec_reader *r, u32 which, s64 val)
{
	struct rec_enum *enums = r->enums;
	size_t h = addr_hash((u64)val, r->key ^ addr_hash(which, r->key)), slots = r->enum_slots;

	while (enums[h & (slots - 1)].name &&
	       (enums[h & (slots - 1)].which != which || enums[h & (slots - 1)].val != val))
		h++;
	return &enums[h & (slots - 1)];
}

static int grow_enums(struct rec_reader *r)
{
	size_t old_slots = r->enum_slots, slots = old_slots ? old_slots * 2 : 256;
	struct rec_enum *enums = calloc(slots, sizeof(*enums)), *old = r->enums;

	if (!enums)
		return -ENOMEM;
	r->enums = enums;
	r->enum_slots = slots;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].name)
			*enum_place(r, old[i].which, old[i].val) = old[i];
	free(old);
	return 0;
}

int rec_read_enum(struct rec_reader *r)
{
	struct rec_enum new, *e;
	u64 sym, val;
	u8 n;
	int rc;

	if (!get_varint(&r->cur, &sym) || sym >= MIN(r->n_syms, (size_t)WHICH_SYMS) ||
	    !cursor_u8(&r->cur, &n) || !get_varint(&r->cur, &val))
		return -EBADMSG;
	new = (struct rec_enum){ (u32)sym << 8 | n, (s64)((val >> 1) ^ (0 - (val & 1))), NULL };
	rc = get_name(r, &new.name);
	if (rc || !new.name)
		return rc ? rc : -EBADMSG;
	if (2 * r->n_enums >= r->enum_slots) {
		rc = grow_enums(r);
		if (rc)
			return rc;
	}
	e = enum_place(r, new.which, new.val);
	r->n_enums += !e->name;
	*e = new;
	return 0;
}

static const char *reader_enumerator(void *arg, const struct kernel_val *v, s64 val)
{
	const struct rec_reader *r = arg;

	return r->enum_slots ? enum_place(r, v->btf_id, val)->name : NULL;
}

int rec_read_stack(struct rec_reader *r)
{
	size_t cap = r->stacks_cap ? r->stacks_cap * 2 : 256;
	struct trace_stack *s, **more;
	u64 sym;
	u8 n;

	if (r->version < REC_VERSION || !cursor_u8(&r->cur, &n) || !n)
		return -EBADMSG;
	s = arena_get(r, sizeof(*s) + n * sizeof(s->low[0]), sizeof(u32));
	if (!s)
		return -ENOMEM;
	s->n = n;
	for (u32 i = 0; i < n; i++) {
		if (!get_varint(&r->cur, &sym) || sym >= r->n_syms)
			return -EBADMSG;
		s->low[i] = (u32)r->syms[sym].addr + 1;
	}
	if (r->n_stacks == r->stacks_cap) {
		more = reallocarray(r->stacks, cap, sizeof(struct trace_stack *));
		if (!more)
			return -ENOMEM;
		r->stacks = more;
		r->stacks_cap = cap;
	}
	r->stacks[r->n_stacks++] = s;
	return 0;
}

static const struct rec_sym *find_sym(const struct rec_reader *r, u64 addr)
{
	if (!r->n_syms)
		return NULL;
	for (size_t h = addr_home(r, addr); r->by_addr[h]; h = (h + 1) & (r->by_addr_slots - 1)) {
		if (r->syms[r->by_addr[h] - 1].addr == addr)
			return &r->syms[r->by_addr[h] - 1];
	}
	return NULL;
}

static bool reader_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct rec_sym *s = find_sym(arg, addr);

	if (!s || !s->name)
		return false;
	*ret = (struct kernel_sym){ s->name, s->module, addr - s->off, s->size_bytes, s->type };
	*off_ret = s->off;
	return true;
}

static bool reader_func(void *arg, u64 ip, struct kernel_func *ret)
{
	const struct rec_sym *s = find_sym(arg, ip);
	const struct rec_proto *p = s ? s->proto : NULL;

	if (!p)
		return false;
	*ret = (struct kernel_func){ .ret = p->ret, .n_params = p->n_params, .n_regs = p->n_regs };
	memcpy(ret->params, p->params, p->n_params * sizeof(p->params[0]));
	return true;
}

struct output_names rec_reader_names(struct rec_reader *r)
{
	return (struct output_names){ reader_sym, r, reader_func, reader_enumerator, &r->when };
}

void rec_defs_deinit(struct rec_reader *r)
{
	while (r->arena) {
		struct arena_block *b = r->arena;

		r->arena = b->next;
		free(b);
	}
	free(r->by_addr);
	free(r->syms);
	free(r->stacks);
	free(r->enums);
	free(r->tasks);
}
