// SPDX-License-Identifier: Apache-2.0
/* System calls into records and back: through a store, through a recording, with records missing or made up. */
#include "tracers/output.h"
#include "tracers/store.h"
#include "tracers/sys_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CALLS   300
#define HANDLER 0xffffffff81234560ull

static u64 rng = 88172645463325252;

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	*off_ret = 0;
	*ret = (struct kernel_sym){ .addr = addr, .type = 't' };
	if (addr == HANDLER)
		ret->name = "__x64_sys_newuname";
	else if (addr == HANDLER + 64) /* no arguments: a name of the function inside comes first */
		ret->name = "__do_sys_getppid";
	else
		ret->name = "vfs_read";
	return true;
}

static bool func(void *arg, u64 ip, struct kernel_func *ret)
{
	(void)arg;
	if (ip != HANDLER)
		return false;
	*ret = (struct kernel_func){ .n_params = 2, .n_regs = 2 };
	ret->ret = (struct kernel_val){ .name = "", .type = "long" };
	ret->params[0] = (struct kernel_val){ .name = "name", .type = "struct new_utsname *" };
	ret->params[1] = (struct kernel_val){ .name = "x", .type = "int", .reg = 1 };
	return true;
}

static const struct output_names names = { .sym = sym, .func = func };

struct list {
	struct trace_record *v;
	size_t n, cap;
};

static void keep(void *arg, const struct trace_record *r)
{
	struct list *l = arg;

	if (l->n == l->cap) {
		l->cap = l->cap * 2 + 64;
		l->v = reallocarray(l->v, l->cap, sizeof(*l->v));
		assert_non_null(l->v);
	}
	l->v[l->n] = *r;
	l->v[l->n].seq = l->n + 1;
	l->n++;
}

static u8 bytes[SYS_DATA_MAX];

/* The same for the same @seed. */
static void make_event(struct syscall_event *e, struct syscall_entry *entry, u64 seed)
{
	u32 left = SYS_DATA_MAX;

	rng = seed * 0x9e3779b97f4a7c15 + 1;
	*entry = (struct syscall_entry){ .addr = HANDLER };
	*e = (struct syscall_event){ .entry = entry,
				     .ts_ns = 1000000 + seed * 100,
				     .duration_ns = next_random() >> 20,
				     .ret = (s64)next_random(),
				     .nr = (s32)(next_random() % 7) -
					   1, /* not one with a name of its own */
				     .pid = (u32)seed + 1,
				     .tgid = (u32)seed / 2 + 1,
				     .cpu = (u16)(seed % 5),
				     .abi = (u8)(next_random() % SYSCALL_ABIS),
				     .state = (u8)(next_random() % SYSCALL_STATES),
				     .captures_left_out = seed % 7 == 0,
				     .data = bytes };
	snprintf(e->comm, sizeof(e->comm), "task-%llu", (unsigned long long)seed);
	if (e->state == SYSCALL_EXECVE)
		memcpy(e->comm_after, "sixteen-letters!", 17);
	for (u32 i = 0; i < SYSCALL_ARGS; i++)
		e->args[i] = next_random();
	e->n_captures = (u8)(next_random() % (SYSCALL_CAPTURES + 1));
	for (u32 i = 0; i < e->n_captures; i++) {
		struct syscall_capture *c = &e->captures[i];

		*c = (struct syscall_capture){ .arg = (u8)(next_random() % SYSCALL_ARGS),
					       .what = (u8)(next_random() % (CAPTURE_DATA + 1)),
					       .source = (u8)(next_random() % 3),
					       .truncated = next_random() & 1,
					       .failed = next_random() & 1,
					       .count = (u32)next_random(),
					       .full_len = (u32)next_random(),
					       .off = e->data_len };
		c->len = (u32)(next_random() % MIN(left + 1, 301u));
		e->data_len += c->len;
		left -= c->len;
	}
}

