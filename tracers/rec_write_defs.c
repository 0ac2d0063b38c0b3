// SPDX-License-Identifier: Apache-2.0
/* The recording writer's definitions: names, tasks, stacks, prototypes. See rec_format.h. */
#include "tracers/addr_hash.h"
#include "tracers/comms.h"
#include "tracers/rec_varint.h"
#include "tracers/rec_writer_priv.h"

#include <stdlib.h>
#include <string.h>

/* Where @addr is, or the empty place for it. */
static struct seen *seen_place(const struct rec_writer *w, u64 addr)
{
	size_t h = addr_hash(addr, w->key) & (w->seen_slots - 1);

	while (w->seen[h].id_plus_1 && w->seen[h].addr != addr)
		h = (h + 1) & (w->seen_slots - 1);
	return &w->seen[h];
}

static bool seen_grow(struct rec_writer *w)
{
	struct seen *old = w->seen;
	size_t n = w->seen_slots;
	struct seen *bigger = calloc(2 * n, sizeof(*bigger));

	if (!bigger)
		return false;
	w->seen = bigger;
	w->seen_slots = 2 * n;
	for (size_t i = 0; i < n; i++)
		if (old[i].id_plus_1)
			*seen_place(w, old[i].addr) = old[i];
	free(old);
	return true;
}

static void ask_sym(u64 addr, const struct output_names *names, struct kernel_sym *ret,
		    u64 *off_ret)
{
	*off_ret = 0;
	*ret = (struct kernel_sym){ .name = "", .type = 0 };
	if (!names->sym(names->arg, addr, ret, off_ret))
		*ret = (struct kernel_sym){ .name = "" };
	else if (!ret->type)
		ret->type = '?';
}

/* FNV-1a: tells what is at an address from what was there before. */
static u32 hash_text(u32 h, const char *text)
{
	for (; text && *text; text++)
		h = (h ^ (u8)*text) * 0x01000193;
	return h * 0x01000193;
}

static u32 hash_sym(const struct kernel_sym *sym, u64 off)
{
	return hash_text(hash_text(0x811c9dc5 ^ (u32)off, sym->name), sym->module);
}

static void define_sym(struct rec_writer *w, struct buf *out, u64 addr,
		       const struct kernel_sym *asked, u64 off)
{
	struct kernel_sym sym = *asked;
	u16 name_len = (u16)strnlen(sym.name, REC_NAME_MAX);
	u16 module_len = (u16)(sym.module ? strnlen(sym.module, REC_NAME_MAX) : 0);
	bool is_new;
	u8 *p;

	p = rec_chunk_open(w, out, REC_CHUNK_SYM,
			   8 + 2 * REC_VARINT_MAX + 1 + 2 + name_len + 2 + module_len, &is_new);
	if (!p)
		return;
	memcpy(p, &addr, 8);
	p = put_varint(p + 8, off);
	p = put_varint(p, sym.size_bytes);
	*p++ = (u8)sym.type;
	memcpy(p, &name_len, 2);
	memcpy(p + 2, sym.name, name_len);
	p += 2 + name_len;
	memcpy(p, &module_len, 2);
	if (module_len)
		memcpy(p + 2, sym.module, module_len);
	rec_chunk_grow(w, out, p + 2 + module_len);
}

/* Is there room for one more definition, as a reader keeps it? */
static bool take_room(struct rec_writer *w, size_t bytes)
{
	if (w->n_ids >= OUTPUT_ADDRS_MAX || w->kept + bytes > OUTPUT_NAMES_MAX)
		return false;
	w->kept += bytes;
	return true;
}

static size_t sym_bytes(const struct kernel_sym *sym)
{
	return REC_KEPT_DEF + strnlen(sym->name, REC_NAME_MAX) + 1 +
	       (sym->module ? strnlen(sym->module, REC_NAME_MAX) + 1 : 0);
}

/* The number of what there is no room for. */
static u32 shared_id(struct rec_writer *w, struct buf *out)
{
	const struct kernel_sym sym = { .name = OUTPUT_SHARED_NAME, .type = '?' };

	if (!w->shared_plus_1) {
		define_sym(w, out, OUTPUT_SHARED_ADDR, &sym, 0);
		w->shared_plus_1 = ++w->n_ids;
	}
	w->n_shared++;
	return w->shared_plus_1 - 1;
}

