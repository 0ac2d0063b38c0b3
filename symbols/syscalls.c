// SPDX-License-Identifier: Apache-2.0
/* System calls of a guest: symbols first, then numbers by the table, then arguments by metadata. */
#include "symbols/syscalls.h"

#include "base/cleanup.h"
#include "symbols/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define HANDLERS_MAX  4096u
#define NAME_LEN      128u /* longest name and type of an argument; longer ones are cut */
#define HANDLER_BYTES 4096u /* a call site is no further from its handler's start */
#define META_PREFIX   "__syscall_meta__"

struct chunk {
	struct chunk *next;
	size_t used;
	char data[16384];
};

struct syscall_table {
	struct syscall_entry *entries; /* by address */
	u64 *sizes; /* of the handlers */
	u32 n;
	unsigned int missing;
	u16 by_nr[SYSCALL_ABIS][SYSCALL_NR_MAX]; /* index + 1 */
	struct chunk *strings;
	atomic_int more_users; /* beside the first */
};

/* struct syscall_metadata, as BTF has it. */
struct meta_layout {
	u32 nb_args, types, args;
};

/* A copy that lives as long as @t; at most NAME_LEN bytes of @s. NULL: no memory. */
static const char *keep(struct syscall_table *t, const char *s)
{
	size_t n = strnlen(s, NAME_LEN);
	struct chunk *c = t->strings;
	char *p;

	if (!c || sizeof(c->data) - c->used < n + 1) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return NULL;
		c->next = t->strings;
		t->strings = c;
	}
	p = c->data + c->used;
	memcpy(p, s, n);
	p[n] = 0;
	c->used += n + 1;
	return p;
}

static bool is_handler(const struct kernel_sym *s)
{
	return !s->module && strchr("tTwW", s->type) && syscall_handler_name(s->name, NULL);
}

/*
 * COND_SYSCALL() makes weak handlers that return -ENOSYS, and nothing else in the kernel makes weak
 * ones: a call that was built has a strong symbol.
 */
static int entry_init(struct syscall_table *t, const struct kernel_sym *s)
{
	struct syscall_entry *e = &t->entries[t->n];
	enum syscall_abi abi = SYSCALL_ABI_64;
	const char *name = syscall_handler_name(s->name, &abi);

	*e = (struct syscall_entry){ .addr = s->addr, .nr = -1, .abi = (u8)abi };
	e->kernel_name = keep(t, name);
	e->missing = s->type == 'w' || s->type == 'W' || !strcmp(name, "ni_syscall");
	if (!e->kernel_name)
		return -ENOMEM;
	e->name = syscall_user_name(e->kernel_name);
	t->sizes[t->n++] = s->size_bytes;
	return 0;
}

/* Calls without arguments have one function under the names of all ABIs. */
static void shared_mark(struct syscall_table *t)
{
	for (u32 i = 1; i < t->n; i++)
		if (t->entries[i - 1].addr == t->entries[i].addr &&
		    t->entries[i - 1].abi != t->entries[i].abi)
			t->entries[i - 1].shared = t->entries[i].shared = true;
}

/* Symbols come by address. */
static int handlers_find(struct syscall_table *t, const struct kernel *k)
{
	size_t n = kernel_sym_count(k), n_handlers = 0;
	struct kernel_sym s;

	for (size_t i = 0; i < n; i++) {
		kernel_sym_get(k, i, &s);
		n_handlers += is_handler(&s);
	}
	n_handlers = MIN(n_handlers, (size_t)HANDLERS_MAX);
	t->entries = calloc(n_handlers + 1, sizeof(*t->entries));
	t->sizes = calloc(n_handlers + 1, sizeof(*t->sizes));
	if (!t->entries || !t->sizes)
		return -ENOMEM;
	for (size_t i = 0; i < n && t->n < n_handlers; i++) {
		kernel_sym_get(k, i, &s);
		if (is_handler(&s) && entry_init(t, &s))
			return -ENOMEM;
	}
	shared_mark(t);
	return 0;
}

