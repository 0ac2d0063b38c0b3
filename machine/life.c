// SPDX-License-Identifier: Apache-2.0
/*
 * Lives of a guest: vCPUs go out, and in again, to the same or into a guest that is reset. See machine.h.
 *
 * A reset makes the VM anew, so that nothing of the life before is left in KVM: no register, no clock page
 * that it writes to, no pending interrupt. What is kept is the process, the memory's file and the devices'
 * files; memory is cleared, and gets what was in it before the first instruction.
 */
#include "machine/machine.h"
#include "machine/output.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* With go_lock. It is told before the first one leaves: asleep here, a vCPU is wherever in the guest it was. */
static void set_leave(struct machine *m, bool leave)
{
	struct debug_page *p = m->debug.page;

	if (p && m->leave != leave)
		__atomic_store_n(&p->pauses, p->pauses + 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&m->leave, leave, __ATOMIC_SEQ_CST);
}

void life_get_out(struct machine *m)
{
	set_leave(m, true);
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (m->vcpu[i].started && m->vcpu[i].run)
			vcpu_kick(&m->vcpu[i]);
	}
}

void machine_reset(struct machine *m, const char *why)
{
	if (m->no_reboot) {
		machine_end(m, EXIT_GUEST_ENDED, "the guest %s", why);
		return;
	}
	pthread_mutex_lock(&m->go_lock);
	if (!m->reset_wanted && !m->stopping && m->going) {
		snprintf(m->reset_why, sizeof(m->reset_why), "%s", why);
		m->reset_wanted = true;
		/* one may wait for whoever reads the console: what it was at is lost, and counted */
		output_stop();
		life_get_out(m);
		pthread_cond_broadcast(&m->all_out); /* they may be out already */
	}
	pthread_mutex_unlock(&m->go_lock);
}

u32 machine_life(struct machine *m)
{
	u32 life;

	pthread_mutex_lock(&m->go_lock);
	life = m->life;
	pthread_mutex_unlock(&m->go_lock);
	return life;
}

static int make_anew(struct machine *m, struct err *err)
{
	int rc;

	devices_reset(m);
	for (u32 i = 0; i < m->n_vcpus; i++)
		vcpu_close(&m->vcpu[i]);
	close(m->vm);
	m->vm = -1;
	rc = mem_restore(&m->mem, &m->start, err);
	if (!rc)
		rc = spare_clear(&m->spare, err);
	if (!rc)
		rc = kvm_create_vm(m, err);
	return rc ? rc : machine_add_vcpus(m, err);
}

/* A guest that resets itself without end must not fill a log: the first ones, then each power of two. */
static bool worth_telling(u32 life)
{
	return life < 100 || (life & (life - 1)) == 0;
}

/* All vCPUs are out. With go_lock. */
static void next_life(struct machine *m)
{
	struct err err = { 0 };

	if (make_anew(m, &err) < 0) {
		machine_end(m, EXIT_GUEST_FAILED, "the guest %s and cannot come back: %s",
			    m->reset_why, err.msg);
		/* nobody goes in any more, nor asks for another life: wait to be stopped */
		m->going = m->reset_wanted = false;
		return;
	}
	output_resume();
	m->life++;
	m->reset_wanted = false;
	for (u32 i = 0; i < m->n_vcpus; i++)
		m->vcpu[i].done = false;
	debug_new_life(m);
	set_leave(m, false);
	if (worth_telling(m->life))
		machine_tell(m, "the guest %s: life %u", m->reset_why, m->life);
	pthread_cond_broadcast(&m->go);
}

/* With go_lock. */
static bool may_enter(const struct vcpu *v)
{
	const struct machine *m = v->m;

	return m->going && !m->reset_wanted && !m->n_pauses && !m->debug.dr7_used && !v->done &&
	       (!m->debug.held || m->debug.stepper == v);
}

bool life_wait(struct vcpu *v)
{
	struct machine *m = v->m;
	bool go_on;

	pthread_mutex_lock(&m->go_lock);
	debug_leave(v);
	m->n_out++;
	if (m->n_out == m->n_vcpus)
		debug_all_out(m);
	pthread_cond_broadcast(&m->all_out);
	while (!m->stopping && !may_enter(v)) {
		if (v->id == 0 && m->reset_wanted && m->n_out == m->n_vcpus)
			next_life(m);
		else
			pthread_cond_wait(v->id == 0 ? &m->all_out : &m->go, &m->go_lock);
	}
	m->n_out--;
	go_on = !m->stopping;
	debug_enter(v);
	pthread_mutex_unlock(&m->go_lock);
	return go_on;
}

int life_wait_out(struct machine *m, u64 end_ns, struct err *err)
{
	const struct timespec until = timespec_of(end_ns);
	int rc = 0;

	while (!m->stopping && m->n_out < m->n_vcpus && rc != ETIMEDOUT)
		rc = pthread_cond_clockwait(&m->all_out, &m->go_lock, CLOCK_MONOTONIC, &until);
	if (m->stopping)
		return err_set(err, -ESHUTDOWN, ERR_CONFLICT, 0, "the guest is at its end");
	if (m->n_out < m->n_vcpus)
		return err_set(
			err, -ETIMEDOUT, ERR_PAUSE_TIMEOUT, 0,
			"%u of %u vCPUs did not leave the guest in time: a tracer may hold them, "
			"or a console that nobody reads",
			m->n_vcpus - m->n_out, m->n_vcpus);
	return 0;
}

void life_let_go(struct machine *m)
{
	if (!m->stopping && !m->reset_wanted && !m->n_pauses && !m->debug.held &&
	    !m->debug.dr7_used) {
		for (u32 i = 0; i < m->n_vcpus; i++) {
			if (m->vcpu[i].run)
				__atomic_store_n(&m->vcpu[i].run->immediate_exit, 0,
						 __ATOMIC_SEQ_CST);
		}
		set_leave(m, false);
	}
	pthread_cond_broadcast(&m->go);
	pthread_cond_broadcast(&m->all_out);
}

void life_pause(struct machine *m)
{
	pthread_mutex_lock(&m->go_lock);
	m->n_pauses++;
	life_get_out(m);
	pthread_mutex_unlock(&m->go_lock);
}

void life_unpause(struct machine *m)
{
	pthread_mutex_lock(&m->go_lock);
	m->n_pauses--;
	life_let_go(m);
	pthread_mutex_unlock(&m->go_lock);
}

int life_look(struct machine *m, u64 limit_ns, void (*look)(void *arg), void *arg, u64 *window_ns,
	      struct err *err)
{
	u64 begin = monotonic_ns();
	int rc;

	life_pause(m);
	pthread_mutex_lock(&m->go_lock);
	rc = life_wait_out(m, begin + limit_ns, err);
	if (!rc)
		look(arg);
	pthread_mutex_unlock(&m->go_lock);
	life_unpause(m);
	*window_ns = monotonic_ns() - begin;
	return rc;
}

void life_stop(struct machine *m)
{
	pthread_mutex_lock(&m->go_lock);
	m->stopping = true;
	output_stop(); /* those that wait for whoever reads the console */
	life_get_out(m);
	pthread_cond_broadcast(&m->go);
	pthread_cond_broadcast(&m->all_out);
	pthread_mutex_unlock(&m->go_lock);
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (m->vcpu[i].started)
			pthread_join(m->vcpu[i].thread, NULL);
		m->vcpu[i].started = false;
	}
}
