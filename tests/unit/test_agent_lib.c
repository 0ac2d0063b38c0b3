// SPDX-License-Identifier: Apache-2.0
/* See test_agent_lib.h. x86-64 and Linux only, as the agent. */
#include "tests/unit/test_agent_lib.h"

#include <asm/prctl.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#define SITE_BYTES   16
#define SITES_BYTES  8192
#define FRAMES       256
#define THUNK        (SITES_BYTES - 16)
#define PLAIN_RET    (SITES_BYTES - 32)
#define BODIES_BYTES 4096

/* agent_tramp(site, in, out): registers in and out by enum R_*. */
extern void agent_tramp(const void *site, const u64 *in, u64 *out);
extern const u8 agent_tramp_ret[];

/* Assembler. */
/* clang-format off */
__asm__("	.text\n"
	"	.globl agent_tramp\n"
	"	.type agent_tramp, @function\n"
	"agent_tramp:\n"
	"	pushq %rbx; pushq %rbp; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
	"	pushq %rdx\n" /* out */
	"	pushq %rdi\n" /* site */
	"	movq %rsp, 128(%rdx)\n"
	"	pushq 120(%rsi)\n"
	"	movq 0(%rsi), %rax; movq 8(%rsi), %rbx; movq 16(%rsi), %rcx; movq 24(%rsi), %rdx\n"
	"	movq 40(%rsi), %rdi; movq 48(%rsi), %rbp; movq 56(%rsi), %r8; movq 64(%rsi), %r9\n"
	"	movq 72(%rsi), %r10; movq 80(%rsi), %r11; movq 88(%rsi), %r12; movq 96(%rsi), %r13\n"
	"	movq 104(%rsi), %r14; movq 112(%rsi), %r15; movq 32(%rsi), %rsi\n"
	"	popfq\n"
	"	call *(%rsp)\n"
	"	.globl agent_tramp_ret\n"
	"agent_tramp_ret:\n"
	"	pushfq; cld\n"
	"	pushq %rax\n"
	"	movq 24(%rsp), %rax\n"
	"	popq 0(%rax); popq 120(%rax)\n"
	"	movq %rbx, 8(%rax); movq %rcx, 16(%rax); movq %rdx, 24(%rax); movq %rsi, 32(%rax)\n"
	"	movq %rdi, 40(%rax); movq %rbp, 48(%rax); movq %r8, 56(%rax); movq %r9, 64(%rax)\n"
	"	movq %r10, 72(%rax); movq %r11, 80(%rax); movq %r12, 88(%rax); movq %r13, 96(%rax)\n"
	"	movq %r14, 104(%rax); movq %r15, 112(%rax)\n"
	"	subq %rsp, 128(%rax)\n" /* 0: balanced */
	"	popq %rdi; popq %rdx\n"
	"	popq %r15; popq %r14; popq %r13; popq %r12; popq %rbp; popq %rbx\n"
	"	ret\n"
	"	.size agent_tramp, . - agent_tramp\n");
/* clang-format on */

/* The single step under way; there is one at a time. */
static struct {
	struct rig *rig;
	unsigned int count, at;
	void (*inject)(struct rig *r, void *arg);
	void *arg;
	bool irqs_off, flags_pushed, gate_too;
	u64 low, high; /* stack pointers seen */
	u32 *path; /* where it is noted down, if it is */
	u32 n_path;
} step;
static u64 fake_tsc, fake_tick;
static const struct rig *open_rig; /* the last that was opened */
static bool cli_done;

static void *data_at(const struct rig *r, u64 off)
{
	return r->data + off;
}

static void make_site(struct rig *r, u32 i, u64 target)
{
	static const u8 endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	u8 *p = r->sites + (size_t)i * SITE_BYTES;
	s32 rel;

	if (i & 1) {
		memcpy(p, endbr, sizeof(endbr));
		p += sizeof(endbr);
	}
	rel = (s32)(target - ((u64)(uintptr_t)p + 5));
	*p = 0xe8;
	memcpy(p + 1, &rel, 4);
	p += 5;
	rel = (s32)((u64)(uintptr_t)&r->body[i] - ((u64)(uintptr_t)p + 6));
	p[0] = 0xff; /* jmp *body(%rip) */
	p[1] = 0x25;
	memcpy(p + 2, &rel, 4);
	rig_body(r, i, NULL);
}

