// SPDX-License-Identifier: Apache-2.0
/*
 * Makes a recording of a guest that does not exist, on standard output:
 *
 *   make_recording graph|function|syscalls N [LOST [blocks]]
 *
 * About N records; LOST of them (default 0) are said to be lost, in two places, the last of them the end.
 * With "blocks" as `hvftrace record` writes it into a file.
 * What is in it follows from N alone: tests read it back with `hvftrace report --json`.
 */
#include "tracers/output.h"
#include "tracers/rec_store.h"
#include "tracers/sys_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT      0xffffffff81000000ull
#define FUNCTIONS 997u
#define CPUS      2u
#define TASKS     24u
#define STARTED   1767225600000000000ull /* 2026-01-01 */
#define BOOT      5000000000ull

struct maker {
	struct rec_writer *writer;
	struct output_names names;
	struct rec_store *store; /* NULL: as it comes */
	struct buf out;
	u64 seq, now, random;
};

static const struct syscall_entry entries[] = {
	{ .name = "openat", .kernel_name = "openat", .addr = TEXT, .nr = 257, .n_args = 4 },
	{ .name = "read", .kernel_name = "read", .addr = TEXT + 64, .nr = 0, .n_args = 3 },
	{ .name = "exit", .kernel_name = "exit", .addr = TEXT + 128, .nr = 60, .n_args = 1 },
};

/* Function i is at TEXT + i * 64; each eighth is of a module, each fiftieth has no name. */
static bool sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	static char name[32];
	u64 i = (addr - TEXT) / 64;

	if (i >= FUNCTIONS || i % 50 == 49)
		return false;
	snprintf(name, sizeof(name), "fn_%03u", (unsigned)i);
	if (*(bool *)arg && i < ARRAY_SIZE(entries))
		snprintf(name, sizeof(name), "__x64_sys_%s", entries[i].name);
	*ret = (struct kernel_sym){ .name = name,
				    .module = i % 8 == 7 ? "mod" : NULL,
				    .addr = TEXT + i * 64,
				    .size_bytes = 64,
				    .type = 't' };
	*off_ret = addr - ret->addr;
	return true;
}

static u32 dice(struct maker *m, u32 n)
{
	m->random = m->random * 6364136223846793005 + 1442695040888963407;
	return (u32)(m->random >> 33) % n;
}

static void flush(struct maker *m, size_t least)
{
	if (m->out.len < least)
		return;
	rec_writer_whole(m->writer, &m->out);
	if (!m->store)
		fwrite(m->out.data, 1, m->out.len, stdout);
	else if (rec_store_add(m->store, m->out.data, m->out.len) < 0)
		exit(1);
	buf_reset(&m->out);
}

static void add(void *arg, const struct trace_record *r)
{
	struct maker *m = arg;
	struct trace_record numbered = *r;

	numbered.seq = ++m->seq;
	rec_writer_add(m->writer, &m->out, &numbered, &m->names);
	flush(m, 1 << 16);
}

static void set_task(struct trace_record *r, u32 task)
{
	r->pid = task ? 100 + task : 0;
	r->tgid = task ? 100 + task / 2 * 2 : 0;
	r->cpu = (u16)(task % CPUS);
	snprintf(r->comm, sizeof(r->comm), "task;%u \"x\"", task / 2 % 100);
	if (!task)
		snprintf(r->comm, sizeof(r->comm), "swapper/0");
}

/* One call with all that it calls; time goes on by 100 ns or more a record. */
static void call(struct maker *m, u32 task, u16 depth)
{
	struct trace_record r = { .type = TRACE_GRAPH_ENTRY, .depth = depth, .ctx = 0x81 };
	u32 callees = depth < 6 ? dice(m, 3) : 0;
	u64 start;

	set_task(&r, task);
	r.ip = TEXT + 64ull * dice(m, FUNCTIONS);
	r.parent = TEXT + 64ull * dice(m, FUNCTIONS) + 21;
	r.ts_ns = start = m->now += 100 + dice(m, 1000);
	add(m, &r);
	while (callees--)
		call(m, task, depth + 1);
	m->now += 100 + dice(m, dice(m, 50) ? 1000 : 400000000);
	r.type = dice(m, 500) ? TRACE_GRAPH_RETURN : TRACE_GRAPH_NEVER;
	r.ts_ns = m->now;
	r.duration_ns = r.type == TRACE_GRAPH_RETURN ? m->now - start : 0;
	r.parent = r.type == TRACE_GRAPH_NEVER ? r.parent : 0;
	add(m, &r);
}

