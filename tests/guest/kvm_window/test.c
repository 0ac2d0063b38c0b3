// SPDX-License-Identifier: Apache-2.0
/*
 * Claim: text of a running KVM guest is changed in short stop windows, by the process id of its VMM
 * alone, and nothing of a window outlives us. The guest's two vCPUs count what they execute. HVF_LONG=1:
 * their site is patched 100,000 times, and they are paused 10,000 times in a row.
 * Usage: kvm_window VMM anon|memfd
 */
#include "tests/guest/kvm_window/layout.h"
#include "vmm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOGGLES      2400
#define PAUSES       500
#define LONG_TOGGLES 100000
#define LONG_PAUSES  10000
#define WAIT_MS      10000
#define PAUSE_NS     (2 * NSEC_PER_SEC)

#define CHECK(cond, ...) check(cond, __LINE__, #cond, __VA_ARGS__)

struct counters {
	struct guest_counters c[GUEST_VCPUS];
};

static pid_t vmm_pid;
static struct guest_info info;
static struct err err;
static bool all_counts;

static void stop_vmm(void)
{
	if (vmm_pid > 0) {
		kill(vmm_pid, SIGKILL);
		waitpid(vmm_pid, NULL, 0);
	}
	vmm_pid = 0;
}

/* A claim that does not hold ends the test, and the guest with it. */
static void printf_like(4, 5) check(bool holds, int line, const char *claim, const char *fmt, ...)
{
	va_list ap;

	if (holds)
		return;
	fprintf(stderr, "line %d: %s: ", line, claim);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	stop_vmm();
	fflush(NULL);
	_exit(1);
}

/*
 * Where more threads are busy than there are CPUs, a window is mostly waiting for the scheduler: who opens and
 * closes it goes first (SCHED_RR, 1), so that the full counts take a minute, not hours. Who may not is slow.
 */
static void be_scheduled(int policy, int priority)
{
	const struct sched_param p = { .sched_priority = priority };

	(void)sched_setscheduler(0, policy, &p);
}