/* What the patcher does: the tracer chosen in ftrace_caller. */
static void choose_tracer(struct rig *r)
{
	const struct agent_blob *b = agent_blob_get();
	u8 *call = r->text + b->ftrace_call, *graph = r->text + b->ftrace_graph_call;
	bool full = r->opts.full;
	s32 rel = (s32)((full ? b->function_full_call : b->function_trace_call) -
			(b->ftrace_call + 5));
	s32 graph_rel = (s32)((full ? b->graph_full_caller : b->ftrace_graph_caller) -
			      (b->ftrace_graph_call + 5));

	assert_int_equal(*call, 0xe9);
	if (r->opts.graph) {
		*graph = 0xe9;
		memcpy(graph + 1, &graph_rel, 4);
		return;
	}
	memcpy(call + 1, &rel, 4);
}

static void link_text(struct rig *r)
{
	const struct agent_blob *b = agent_blob_get();
	agent_s64 v[AGENT_FIX_MAX] = { 0 };
	s64 bias = r->opts.gs_bias;

	v[AGENT_FIX_GS_CURRENT] = (s64)offsetof(struct fake_percpu, current_task) - bias;
	v[AGENT_FIX_GS_CPU] = (s64)offsetof(struct fake_percpu, cpu_number) - bias;
	v[AGENT_FIX_GS_PREEMPT] = (s64)offsetof(struct fake_percpu, preempt_count) - bias;
	v[AGENT_FIX_TASK_PID] = offsetof(struct fake_task, pid);
	v[AGENT_FIX_TASK_TGID] = offsetof(struct fake_task, tgid);
	v[AGENT_FIX_TASK_COMM] = offsetof(struct fake_task, comm);
	v[AGENT_FIX_TASK_START] = offsetof(struct fake_task, start_time);
	v[AGENT_FIX_TASK_MIGRATE] = offsetof(struct fake_task, migration_disabled);
	if (r->opts.no_migrate)
		v[AGENT_FIX_TASK_MIGRATE] = -1;
	r->sites[THUNK] = 0xc3;
	r->sites[PLAIN_RET] = 0xc3;
	if (r->opts.thunk)
		v[AGENT_FIX_RETURN] = (s64)(uintptr_t)(r->sites + THUNK);

	for (u32 i = 0; i < 3 && r->opts.calls; i++)
		v[AGENT_FIX_CALL_STACK + i] =
			(s64)(uintptr_t)(r->sites + (size_t)(RIG_CALL_STACK + i) * SITE_BYTES);

	memcpy(r->text, b->text, b->text_bytes);
	assert_int_equal(agent_link(b, r->hdr, v, r->text), 0);
	choose_tracer(r);
	for (u32 i = 0; i < RIG_SITES; i++)
		make_site(r, i, (u64)(uintptr_t)r->text + b->ftrace_caller);
	assert_int_equal(mprotect(r->text, r->text_bytes + SITES_BYTES, PROT_READ | PROT_EXEC), 0);
}

static void on_step(int sig, siginfo_t *info, void *uc);

/*
 * cli and sti are not for a user process: done here instead. Where instructions are stepped through, the next
 * one would be executed before its trap.
 */
static void on_privileged(int sig, siginfo_t *info, void *uc)
{
	greg_t *regs = ((ucontext_t *)uc)->uc_mcontext.gregs;
	u64 off = (u64)regs[REG_RIP] - (u64)(uintptr_t)open_rig->text;
	u8 insn = off < open_rig->text_bytes ? open_rig->text[off] : 0;

	if (insn != 0xfa && insn != 0xfb) {
		signal(SIGSEGV, SIG_DFL); /* and again */
		return;
	}
	regs[REG_RIP]++;
	cli_done = insn == 0xfa;
	if (regs[REG_EFL] & FLAG_TF)
		on_step(sig, info, uc);
}

bool rig_irqs_off(void)
{
	return cli_done;
}