static void assert_same(const struct syscall_event *got, const struct syscall_event *want)
{
	assert_string_equal(got->entry->name, "uname");
	assert_string_equal(got->entry->kernel_name, "newuname");
	assert_true(got->entry->described && got->n_args == 2);
	assert_string_equal(got->entry->args[1].name, "x");
	assert_true(got->ts_ns == want->ts_ns && got->ret == want->ret && got->nr == want->nr);
	assert_true(got->duration_ns == want->duration_ns && got->cpu == want->cpu);
	assert_true(got->pid == want->pid && got->tgid == want->tgid);
	assert_true(got->abi == want->abi && got->state == want->state);
	assert_true(got->captures_left_out == want->captures_left_out);
	assert_memory_equal(got->args, want->args, sizeof(got->args));
	assert_string_equal(got->comm, want->comm);
	assert_string_equal(got->comm_after, want->comm_after);
	assert_int_equal(got->n_captures, want->n_captures);
	for (u32 i = 0; i < got->n_captures; i++)
		assert_memory_equal(&got->captures[i], &want->captures[i],
				    sizeof(got->captures[i]));
	assert_int_equal(got->data_len, want->data_len);
	assert_memory_equal(got->data, want->data, got->data_len);
}

static void write_calls(struct list *l)
{
	struct syscall_entry entry;
	struct syscall_event e;

	for (u64 i = 0; i < CALLS; i++) {
		size_t before = l->n;

		make_event(&e, &entry, i);
		sys_parts_write(&e, e.ts_ns + 5, keep, l);
		assert_true(l->n - before <= SYS_PARTS_MAX);
		assert_int_equal(l->v[before].depth, l->n - before - 1);
		assert_int_equal(l->v[l->n - 1].depth, 0);
	}
}

static void check_event(const struct syscall_event *got, u64 i)
{
	struct syscall_entry entry;
	struct syscall_event want;

	make_event(&want, &entry, i);
	assert_same(got, &want);
}

static void there_and_back(void **state)
{
	struct sys_reader *s = sys_reader_create();
	struct trace_record out[64];
	struct list l = { 0 };
	struct store *store;
	u64 n = 0, after = 0;

	(void)state;
	write_calls(&l);
	assert_int_equal(store_create((u32)l.n, TRACE_MAX_ARGS, false, &store, NULL), 0);
	store_append(store, l.v, l.n);
	for (;;) {
		struct trace_page page = { .buf = out, .max = ARRAY_SIZE(out) };

		assert_int_equal(store_read(store, after, &page, NULL), 0);
		if (!page.n)
			break;
		for (size_t i = 0; i < page.n; i++) {
			const struct syscall_event *e = sys_reader_add(s, &out[i], &names);

			if (e)
				check_event(e, n++);
			assert_true(sys_reader_inside(s) == (out[i].depth != 0));
		}
		after = out[page.n - 1].seq;
	}
	assert_int_equal(n, CALLS);
	store_destroy(store);
	sys_reader_destroy(s);
	free(l.v);
}

static void recorded(void **state)
{
	struct output_meta meta = { .tracer = "syscalls", .guest = "g", .release = "6.1" };
	struct sys_reader *s = sys_reader_create();
	struct output_names read;
	struct trace_record rec;
	struct rec_writer *w;
	struct rec_reader *r;
	struct list l = { 0 };
	struct buf b = { 0 };
	enum rec_kind kind;
	u64 n = 0;

	(void)state;
	write_calls(&l);
	assert_int_equal(rec_writer_create(&meta, &w, NULL), 0);
	rec_writer_head(w, &b);
	for (size_t i = 0; i < l.n; i++)
		rec_writer_add(w, &b, &l.v[i], &names);
	rec_writer_end(w, &b, &meta);
	assert_false(buf_failed(&b));
	assert_int_equal(rec_reader_open_mem(b.data, b.len, &r, NULL), 0);
	read = rec_reader_names(r);
	for (;;) {
		const struct syscall_event *e;

		assert_int_equal(rec_reader_next(r, &kind, &rec, NULL), 0);
		if (kind != REC_RECORD)
			break;
		e = sys_reader_add(s, &rec, &read);
		if (e)
			check_event(e, n++);
	}
	assert_int_equal(kind, REC_END);
	assert_int_equal(n, CALLS);
	rec_reader_close(r);
	rec_writer_destroy(w);
	buf_deinit(&b);
	sys_reader_destroy(s);
	free(l.v);
}

