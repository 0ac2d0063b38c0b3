// SPDX-License-Identifier: Apache-2.0
/* Symbols and tasks. See tables.h. */
#include "tracers/formats/tables.h"

#include "tracers/addr_hash.h"
#include "tracers/out_layout.h"
#include "tracers/out_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK   (64u << 10)
#define SLOTS_MIN     1024u
#define TASK_BUCKETS  16384u
#define TASKS_A_CHUNK 1024u

struct arena {
	struct arena *next;
	char bytes[ARENA_BLOCK];
};

struct syms {
	struct exp_sym *sym; /* [0] is not used */
	u32 n, cap;
	u32 *slot; /* open addressing; a number, 0: empty */
	u32 n_slots;
	struct arena *arena;
	size_t arena_left, arena_bytes;
	u64 key; /* addr_hash()'s */
	u32 shared; /* the number of all addresses that there is no room for; 0: there was room */
};

/* @len is at most 6 * TEXT_NAME_MAX. */
static char *arena_copy(struct syms *s, const char *text, size_t len)
{
	struct arena *a = s->arena;
	char *p;

	if (!a || s->arena_left < len + 1) {
		a = malloc(sizeof(*a));
		if (!a)
			return NULL;
		a->next = s->arena;
		s->arena = a;
		s->arena_left = ARENA_BLOCK;
		s->arena_bytes += ARENA_BLOCK;
	}
	p = a->bytes + ARENA_BLOCK - s->arena_left;
	s->arena_left -= len + 1;
	memcpy(p, text, len);
	p[len] = 0;
	return p;
}

struct syms *syms_create(void)
{
	struct syms *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->key = addr_hash_key();
	s->cap = SLOTS_MIN;
	s->n_slots = 2 * SLOTS_MIN;
	s->sym = calloc(s->cap, sizeof(*s->sym));
	s->slot = calloc(s->n_slots, sizeof(*s->slot));
	if (s->sym && s->slot)
		return s;
	syms_destroy(s);
	return NULL;
}

void syms_destroy(struct syms *s)
{
	if (!s)
		return;
	while (s->arena) {
		struct arena *a = s->arena;

		s->arena = a->next;
		free(a);
	}
	free(s->sym);
	free(s->slot);
	free(s);
}

static bool syms_grow(struct syms *s)
{
	u32 cap = s->cap * 2, n_slots = cap * 2, *slot;
	struct exp_sym *sym;

	sym = reallocarray(s->sym, cap, sizeof(*sym));
	if (!sym)
		return false;
	s->sym = sym;
	slot = calloc(n_slots, sizeof(*slot));
	if (!slot)
		return false;
	for (u32 i = 1; i <= s->n; i++) {
		u32 h = addr_hash(sym[i].addr, s->key) & (n_slots - 1);

		while (slot[h] && sym[slot[h]].addr != sym[i].addr) /* the latest counts */
			h = (h + 1) & (n_slots - 1);
		slot[h] = i;
	}
	free(s->slot);
	s->slot = slot;
	s->n_slots = n_slots;
	s->cap = cap;
	return true;
}

static u32 find_slot(const struct syms *s, u64 addr)
{
	u32 h = addr_hash(addr, s->key) & (s->n_slots - 1);

	while (s->slot[h] && s->sym[s->slot[h]].addr != addr)
		h = (h + 1) & (s->n_slots - 1);
	return h;
}

/* A symbol that no address leads to yet; 0: no memory */
static u32 new_sym(struct syms *s, u64 addr, const char *name, const char *module)
{
	char text[TEXT_NAME_MAX + 1], json[6 * TEXT_NAME_MAX + 1], addr_text[20];
	struct exp_sym *e;

	if (s->n + 2 > s->cap && !syms_grow(s))
		return 0;
	if (!name) {
		snprintf(addr_text, sizeof(addr_text), "0x%llx", (unsigned long long)addr);
		name = addr_text;
	}
	e = &s->sym[s->n + 1];
	*e = (struct exp_sym){ .addr = addr, .start = addr };
	e->name_len = (u32)(fmt_printable(text, name, strnlen(name, TEXT_NAME_MAX)) - text);
	e->json_len = (u32)(fmt_json_escaped(json, text, e->name_len) - json);
	e->name = arena_copy(s, text, e->name_len);
	e->json = arena_copy(s, json, e->json_len);
	if (module) {
		size_t len = (size_t)(fmt_printable(text, module, strnlen(module, TEXT_NAME_MAX)) -
				      text);

		e->module = arena_copy(s, text, len);
	}
	if (!e->name || !e->json || (module && !e->module))
		return 0;
	return ++s->n;
}

/* Has an address been refused? Then all that are new are. */
static bool is_full(const struct syms *s)
{
	return s->shared || s->n >= OUTPUT_ADDRS_MAX || s->arena_bytes >= OUTPUT_NAMES_MAX;
}

static u32 shared_sym(struct syms *s)
{
	if (!s->shared)
		s->shared = new_sym(s, OUTPUT_SHARED_ADDR, OUTPUT_SHARED_NAME, NULL);
	return s->shared;
}

/* The number of a new symbol, with its place; of the shared one when there are too many; 0: no memory */
static u32 add_sym(struct syms *s, u64 addr, const struct kernel_sym *sym, u64 off)
{
	struct exp_sym *e;
	u32 id;

	if (is_full(s))
		return shared_sym(s);
	id = new_sym(s, addr, sym->name, sym->name ? sym->module : NULL);
	if (!id)
		return 0;
	s->slot[find_slot(s, addr)] = id;
	if (!sym->name)
		return id;
	e = &s->sym[id];
	e->start = addr - off;
	e->size_bytes = sym->size_bytes;
	e->type = sym->type ? sym->type : '?';
	return id;
}