void rig_open(struct rig *r, const struct rig_opts *opts)
{
	struct agent_header hdr = { .ring_slots = opts->slots,
				    .nr_frames = opts->frames ? opts->frames : FRAMES,
				    .mode = opts->mode,
				    .options = opts->options,
				    .max_depth = opts->max_depth,
				    .threshold = opts->threshold,
				    .site_slots = opts->sites,
				    .task_slots = opts->tasks,
				    .enabled = 1 };

	struct sigaction sa = { .sa_sigaction = on_privileged,
				.sa_flags = SA_SIGINFO | SA_NODEFER };

	memset(r, 0, sizeof(*r));
	r->opts = *opts;
	hdr.stack_max = AGENT_MAX_STACK;
	hdr.calls = opts->calls ? AGENT_CALL_STACK | AGENT_CALL_COPY | AGENT_CALL_STRNCPY : 0;
	hdr.nr_cpus = opts->nr_cpus ? opts->nr_cpus : RIG_CPUS;
	assert_int_equal(agent_layout(&hdr), 0);
	r->data_bytes = agent_data_bytes(&hdr);
	r->text_bytes = agent_text_bytes(&hdr);
	r->map_bytes = r->text_bytes + SITES_BYTES + r->data_bytes + BODIES_BYTES;
	r->map = mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	assert_true(r->map != MAP_FAILED);
	r->text = r->map;
	r->sites = r->map + r->text_bytes;
	r->data = r->sites + SITES_BYTES;
	r->body = data_at(r, r->data_bytes);
	r->hdr = data_at(r, 0);
	r->cpu = data_at(r, AGENT_CPU_OFF);
	hdr.text = (u64)(uintptr_t)r->text;
	hdr.data = (u64)(uintptr_t)r->data;
	*r->hdr = hdr;
	r->frames = data_at(r, hdr.frames_off);
	agent_init_frames(&hdr, 0, hdr.nr_frames, r->frames);
	for (u32 i = 0; i < hdr.nr_cpus; i++)
		r->cpu[i].free_frames = agent_first_frame(&hdr, i);
	link_text(r);

	for (u32 i = 0; i < RIG_TASKS; i++) {
		r->task[i].pid = 100 + i;
		r->task[i].tgid = 50 + i;
		r->task[i].start_time = 1000 + i;
		snprintf(r->task[i].comm, sizeof(r->task[i].comm), "task-%u-of-rig", i);
	}
	for (u32 i = 0; i < RIG_CPUS; i++) {
		r->percpu[i].cpu_number = i;
		r->percpu[i].preempt_count = RIG_PREEMPT_IDLE;
		r->percpu[i].current_task = &r->task[i];
	}
	open_rig = r;
	cli_done = false;
	assert_int_equal(sigaction(SIGSEGV, &sa, NULL), 0);
	rig_on(r, 0);
}

void rig_close(struct rig *r)
{
	munmap(r->map, r->map_bytes);
}

void rig_on(struct rig *r, u32 cpu)
{
	u64 base = (u64)(uintptr_t)&r->percpu[cpu] + (u64)r->opts.gs_bias;

	if (syscall(SYS_arch_prctl, ARCH_SET_GS, base) != 0)
		fail_msg("arch_prctl: %s", strerror(errno));
}

void rig_run(struct rig *r, u32 cpu, u32 task)
{
	r->percpu[cpu].current_task = &r->task[task];
}

static const void *site_entry(const struct rig *r, u32 site)
{
	return r->sites + (size_t)site * SITE_BYTES;
}

void (*rig_function(const struct rig *r, u32 site))(void)
{
	void (*fn)(void);
	const void *entry = site_entry(r, site);

	memcpy(&fn, &entry, sizeof(fn));
	return fn;
}

void rig_body(struct rig *r, u32 site, void (*fn)(void))
{
	r->body[site] = r->sites + PLAIN_RET;
	if (fn)
		memcpy(&r->body[site], &fn, sizeof(fn));
}

void rig_tail(struct rig *r, u32 site, u32 to)
{
	r->body[site] = site_entry(r, to);
}

u32 rig_check_frames(const struct rig *r)
{
	static u8 seen[AGENT_MAX_FRAMES];
	u32 n = r->hdr->nr_frames, in_use = 0, listed = 0;

	memset(seen, 0, n);
	for (u32 cpu = 0; cpu < r->hdr->nr_cpus; cpu++) {
		for (u32 f = (u32)r->cpu[cpu].free_frames; f; f = r->frames[f - 1].next) {
			assert_in_range(f, 1, n);
			assert_int_equal(seen[f - 1]++, 0);
			assert_true(r->frames[f - 1].slot == 0);
			listed++;
		}
	}
	for (u64 i = r->hdr->reclaim_head; i < r->hdr->reclaim_tail; i++) {
		const u32 *ring = data_at(r, r->hdr->reclaim_off);

		assert_int_equal(seen[ring[i % n] - 1]++, 0);
		listed++;
	}
	for (u32 f = 0; f < n; f++)
		in_use += r->frames[f].slot != 0;
	assert_int_equal(listed + in_use, n);
	return in_use;
}