/* The number of @addr, defined if need be: once more when something else is there now. */
u32 rec_sym_id(struct rec_writer *w, struct buf *out, u64 addr, const struct output_names *names)
{
	struct seen *s = seen_place(w, addr);
	u32 when = names_when(names), hash;
	struct kernel_sym sym;
	u64 off;

	if (s->id_plus_1 && s->when == when)
		return s->id_plus_1 - 1;
	if (w->shared_plus_1 && !s->id_plus_1)
		return shared_id(w, out);
	ask_sym(addr, names, &sym, &off);
	hash = hash_sym(&sym, off);
	if (s->id_plus_1 && s->hash == hash) {
		s->when = when;
		return s->id_plus_1 - 1;
	}
	if (w->shared_plus_1 || !take_room(w, sym_bytes(&sym)))
		return shared_id(w, out);
	if (!s->id_plus_1 && w->n_seen >= w->seen_slots / 2) {
		if (!seen_grow(w)) {
			out->failed = true;
			return 0;
		}
		s = seen_place(w, addr);
	}
	w->n_seen += !s->id_plus_1;
	*s = (struct seen){ .addr = addr, .id_plus_1 = ++w->n_ids, .when = when, .hash = hash };
	define_sym(w, out, addr, &sym, off);
	return s->id_plus_1 - 1;
}

static bool same_task(const struct task *a, const struct task *b)
{
	return a->pid == b->pid && a->tgid == b->tgid && a->used && a->comm[0] == b->comm[0] &&
	       a->comm[1] == b->comm[1];
}

static void define_task(struct rec_writer *w, struct buf *out, u32 slot)
{
	const struct task *t = &w->tasks[slot];
	u8 len = (u8)strnlen((const char *)t->comm, TRACE_COMM_LEN), *p;
	bool is_new;

	p = rec_chunk_open(w, out, REC_CHUNK_TASK, 3 * REC_VARINT_MAX + 1 + len, &is_new);
	if (!p)
		return;
	p = put_varint(p, slot);
	p = put_varint(p, t->pid);
	p = put_varint(p, t->tgid);
	*p++ = len;
	memcpy(p, t->comm, len);
	rec_chunk_grow(w, out, p + len);
}

/* The slot of @r's task, defined if need be: four candidates by hash, the victim goes round. */
u32 rec_task_slot(struct rec_writer *w, struct buf *out, const struct trace_record *r)
{
	struct task key = { .pid = r->pid, .tgid = r->tgid, .used = true };
	u32 base, slot;

	comms_words(r->comm, key.comm);
	if (same_task(&w->tasks[w->last_task], &key))
		return w->last_task;
	base = (u32)(((key.comm[0] ^ key.comm[1] ^ key.pid) * 0x9e3779b97f4a7c15) >> 40) %
	       (REC_TASK_SLOTS / TASK_WAYS) * TASK_WAYS;
	for (slot = base; slot < base + TASK_WAYS; slot++) {
		if (same_task(&w->tasks[slot], &key))
			return w->last_task = slot;
	}
	for (slot = base; slot < base + TASK_WAYS && w->tasks[slot].used; slot++)
		;
	if (slot == base + TASK_WAYS)
		slot = base + w->victim++ % TASK_WAYS;
	w->tasks[slot] = key;
	define_task(w, out, slot);
	return w->last_task = slot;
}

static u8 *put_name(u8 *p, const char *name)
{
	u16 len = (u16)strnlen(name, REC_VAL_NAME);

	memcpy(p, &len, 2);
	memcpy(p + 2, name, len);
	return p + 2 + len;
}

static u8 *put_val(u8 *p, const struct kernel_val *v)
{
	*p++ = (u8)v->kind;
	*p++ = v->size;
	*p++ = v->reg;
	return put_name(put_name(p, v->name), v->type);
}

#define VAL_MAX (3 + 2 * (2 + REC_VAL_NAME))

static size_t proto_bytes(const struct kernel_func *f)
{
	size_t sum = REC_KEPT_DEF + sizeof(f->ret) + strnlen(f->ret.type, REC_VAL_NAME) + 1;

	for (u32 i = 0; i < f->n_params; i++)
		sum += sizeof(f->ret) + strnlen(f->params[i].name, REC_VAL_NAME) +
		       strnlen(f->params[i].type, REC_VAL_NAME) + 2;
	return sum;
}

/* The name of @val, of what @which says, if it has one and is not in the file. */
static void define_enum(struct rec_writer *w, struct buf *out, u64 which,
			const struct kernel_val *v, u64 word, const struct output_names *names)
{
	u32 spare = v->size && v->size < 8 ? 64 - 8u * v->size : 0;
	s64 val = (s64)(word << spare) >> spare;
	struct seen_enum *e = &w->enums[((which ^ (u64)val << 20) * 0x9e3779b97f4a7c15) >> 52];
	const char *name;
	u8 *p;
	bool is_new;

	_Static_assert(ENUM_SLOTS == 1 << (64 - 52), "the hash");
	if (e->which == which && e->val == val)
		return;
	*e = (struct seen_enum){ which, val };
	name = names->enumerator(names->arg, v, val);
	if (!name || w->kept_enums > ENUMS_MAX)
		return;
	p = rec_chunk_open(w, out, REC_CHUNK_ENUM, 2 * REC_VARINT_MAX + 1 + 2 + REC_VAL_NAME,
			   &is_new);
	if (!p)
		return;
	p = put_varint(p, (which >> 8) - 1);
	*p++ = (u8)which;
	p = put_name(put_varint(p, zigzag(val)), name);
	w->kept_enums += REC_KEPT_DEF + REC_VAL_NAME;
	rec_chunk_grow(w, out, p);
}