/* The first entry at or after @addr; t->n: none */
static u32 lower_bound(const struct syscall_table *t, u64 addr)
{
	u32 lo = 0, hi = t->n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (t->entries[mid].addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/*
 * The handler at exactly @addr: @abi's first, then ni_syscall's, as that says more than what it stands
 * in for. t->n: none
 */
static u32 handler_at(const struct syscall_table *t, u64 addr, enum syscall_abi abi)
{
	u32 found = t->n;
	int rank = -1;

	for (u32 i = lower_bound(t, addr); i < t->n && t->entries[i].addr == addr; i++) {
		const struct syscall_entry *e = &t->entries[i];
		int r = 2 * (e->abi == abi) + !strcmp(e->kernel_name, "ni_syscall");

		if (r > rank) {
			rank = r;
			found = i;
		}
	}
	return found;
}

/*
 * NR_syscalls is in no symbol and in no type: the table ends where the next symbol begins, and what
 * lies between (padding) points to no handler.
 */
static bool table_read(struct syscall_table *t, const struct kernel *k, const struct sym_mem *mem,
		       const char *symbol, enum syscall_abi abi)
{
	u64 addr, pointers[SYSCALL_NR_MAX];
	struct kernel_sym s;
	size_t n;
	bool any = false;

	if (kernel_sym(k, symbol, &addr) || !kernel_sym_at(k, addr, &s) || s.addr != addr)
		return false;
	n = MIN(s.size_bytes / sizeof(*pointers), (u64)SYSCALL_NR_MAX);
	if (!n || mem_read(mem, addr, pointers, n * sizeof(*pointers)))
		return false;
	for (size_t nr = 0; nr < n; nr++) {
		u32 i = handler_at(t, pointers[nr], abi);
		struct syscall_entry *e = &t->entries[i];

		if (i == t->n)
			continue;
		t->by_nr[abi][nr] = (u16)(i + 1);
		e->n_numbers++;
		if (e->nr < 0)
			e->nr = (s32)nr;
		any = true;
	}
	return any;
}

/* A NUL-terminated string of the guest's, page by page so that its end need not be mapped further. */
static bool string_read(const struct sym_mem *mem, u64 addr, char buf[NAME_LEN])
{
	size_t n = 0;

	while (n < NAME_LEN - 1) {
		size_t in_page = (size_t)(PAGE_SIZE - (addr + n) % PAGE_SIZE);
		size_t part = MIN(NAME_LEN - 1 - n, in_page);

		if (mem_read(mem, addr + n, buf + n, part))
			return false;
		if (memchr(buf + n, 0, part))
			return true;
		n += part;
	}
	buf[n] = 0;
	return true;
}

static bool arg_read(struct syscall_table *t, const struct sym_mem *mem, u64 at, const char **ret)
{
	char buf[NAME_LEN];
	u64 str;

	if (mem_u64(mem, at, &str) || !str || !string_read(mem, str, buf))
		return false;
	/* source text; anything else is not what we think it is */
	for (const char *p = buf; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			return false;
	*ret = keep(t, buf);
	return *ret != NULL;
}

static bool meta_read(struct syscall_table *t, const struct sym_mem *mem,
		      const struct meta_layout *l, u64 meta, struct syscall_entry *e)
{
	u64 types, args;
	u32 n;

	if (mem_u32(mem, meta + l->nb_args, &n) || n > SYSCALL_ARGS ||
	    mem_u64(mem, meta + l->types, &types) || mem_u64(mem, meta + l->args, &args))
		return false;
	for (u32 i = 0; i < n; i++)
		if (!arg_read(t, mem, types + i * 8ull, &e->args[i].type) ||
		    !arg_read(t, mem, args + i * 8ull, &e->args[i].name))
			return false;
	e->n_args = (u8)n;
	e->described = true;
	return true;
}

static bool meta_layout(const struct kernel *k, struct meta_layout *l)
{
	static const char type[] = "syscall_metadata";

	return !kernel_btf_offset(k, type, "nb_args", &l->nb_args) &&
	       !kernel_btf_offset(k, type, "types", &l->types) &&
	       !kernel_btf_offset(k, type, "args", &l->args);
}

/* Each handler by its own metadata's symbol; false: none has any. */
static bool metadata_read(struct syscall_table *t, const struct kernel *k,
			  const struct sym_mem *mem)
{
	struct meta_layout l;
	bool any = false;

	if (!meta_layout(k, &l))
		return false;
	for (u32 i = 0; i < t->n; i++) {
		struct syscall_entry *e = &t->entries[i];
		char symbol[sizeof(META_PREFIX) + NAME_LEN];
		u64 meta;

		memcpy(symbol, META_PREFIX, sizeof(META_PREFIX) - 1);
		memcpy(symbol + sizeof(META_PREFIX) - 1, e->kernel_name,
		       strlen(e->kernel_name) + 1);
		if (kernel_sym(k, symbol, &meta) || !meta_read(t, mem, &l, meta, e))
			continue;
		e->native_args = e->abi != SYSCALL_ABI_64;
		any = true;
	}
	return any;
}

static int table_build(struct syscall_table *t, const struct kernel *k, const struct sym_mem *mem,
		       struct err *err)
{
	if (handlers_find(t, k))
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for system calls");
	if (!t->n)
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0,
			       "the guest's symbols name no system call");
	if (!table_read(t, k, mem, "sys_call_table", SYSCALL_ABI_64))
		t->missing |= SYSCALL_NO_TABLE;
	if (!table_read(t, k, mem, "ia32_sys_call_table", SYSCALL_ABI_32))
		t->missing |= SYSCALL_NO_IA32_TABLE;
	if (!metadata_read(t, k, mem))
		t->missing |= SYSCALL_NO_METADATA;
	return 0;
}

int syscall_table_load(const struct kernel *k, const struct sym_mem *mem,
		       struct syscall_table **ret, struct err *err)
{
	struct syscall_table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for system calls");
	rc = table_build(t, k, mem, err);
	if (rc) {
		syscall_table_destroy(t);
		return rc;
	}
	*ret = t;
	return 0;
}

struct syscall_table *syscall_table_ref(struct syscall_table *t)
{
	atomic_fetch_add(&t->more_users, 1);
	return t;
}

void syscall_table_destroy(struct syscall_table *t)
{
	if (!t || atomic_fetch_sub(&t->more_users, 1) > 0)
		return;
	while (t->strings) {
		struct chunk *next = t->strings->next;

		free(t->strings);
		t->strings = next;
	}
	free(t->entries);
	free(t->sizes);
	free(t);
}

unsigned int syscall_table_missing(const struct syscall_table *t)
{
	return t->missing;
}

size_t syscall_table_count(const struct syscall_table *t)
{
	return t->n;
}

const struct syscall_entry *syscall_table_get(const struct syscall_table *t, size_t i)
{
	return i < t->n ? &t->entries[i] : NULL;
}

const struct syscall_entry *syscall_table_nr(const struct syscall_table *t, enum syscall_abi abi,
					     u32 nr)
{
	u32 i;

	/* x32 has most numbers, and the table, from the 64-bit ABI; 512 and more are its own */
	if (abi == SYSCALL_ABI_X32) {
		abi = SYSCALL_ABI_64;
		nr &= ~SYSCALL_X32_BIT;
	}
	if (abi >= SYSCALL_ABIS || nr >= SYSCALL_NR_MAX)
		return NULL;
	i = t->by_nr[abi][nr];
	return i ? &t->entries[i - 1] : NULL;
}

const struct syscall_entry *syscall_table_at(const struct syscall_table *t, u64 addr)
{
	u32 i = handler_at(t, addr, SYSCALL_ABI_64);

	if (i < t->n)
		return &t->entries[i];
	i = lower_bound(t, addr);
	if (!i)
		return NULL;
	i = handler_at(t, t->entries[i - 1].addr, SYSCALL_ABI_64);
	if (addr - t->entries[i].addr >= MIN(t->sizes[i], (u64)HANDLER_BYTES))
		return NULL;
	return &t->entries[i];
}

const struct syscall_entry *syscall_table_name(const struct syscall_table *t, enum syscall_abi abi,
					       const char *name)
{
	for (u32 i = 0; i < t->n; i++)
		if (t->entries[i].abi == abi && !strcmp(t->entries[i].name, name))
			return &t->entries[i];
	return NULL;
}