static void one_switch(struct maker *m, u32 from, u32 to)
{
	struct trace_record r = { .type = TRACE_SWITCH, .ts_ns = m->now += 50 };

	set_task(&r, to);
	r.cpu = (u16)(from % CPUS);
	r.prev_pid = from ? 100 + from : 0;
	add(m, &r);
}

static void one_function(struct maker *m)
{
	struct trace_record r = { .type = TRACE_FUNCTION, .ctx = 0x10 };

	set_task(&r, dice(m, TASKS));
	r.ip = TEXT + 64ull * dice(m, FUNCTIONS);
	r.parent = TEXT + 64ull * dice(m, FUNCTIONS) + 21;
	r.ts_ns = m->now += 100 + dice(m, 1000);
	add(m, &r);
}

/* Calls end in another order than they begin: they take up to 50 ms. */
static void one_syscall(struct maker *m)
{
	u32 task = 1 + dice(m, TASKS - 1), which = dice(m, 20) ? dice(m, 2) : 2;
	struct syscall_event e = { .entry = &entries[which], .nr = entries[which].nr };
	struct trace_record r = { 0 };

	set_task(&r, task);
	m->now += 100 + dice(m, 1000);
	e.duration_ns = which == 2 ? 0 : dice(m, dice(m, 10) ? 5000 : 50000000);
	e.ts_ns = m->now - e.duration_ns;
	e.state = which == 2 ? SYSCALL_NEVER : SYSCALL_RETURNED;
	e.ret = which ? 17 : -2;
	e.n_args = entries[which].n_args;
	for (u32 i = 0; i < e.n_args; i++)
		e.args[i] = 0x7fff00000000 + m->seq + i;
	e.pid = r.pid;
	e.tgid = r.tgid;
	e.cpu = r.cpu;
	memcpy(e.comm, r.comm, sizeof(e.comm));
	sys_parts_write(&e, m->now, add, m);
}

int main(int argc, char **argv)
{
	struct output_meta meta = { .guest = "web1 \"x\"",
				    .release = "6.1.0-test",
				    .vcpus = CPUS,
				    .started_ns = STARTED,
				    .n_functions = FUNCTIONS };
	struct maker m = { .names = { .sym = sym }, .now = BOOT, .random = 42 };
	u64 n = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
	u64 lost = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	const char *kind = argc > 1 ? argv[1] : "";
	bool half = false, failed, syscalls = strcmp(kind, "syscalls") == 0;
	struct err err = { 0 };

	if (!n) {
		fputs("usage: make_recording graph|function|syscalls N [LOST [blocks]]\n", stderr);
		return 2;
	}
	snprintf(meta.tracer, sizeof(meta.tracer), "%s",
		 strcmp(kind, "graph") == 0 ? "function_graph" : kind);
	if (rec_writer_create(&meta, &m.writer, &err) < 0)
		return 1;
	if (argc > 4 && rec_store_create(1, &(struct rec_store_opts){ 0 }, &m.store, &err) < 0)
		return 1;
	rec_writer_head(m.writer, &m.out);
	m.names.arg = &syscalls;
	while (m.seq < n) {
		if (strcmp(kind, "graph") == 0)
			call(&m, dice(&m, TASKS), 0);
		else if (strcmp(kind, "function") == 0)
			one_function(&m);
		else
			one_syscall(&m);
		if (strcmp(kind, "graph") == 0 && !dice(&m, 4))
			one_switch(&m, dice(&m, TASKS), dice(&m, TASKS));
		if (lost && !half && m.seq >= n / 2) {
			half = true;
			rec_writer_lost(m.writer, &m.out, lost / 2);
		}
	}
	if (lost)
		rec_writer_lost(m.writer, &m.out, lost - lost / 2);
	meta.n_records = m.seq;
	meta.n_lost = lost;
	meta.zero_mono_ns = 1000 * BOOT;
	meta.n_restored = FUNCTIONS;
	meta.restored = true;
	meta.missed_forks = true;
	rec_writer_end(m.writer, &m.out, &meta);
	flush(&m, 1);
	if (m.store && rec_store_finish(m.store) < 0)
		return 1;
	rec_store_destroy(m.store);
	rec_writer_destroy(m.writer);
	failed = buf_failed(&m.out);
	buf_deinit(&m.out);
	return fflush(stdout) || failed;
}