static bool is_text(const char *have, const char *name)
{
	char text[TEXT_NAME_MAX + 1];
	size_t len;

	if (!have || !name)
		return !have && !name;
	len = (size_t)(fmt_printable(text, name, strnlen(name, TEXT_NAME_MAX)) - text);
	return strlen(have) == len && memcmp(have, text, len) == 0;
}

static bool is_same(const struct exp_sym *e, const struct kernel_sym *sym, u64 off)
{
	if (!sym->name)
		return !e->type;
	return e->type && e->start == e->addr - off && is_text(e->name, sym->name) &&
	       is_text(e->module, sym->module);
}

u32 syms_get(struct syms *s, u64 addr, const struct output_names *names)
{
	struct kernel_sym sym = { .name = NULL };
	u32 id = s->slot[find_slot(s, addr)], when = names_when(names);
	u64 off = 0;

	if (id && s->sym[id].when == when)
		return id;
	if (!id && is_full(s))
		return shared_sym(s);
	if (!names->sym(names->arg, addr, &sym, &off))
		sym.name = NULL;
	if (!id || !is_same(&s->sym[id], &sym, off))
		id = add_sym(s, addr, &sym, off);
	if (id != s->shared) /* whose own is never asked for */
		s->sym[id].when = when;
	return id;
}

u32 syms_named(struct syms *s, u64 addr, const char *name)
{
	const struct kernel_sym sym = { .name = name, .type = 't' };
	u32 id = s->slot[find_slot(s, addr)];

	return id ? id : add_sym(s, addr, &sym, 0);
}

u32 syms_start(struct syms *s, u32 id)
{
	const struct exp_sym of = s->sym[id];
	const struct kernel_sym sym = {
		.name = of.name, .module = of.module, .size_bytes = of.size_bytes, .type = of.type
	};
	u32 start = s->slot[find_slot(s, of.start)];

	return start ? start : add_sym(s, of.start, &sym, 0);
}

bool syms_is_latest(const struct syms *s, u32 id)
{
	return id == s->shared || s->slot[find_slot(s, s->sym[id].addr)] == id;
}

bool syms_is_shared(const struct syms *s, u32 id)
{
	return id && id == s->shared;
}

u32 syms_count(const struct syms *s)
{
	return s->n;
}

const struct exp_sym *syms_at(const struct syms *s, u32 id)
{
	static const struct exp_sym none = {
		.name = "?", .json = "?", .name_len = 1, .json_len = 1
	};

	return id ? &s->sym[id] : &none;
}

struct tasks {
	u32 bucket[TASK_BUCKETS]; /* 1 + number; 0: empty */
	struct task *chunk[TASKS_MAX / TASKS_A_CHUNK];
	u64 key; /* addr_hash()'s */
	u32 n;
};

struct tasks *tasks_create(void)
{
	struct tasks *t = calloc(1, sizeof(*t));

	if (t)
		t->key = addr_hash_key();
	return t;
}

void tasks_destroy(struct tasks *t)
{
	if (!t)
		return;
	for (u32 i = 0; i < t->n; i++) {
		struct task *k = tasks_at(t, i);

		while (k->n_frames)
			free(k->frames[--k->n_frames].args);
		free(k->frames);
		spool_stream_deinit(&k->stream);
	}
	for (u32 i = 0; i < ARRAY_SIZE(t->chunk); i++)
		free(t->chunk[i]);
	free(t);
}

struct task *tasks_at(const struct tasks *t, u32 number)
{
	return &t->chunk[number / TASKS_A_CHUNK][number % TASKS_A_CHUNK];
}

u32 tasks_count(const struct tasks *t)
{
	return t->n;
}

static struct task *find_task(const struct tasks *t, u64 key)
{
	for (u32 i = t->bucket[addr_hash(key, t->key) % TASK_BUCKETS]; i;) {
		struct task *k = tasks_at(t, i - 1);

		if (k->key == key)
			return k;
		i = k->next;
	}
	return NULL;
}

struct task *tasks_find(struct tasks *t, u32 pid)
{
	return find_task(t, pid);
}

static struct task *new_task(struct tasks *t, u64 key)
{
	u32 *bucket = &t->bucket[addr_hash(key, t->key) % TASK_BUCKETS];
	struct task **chunk, *k;

	if (t->n == TASKS_MAX)
		return NULL;
	chunk = &t->chunk[t->n / TASKS_A_CHUNK];
	if (!*chunk)
		*chunk = calloc(TASKS_A_CHUNK, sizeof(**chunk));
	if (!*chunk)
		return NULL;
	k = *chunk + t->n % TASKS_A_CHUNK;
	k->key = key;
	k->number = t->n++;
	k->next = *bucket;
	*bucket = t->n;
	return k;
}

struct task *tasks_get(struct tasks *t, const struct trace_record *r, unsigned *news_ret)
{
	u64 key = r->pid ? r->pid : 1ull << 32 | r->cpu;
	struct task *k = find_task(t, key);
	bool known = strcmp(r->comm, "<...>") != 0;

	*news_ret = 0;
	if (!k) {
		k = new_task(t, key);
		if (!k)
			return NULL;
		k->pid = r->pid;
		*news_ret = TASK_NEW;
	} else if ((!known || !strncmp(k->comm, r->comm, TRACE_COMM_LEN)) &&
		   (k->tgid == r->tgid || !r->tgid)) {
		return k;
	} else {
		*news_ret = TASK_RENAMED;
	}
	if (known || !k->comm[0])
		memcpy(k->comm, r->comm, sizeof(k->comm));
	k->comm[TRACE_COMM_LEN] = 0;
	if (r->tgid)
		k->tgid = r->tgid;
	return k;
}
