// SPDX-License-Identifier: Apache-2.0
/* seccomp for a guest's process. See sandbox.h. The list has its reasons beside it. */
#include "machine/sandbox.h"

#include <errno.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <malloc.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* clang-format off: a table */
static const int plain_calls[] = {
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(close), /* console, control, events, pid file */
	SCMP_SYS(preadv),
	SCMP_SYS(pwritev),
	SCMP_SYS(preadv2),
	SCMP_SYS(pwritev2),
	SCMP_SYS(fdatasync), /* disks */
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(accept4), /* who comes by a socket */
	SCMP_SYS(getrandom), /* the rng */
	SCMP_SYS(futex),
	SCMP_SYS(sched_yield),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq), /* threads */
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(restart_syscall), /* kicks */
	SCMP_SYS(clock_gettime),
	SCMP_SYS(time), /* the clock, where the vDSO has none */
	SCMP_SYS(brk),
	SCMP_SYS(munmap),
	SCMP_SYS(madvise),
	SCMP_SYS(mremap), /* the C library's heap */
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(lseek), /* stdio */
	SCMP_SYS(ftruncate), /* the pid file at the end */
	SCMP_SYS(gettid),
	SCMP_SYS(getpid),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

/*
 * Of ioctl() only these: running vCPUs, interrupts, what is looked at when a guest fails or is asked about, breakpoints
 * (SET_DEBUGREGS for the exceptions that are the guest's own).
 */
static const unsigned long kvm_ioctls[] = {
	KVM_RUN,       KVM_IRQ_LINE,        KVM_GET_REGS,        KVM_SET_REGS,
	KVM_GET_SREGS, KVM_TRANSLATE,       KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS,
	KVM_GET_MSRS,  KVM_SET_GUEST_DEBUG, KVM_GET_DEBUGREGS,   KVM_SET_DEBUGREGS,
};
/* To make the VM anew when the guest is reset. */
static const unsigned long reboot_ioctls[] = {
	KVM_CREATE_VM,
	KVM_CHECK_EXTENSION,
	KVM_GET_VCPU_MMAP_SIZE,
	KVM_SET_TSS_ADDR,
	KVM_SET_IDENTITY_MAP_ADDR,
	KVM_SET_USER_MEMORY_REGION,
	KVM_CREATE_IRQCHIP,
	KVM_CREATE_PIT2,
	KVM_CREATE_VCPU,
	KVM_SET_CPUID2,
	KVM_GET_SUPPORTED_CPUID,
	KVM_GET_LAPIC,
	KVM_SET_LAPIC,
	KVM_SET_MSRS,
	KVM_SET_SREGS,
};

/* A network card: what its driver takes is known when it is there; packets go out in pieces. */
static const unsigned long net_ioctls[] = { TUNSETOFFLOAD };
static const int net_calls[] = { SCMP_SYS(writev) };

/* Sockets of the guest's: one side may have no more to say. */
static const int vsock_calls[] = { SCMP_SYS(shutdown) };
/* clang-format on */

static int allow_calls(scmp_filter_ctx ctx, const int *calls, size_t n)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	return rc;
}

static int allow_ioctls(scmp_filter_ctx ctx, const unsigned long *ioctls, size_t n)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, ioctls[i]));
	return rc;
}

static int allow_devices(scmp_filter_ctx ctx, const struct sandbox *s)
{
	int rc = 0;

	if (s->reboot)
		rc = allow_ioctls(ctx, reboot_ioctls, ARRAY_SIZE(reboot_ioctls));
	if (!rc && s->net)
		rc = allow_ioctls(ctx, net_ioctls, ARRAY_SIZE(net_ioctls));
	if (!rc && s->net)
		rc = allow_calls(ctx, net_calls, ARRAY_SIZE(net_calls));
	if (!rc && s->vsock)
		rc = allow_calls(ctx, vsock_calls, ARRAY_SIZE(vsock_calls));
	return rc;
}

static int allow_all(scmp_filter_ctx ctx, const struct sandbox *s)
{
	const struct scmp_arg_cmp own_process = { 0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0 };
	int rc;

	rc = allow_calls(ctx, plain_calls, ARRAY_SIZE(plain_calls));
	if (!rc)
		rc = allow_ioctls(ctx, kvm_ioctls, ARRAY_SIZE(kvm_ioctls));
	if (!rc)
		rc = allow_devices(ctx, s);
	if (!rc)
		rc = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 2,
			SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t)s->vm),
			SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, KVM_SET_USER_MEMORY_REGION));
	/* stdio asks whether a file is a terminal; it is told that it is none */
	if (!rc)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, 0x5401 /* TCGETS */));
	/* memory, but none that can be executed */
	if (!rc)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				      SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (!rc)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				      SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* kicks, within this process */
	if (!rc)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, own_process);
	return rc;
}

void sandbox_prepare(void)
{
	/* an arena of a thread's own is trimmed by the C library with an open(), a new one may ask for the CPUs */
	mallopt(M_ARENA_MAX, 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int sandbox_enter(const struct sandbox *s, struct err *err)
{
	(void)s;
	(void)err; /* a sanitizer's run time asks for much more */
	(void)allow_all;
	return 0;
}
#else
int sandbox_enter(const struct sandbox *s, struct err *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int rc = ctx ? 0 : -ENOMEM;

	if (!rc)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	/* KVM_RUN is what counts: decided by few comparisons */
	if (!rc)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!rc)
		rc = allow_all(ctx, s);
	if (!rc)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	if (!rc)
		return 0;
	return err_set(err, rc == -ENOMEM ? rc : -ENOTSUP, ERR_IO, 0,
		       "cannot confine the guest's process by seccomp: %s", strerrordesc_np(-rc));
}
#endif