/* How many calls come out without record @gone; each that does is as it was. */
static u64 read_without(const struct list *l, size_t gone)
{
	struct sys_reader *s = sys_reader_create();
	u64 call = 0, told = 0;

	for (size_t at = 0; at < l->n; at++) {
		const struct syscall_event *e =
			at == gone ? NULL : sys_reader_add(s, &l->v[at], &names);

		if (e)
			check_event(e, call);
		told += !!e;
		call += l->v[at].depth == 0;
	}
	sys_reader_destroy(s);
	return told;
}

/* Any record may be missing: then its call is, and no other. */
static void missing(void **state)
{
	struct list l = { 0 };

	(void)state;
	write_calls(&l);
	for (size_t gone = 0; gone < 400; gone++)
		assert_int_equal(read_without(&l, gone), CALLS - 1);
	free(l.v);
}

/* One with a capture of 80 bytes: five records. */
static void one_call(struct list *l, s64 ret)
{
	struct syscall_entry entry = { .addr = HANDLER };
	struct syscall_event e = { .entry = &entry,
				   .ret = ret,
				   .nr = 63,
				   .pid = 7,
				   .n_captures = 1,
				   .captures = { { .what = CAPTURE_BYTES, .len = 80 } },
				   .data = bytes,
				   .data_len = 80 };

	sys_parts_write(&e, 5, keep, l);
}

/* Two calls of one task, and of what was lost between them as much as makes them fit together. */
static void two_are_not_one(void **state)
{
	struct sys_reader *s = sys_reader_create();
	struct list l = { 0 };
	size_t parts;

	(void)state;
	one_call(&l, 1);
	parts = l.n;
	one_call(&l, 2);
	one_call(&l, 3);
	assert_int_equal(parts, 5);
	for (size_t cut = 1; cut < parts; cut++) {
		const struct syscall_event *e = NULL;

		for (size_t i = 0; i < l.n; i++) {
			if (i >= cut && i < parts + cut)
				continue;
			e = sys_reader_add(s, &l.v[i], &names);
			assert_true(!e || i == l.n - 1);
		}
		assert_non_null(e);
		assert_int_equal(e->ret, 3);
	}
	sys_reader_destroy(s);
	free(l.v);
}

/* Whatever a file says. */
static void made_up(void **state)
{
	struct sys_reader *s = sys_reader_create();
	struct list l = { 0 };
	u64 told = 0;

	(void)state;
	write_calls(&l);
	rng = 1;
	for (u32 i = 0; i < 300000; i++) {
		struct trace_record r = l.v[next_random() % 8 ? i % l.n : next_random() % l.n];
		const struct syscall_event *e;

		switch (next_random() % 40) {
		case 0:
			r.args[next_random() % 6] = next_random() >> next_random() % 64;
			break;
		case 1:
			r.ctx = (u16)(next_random() % 6);
			break;
		case 2:
			r.n_args = (u8)(next_random() % 7);
			break;
		case 3:
			r.depth = (u16)next_random();
			break;
		case 4:
			r.ip = HANDLER + next_random() % 3 * 64;
			break;
		default:
			break;
		}
		e = sys_reader_add(s, &r, &names);
		if (!e)
			continue;
		told++;
		assert_true(e->n_captures <= SYSCALL_CAPTURES && e->data_len <= SYS_DATA_MAX);
		for (u32 k = 0; k < e->n_captures; k++)
			assert_true(e->captures[k].off <= e->data_len &&
				    e->captures[k].len <= e->data_len - e->captures[k].off);
	}
	assert_true(told > 100);
	sys_reader_destroy(s);
	free(l.v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back), cmocka_unit_test(recorded),
		cmocka_unit_test(missing),        cmocka_unit_test(two_are_not_one),
		cmocka_unit_test(made_up),
	};

	for (u32 i = 0; i < sizeof(bytes); i++)
		bytes[i] = (u8)(i * 31 + i / 256);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
