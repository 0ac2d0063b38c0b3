// SPDX-License-Identifier: Apache-2.0
/* Breakpoints and single steps, where a vCPU's own thread is concerned. See debug_x86.h. */
#include "machine/debug_impl_x86.h"

#include "base/clock.h"
#include "machine/machine.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define DR6_CAUSES  0xe00full /* B0-B3, BD, BS, BT: Intel SDM 18.2.3, debug status register */
#define DR7_FIXED   0x400ull
#define DR7_GLOBAL  2ull
#define DR7_ENABLED 0xffull /* L0-G3 */
#define DR7_GD      0x2000ull /* any access to a debug register is an exception */
#define VECTOR_DB   1

int debug_set_vcpu(const struct vcpu *v, bool step)
{
	const struct debug *d = &v->m->debug;
	struct kvm_guest_debug g = { 0 };

	for (u32 i = 0; !step && i < DEBUG_POINTS; i++) {
		if (d->point[i].kind == DEBUG_FREE)
			continue;
		/* type and length 0: execution */
		g.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP;
		g.arch.debugreg[i] = d->point[i].addr;
		g.arch.debugreg[7] |= DR7_FIXED | DR7_GLOBAL << (2 * i);
	}
	if (step)
		g.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP |
			    (d->can_block_irqs ? KVM_GUESTDBG_BLOCKIRQ : 0);
	return ioctl(v->fd, KVM_SET_GUEST_DEBUG, &g) < 0 ? -errno : 0;
}

bool debug_uses_dr7(const struct vcpu *v)
{
	struct kvm_debugregs r;

	return ioctl(v->fd, KVM_GET_DEBUGREGS, &r) == 0 && (r.dr7 & (DR7_ENABLED | DR7_GD));
}

/* One instruction of @v's. All are out, and the guest is held; with go_lock, which is let go of meanwhile. */
static int step(struct machine *m, struct vcpu *v, struct err *err)
{
	u64 end = monotonic_ns() + DEBUG_LEAVE_NS;
	const struct timespec until = timespec_of(end);
	struct debug *d = &m->debug;
	u32 life = m->life;
	int rc = 0;
	bool done;

	d->step_rc = 0;
	d->stepper = v;
	pthread_cond_broadcast(&m->go);
	pthread_cond_broadcast(&m->all_out);
	while (d->stepper == v && !m->stopping && !m->reset_wanted && rc != ETIMEDOUT)
		rc = pthread_cond_clockwait(&m->all_out, &m->go_lock, CLOCK_MONOTONIC, &until);
	done = d->stepper != v;
	d->stepper = NULL;
	if (!done)
		life_get_out(m);
	rc = life_wait_out(m, end + DEBUG_LEAVE_NS, err);
	if (rc)
		return rc;
	if (m->life != life || m->reset_wanted)
		return err_set(err, -ECANCELED, ERR_CONFLICT, 0, "the guest was reset meanwhile");
	if (d->step_rc)
		return err_set(err, d->step_rc, ERR_IO, 0, "KVM: a single step: %s",
			       strerrordesc_np(-d->step_rc));
	return done ? 0
		    : err_set(err, -ETIMEDOUT, ERR_CONFLICT, 0,
			      "vCPU %u executed nothing: it halts, or waits to be started", v->id);
}

static int check_held(struct machine *m, struct err *err)
{
	if (!m->debug.held)
		return err_set(err, -EINVAL, ERR_CONFLICT, 0, "no breakpoint holds the guest");
	return life_wait_out(m, monotonic_ns() + DEBUG_LEAVE_NS, err);
}

int debug_step(struct machine *m, u32 vcpu, u64 *rip_ret, struct err *err)
{
	struct kvm_regs regs;
	struct vcpu *v;
	int rc;

	if (vcpu >= m->n_vcpus)
		return err_set(err, -ENOENT, ERR_BAD_REQUEST, 0, "the guest has vCPUs 0 to %u",
			       m->n_vcpus - 1);
	v = &m->vcpu[vcpu];
	pthread_mutex_lock(&m->go_lock);
	rc = check_held(m, err);
	if (!rc)
		rc = step(m, v, err);
	if (!rc && ioctl(v->fd, KVM_GET_REGS, &regs) < 0)
		rc = kvm_failed(err, "a vCPU's registers");
	if (!rc) {
		v->shown = true;
		v->at = *rip_ret = regs.rip;
	}
	pthread_mutex_unlock(&m->go_lock);
	return rc;
}

int debug_go(struct machine *m, struct err *err)
{
	struct err ignored = { 0 };
	int rc;

	pthread_mutex_lock(&m->go_lock);
	rc = check_held(m, err);
	for (u32 i = 0; !rc && m->debug.held && i < m->n_vcpus; i++) {
		struct vcpu *v = &m->vcpu[i];

		/* one that halts there is past it */
		if (v->shown && debug_find(&m->debug, DEBUG_KEPT, v->at))
			(void)step(m, v, &ignored);
	}
	if (!rc) {
		if (debug_held_by(&m->debug, DEBUG_BY_ORDER))
			debug_end_order(m, DEBUG_WAS_TOLD);
		debug_end_hold(m);
		life_let_go(m);
	}
	pthread_mutex_unlock(&m->go_lock);
	return rc;
}

