// SPDX-License-Identifier: Apache-2.0
/*
 * A guest of body.c, found by its VMM's process: the call sites of its file are armed with the product's agent in
 * one stop window, and put back. For test_ladder.py:
 *
 *   ladder PID FILE ROUNDS-ADDRESS [far] [mcount]
 *
 *   far     the agent is further away than a call reaches: veneers, in padding of the guest's
 *   mcount  no site is armed, but the mcount that all of them call, with what its variable says now
 *
 *                                      prints   source NAME [prologue]
 *                                               armed|refused|weak FUNCTION
 *                                               veneer ADDRESS
 *                                               call FUNCTION PARENT COUNT
 *                                               restored N
 */
#include "guest-agent/agent_abi.h"
#include "patcher/insn_x86.h"
#include "symbols/elf_sites.h"
#include "tests/guest/ladder/percpu.h"
#include "tracers/ring.h"
#include "vmm/vm.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BASE      0xffffffff80000000ull
#define PML4      0x9000ull
#define RAM_BYTES (64ull << 20) /* test_ladder.py gives it as much */
#define NEAR      (BASE + (32ull << 20))
#define FAR       (NEAR - (4ull << 30)) /* head.S maps the same memory there */
#define DATA_OFF  (2ull << 20)
#define PAUSE_NS  (10 * NSEC_PER_SEC)
#define ROUNDS    20
#define WAIT_S    120
#define MAX_SITES 16
#define MAX_CALLS 256
#define RECORDS   4096

struct armed {
	u64 addr;
	const char *name;
	u8 rest[MCOUNT_INSN_SIZE], call[MCOUNT_INSN_SIZE];
};

static struct vm *vm;
static struct vm_view *view;
static struct err err;
static struct agent_header header;
static u64 text = NEAR;
static bool far, by_mcount;
static const Elf64_Sym *sym;
static const char *syms;
static size_t n_syms;

static void need(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: %s\n", what, err.msg);
	exit(1);
}

/* Where the guest's file has it. */
static u64 symbol(const char *name)
{
	for (size_t i = 0; i < n_syms; i++) {
		if (!strcmp(syms + sym[i].st_name, name))
			return sym[i].st_value;
	}
	fprintf(stderr, "the guest has no %s\n", name);
	exit(1);
}

static u64 read_rounds(u64 addr)
{
	u64 n = 0;

	need(vm_read(vm, gva(addr), &n, sizeof(n), &err), "rounds");
	return n;
}

/* Until it has got so much further; a nested KVM may be slow. */
static void wait_rounds(u64 addr, u64 more)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	u64 from = read_rounds(addr);

	for (int i = 0; i < WAIT_S * 1000; i++) {
		if (read_rounds(addr) - from >= more)
			return;
		nanosleep(&pause, NULL);
	}
	fprintf(stderr, "the guest stands still\n");
	exit(1);
}

/* Its VMM has just been started, and may have no RAM yet. */
static void attach_once_up(const char *target)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (int i = 0; i < WAIT_S * 1000; i++) {
		if (vm_attach(target, &vm, &err) == 0) {
			if (vm_ram_count(vm) == 1 && vm_ram(vm, 0)->len_bytes == RAM_BYTES)
				return;
			vm_detach(vm);
		}
		nanosleep(&pause, NULL);
	}
	need(-1, "attach");
}

static void set_root_once_up(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct vm_mapping m;

	vm_set_root(vm, gpa(PML4), 4);
	for (int i = 0; i < WAIT_S * 1000; i++) {
		if (vm_walk(vm, gva(BASE + (2 << 20)), &m, &err) == 0)
			return;
		nanosleep(&pause, NULL);
	}
	need(-1, "the guest does not come up");
}

static void write_pieces(u64 addr, const u8 *bytes, u64 len)
{
	struct vm_text t = { .len = sizeof(t.bytes) };

	for (u64 off = 0; off < len; off += sizeof(t.bytes)) {
		t.addr = gva(addr + off);
		memcpy(t.bytes, bytes + off, sizeof(t.bytes));
		need(vm_write_text(vm, &t, 1, &err), "the agent's text");
	}
}

