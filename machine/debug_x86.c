// SPDX-License-Identifier: Apache-2.0
/* Breakpoints and single steps of a guest's vCPUs. See debug_x86.h. */
#include "machine/debug_impl_x86.h"

#include "base/clock.h"
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define TICK_MS 100
#define NEVER   (-1)
#define ORDER_NS \
	(2 * NSEC_PER_SEC) /* who gave it holds the vCPUs, and has to let go of them first */

/* With go_lock, or before there are other threads. */
static void show(struct machine *m, enum debug_state state, enum debug_reason reason)
{
	struct debug_page *p = m->debug.page;

	if (!p)
		return;
	__atomic_store_n(&p->seq, p->seq + 1, __ATOMIC_SEQ_CST);
	p->state = state;
	p->reason = reason;
	p->until_ns = m->debug.until_ns;
	if (state == DEBUG_HIT) {
		p->vcpu = m->debug.hit_vcpu;
		p->addr = m->debug.hit.addr;
	}
	__atomic_store_n(&p->seq, p->seq + 1, __ATOMIC_SEQ_CST);
}

static void show_order(struct machine *m, u64 addr)
{
	struct debug_page *p = m->debug.page;

	if (!p)
		return;
	__atomic_store_n(&p->seq, p->seq + 1, __ATOMIC_SEQ_CST);
	p->orders++;
	p->addr = addr;
	p->state = DEBUG_TAKEN;
	__atomic_store_n(&p->seq, p->seq + 1, __ATOMIC_SEQ_CST);
}