u64 rig_ip(const struct rig *r, u32 site)
{
	u32 low = (u32)(uintptr_t)site_entry(r, site) + (site & 1 ? 4 : 0);

	return (u64)(s64)(s32)low;
}

u64 *rig_ring(struct rig *r, u32 cpu, u64 slot)
{
	u64 off = ((u64)cpu * r->hdr->ring_slots + slot) * AGENT_RECORD_BYTES;

	return data_at(r, r->hdr->ring_off + off);
}

void rig_call(struct rig *r, u32 site)
{
	rig_function(r, site)();
}

u64 rig_regs_parent(void)
{
	return (u64)(s64)(s32)(u32)(uintptr_t)agent_tramp_ret;
}

void rig_call_regs(struct rig *r, u32 site, const u64 in[R_COUNT], u64 out[R_COUNT])
{
	agent_tramp(site_entry(r, site), in, out);
}

static void note_path(u32 off)
{
	u32 i = 0;

	while (i < step.n_path && step.path[i] != off)
		i++;
	if (step.path && i == step.n_path) {
		assert_true(i < RIG_PATH_MAX);
		step.path[step.n_path++] = off;
	}
}

static bool is_now(void)
{
	u32 n = step.at >> 16 & 0x7fff, i = step.at & 0xffff;

	return step.at < RIG_EVERY(0, 0) ? step.count == step.at : step.count % n == i;
}

/* Whatever comes leaves interrupts as they were. */
static void do_inject(void)
{
	bool was = cli_done;

	step.inject(step.rig, step.arg);
	cli_done = was;
}

/* SIGTRAP: before each instruction once TF is set. */
static void on_step(int sig, siginfo_t *info, void *uc)
{
	greg_t *regs = ((ucontext_t *)uc)->uc_mcontext.gregs;
	u64 rip = (u64)regs[REG_RIP];
	u64 off = rip - (u64)(uintptr_t)step.rig->text;
	static const u8 rdtsc[] = { 0x0f, 0x31 };
	u64 *top;

	(void)sig;
	(void)info;
	if (rip == (u64)(uintptr_t)agent_tramp_ret)
		regs[REG_EFL] &= ~FLAG_TF;
	if (off >= step.rig->text_bytes)
		return;
	note_path((u32)off);
	step.low = MIN(step.low, (u64)regs[REG_RSP]);
	step.high = MAX(step.high, (u64)regs[REG_RSP]);
	if (step.flags_pushed && (step.irqs_off || (step.gate_too && cli_done))) {
		top = (u64 *)(uintptr_t)regs[REG_RSP]; /* NOLINT(performance-no-int-to-ptr) */
		*top &= ~(u64)FLAG_IF;
	}
	step.flags_pushed = step.rig->text[off] == 0x9c;
	if (step.inject && is_now()) {
		do_inject();
		if (step.at < RIG_EVERY(0, 0))
			regs[REG_EFL] &= ~FLAG_TF;
	}
	step.count++;
	while (fake_tsc && memcmp(step.rig->text + off, rdtsc, sizeof(rdtsc)) == 0) {
		regs[REG_RAX] = (u32)fake_tsc;
		regs[REG_RDX] = (s64)(fake_tsc >> 32);
		regs[REG_RIP] += 2;
		fake_tsc += fake_tick;
		off += 2;
		note_path((u32)off); /* executed before the next trap */
	}
}

/* At the entry only r10 and r11 are the agent's; at the return, all that is not the caller's. */
static bool kept(const struct rig *r, int reg)
{
	if (reg == R_R10 || reg == R_R11)
		return false;
	if (!r->opts.graph)
		return true;
	return reg != R_RCX && reg != R_RSI && reg != R_RDI && reg != R_R8 && reg != R_R9;
}

static void some_regs(u64 in[R_COUNT], u64 flags)
{
	for (int i = 0; i < R_FLAGS; i++)
		in[i] = 0x0101010101010101ull * (u64)(i + 1);
	in[R_FLAGS] = flags | FLAG_IF | 2;
}