/* The product's own agent, with function_trace_call as its tracer. */
static void load_agent(void)
{
	static const agent_s64 values[AGENT_FIX_MAX] = {
		[AGENT_FIX_GS_CURRENT] = offsetof(struct ladder_percpu, current),
		[AGENT_FIX_GS_CPU] = offsetof(struct ladder_percpu, cpu),
		[AGENT_FIX_GS_PREEMPT] = offsetof(struct ladder_percpu, preempt_count),
		[AGENT_FIX_TASK_PID] = offsetof(struct ladder_task, pid),
		[AGENT_FIX_TASK_TGID] = offsetof(struct ladder_task, tgid),
		[AGENT_FIX_TASK_COMM] = offsetof(struct ladder_task, comm),
		[AGENT_FIX_TASK_START] = offsetof(struct ladder_task, start_time),
		[AGENT_FIX_TASK_MIGRATE] = -1,
	};
	const struct agent_blob *blob = agent_blob_get();
	u32 call = by_mcount ? blob->mcount_call : blob->ftrace_call;
	u32 tracer = by_mcount ? blob->mcount_trace_call : blob->function_trace_call;
	u64 len;
	u8 *image;

	header = (struct agent_header){ .nr_cpus = 1,
					.ring_slots = RECORDS,
					.nr_frames = AGENT_MIN_FRAMES,
					.site_slots = AGENT_MIN_SITES,
					.mode = AGENT_MODE_DISCARD,
					.enabled = 1,
					.text = text,
					.data = text + DATA_OFF };
	need(agent_layout(&header), "agent_layout");
	len = agent_text_bytes(&header);
	image = calloc(1, len);
	if (!image)
		exit(1);
	memcpy(image, blob->text, blob->text_bytes);
	need(agent_link(blob, &header, values, image), "agent_link");
	need(insn_make_jump(text + call, text + tracer, image + call), "ftrace_call");
	need(vm_view_create(vm, gva(header.data), agent_data_bytes(&header), &view, &err), "view");
	need(vm_view_write(view, 0, &header, sizeof(header)), "header");
	need(vm_pause(vm, PAUSE_NS, &err), "pause");
	write_pieces(text, image, len);
	need(vm_resume(vm, &err), "resume");
	free(image);
}

/* One nop, or a call that nobody has converted yet; nothing else is armed. */
static bool is_one_insn(const struct elf_site *s, const u8 *rest)
{
	u64 target;

	return insn_is_site_nop(rest) ||
	       (s->kind == ELF_SITE_CALL && insn_call_target(s->addr, rest, &target));
}

/* Room for a veneer, as for the gate: int3 that nothing runs into. Left as it was found at the end. */
static struct armed veneer;
static u8 veneer_code[INSN_VENEER_SIZE], veneer_rest[INSN_VENEER_SIZE];

static void make_veneer(u64 target)
{
	u64 at = symbol("padding");

	need(vm_read(vm, gva(at), veneer_rest, sizeof(veneer_rest), &err), "padding");
	for (size_t i = 0; i < sizeof(veneer_rest); i++) {
		if (veneer_rest[i] != 0xcc)
			need(-1, "the padding is used");
	}
	insn_make_veneer(target, veneer_code);
	veneer.addr = at;
	printf("veneer %llx\n", (unsigned long long)at);
}

/* Where a call at @ip is to lead so that it comes to the agent. */
static u64 reach(u64 ip, u64 target)
{
	u8 call[MCOUNT_INSN_SIZE];
	int rc = insn_make_call(ip, target, call);

	if (!rc)
		return target;
	if (rc != -ERANGE || !far)
		need(-1, "the agent is out of reach");
	if (!veneer.addr)
		make_veneer(target);
	return veneer.addr;
}