/* What the guest does to itself, by its flags or its debug registers, came to us: it is its own to handle. */
static bool give_back(struct vcpu *v)
{
	struct kvm_vcpu_events events;
	struct kvm_debugregs regs;

	if (ioctl(v->fd, KVM_GET_DEBUGREGS, &regs) < 0 ||
	    ioctl(v->fd, KVM_GET_VCPU_EVENTS, &events) < 0)
		return false;
	regs.dr6 |= v->run->debug.arch.dr6 & DR6_CAUSES;
	events.exception.injected = 1;
	events.exception.nr = VECTOR_DB;
	events.exception.has_error_code = 0;
	return ioctl(v->fd, KVM_SET_DEBUGREGS, &regs) == 0 &&
	       ioctl(v->fd, KVM_SET_VCPU_EVENTS, &events) == 0;
}

/* The one of ours that @v is at. With go_lock; what is set is changed only while @v is out. */
static const struct debug_point *hit_by(const struct vcpu *v)
{
	const struct kvm_debug_exit_arch *e = &v->run->debug.arch;
	const struct debug *d = &v->m->debug;

	for (u32 i = 0; i < DEBUG_POINTS; i++) {
		if (d->point[i].kind != DEBUG_FREE && d->point[i].addr == e->pc &&
		    (e->dr6 >> i & 1))
			return &d->point[i];
	}
	return NULL;
}

/* Where another vCPU was first, it comes to the breakpoint again. With go_lock. */
static void hold(struct vcpu *v, const struct debug_point *p)
{
	struct debug *d = &v->m->debug;

	if (d->held)
		return;
	debug_show_held(v->m, true);
	d->hit = *p;
	d->hit_vcpu = v->id;
	v->shown = true;
	v->at = p->addr;
	life_get_out(v->m);
}

void debug_enter(struct vcpu *v)
{
	struct debug *d = &v->m->debug;
	struct kvm_regs regs;

	v->steps = v->finishes = false;
	if (d->stepper != v)
		return;
	d->step_rc = ioctl(v->fd, KVM_GET_REGS, &regs) < 0 ? -errno : debug_set_vcpu(v, true);
	if (d->step_rc) {
		d->stepper = NULL;
		return;
	}
	v->steps = true;
	v->from = regs.rip;
	/* it may have left in the middle of one: that is the step then */
	debug_handled(v);
}

void debug_leave(struct vcpu *v)
{
	if (v->steps && debug_set_vcpu(v, false))
		machine_end(v->m, EXIT_GUEST_FAILED, "vCPU %u: KVM does not end a single step",
			    v->id);
	v->steps = v->finishes = false;
}

/* With go_lock. */
static void stepped(struct vcpu *v)
{
	debug_leave(v);
	if (v->m->debug.stepper == v)
		v->m->debug.stepper = NULL;
}

void debug_handled(struct vcpu *v)
{
	v->finishes = true;
	__atomic_store_n(&v->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
}

void debug_finished(struct vcpu *v)
{
	struct machine *m = v->m;
	struct kvm_regs regs;

	if (!v->finishes)
		return;
	v->finishes = false;
	pthread_mutex_lock(&m->go_lock);
	if (ioctl(v->fd, KVM_GET_REGS, &regs) == 0 && regs.rip != v->from)
		stepped(v);
	/* it begins, or goes on, unless it was told to leave for another reason; or nobody holds the guest any more */
	if (!m->leave ||
	    (m->debug.stepper == v && !m->stopping && !m->reset_wanted && !m->n_pauses))
		__atomic_store_n(&v->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&m->go_lock);
}

bool debug_exit(struct vcpu *v)
{
	struct machine *m = v->m;
	const struct debug_point *p;
	bool ours = true;

	pthread_mutex_lock(&m->go_lock);
	p = hit_by(v);
	if (v->steps) {
		stepped(v);
	} else if (p) {
		hold(v, p);
	} else {
		ours = false;
		m->debug.not_ours++;
	}
	pthread_mutex_unlock(&m->go_lock);
	if (ours || give_back(v))
		return true;
	vcpu_dump(v);
	machine_end(m, EXIT_GUEST_FAILED,
		    "vCPU %u: KVM does not take back the guest's debug exception", v->id);
	return false;
}

void debug_look(struct vcpu *v)
{
	struct machine *m = v->m;

	if (!debug_uses_dr7(v))
		return;
	pthread_mutex_lock(&m->go_lock);
	if (m->debug.armed && !m->debug.dr7_used) {
		m->debug.dr7_used = true;
		life_get_out(m);
	}
	pthread_mutex_unlock(&m->go_lock);
}