int debug_init(struct machine *m, struct err *err)
{
	struct debug *d = &m->debug;
	int flags;
	void *p;

	d->can = ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_SET_GUEST_DEBUG) > 0 &&
		 ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_DEBUGREGS) > 0;
	flags = ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_SET_GUEST_DEBUG2);
	d->can_block_irqs = flags > 0 && (flags & KVM_GUESTDBG_BLOCKIRQ);
	d->fd = memfd_create(DEBUG_PAGE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (d->fd < 0 || ftruncate(d->fd, PAGE_SIZE) < 0 ||
	    fcntl(d->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_set(err, -errno, ERR_NO_MEMORY, 0,
			       "cannot make the page of breakpoints: %s", strerrordesc_np(errno));
	p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
	if (p == MAP_FAILED)
		return err_set(err, -errno, ERR_NO_MEMORY, 0,
			       "cannot map the page of breakpoints: %s", strerrordesc_np(errno));
	d->page = p;
	d->page->version = DEBUG_PAGE_VERSION;
	return 0;
}

void debug_deinit(struct machine *m)
{
	if (m->debug.page)
		munmap(m->debug.page, PAGE_SIZE);
	if (m->debug.fd >= 0)
		close(m->debug.fd);
	m->debug = (struct debug){ .fd = -1 };
}

/* All vCPUs, which are out; with go_lock. Return: 0, or what KVM said of one of them. */
static int set_all(struct machine *m)
{
	struct debug *d = &m->debug;
	bool armed = false;
	int rc = 0;

	for (u32 i = 0; i < DEBUG_POINTS; i++)
		armed = armed || d->point[i].kind != DEBUG_FREE;
	for (u32 i = 0; i < m->n_vcpus; i++) {
		int no = debug_set_vcpu(&m->vcpu[i], false);

		rc = rc ? rc : no;
	}
	__atomic_store_n(&d->armed, armed, __ATOMIC_SEQ_CST);
	return rc;
}

struct debug_point *debug_find(struct debug *d, enum debug_kind kind, u64 addr)
{
	for (u32 i = 0; i < DEBUG_POINTS; i++) {
		if (d->point[i].kind == kind && d->point[i].addr == addr)
			return &d->point[i];
	}
	return NULL;
}

/* Those of a kind. Return: were there any? */
static bool forget(struct debug *d, enum debug_kind kind)
{
	bool any = false;

	for (u32 i = 0; i < DEBUG_POINTS; i++) {
		if (d->point[i].kind != kind)
			continue;
		d->point[i] = (struct debug_point){ .kind = DEBUG_FREE };
		any = true;
	}
	return any;
}

/* All are out; with go_lock. @reason_ret says on failure what the page says. */
static int add(struct machine *m, enum debug_kind kind, u64 addr, enum debug_reason *reason_ret,
	       struct err *err)
{
	struct debug *d = &m->debug;
	struct debug_point *p = debug_find(d, DEBUG_FREE, 0);
	int rc;

	if (debug_find(d, kind, addr))
		return 0;
	*reason_ret = DEBUG_NO_KVM;
	if (!d->can)
		return err_set(err, -ENOTSUP, ERR_IO, addr, "KVM here has no breakpoints");
	*reason_ret = DEBUG_FULL;
	if (!p)
		return err_set(err, -ENOSPC, ERR_CONFLICT, addr,
			       "there are %u breakpoints already, and the CPU has no more",
			       DEBUG_POINTS);
	*reason_ret = DEBUG_DR7;
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (debug_uses_dr7(&m->vcpu[i]))
			return err_set(err, -EBUSY, ERR_CONFLICT, addr,
				       "the guest uses debug registers of vCPU %u itself", i);
	}
	*reason_ret = DEBUG_FAILED;
	*p = (struct debug_point){ .kind = kind, .addr = addr };
	rc = set_all(m);
	if (!rc)
		return 0;
	*p = (struct debug_point){ .kind = DEBUG_FREE };
	(void)set_all(m);
	return err_set(err, rc, ERR_IO, addr, "KVM: a breakpoint: %s", strerrordesc_np(-rc));
}

void debug_show_held(struct machine *m, bool held)
{
	m->debug.held = held;
	if (m->debug.page)
		__atomic_store_n(&m->debug.page->held, held, __ATOMIC_SEQ_CST);
}

void debug_end_hold(struct machine *m)
{
	debug_show_held(m, false);
	m->debug.told = false;
	m->debug.hit = (struct debug_point){ .kind = DEBUG_FREE };
	for (u32 i = 0; i < m->n_vcpus; i++)
		m->vcpu[i].shown = false;
}

bool debug_held_by(const struct debug *d, enum debug_kind kind)
{
	return d->held && d->hit.kind == kind;
}

static void forget_order(struct machine *m)
{
	struct debug *d = &m->debug;

	if (forget(d, DEBUG_BY_ORDER))
		(void)set_all(m);
	if (debug_held_by(d, DEBUG_BY_ORDER))
		debug_end_hold(m);
	d->until_ns = 0;
}

void debug_end_order(struct machine *m, enum debug_reason reason)
{
	forget_order(m);
	show(m, DEBUG_OVER, reason);
}

/* What is asked for; carried out with go_lock, when all are out. */
struct request {
	struct machine *m;
	u64 addr;
	enum debug_reason reason;
	struct err *err;
	int rc;
};

static int ask(struct request *r, u64 limit_ns, void (*look)(void *arg))
{
	u64 window_ns;
	int rc = life_look(r->m, limit_ns, look, r, &window_ns, r->err);

	return rc ? rc : r->rc;
}

static void do_break(void *arg)
{
	struct request *r = arg;

	r->rc = add(r->m, DEBUG_KEPT, r->addr, &r->reason, r->err);
}

int debug_break(struct machine *m, u64 addr, struct err *err)
{
	struct request r = { .m = m, .addr = addr, .err = err };

	return ask(&r, DEBUG_LEAVE_NS, do_break);
}

static void do_unbreak(void *arg)
{
	struct request *r = arg;
	struct debug_point *p = debug_find(&r->m->debug, DEBUG_KEPT, r->addr);

	if (!p) {
		r->rc = err_set(r->err, -ENOENT, ERR_CONFLICT, r->addr,
				"there is no breakpoint at 0x%llx", (unsigned long long)r->addr);
		return;
	}
	*p = (struct debug_point){ .kind = DEBUG_FREE };
	(void)set_all(r->m);
}

int debug_unbreak(struct machine *m, u64 addr, struct err *err)
{
	struct request r = { .m = m, .addr = addr, .err = err };

	return ask(&r, DEBUG_LEAVE_NS, do_unbreak);
}

static void do_drop(void *arg)
{
	struct request *r = arg;
	struct debug *d = &r->m->debug;

	if (forget(d, DEBUG_KEPT))
		(void)set_all(r->m);
	if (debug_held_by(d, DEBUG_KEPT))
		debug_end_hold(r->m);
}

void debug_status(struct machine *m, char *buf, size_t cap)
{
	const struct debug *d = &m->debug;
	size_t n = 0;

	buf[0] = 0;
	pthread_mutex_lock(&m->go_lock);
	if (d->held)
		n = (size_t)snprintf(buf, cap, " held_vcpu %u held_at %llx", d->hit_vcpu,
				     (unsigned long long)d->hit.addr);
	if (d->not_ours && n < cap)
		snprintf(buf + n, cap - n, " debug_not_ours %llu", (unsigned long long)d->not_ours);
	pthread_mutex_unlock(&m->go_lock);
}

int debug_drop(struct machine *m, struct err *err)
{
	struct request r = { .m = m, .err = err };

	return ask(&r, DEBUG_LEAVE_NS, do_drop);
}

static void do_order(void *arg)
{
	struct request *r = arg;
	struct machine *m = r->m;

	if (!r->addr) {
		debug_end_order(m, DEBUG_WAS_TOLD);
		return;
	}
	/* the page says that it was taken until it is done: whoever waits for that takes anything else for the end */
	forget_order(m);
	if (add(m, DEBUG_BY_ORDER, r->addr, &r->reason, r->err) < 0) {
		show(m, DEBUG_OVER, r->reason);
		return;
	}
	m->debug.until_ns = monotonic_ns() + DEBUG_ARMED_NS;
	show(m, DEBUG_ARMED, 0);
}

static void do_expire(void *arg)
{
	struct request *r = arg;

	/* it may have been hit, or another order come, meanwhile */
	if (r->m->debug.until_ns == r->addr)
		debug_end_order(r->m, DEBUG_EXPIRED);
	else
		r->rc = -EALREADY;
}

void debug_order(struct machine *m, u64 addr)
{
	struct err err = { 0 };
	struct request r = { .m = m, .addr = addr, .err = &err };

	life_pause(m);
	pthread_mutex_lock(&m->go_lock);
	show_order(m, addr);
	pthread_mutex_unlock(&m->go_lock);
	if (ask(&r, ORDER_NS, do_order)) {
		pthread_mutex_lock(&m->go_lock);
		/* what there was before is tried again, see debug_tick() */
		if (m->debug.until_ns)
			m->debug.until_ns = monotonic_ns();
		show(m, DEBUG_OVER, DEBUG_STUCK);
		pthread_mutex_unlock(&m->go_lock);
	}
	life_unpause(m);
}

int debug_tick(struct machine *m)
{
	struct err err = { 0 };
	struct request r = { .m = m, .err = &err };
	struct debug *d = &m->debug;
	bool expired, again;

	pthread_mutex_lock(&m->go_lock);
	for (u32 i = 0; d->armed && !m->leave && i < m->n_vcpus; i++) {
		if (m->vcpu[i].started)
			vcpu_nudge(&m->vcpu[i]);
	}
	r.addr = d->until_ns;
	expired = d->until_ns && monotonic_ns() >= d->until_ns;
	again = d->armed || d->until_ns;
	pthread_mutex_unlock(&m->go_lock);
	if (expired && ask(&r, DEBUG_LEAVE_NS, do_expire) == 0)
		machine_tell(
			m,
			"nobody asked for more in time: the guest runs, with no breakpoint by order");
	return again ? TICK_MS : NEVER;
}

/* All breakpoints go; a hold is left to who let it come to it. */
static void give_up(struct machine *m)
{
	struct debug *d = &m->debug;
	bool order = forget(d, DEBUG_BY_ORDER);

	d->dr7_used = false;
	(void)forget(d, DEBUG_KEPT);
	(void)set_all(m);
	if (order) {
		d->until_ns = 0;
		show(m, DEBUG_OVER, DEBUG_DR7);
	}
	machine_tell(m, "the guest uses its debug registers: breakpoints are given up");
	life_let_go(m);
}

void debug_all_out(struct machine *m)
{
	struct debug *d = &m->debug;

	if (d->held && !d->told) {
		d->told = true;
		if (d->hit.kind == DEBUG_BY_ORDER) {
			(void)forget(d, DEBUG_BY_ORDER);
			(void)set_all(m);
			d->until_ns = monotonic_ns() + DEBUG_HOLD_NS;
			show(m, DEBUG_HIT, 0);
		}
		machine_tell(m, "vCPU %u is at the breakpoint 0x%llx: the guest is held",
			     d->hit_vcpu, (unsigned long long)d->hit.addr);
	}
	if (d->dr7_used)
		give_up(m);
}

void debug_new_life(struct machine *m)
{
	struct debug *d = &m->debug;
	bool order = forget(d, DEBUG_BY_ORDER) || debug_held_by(d, DEBUG_BY_ORDER);

	debug_end_hold(m);
	d->stepper = NULL;
	d->dr7_used = false;
	if (order) {
		d->until_ns = 0;
		show(m, DEBUG_OVER, DEBUG_RESET);
	}
	if (d->armed && set_all(m)) {
		(void)forget(d, DEBUG_KEPT);
		(void)set_all(m);
		machine_tell(m, "breakpoints could not be kept in the guest's next life");
	}
}