/* The body of mcount, unless the guest's own tracer is behind its variable. */
static size_t choose_mcount(struct armed *a)
{
	u64 caller = text + agent_blob_get()->mcount_caller, tracer;
	u8 body[16];
	size_t off;

	need(vm_read(vm, gva(symbol("ftrace_trace_function")), &tracer, sizeof(tracer), &err),
	     "ftrace_trace_function");
	need(vm_read(vm, gva(symbol("mcount")), body, sizeof(body), &err), "mcount");
	if (tracer != symbol("ftrace_stub") || !insn_takes_jump(body, sizeof(body), &off)) {
		printf("refused mcount\n");
		return 0;
	}
	a->addr = symbol("mcount") + off;
	a->name = "mcount";
	memcpy(a->rest, body + off, sizeof(a->rest));
	need(insn_make_jump(a->addr, reach(a->addr, caller), a->call), "mcount");
	printf("armed mcount\n");
	return 1;
}

static size_t choose(const struct elf_sites *s, struct armed *out)
{
	u64 caller = text + agent_blob_get()->ftrace_caller;
	size_t n = 0;

	for (size_t i = 0; i < s->n && n < MAX_SITES; i++) {
		const struct elf_site *site = &s->site[i];
		struct armed *a = &out[n];

		*a = (struct armed){ .addr = site->addr, .name = site->name };
		need(vm_read(vm, gva(a->addr), a->rest, sizeof(a->rest), &err), "a site");
		if (site->kind == ELF_SITE_WEAK) {
			printf("weak %s\n", site->name);
		} else if (s->prologue || !is_one_insn(site, a->rest)) {
			printf("refused %s\n", site->name);
		} else {
			printf("armed %s\n", site->name);
			need(insn_make_call(a->addr, reach(a->addr, caller), a->call), "call");
			n++;
		}
	}
	return by_mcount ? choose_mcount(out) : n;
}

static void write_sites(const struct armed *a, size_t n, bool on)
{
	struct vm_text t[MAX_SITES + 1];
	size_t k = 0;

	/* what a site leads to is there before the site, and goes after it */
	if (veneer.addr && on) {
		t[k] = (struct vm_text){ gva(veneer.addr), INSN_VENEER_SIZE, { 0 } };
		memcpy(t[k++].bytes, veneer_code, INSN_VENEER_SIZE);
	}
	for (size_t i = 0; i < n; i++, k++) {
		t[k] = (struct vm_text){ gva(a[i].addr), MCOUNT_INSN_SIZE, { 0 } };
		memcpy(t[k].bytes, on ? a[i].call : a[i].rest, MCOUNT_INSN_SIZE);
	}
	need(vm_pause(vm, PAUSE_NS, &err), "pause");
	need(k ? vm_write_text(vm, t, k, &err) : 0, "sites");
	need(vm_resume(vm, &err), "resume");
}

/* Once nobody can be on his way through it. */
static void remove_veneer(void)
{
	struct vm_text t = { gva(veneer.addr), INSN_VENEER_SIZE, { 0 } };
	u8 now[INSN_VENEER_SIZE];

	if (!veneer.addr)
		return;
	memcpy(t.bytes, veneer_rest, INSN_VENEER_SIZE);
	need(vm_pause(vm, PAUSE_NS, &err), "pause");
	need(vm_write_text(vm, &t, 1, &err), "the veneer");
	need(vm_resume(vm, &err), "resume");
	need(vm_read(vm, t.addr, now, sizeof(now), &err), "padding");
	need(memcmp(now, veneer_rest, sizeof(now)) ? -1 : 0, "the padding is not as it was");
}

static int view_read(void *arg, u64 off, void *buf, size_t len)
{
	return vm_view_read(arg, off, buf, len);
}

static int view_write(void *arg, u64 off, const void *buf, size_t len)
{
	return vm_view_write(arg, off, buf, len);
}

