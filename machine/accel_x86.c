// SPDX-License-Identifier: Apache-2.0
/*
 * Is KVM on this host fit for running kernels? See accel.h.
 *
 * The guest is 64-bit code at CPL 0 with paging on, as a kernel's is:
 *
 *   0x1000 PML4   0x2000 PDPT   0x3000 PD: one 2 MiB page, identity      0x4000 the loop, then hlt
 *
 * Source: Intel SDM vol. 3A, 4.5 (4-level paging) and 9.8.5 (long mode); Linux
 * Documentation/virt/kvm/api.rst, KVM_SET_SREGS, KVM_RUN.
 */
#include "machine/accel.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#define GUEST_BYTES (64ul * 1024)
#define CODE        0x4000
#define LOOPS       400000ull /* twice as many instructions: 0.3 ms on hardware */
#define LIMIT_USEC  50000
#define FAST_ENOUGH 50e6 /* instructions a second; hardware does 20 times that, emulators a 30th */

struct probe {
	int kvm, vm, vcpu;
	u8 *ram;
	struct kvm_run *run;
	size_t run_bytes;
};

static void on_alarm(int sig)
{
	(void)sig; /* its coming is enough: KVM_RUN returns -EINTR */
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void fill_ram(u8 *ram)
{
	/* dec %rcx; jnz .-3; hlt */
	static const u8 code[] = { 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xf4 };
	const u64 pml4e = 0x2000 | 3, pdpte = 0x3000 | 3, pde = 0x83; /* present, writable; 2 MiB */

	memcpy(ram + 0x1000, &pml4e, sizeof(pml4e));
	memcpy(ram + 0x2000, &pdpte, sizeof(pdpte));
	memcpy(ram + 0x3000, &pde, sizeof(pde));
	memcpy(ram + CODE, code, sizeof(code));
}

static int set_registers(struct probe *p)
{
	struct kvm_segment cs = {
		.limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1
	};
	struct kvm_segment ds = { .limit = 0xffffffff,
				  .selector = 16,
				  .type = 3,
				  .present = 1,
				  .s = 1,
				  .db = 1,
				  .g = 1 };
	struct kvm_regs regs = { .rip = CODE, .rcx = LOOPS, .rflags = 2 };
	struct kvm_sregs s;

	if (ioctl(p->vcpu, KVM_GET_SREGS, &s) < 0)
		return -errno;
	s.cs = cs;
	s.ds = s.es = s.fs = s.gs = s.ss = ds;
	s.cr3 = 0x1000;
	s.cr4 = 1 << 5; /* PAE */
	s.cr0 = 0x80000001; /* PG, PE */
	s.efer = 0x500; /* LMA, LME */
	if (ioctl(p->vcpu, KVM_SET_SREGS, &s) < 0 || ioctl(p->vcpu, KVM_SET_REGS, &regs) < 0)
		return -errno;
	return 0;
}

static int set_up(struct probe *p)
{
	struct kvm_userspace_memory_region region = { .memory_size = GUEST_BYTES };
	int size;

	p->vm = ioctl(p->kvm, KVM_CREATE_VM, 0);
	if (p->vm < 0)
		return -errno;
	p->ram =
		mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->ram == MAP_FAILED)
		return -errno;
	fill_ram(p->ram);
	region.userspace_addr = (u64)(uintptr_t)p->ram;
	if (ioctl(p->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return -errno;
	p->vcpu = ioctl(p->vm, KVM_CREATE_VCPU, 0);
	size = ioctl(p->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (p->vcpu < 0 || size < (int)sizeof(*p->run))
		return -errno;
	p->run_bytes = (size_t)size;
	p->run = mmap(NULL, p->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->vcpu, 0);
	if (p->run == MAP_FAILED)
		return -errno;
	return set_registers(p);
}

static void tear_down(struct probe *p)
{
	if (p->run != MAP_FAILED)
		munmap(p->run, p->run_bytes);
	if (p->ram != MAP_FAILED)
		munmap(p->ram, GUEST_BYTES);
	if (p->vcpu >= 0)
		close(p->vcpu);
	if (p->vm >= 0)
		close(p->vm);
}

/* Run the loop to its end, or until time is up. Return: instructions a second; 0 when it did neither. */
static double measure(struct probe *p)
{
	struct itimerval limit = { .it_value = { 0, LIMIT_USEC } }, off = { 0 };
	struct sigaction act = { .sa_handler = on_alarm }, old;
	struct kvm_regs regs;
	double start, took;
	bool halted;
	int r, no;

	sigaction(SIGALRM, &act, &old);
	setitimer(ITIMER_REAL, &limit, NULL);
	start = now();
	r = ioctl(p->vcpu, KVM_RUN, 0);
	no = errno;
	took = now() - start;
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &old, NULL);
	halted = r == 0 && p->run->exit_reason == KVM_EXIT_HLT;
	if (!halted && !(r < 0 && no == EINTR))
		return 0;
	if (ioctl(p->vcpu, KVM_GET_REGS, &regs) < 0 || regs.rcx > LOOPS || took <= 0)
		return 0;
	return 2.0 * (double)(LOOPS - regs.rcx) / took;
}

void accel_probe(struct accel_verdict *ret)
{
	_cleanup_close_ int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct probe p = { .kvm = kvm, .vm = -1, .vcpu = -1, .ram = MAP_FAILED, .run = MAP_FAILED };
	int r;

	*ret = (struct accel_verdict){ 0 };
	if (kvm < 0) {
		snprintf(ret->why, sizeof(ret->why), "no KVM here (/dev/kvm: %s); using QEMU TCG",
			 strerrordesc_np(errno));
		return;
	}
	r = set_up(&p);
	if (r == 0)
		ret->insns_per_sec = measure(&p);
	tear_down(&p);
	ret->use_kvm = ret->insns_per_sec >= FAST_ENOUGH;
	if (r < 0)
		snprintf(ret->why, sizeof(ret->why), "KVM here makes no guest (%s); using QEMU TCG",
			 strerrordesc_np(-r));
	else if (ret->insns_per_sec <= 0)
		snprintf(ret->why, sizeof(ret->why),
			 "KVM here does not run kernel code; using QEMU TCG");
	else if (!ret->use_kvm)
		snprintf(ret->why, sizeof(ret->why),
			 "KVM here emulates kernel code (%.1f M instructions/s); using QEMU TCG",
			 ret->insns_per_sec / 1e6);
	else
		snprintf(ret->why, sizeof(ret->why),
			 "KVM runs kernel code at speed (%.0f M instructions/s); using it",
			 ret->insns_per_sec / 1e6);
}