static void start_vmm(const char *exe, const char *kind)
{
	char line[16] = "";
	int status;
	int out[2];

	if (pipe2(out, O_CLOEXEC) < 0)
		exit(2);
	vmm_pid = fork();
	if (vmm_pid == 0) {
		be_scheduled(SCHED_OTHER, 0);
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		close(out[1]);
		execl(exe, exe, kind, (char *)NULL);
		_exit(2);
	}
	close(out[1]);
	if (read(out[0], line, sizeof(line) - 1) <= 0 || strncmp(line, "ready", 5) != 0) {
		waitpid(vmm_pid, &status, 0);
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	close(out[0]);
}

static struct counters counters(struct vm *vm)
{
	struct counters ret;

	for (u64 i = 0; i < GUEST_VCPUS; i++) {
		int rc = vm_read_phys(vm, gpa(GUEST_COUNTERS + i * 4096), &ret.c[i],
				      sizeof(ret.c[i]), &err);

		CHECK(rc == 0, "%s", err.msg);
	}
	return ret;
}

static bool both_went(const struct counters *from, const struct counters *to, u64 n)
{
	return to->c[0].loops - from->c[0].loops >= n && to->c[1].loops - from->c[1].loops >= n;
}

/* Until both vCPUs went round @n times more. */
static void wait_loops(struct vm *vm, u64 n)
{
	struct counters from = counters(vm);

	for (int i = 0; i < WAIT_MS * 20; i++) {
		struct counters now = counters(vm);

		if (both_went(&from, &now, n))
			return;
		usleep(50);
	}
	CHECK(false, "the guest stands still");
}

static void pause_guest(struct vm *vm)
{
	int rc = vm_pause(vm, PAUSE_NS, &err);

	CHECK(rc == 0, "%s", err.msg);
}

static void resume_guest(struct vm *vm)
{
	int rc = vm_resume(vm, &err);

	CHECK(rc == 0, "%s", err.msg);
}

static void write_site(struct vm *vm, bool armed)
{
	static const u8 nop[5] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	struct vm_text t = { .addr = gva(info.site), .len = 5 };
	s32 rel = (s32)(info.target - (info.site + 5));
	u8 back[5];
	int rc;

	memcpy(t.bytes, nop, sizeof(nop));
	if (armed) {
		t.bytes[0] = 0xe8;
		memcpy(t.bytes + 1, &rel, sizeof(rel));
	}
	rc = vm_write_text(vm, &t, 1, &err);
	CHECK(rc == 0, "%s", err.msg);
	rc = vm_read(vm, t.addr, back, sizeof(back), &err);
	CHECK(rc == 0, "%s", err.msg);
	CHECK(memcmp(back, t.bytes, 5) == 0, "the site reads back otherwise");
}

static struct vm *attach(void)
{
	struct vm *vm = NULL;
	char target[32];
	int rc;

	snprintf(target, sizeof(target), "pid:%d", (int)vmm_pid);
	rc = vm_attach(target, &vm, &err);
	CHECK(rc == 0, "%s", err.msg);
	vm_set_root(vm, gpa(GUEST_PML4), 4);
	return vm;
}

static void facts(struct vm *vm)
{
	struct vm_mapping m;
	struct vm_regs regs;
	u8 byte;
	int rc;

	CHECK(vm_accel(vm) == VM_ACCEL_KVM, "accel %d", (int)vm_accel(vm));
	CHECK(vm_vcpu_count(vm) == GUEST_VCPUS, "%u vCPUs", vm_vcpu_count(vm));
	CHECK(vm_ram_count(vm) == 1, "%zu regions", vm_ram_count(vm));
	CHECK(vm_ram(vm, 0)->base.v == 0 && vm_ram(vm, 0)->len_bytes == GUEST_RAM_BYTES, "RAM");
	CHECK(vm_state(vm) == VM_RUNNING, "state");
	rc = vm_read_phys(vm, gpa(GUEST_INFO), &info, sizeof(info), &err);
	CHECK(rc == 0 && info.magic == GUEST_MAGIC, "no magic at 0x%x", GUEST_INFO);
	rc = vm_walk(vm, gva(info.site), &m, &err);
	CHECK(rc == 0, "%s", err.msg);
	CHECK(m.page_bytes == 2 << 20 && m.gpa.v == info.site - GUEST_HIGH && m.writable, "walk");
	rc = vm_read_phys(vm, gpa(GUEST_RAM_BYTES - 1), &byte, 1, &err);
	CHECK(rc == 0, "%s", err.msg);
	rc = vm_read_phys(vm, gpa(GUEST_RAM_BYTES - 1), &regs, 2, &err);
	CHECK(rc == -EFAULT && err.code == ERR_GUEST_MEMORY, "read past the end of RAM: %d", rc);
	rc = vm_vcpu_regs(vm, 0, &regs, &err);
	CHECK(rc == -ENOTSUP, "registers: %d", rc);
	rc = vm_resume(vm, &err);
	CHECK(rc == -EINVAL, "resume without a window: %d", rc);
	rc = vm_write_text(vm, &(struct vm_text){ .addr = gva(info.site), .len = 1 }, 1, &err);
	CHECK(rc == -EINVAL, "text without a window: %d", rc);
}

/* Searching must not have allocated the RAM that the guest never touched. */
static void sparse(struct vm *vm)
{
	u64 total = 0;
	gpa_t at = gpa(0);
	u64 len;
	bool code = false;

	while (vm_next_resident(vm, at, &at, &len)) {
		code = code || (at.v <= GUEST_CODE && at.v + len > GUEST_CODE);
		total += len;
		at.v += len;
	}
	CHECK(code, "the guest's code is not in what is populated");
	CHECK(total < GUEST_RAM_BYTES / 2, "%llu bytes populated", (unsigned long long)total);
}

static int by_value(const void *a, const void *b)
{
	u64 x = *(const u64 *)a;
	u64 y = *(const u64 *)b;

	return (x > y) - (x < y);
}

/* One phase: the counters between two windows, of which the first armed the site or not. */
static void check_phase(const struct counters *from, const struct counters *to, bool armed)
{
	for (int i = 0; i < GUEST_VCPUS; i++) {
		u64 calls = to->c[i].calls - from->c[i].calls;
		u64 hits = to->c[i].hits - from->c[i].hits;
		u64 apart = calls > hits ? calls - hits : hits - calls;

		CHECK(to->c[i].errors == 0, "vCPU %d saw %llu torn iterations", i,
		      (unsigned long long)to->c[i].errors);
		CHECK(to->c[i].calls - to->c[i].loops <= 1, "vCPU %d lost a call", i);
		/* at each end a vCPU may stand between the site and one of its counters */
		if (armed)
			CHECK(apart <= 2, "vCPU %d: armed, %llu calls, %llu hits", i,
			      (unsigned long long)calls, (unsigned long long)hits);
		else
			CHECK(hits <= 1, "vCPU %d: %llu hits while not armed", i,
			      (unsigned long long)hits);
	}
}

static void say_times(const char *kind, const char *what, u64 *ns, int n)
{
	qsort(ns, (size_t)n, sizeof(ns[0]), by_value);
	printf("%s: %d %s: min %llu us, median %llu us, max %llu us\n", kind, n, what,
	       (unsigned long long)ns[0] / 1000, (unsigned long long)ns[n / 2] / 1000,
	       (unsigned long long)ns[n - 1] / 1000);
}

/* A window that stays open over others: the guest stands until it is released, and text can be written. */
static void held(struct vm *vm)
{
	struct counters c, again;
	struct vm_windows before, after;

	vm_windows(vm, &before);
	CHECK(vm_hold(vm, PAUSE_NS, &err) == 0 && vm_held(vm), "%s", err.msg);
	c = counters(vm);
	for (int i = 0; i < 3; i++) {
		pause_guest(vm);
		write_site(vm, i % 2 == 0);
		resume_guest(vm);
		usleep(2000);
	}
	write_site(vm, false);
	again = counters(vm);
	CHECK(memcmp(&c, &again, sizeof(c)) == 0, "the guest runs while it is held");
	CHECK(vm_release(vm, &err) == 0 && !vm_held(vm), "%s", err.msg);
	CHECK(vm_release(vm, &err) == -EINVAL, "released twice");
	vm_windows(vm, &after);
	CHECK(after.count == before.count, "a hold counts as a window");
	wait_loops(vm, 3);
	pause_guest(vm);
	resume_guest(vm);
}

/* One after the other, with nothing between but what the vCPUs get done: none is lost. */
static void pauses(struct vm *vm, const char *kind)
{
	static u64 ns[LONG_PAUSES];
	const int n = all_counts ? LONG_PAUSES : PAUSES;
	struct counters first = counters(vm), last = first;
	struct vm_windows before, w;
	int ran = 0;

	vm_windows(vm, &before);
	for (int i = 0; i < n; i++) {
		struct counters c, again;
		bool busy;

		pause_guest(vm);
		c = counters(vm);
		again = counters(vm);
		CHECK(memcmp(&c, &again, sizeof(c)) == 0, "pause %d: the guest runs", i);
		busy = both_went(&last, &c, 1);
		ran += busy;
		last = c;
		resume_guest(vm);
		if (!busy)
			wait_loops(vm, 1);
		vm_windows(vm, &w);
		ns[i] = w.last_ns;
	}
	CHECK(w.count - before.count == (u64)n, "%llu windows of %d",
	      (unsigned long long)(w.count - before.count), n);
	wait_loops(vm, 3);
	last = counters(vm);
	for (int i = 0; i < GUEST_VCPUS; i++)
		CHECK(last.c[i].loops > first.c[i].loops && !last.c[i].errors, "vCPU %d", i);
	CHECK(ran >= n / 2 - 1, "both vCPUs ran before %d of %d pauses", ran, n);
	say_times(kind, "pauses in a row", ns, n);
	printf("%s: both vCPUs ran before %d of these\n", kind, ran);
}

static void toggle(struct vm *vm, const char *kind)
{
	static u64 ns[LONG_TOGGLES];
	const int n = all_counts ? LONG_TOGGLES : TOGGLES;
	struct counters before = counters(vm);
	struct vm_windows w;
	bool armed = false;

	for (int i = 0; i < n; i++) {
		struct counters c;

		pause_guest(vm);
		c = counters(vm);
		check_phase(&before, &c, armed);
		if (i % 100 == 0) {
			struct counters again;

			usleep(500);
			again = counters(vm);
			CHECK(memcmp(&c, &again, sizeof(c)) == 0, "the guest runs in a window");
		}
		armed = !armed;
		write_site(vm, armed);
		resume_guest(vm);
		before = c;
		vm_windows(vm, &w);
		ns[i] = w.last_ns;
		wait_loops(vm, 3);
	}
	CHECK(!armed, "an even number of toggles");
	CHECK(w.count >= (u64)n, "%llu windows", (unsigned long long)w.count);
	CHECK(counters(vm).c[0].hits > (u64)n && counters(vm).c[1].hits > (u64)n, "few hits");
	say_times(kind, "windows in which a site is patched", ns, n);
}

/* Signals on their way to the VMM's threads while these are stopped must all arrive. */
static void signals(struct vm *vm)
{
	struct vm_progress p;
	u64 sent = 0;
	int rc = vm_progress(vm, &p, &err);

	CHECK(rc == 0, "%s", err.msg);
	CHECK(p.n == GUEST_VCPUS, "%u threads known as vCPUs", p.n);
	for (u32 i = 0; i < 200; i++) {
		struct guest_info now = { 0 };

		if (i & 1)
			syscall(SYS_tgkill, vmm_pid, p.vcpu[i / 2 % p.n].tid, SIGUSR1);
		pause_guest(vm);
		if (!(i & 1))
			syscall(SYS_tgkill, vmm_pid, p.vcpu[i / 2 % p.n].tid, SIGUSR1);
		resume_guest(vm);
		sent++;
		for (int k = 0; k < WAIT_MS && now.signals != sent; k++) {
			rc = vm_read_phys(vm, gpa(GUEST_INFO), &now, sizeof(now), &err);
			CHECK(rc == 0, "%s", err.msg);
			usleep(100);
		}
		CHECK(now.signals == sent, "signal %llu did not arrive", (unsigned long long)sent);
	}
	vm_progress_deinit(&p);
	wait_loops(vm, 3);
}

static void progress(struct vm *vm)
{
	struct vm_progress p;
	int rc = vm_progress(vm, &p, &err);
	int ms = 0;

	CHECK(rc == 0, "%s", err.msg);
	CHECK(!vm_progressed(vm, &p, 3600 * NSEC_PER_SEC), "an hour in no time");
	while (!vm_progressed(vm, &p, NSEC_PER_MSEC) && ms++ < WAIT_MS)
		usleep(1000);
	CHECK(ms < WAIT_MS, "no progress");
	vm_progress_deinit(&p);
}

static void no_time(struct vm *vm)
{
	int rc = vm_pause(vm, 0, &err);

	if (rc == 0) { /* quicker than the clock */
		resume_guest(vm);
		return;
	}
	CHECK(rc == -ETIMEDOUT && err.code == ERR_PAUSE_TIMEOUT, "%d %s", rc, err.msg);
	wait_loops(vm, 3);
	pause_guest(vm);
	resume_guest(vm);
}

static void *resume_elsewhere(void *arg)
{
	resume_guest(arg);
	return NULL;
}

static void any_thread(struct vm *vm)
{
	pthread_t t;

	pause_guest(vm);
	pthread_create(&t, NULL, resume_elsewhere, vm);
	pthread_join(t, NULL);
	wait_loops(vm, 3);
}

static void view(struct vm *vm)
{
	struct vm_view *v = NULL;
	struct guest_counters c[GUEST_VCPUS];
	u8 two[2] = { 0xa5, 0x5a };
	u8 back[2] = { 0 };
	int rc = vm_view_create(vm, gva(GUEST_HIGH + GUEST_COUNTERS), 0x10000, &v, &err);

	CHECK(rc == 0, "%s", err.msg);
	pause_guest(vm);
	for (u64 i = 0; i < GUEST_VCPUS; i++) {
		rc = vm_view_read(v, i * 4096, &c[i], sizeof(c[i]));
		CHECK(rc == 0 && c[i].loops == counters(vm).c[i].loops, "view of vCPU %d", (int)i);
	}
	resume_guest(vm);
	rc = vm_view_write(v, 0xffff, two, 1);
	CHECK(rc == 0, "write");
	rc = vm_view_write(v, 0xffff, two, 2);
	CHECK(rc == -EFAULT, "write past the end");
	rc = vm_view_read(v, UINT64_MAX, back, 2);
	CHECK(rc == -EFAULT, "offset that wraps");
	rc = vm_view_read(v, 0xfffe, back, 2);
	CHECK(rc == 0 && back[1] == 0xa5, "read back");
	vm_view_destroy(v);
}

/* In a process of its own: opens a window, says so, and never ends by itself. */
static int hold(const char *target)
{
	struct vm *vm = NULL;

	if (vm_attach(target, &vm, &err) < 0 || vm_pause(vm, PAUSE_NS, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	if (write(STDOUT_FILENO, "p", 1) != 1)
		return 1;
	for (;;)
		pause();
}

/* kill -9 of a tracer in the middle of a window: the kernel lets the vCPUs go. */
static void tracer_dies(struct vm *vm)
{
	char target[32];
	int out[2];
	char c = 0;
	pid_t pid;

	CHECK(pipe2(out, O_CLOEXEC) == 0, "pipe");
	snprintf(target, sizeof(target), "pid:%d", (int)vmm_pid);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", "kvm_window", "hold", target, (char *)NULL);
		_exit(1);
	}
	close(out[1]);
	CHECK(read(out[0], &c, 1) == 1 && c == 'p', "the other tracer did not get its window");
	close(out[0]);
	{
		struct counters a = counters(vm);
		struct counters b;
		int rc = vm_pause(vm, PAUSE_NS, &err);

		CHECK(rc == -EACCES, "a second tracer: %d", rc);
		usleep(2000);
		b = counters(vm);
		CHECK(memcmp(&a, &b, sizeof(a)) == 0, "the guest runs in the other's window");
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	wait_loops(vm, 100);
	pause_guest(vm);
	resume_guest(vm);
}

static void gone(struct vm *vm)
{
	struct vm_view *v = NULL;
	u64 word;
	int rc = vm_view_create(vm, gva(GUEST_HIGH), 4096, &v, &err);

	CHECK(rc == 0, "%s", err.msg);
	pause_guest(vm);
	kill(vmm_pid, SIGKILL);
	rc = vm_resume(vm, &err);
	CHECK(rc == -ESRCH && err.code == ERR_VMM_GONE, "resume: %d %s", rc, err.msg);
	stop_vmm(); /* whose threads the window has let go of: they can be waited for */
	CHECK(vm_state(vm) == VM_GONE, "state");
	rc = vm_read_phys(vm, gpa(0), &word, sizeof(word), &err);
	CHECK(rc == -ESRCH && err.code == ERR_VMM_GONE, "read: %d", rc);
	rc = vm_write_phys(vm, gpa(0), &word, sizeof(word), &err);
	CHECK(rc == -ESRCH, "write: %d", rc);
	rc = vm_read(vm, gva(info.site), &word, sizeof(word), &err);
	CHECK(rc == -ESRCH, "read by virtual address: %d", rc);
	rc = vm_pause(vm, PAUSE_NS, &err);
	CHECK(rc == -ESRCH, "pause: %d", rc);
	rc = vm_view_read(v, 0, &word, sizeof(word));
	CHECK(rc == -ESRCH, "view: %d", rc);
	vm_view_destroy(v);
}

static void refusals(void)
{
	static const char *const bad[] = {
		"", "pid", "pid:", "pid:x", "pid:-1", "pid:12x", "kvm:1"
	};
	struct vm *vm = NULL;
	char target[32];
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		rc = vm_attach(bad[i], &vm, &err);
		CHECK(rc == -EINVAL && err.code == ERR_TARGET_SYNTAX, "%s: %d", bad[i], rc);
	}
	snprintf(target, sizeof(target), "pid:%d", (int)getpid());
	rc = vm_attach(target, &vm, &err);
	CHECK(rc == -ENODEV && err.code == ERR_TARGET_NOT_VMM, "%d %s", rc, err.msg);
	rc = vm_attach("pid:2147483647", &vm, &err);
	CHECK(rc == -ENOENT && err.code == ERR_TARGET_NO_PROCESS, "%d %s", rc, err.msg);
	rc = vm_attach("qemu:/nonexistent/qmp", &vm, &err);
	CHECK(rc == -ENOENT && err.code == ERR_TARGET_NO_SOCKET, "%d %s", rc, err.msg);
}

int main(int argc, char **argv)
{
	struct vm *vm;

	if (argc != 3) {
		fprintf(stderr, "usage: %s VMM anon|memfd\n", argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "hold") == 0)
		return hold(argv[2]);
	all_counts = getenv("HVF_LONG") && strcmp(getenv("HVF_LONG"), "1") == 0;
	be_scheduled(SCHED_RR, 1);
	refusals();
	start_vmm(argv[1], argv[2]);
	vm = attach();
	facts(vm);
	sparse(vm);
	toggle(vm, argv[2]);
	pauses(vm, argv[2]);
	held(vm);
	signals(vm);
	progress(vm);
	no_time(vm);
	any_thread(vm);
	view(vm);
	tracer_dies(vm);
	gone(vm);
	vm_detach(vm);
	stop_vmm();
	return 0;
}
