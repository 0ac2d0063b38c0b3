// SPDX-License-Identifier: Apache-2.0
/*
 * A VMM of the smallest kind: two vCPUs in long mode, RAM anonymous or in a memfd. It prepares
 * nothing for being traced. Usage: kvm_window_vmm anon|memfd
 * Prints "ready" once its guest runs; exit status 77 when KVM cannot be used.
 */
#include "tests/guest/kvm_window/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

extern const uint8_t guest_code[], guest_code_end[], guest_site[], guest_target[];

static uint8_t *ram;
static int vm_fd;
static int run_bytes;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void skip(const char *what)
{
	fprintf(stderr, "skip: %s: %s\n", what, strerror(errno));
	exit(77);
}

static void store(uint64_t addr, uint64_t v)
{
	memcpy(ram + addr, &v, sizeof(v));
}

/* The first GiB at 0 and at GUEST_HIGH, in 2 MiB pages: present, writable, accessed, dirty. */
static void build_tables(void)
{
	store(GUEST_PML4, GUEST_PDPT_LOW | 3);
	store(GUEST_PML4 + 511 * 8, GUEST_PDPT_HIGH | 3);
	store(GUEST_PDPT_LOW, GUEST_PD | 3);
	store(GUEST_PDPT_HIGH + 510 * 8, GUEST_PD | 3);
	for (uint64_t i = 0; i < 512; i++)
		store(GUEST_PD + i * 8, i << 21 | 0xe3);
}

static void make_ram(const char *kind)
{
	struct kvm_userspace_memory_region region = { .memory_size = GUEST_RAM_BYTES };

	if (strcmp(kind, "memfd") == 0) {
		int fd = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		if (fd < 0 || ftruncate(fd, GUEST_RAM_BYTES) < 0 ||
		    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
			die("memfd");
		ram = mmap(NULL, GUEST_RAM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	} else {
		ram = mmap(NULL, GUEST_RAM_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if (ram == MAP_FAILED)
		die("mmap");
	region.userspace_addr = (uintptr_t)ram;
	if (ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		die("KVM_SET_USER_MEMORY_REGION");
}

static struct kvm_segment segment(uint16_t selector, uint8_t type, int code)
{
	return (struct kvm_segment){ .limit = 0xffffffff,
				     .selector = selector,
				     .type = type,
				     .present = 1,
				     .s = 1,
				     .db = !code,
				     .l = (uint8_t)code,
				     .g = 1 };
}

static void set_registers(int vcpu_fd, int index)
{
	struct kvm_regs regs = { .rflags = 2,
				 .rip = GUEST_HIGH + GUEST_CODE,
				 .rsp = GUEST_HIGH + GUEST_STACK + 4096ull * (unsigned)(index + 1),
				 .rdi = GUEST_HIGH + GUEST_COUNTERS + 4096ull * (unsigned)index };
	struct kvm_sregs s;

	if (ioctl(vcpu_fd, KVM_GET_SREGS, &s) < 0)
		die("KVM_GET_SREGS");
	s.cs = segment(8, 11, 1);
	s.ds = segment(16, 3, 0);
	s.es = s.fs = s.gs = s.ss = s.ds;
	s.cr3 = GUEST_PML4;
	s.cr4 = 0x20; /* PAE */
	s.cr0 = 0x80010033; /* PG WP NE ET MP PE */
	s.efer = 0x500; /* LMA LME */
	if (ioctl(vcpu_fd, KVM_SET_SREGS, &s) < 0 || ioctl(vcpu_fd, KVM_SET_REGS, &regs) < 0)
		die("KVM_SET_REGS");
}

/* Each has a CPU for itself where there are enough, so that both really run at a time. */
static void stay_on_cpu(int index)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || index-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static void *run_vcpu(void *arg)
{
	int index = (int)(intptr_t)arg;
	int fd = ioctl(vm_fd, KVM_CREATE_VCPU, index);
	struct kvm_run *run;

	if (fd < 0)
		die("KVM_CREATE_VCPU");
	run = mmap(NULL, (size_t)run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (run == MAP_FAILED)
		die("kvm_run");
	set_registers(fd, index);
	stay_on_cpu(index);
	for (;;) {
		if (ioctl(fd, KVM_RUN, 0) < 0 && errno != EINTR && errno != EAGAIN)
			die("KVM_RUN");
		if (run->exit_reason != KVM_EXIT_INTR) {
			fprintf(stderr, "vCPU %d: exit %u, suberror %u\n", index, run->exit_reason,
				run->exit_reason == KVM_EXIT_INTERNAL_ERROR ? run->internal.suberror
									    : 0);
			exit(3);
		}
	}
	return NULL;
}

/* A thread of the kind every VMM has: not a vCPU. */
static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void on_signal(int sig)
{
	uint64_t *p = (uint64_t *)(void *)(ram + GUEST_INFO) + 3;

	(void)sig;
	__atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST);
}

static uint64_t loops(int index)
{
	uint64_t *p = (uint64_t *)(void *)(ram + GUEST_COUNTERS + 4096 * index);

	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	uint64_t high = GUEST_HIGH + GUEST_CODE;
	pthread_t thread;
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (kvm < 0)
		skip("/dev/kvm");
	vm_fd = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm_fd < 0)
		skip("KVM_CREATE_VM");
	run_bytes = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	make_ram(argc > 1 ? argv[1] : "anon");
	build_tables();
	memcpy(ram + GUEST_CODE, guest_code, (size_t)(guest_code_end - guest_code));
	store(GUEST_INFO + 8, high + (uint64_t)(guest_site - guest_code));
	store(GUEST_INFO + 16, high + (uint64_t)(guest_target - guest_code));
	store(GUEST_INFO, GUEST_MAGIC);
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&thread, NULL, idle, NULL);
	for (intptr_t i = 0; i < GUEST_VCPUS; i++)
		pthread_create(&thread, NULL, run_vcpu, (void *)i);
	for (int i = 0; i < 10000 && !(loops(0) && loops(1)); i++)
		usleep(1000);
	if (!loops(0) || !loops(1)) {
		fprintf(stderr, "the guest does not run\n");
		exit(2);
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
