// SPDX-License-Identifier: Apache-2.0
/* A vCPU's thread: in and out of KVM_RUN. See machine.h. */
#include "machine/machine.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#define KICK SIGUSR1

static void on_kick(int sig)
{
	(void)sig; /* its coming is enough: KVM_RUN returns */
}

void vcpu_catch_kicks(void)
{
	struct sigaction act = { .sa_handler = on_kick };

	sigaction(KICK, &act, NULL);
}

/* immediate_exit is for a vCPU that is about to enter the guest and would not notice the signal. */
void vcpu_kick(struct vcpu *v)
{
	__atomic_store_n(&v->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	pthread_kill(v->thread, KICK);
}

void vcpu_nudge(struct vcpu *v)
{
	pthread_kill(v->thread, KICK);
}

static void handle_io(struct vcpu *v)
{
	const struct kvm_run *run = v->run;
	u8 *data = (u8 *)v->run + run->io.data_offset;

	for (u32 i = 0; i < run->io.count; i++, data += run->io.size)
		bus_access(&v->m->pio, run->io.port, data, run->io.size,
			   run->io.direction == KVM_EXIT_IO_OUT);
}

static bool handle_system_event(struct vcpu *v)
{
	switch (v->run->system_event.type) {
	case KVM_SYSTEM_EVENT_SHUTDOWN:
		machine_end(v->m, EXIT_GUEST_ENDED, "the guest shut down");
		break;
	case KVM_SYSTEM_EVENT_RESET:
		machine_reset(v->m, "reset itself");
		break;
	default:
		machine_end(v->m, EXIT_GUEST_FAILED, "the guest crashed (system event %u)",
			    v->run->system_event.type);
		break;
	}
	return false;
}

static bool handle_internal_error(struct vcpu *v)
{
	const struct kvm_run *run = v->run;

	if (run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION)
		return vcpu_emulation_failed(v);
	vcpu_dump(v);
	machine_end(v->m, EXIT_GUEST_FAILED, "vCPU %u: KVM failed (internal error %u)", v->id,
		    run->internal.suberror);
	return false;
}

/* A triple fault is also how some kernels restart a machine; which it was, they alone know: it is asked for. */
static bool handle_shutdown(struct vcpu *v)
{
	if (v->m->triple_fault_resets) {
		machine_reset(v->m, "reset itself by a triple fault");
		return false;
	}
	vcpu_dump(v);
	machine_end(v->m, EXIT_GUEST_FAILED, "the guest ended in a triple fault of vCPU %u", v->id);
	return false;
}

/* Return: true to run the guest again. */
static bool handle_exit(struct vcpu *v)
{
	struct kvm_run *run = v->run;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		handle_io(v);
		return true;
	case KVM_EXIT_MMIO:
		bus_access(&v->m->mmio, run->mmio.phys_addr, run->mmio.data, run->mmio.len,
			   run->mmio.is_write);
		return true;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		return true;
	case KVM_EXIT_DEBUG:
		return debug_exit(v);
	case KVM_EXIT_SHUTDOWN:
		return handle_shutdown(v);
	case KVM_EXIT_SYSTEM_EVENT:
		return handle_system_event(v);
	case KVM_EXIT_INTERNAL_ERROR:
		return handle_internal_error(v);
	case KVM_EXIT_FAIL_ENTRY:
		vcpu_dump(v);
		machine_end(v->m, EXIT_GUEST_FAILED,
			    "vCPU %u: the CPU refuses to run it (reason 0x%llx)", v->id,
			    (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
		return false;
	default:
		vcpu_dump(v);
		machine_end(v->m, EXIT_GUEST_FAILED,
			    "vCPU %u: KVM asks for what is not known here (%u)", v->id,
			    run->exit_reason);
		return false;
	}
}

/* Who steps is in the guest while all are to be out, until it is done or told to leave, too. */
static bool may_run(const struct vcpu *v)
{
	return !__atomic_load_n(&v->m->leave, __ATOMIC_SEQ_CST) ||
	       (v->steps &&
		(v->finishes || !__atomic_load_n(&v->run->immediate_exit, __ATOMIC_SEQ_CST)));
}

/* Until it is to leave, or has nothing to go back to. */
static void run(struct vcpu *v)
{
	struct machine *m = v->m;

	while (may_run(v)) {
		int rc = ioctl(v->fd, KVM_RUN, 0), no = errno;

		if (__atomic_load_n(&m->debug.armed, __ATOMIC_RELAXED))
			debug_look(v);
		if (rc == 0) {
			if (handle_exit(v)) {
				if (v->steps)
					debug_handled(v);
				continue;
			}
		} else if (no == EINTR || no == EAGAIN) {
			debug_finished(v);
			continue;
		} else if (no == EFAULT) {
			vcpu_dump(v);
			machine_end(m, EXIT_GUEST_FAILED,
				    "vCPU %u: the host has no memory for the guest's", v->id);
		} else {
			machine_end(m, EXIT_GUEST_FAILED, "vCPU %u: KVM_RUN: %s", v->id,
				    strerrordesc_np(no));
		}
		v->done = true;
		return;
	}
}

void *vcpu_thread(void *arg)
{
	struct vcpu *v = arg;

	while (life_wait(v))
		run(v);
	return NULL;
}