static const char *name_of(const struct elf_sites *s, u64 ip)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->site[i].addr == ip)
			return s->site[i].name;
	}
	return "?";
}

/* Every pair of call site and caller, and how often. */
static void print_calls(const struct elf_sites *s)
{
	static struct ring_record rec[RECORDS];
	struct {
		u64 ip, parent, count;
	} calls[MAX_CALLS] = { 0 };
	const struct ring_io io = { view_read, view_write, view };
	struct ring_reader reader = { 0 };
	size_t got = 0, k;

	need(ring_reader_init(&reader, &io, &header, 0), "ring");
	need(ring_drain(&reader, rec, RECORDS, 0, RING_FINAL, &got), "drain");
	for (size_t i = 0; i < got; i++) {
		if (rec[i].type != RING_FUNCTION || rec[i].pid != 7)
			continue;
		for (k = 0; k < MAX_CALLS - 1 && calls[k].count; k++) {
			if (calls[k].ip == rec[i].ip && calls[k].parent == rec[i].parent)
				break;
		}
		calls[k].ip = rec[i].ip;
		calls[k].parent = rec[i].parent;
		calls[k].count++;
	}
	for (k = 0; calls[k].count; k++)
		printf("call %s %llx %llu\n", name_of(s, calls[k].ip),
		       (unsigned long long)calls[k].parent, (unsigned long long)calls[k].count);
}

static void check_restored(const struct armed *a, size_t n)
{
	u8 now[MCOUNT_INSN_SIZE];
	size_t good = 0;

	for (size_t i = 0; i < n; i++) {
		need(vm_read(vm, gva(a[i].addr), now, sizeof(now), &err), "a site");
		good += !memcmp(now, a[i].rest, sizeof(now));
	}
	printf("restored %zu\n", good);
}

/* Of a file that the test has just made. */
static int find_symbols(const u8 *file)
{
	const Elf64_Ehdr *e = (const void *)file;
	const Elf64_Shdr *s = (const void *)(file + e->e_shoff);

	for (int i = 0; i < e->e_shnum; i++) {
		if (s[i].sh_type != SHT_SYMTAB)
			continue;
		sym = (const void *)(file + s[i].sh_offset);
		n_syms = s[i].sh_size / sizeof(*sym);
		syms = (const char *)file + s[s[i].sh_link].sh_offset;
	}
	return sym ? 0 : -1;
}

static void read_sites(const char *path, struct elf_sites *ret)
{
	static const char *const sources[] = { "mcount_loc", "patchable", "recorded" };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *data;

	if (fd < 0 || fstat(fd, &st) < 0)
		exit(1);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	need(data == MAP_FAILED ? -1 : find_symbols(data), "the guest's file");
	need(elf_sites_read(data, (size_t)st.st_size, ret, &err), path);
	printf("source %s%s\n", sources[ret->source], ret->prologue ? " prologue" : "");
}

int main(int argc, char **argv)
{
	static struct armed armed[MAX_SITES];
	struct elf_sites sites;
	char target[32];
	u64 rounds;
	size_t n;

	if (argc < 4)
		return 2;
	for (int i = 4; i < argc; i++) {
		far |= !strcmp(argv[i], "far");
		by_mcount |= !strcmp(argv[i], "mcount");
	}
	text = far ? FAR : NEAR;
	snprintf(target, sizeof(target), "pid:%.20s", argv[1]);
	rounds = strtoull(argv[3], NULL, 16);
	read_sites(argv[2], &sites);
	attach_once_up(target);
	set_root_once_up();
	wait_rounds(rounds, 1);
	load_agent();
	n = choose(&sites, armed);
	write_sites(armed, n, true);
	wait_rounds(rounds, ROUNDS);
	write_sites(armed, n, false);
	wait_rounds(rounds, 2); /* whoever was inside has left */
	remove_veneer();
	print_calls(&sites);
	check_restored(armed, n);
	vm_view_destroy(view);
	vm_detach(vm);
	return 0;
}