/* The names of @r's values, where its function's prototype has enums. */
void rec_define_enums(struct rec_writer *w, struct buf *out, u32 id, const struct trace_record *r,
		      const struct output_names *names)
{
	const struct seen *s = seen_place(w, r->ip);
	u64 which = (id + 1ull) << 8;
	struct kernel_func f;

	if (s->id_plus_1 != id + 1 || !s->enums || !names->enumerator ||
	    !names->func(names->arg, r->ip, &f))
		return;
	if (!w->enums)
		w->enums = calloc(ENUM_SLOTS, sizeof(*w->enums));
	if (!w->enums)
		return;
	if (r->type == TRACE_GRAPH_RETURN) {
		if (f.ret.kind == KERNEL_VAL_ENUM)
			define_enum(w, out, which | UINT8_MAX, &f.ret, r->retval, names);
		return;
	}
	for (u32 i = 0; i < f.n_params; i++) {
		if (f.params[i].kind == KERNEL_VAL_ENUM && f.params[i].reg < r->n_args)
			define_enum(w, out, which | i, &f.params[i], r->args[f.params[i].reg],
				    names);
	}
}

/* The prototype of the function that is symbol @id, if there is one and it is not defined yet. */
void rec_define_proto(struct rec_writer *w, struct buf *out, u32 id, u64 ip,
		      const struct output_names *names)
{
	struct seen *s = seen_place(w, ip);
	struct kernel_func f;
	u8 *p;
	bool is_new;

	if (s->id_plus_1 != id + 1 || s->proto || !names->func)
		return;
	s->proto = true;
	if (!names->func(names->arg, ip, &f) || !take_room(w, proto_bytes(&f)))
		return;
	p = rec_chunk_open(w, out, REC_CHUNK_PROTO,
			   REC_VARINT_MAX + 2 + (1 + (size_t)f.n_params) * VAL_MAX, &is_new);
	if (!p)
		return;
	s->enums = f.ret.kind == KERNEL_VAL_ENUM;
	for (u32 i = 0; i < f.n_params; i++)
		s->enums |= f.params[i].kind == KERNEL_VAL_ENUM;
	f.ret.name = "";
	p = put_varint(p, id);
	*p++ = f.n_regs;
	*p++ = f.n_params;
	p = put_val(p, &f.ret);
	for (u32 i = 0; i < f.n_params; i++)
		p = put_val(p, &f.params[i]);
	rec_chunk_grow(w, out, p);
}

static bool stacks_grow(struct rec_writer *w)
{
	size_t slots = w->stack_slots ? w->stack_slots * 2 : SEEN_MIN;
	struct seen_stack *bigger = calloc(slots, sizeof(*bigger));

	if (!bigger)
		return false;
	for (size_t i = 0; i < w->stack_slots; i++) {
		size_t h = ((uintptr_t)w->stacks[i].stack * 0x9e3779b97f4a7c15) >> 32;

		if (!w->stacks[i].stack)
			continue;
		while (bigger[h & (slots - 1)].stack)
			h++;
		bigger[h & (slots - 1)] = w->stacks[i];
	}
	free(w->stacks);
	w->stacks = bigger;
	w->stack_slots = slots;
	return true;
}

static void define_stack(struct rec_writer *w, struct buf *out, const struct trace_stack *s,
			 const struct output_names *names)
{
	u8 n = (u8)MIN(s->n, (u32)UINT8_MAX), *p;
	u32 sym[UINT8_MAX];
	bool is_new;

	for (u32 i = 0; i < n; i++)
		sym[i] = rec_sym_id(w, out, trace_stack_addr(s, i) - 1, names);
	p = rec_chunk_open(w, out, REC_CHUNK_STACK, 1 + (size_t)n * REC_VARINT_MAX, &is_new);
	if (!p)
		return;
	*p++ = n;
	for (u32 i = 0; i < n; i++)
		p = put_varint(p, sym[i]);
	rec_chunk_grow(w, out, p);
}

/* The number of @s, defined if need be. */
u32 rec_stack_id(struct rec_writer *w, struct buf *out, const struct trace_stack *s,
		 const struct output_names *names)
{
	size_t h = ((uintptr_t)s * 0x9e3779b97f4a7c15) >> 32, mask;

	if (w->n_stacks >= w->stack_slots / 2 && !stacks_grow(w)) {
		out->failed = true;
		return 0;
	}
	mask = w->stack_slots - 1;
	while (w->stacks[h & mask].stack && w->stacks[h & mask].stack != s)
		h++;
	if (!w->stacks[h & mask].stack) {
		w->stacks[h & mask] = (struct seen_stack){ s, (u32)w->n_stacks++ };
		define_stack(w, out, s, names);
	}
	return w->stacks[h & mask].id;
}