static void step_call(struct rig *r, u32 site, u64 flags, void (*on_trap)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, old;
	u64 in[R_COUNT], out[R_COUNT];

	some_regs(in, flags);
	assert_int_equal(sigaction(SIGTRAP, &sa, &old), 0);
	agent_tramp(site_entry(r, site), in, out);
	assert_int_equal(sigaction(SIGTRAP, &old, NULL), 0);
	for (int i = 0; i < R_FLAGS; i++)
		if (kept(r, i) && in[i] != out[i])
			fail_msg("register %d: %#llx became %#llx, step %u", i,
				 (unsigned long long)in[i], (unsigned long long)out[i], step.at);
	assert_int_equal(out[R_RSP], 0);
}

void rig_call_irqs(struct rig *r, u32 site, const u64 in[R_COUNT], u64 out[R_COUNT], bool irqs_off)
{
	struct sigaction sa = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO }, old;
	u64 with[R_COUNT];

	memcpy(with, in, sizeof(with));
	with[R_FLAGS] |= FLAG_TF;
	memset(&step, 0, sizeof(step));
	step.rig = r;
	step.irqs_off = irqs_off;
	step.gate_too = true;
	step.low = ~0ull;
	assert_int_equal(sigaction(SIGTRAP, &sa, &old), 0);
	agent_tramp(site_entry(r, site), with, out);
	assert_int_equal(sigaction(SIGTRAP, &old, NULL), 0);
}

u32 rig_path(struct rig *r, u32 site, u32 off[RIG_PATH_MAX])
{
	memset(&step, 0, sizeof(step));
	step.rig = r;
	step.path = off;
	step.low = ~0ull;
	/* steps take long where the machine is busy; the path is that of a call at full speed */
	rig_tsc(1 << 20, 16);
	step_call(r, site, FLAG_TF, on_step);
	rig_tsc(0, 0);
	return step.n_path;
}

static u8 broken; /* the byte that a breakpoint stands for */

static void put_byte(struct rig *r, u8 *at, u8 v)
{
	assert_int_equal(mprotect(r->text, r->text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	*at = v;
	assert_int_equal(mprotect(r->text, r->text_bytes, PROT_READ | PROT_EXEC), 0);
}

static void on_break(int sig, siginfo_t *info, void *uc)
{
	greg_t *regs = ((ucontext_t *)uc)->uc_mcontext.gregs;
	u64 off = (u64)--regs[REG_RIP] - (u64)(uintptr_t)step.rig->text;

	(void)sig;
	(void)info;
	assert_true(off < step.rig->text_bytes);
	put_byte(step.rig, step.rig->text + off, broken);
	do_inject();
}

void rig_break(struct rig *r, u32 site, u32 off, void (*inject)(struct rig *r, void *arg),
	       void *arg)
{
	memset(&step, 0, sizeof(step));
	step.rig = r;
	step.at = off;
	step.inject = inject;
	step.arg = arg;
	broken = r->text[off];
	put_byte(r, r->text + off, 0xcc);
	step_call(r, site, 0, on_break);
}

unsigned int rig_step(struct rig *r, u32 site, unsigned int at,
		      void (*inject)(struct rig *r, void *arg), void *arg, bool irqs_off)
{
	memset(&step, 0, sizeof(step));
	step.rig = r;
	step.at = at;
	step.inject = inject;
	step.arg = arg;
	step.irqs_off = irqs_off;
	step.low = ~0ull;
	step_call(r, site, FLAG_TF, on_step);
	return step.count;
}

void rig_site(struct rig *r, u32 site, u32 what)
{
	struct agent_site *table = data_at(r, r->hdr->sites_off);

	assert_int_equal(agent_put_site(r->hdr, table, (u32)rig_ip(r, site), what), 0);
}

void rig_tsc(u64 tsc, u64 tick)
{
	fake_tsc = tsc;
	fake_tick = tick;
}

u32 rig_stack(void)
{
	return (u32)(step.high - step.low);
}

static int io_read(void *arg, u64 off, void *buf, size_t len)
{
	const struct rig *r = arg;
	const u64 *from;
	u64 *to = buf;

	if (off % 8 || len % 8 || off > r->data_bytes || len > r->data_bytes - off)
		return -EFAULT;
	from = data_at(r, off);
	for (size_t i = 0; i < len / 8; i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
	return 0;
}

static int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	const struct rig *r = arg;
	u64 v;

	if (off % 8 || len != 8 || off > r->data_bytes - 8)
		return -EFAULT;
	memcpy(&v, buf, 8);
	__atomic_store_n((u64 *)data_at(r, off), v, __ATOMIC_RELEASE);
	return 0;
}

struct ring_io rig_io(struct rig *r)
{
	return (struct ring_io){ io_read, io_write, r };
}
