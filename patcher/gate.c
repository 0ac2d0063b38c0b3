// SPDX-License-Identifier: Apache-2.0
/* The gate. See gate.h and gate_x86.S. */
#define LOG_PREFIX "gate"
#include "patcher/gate_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "patcher/interlock.h"
#include "patcher/quiesce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CALL_COME_BY_NS (15 * NSEC_PER_SEC)
#define CALL_RUN_NS     (60 * NSEC_PER_SEC)
#define CLOSE_NS        (10 * NSEC_PER_SEC)
#define ARM_AGAIN_NS    NSEC_PER_SEC
#define POLL_NS         (300000ull)

static void gate_free(struct gate *gate)
{
	free(gate->code);
	free(gate->sites);
	free(gate);
}

/*
 * Of a gate that was there when the memory was copied, and whose code did not come with it: the guest wrote the one
 * last, and we took the other away. Nobody is in it, and nothing leads there.
 */
static bool is_left(struct gate *gate, const struct mailbox *box)
{
	struct gate other = { .g = gate->g, .mailbox = gate->mailbox };
	static const u64 none[ARRAY_SIZE(box->pad)];

	return (box->state == MAILBOX_IDLE || box->state == MAILBOX_DONE) && !box->inside &&
	       box->fn >> 63 && box->seq >> 32 && !memcmp(box->pad, none, sizeof(none)) &&
	       !gate_find_code(&other);
}

static int find_mailbox(struct gate *gate, struct err *err)
{
	struct mailbox box;
	static const struct mailbox zero;

	if (!gate_mailbox_place(gate))
		return err_set(err, -ENOSPC, ERR_GUEST_NO_ROOM, 0,
			       "no room for the mailbox in the guest's vmcoreinfo page");
	if (guest_read(gate->g, gate->mailbox, &box, sizeof(box), err))
		return -EFAULT;
	if (memcmp(&box, &zero, sizeof(box)) && !is_left(gate, &box))
		return err_set(
			err, -EBUSY, ERR_GUEST_CHANGED, gate->mailbox,
			"the tail of the vmcoreinfo page is not zero; is another tracer attached?");
	return 0;
}

static int box_write(struct gate *gate, size_t off, const void *v, size_t n, struct err *err)
{
	return vm_write_data(gate->g->vm, gva(gate->mailbox + off), v, n, err);
}

int gate_box_read(struct gate *gate, struct mailbox *box, struct err *err)
{
	return guest_read(gate->g, gate->mailbox, box, sizeof(*box), err);
}

int gate_plan_code(struct gate *gate, const u8 *old, const u8 *code, struct err *err)
{
	size_t n = gate->code_bytes / JOURNAL_TEXT_MAX;
	struct text_change *c = calloc(n, sizeof(*c));

	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the gate");
	for (size_t i = 0; i < n; i++) {
		c[i].addr = gate->cave + i * JOURNAL_TEXT_MAX;
		c[i].len = JOURNAL_TEXT_MAX;
		memcpy(c[i].old, old + i * JOURNAL_TEXT_MAX, JOURNAL_TEXT_MAX);
		memcpy(c[i].new, code + i * JOURNAL_TEXT_MAX, JOURNAL_TEXT_MAX);
	}
	gate->code = c;
	gate->n_code = n;
	return text_journal(gate->g, c, n, JOURNAL_CAVE, err);
}

static int put_code(struct gate *gate, struct err *err)
{
	u8 code[GATE_MAX_BYTES], old[GATE_MAX_BYTES];
	int rc;

	rc = gate_make_code(gate, code, err);
	if (!rc)
		rc = guest_read(gate->g, gate->cave, old, gate->code_bytes, err);
	if (!rc)
		rc = gate_plan_code(gate, old, code, err);
	fault_point("gate.code_journalled");
	if (!rc)
		rc = text_apply(gate->g, gate->code, gate->n_code, err);
	for (size_t i = 0; !rc && i < gate->n_code; i++) {
		if (gate->code[i].result != TEXT_DONE && gate->code[i].result != TEXT_ALREADY)
			rc = err_set(err, -EINVAL, ERR_GUEST_CHANGED, gate->code[i].addr,
				     "the padding at 0x%llx changed under us",
				     (unsigned long long)gate->code[i].addr);
	}
	return rc;
}

static int put_sites(struct gate *gate, struct err *err)
{
	int rc = gate_collect_sites(gate, err);

	/* what is copied away from here on has the code that they lead to */
	if (!rc)
		rc = guest_check_stays(gate->g, err);
	if (!rc)
		rc = text_journal(gate->g, gate->sites, gate->n_sites, JOURNAL_GATE_SITE, err);
	fault_point("gate.sites_journalled");
	if (!rc)
		rc = text_apply(gate->g, gate->sites, gate->n_sites, err);
	return rc;
}

/* Calls are numbered from here on: a number says which gate it was, too. */
static u64 first_seq(void)
{
	u64 seq;

	if (getrandom(&seq, sizeof(seq), 0) != (ssize_t)sizeof(seq))
		seq = monotonic_ns();
	return seq >> 1 | 1ull << 32; /* far from 0, which is no call's, and from the end */
}

/*
 * From now on a copy that is being made has the code, and the call that leads through its interlock. Until then one that
 * switches over to the copy while a task is inside would miss the code: the first task that passes ends that time.
 */
static int write_code_again(struct gate *gate, struct err *err)
{
	u64 args[4] = { REWRITE_TWO, 0, gate->g->hook->addr }, at[2];
	u64 fn = interlock_again_addr(gate_interlock_addr(gate));
	int rc = gate_poke_at(gate, at) ? 0 : -ENOTSUP;

	if (rc)
		return err_set(err, rc, ERR_GUEST_UNSUPPORTED, gate->cave,
			       "the guest cannot write the page at 0x%llx itself",
			       (unsigned long long)gate->cave);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(at); i++) {
		args[1] = at[i];
		if (!i || (at[0] ^ at[1]) & PAGE_MASK)
			rc = gate_call(gate, fn, args, NULL, err);
	}
	gate->written = !rc;
	return rc;
}

int gate_open(struct guest *g, struct gate **ret, struct err *err)
{
	struct err undo = { 0 };
	struct gate *gate;
	int rc;

	/* before anything is noted: a guest that stands still can be given nothing back either */
	if (vm_state(g->vm) == VM_STOPPED)
		return err_set(err, -EBUSY, ERR_GUEST_STOPPED, 0, "%s is stopped", g->target);
	gate = calloc(1, sizeof(*gate));
	if (!gate)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the gate");
	gate->g = g;
	gate->seq = first_seq();
	rc = gate_choose_cave(gate, err);
	if (!rc)
		rc = find_mailbox(gate, err);
	if (!rc)
		rc = journal_mailbox(g->journal, gate->mailbox, err);
	if (rc) { /* nothing was changed yet */
		gate_free(gate);
		return rc;
	}
	rc = put_code(gate, err);
	if (!rc)
		rc = interlock_in(g, gate_interlock_addr(gate), err);
	if (!rc)
		rc = put_sites(gate, err);
	if (!rc && gate->whole)
		rc = write_code_again(gate, err);
	if (rc) {
		if (gate_close(gate, &undo))
			log_error("%s: %s; the journal keeps what is left", g->target, undo.msg);
		return rc;
	}
	fault_point("gate.opened");
	*ret = gate;
	return 0;
}

u64 gate_next_seq(const struct gate *gate)
{
	return gate->seq + 1;
}

/* Take back a job that nobody has claimed: 1 taken back, 0 a task has it. */
static int withdraw(struct gate *gate, struct err *err)
{
	u32 idle = MAILBOX_IDLE;
	struct mailbox box;
	int rc, taken = 0;

	rc = guest_pause(gate->g, err);
	if (rc)
		return rc;
	rc = gate_box_read(gate, &box, err);
	if (!rc && box.state == MAILBOX_ARMED) {
		rc = box_write(gate, 0, &idle, sizeof(idle), err);
		taken = 1;
	}
	if (vm_resume(gate->g->vm, rc ? NULL : err) && !rc)
		rc = -EIO;
	return rc ? rc : taken;
}

/* What the guest's own tracing took away and uses no more leads through the gate again. */
static int arm_again(struct gate *gate, const struct mailbox *box, u64 *last, struct err *err)
{
	u64 now = monotonic_ns();

	if (gate->closing || !box->taken || box->state != MAILBOX_ARMED ||
	    now - *last < ARM_AGAIN_NS)
		return 0;
	*last = now;
	return text_apply(gate->g, gate->sites, gate->n_sites, err);
}

/* @until: or until the task waits inside; 0: no call does that */
static int wait_done(struct gate *gate, struct mailbox *box, u64 until, struct err *err)
{
	u64 start = monotonic_ns(), armed = start;
	int rc;

	for (;;) {
		rc = gate_box_read(gate, box, err);
		if (rc)
			return rc;
		if (box->state == MAILBOX_DONE || (until && box->closing == until))
			return 0;
		rc = arm_again(gate, box, &armed, err);
		if (rc)
			return rc;
		if (box->state == MAILBOX_ARMED && monotonic_ns() - start > CALL_COME_BY_NS) {
			rc = withdraw(gate, err);
			if (rc < 0)
				return rc;
			if (rc)
				return err_set(err, -ETIMEDOUT, ERR_GUEST_GATE, gate->cave,
					       "no task of the guest passed the gate within %llu s",
					       CALL_COME_BY_NS / NSEC_PER_SEC);
		} else if (monotonic_ns() - start > CALL_COME_BY_NS + CALL_RUN_NS) {
			return err_set(err, -ETIMEDOUT, ERR_GUEST_GATE, box->fn,
				       "the guest's function at 0x%llx has not returned",
				       (unsigned long long)box->fn);
		}
		guest_sleep_ns(POLL_NS);
	}
}

/* A call that was given up may come to its end yet: it has the mailbox until then. */
static int check_free(struct gate *gate, struct err *err)
{
	struct mailbox box;
	int rc = gate_box_read(gate, &box, err);

	if (rc || box.state == MAILBOX_IDLE || box.state == MAILBOX_DONE)
		return rc;
	return err_set(err, -EBUSY, ERR_GUEST_GATE, box.fn,
		       "the guest's function at 0x%llx, which was called before, has not returned",
		       (unsigned long long)box.fn);
}

static int arm_call(struct gate *gate, u64 fn, const u64 args[4], struct err *err)
{
	struct mailbox box = { .state = MAILBOX_IDLE, .fn = fn };
	u32 state = MAILBOX_ARMED;
	int rc = check_free(gate, err);

	if (rc)
		return rc;
	box.seq = ++gate->seq;
	memcpy(box.args, args, sizeof(box.args));
	/* for who finds the gate in a copy; no function that is called has a fourth argument */
	box.args[3] = journal_state(gate->g->journal)->alloc[JOURNAL_AGENT_TEXT];
	/* not `inside`: tasks pass by and count themselves all the time */
	rc = box_write(gate, 0, &box.state, sizeof(box.state), err);
	if (!rc)
		rc = box_write(gate, offsetof(struct mailbox, fn), &box.fn,
			       offsetof(struct mailbox, taken) - offsetof(struct mailbox, fn), err);
	if (!rc)
		rc = box_write(gate, 0, &state, sizeof(state), err);
	fault_point("gate.armed");
	return rc;
}

int gate_call(struct gate *gate, u64 fn, const u64 args[4], u64 *ret, struct err *err)
{
	struct mailbox box;
	int rc = arm_call(gate, fn, args, err);

	if (!rc)
		rc = wait_done(gate, &box, 0, err);
	if (rc)
		return rc;
	fault_point("gate.done");
	/* the mailbox keeps DONE and the result until the next call, for a daemon that comes after us */
	if (ret)
		*ret = box.ret;
	return 0;
}

/* Put @c back; what the guest changed meanwhile is left and counted as done. */
static int put_back(struct guest *g, struct text_change *c, size_t n, enum journal_kind kind,
		    struct err *err)
{
	int rc;

	text_swap(c, n);
	rc = text_apply(g, c, n, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (c[i].result == TEXT_DIFFERS)
			log_warn("%s: 0x%llx was changed by the guest; left as it is", g->target,
				 (unsigned long long)c[i].addr);
	}
	return journal_undone(g->journal, kind, err);
}

static int wait_outside(struct gate *gate, struct err *err)
{
	u64 deadline = monotonic_ns() + CLOSE_NS;
	struct mailbox box;
	int rc;

	for (;;) {
		rc = gate_box_read(gate, &box, err);
		if (rc)
			return rc;
		if (!box.inside)
			break;
		if (monotonic_ns() > deadline)
			return err_set(err, -EBUSY, ERR_GUEST_BUSY, gate->cave,
				       "%u task(s) of the guest are still in the gate", box.inside);
		guest_sleep_ns(POLL_NS);
	}
	return quiesce_range(gate->g, gate->cave, gate->cave + gate->code_bytes, CLOSE_NS, err);
}

/* A borrowed call whose result is not in the journal yet: let it end, keep what it gave. */
static int finish_call(struct gate *gate, struct err *err)
{
	struct journal *j = gate->g->journal;
	const struct journal_state *s = journal_state(j);
	struct mailbox box;
	bool ran;
	int rc;

	rc = gate_box_read(gate, &box, err);
	if (rc)
		return rc;
	if (box.state == MAILBOX_ARMED) {
		rc = withdraw(gate, err);
		if (rc < 0)
			return rc;
		box.state = rc ? MAILBOX_IDLE : MAILBOX_RUNNING;
	}
	if (box.state == MAILBOX_RUNNING) {
		rc = wait_done(gate, &box, 0, err);
		if (rc)
			return rc;
	}
	if (!s->pending)
		return 0;
	ran = box.state == MAILBOX_DONE && box.seq == s->pending_seq;
	if (!s->pending_free)
		return journal_alloc(j, s->pending, ran ? box.ret : 0, s->pending_bytes, err);
	if (ran)
		return journal_freed(j, s->pending, err);
	return journal_alloc(j, s->pending, s->alloc[s->pending], s->alloc_bytes[s->pending], err);
}

/*
 * The last call: a task comes and waits inside. Once we have put back what leads here it writes the same, as it is,
 * before we take the code away. So no copy that is being made has the one without the other.
 */
static int begin_close(struct gate *gate, struct err *err)
{
	const u64 args[4] = { (gate->g->hook ? gate->g->hook : gate->sites)->addr }, none = 0;
	struct mailbox box;
	int rc;

	if (gate->closing) /* a task waits already */
		return 0;
	rc = gate_box_read(gate, &box, err);
	if (!rc && box.state == MAILBOX_ARMED)
		rc = MIN(withdraw(gate, err), 0);
	/* one that has not returned keeps the code where it is, and what leads there */
	if (!rc)
		rc = check_free(gate, err);
	if (rc)
		return rc;
	/* the result of one that was given up and has ended since, before the mailbox has another */
	if (journal_state(gate->g->journal)->pending)
		rc = finish_call(gate, err);
	if (!rc)
		rc = box_write(gate, offsetof(struct mailbox, closing), &none, sizeof(none), err);
	gate->closing = true;
	if (!rc)
		rc = arm_call(gate, interlock_back_addr(gate_interlock_addr(gate)), args, err);
	return rc ? rc : wait_done(gate, &box, GATE_WAITS, err);
}

static int end_close(struct gate *gate, struct err *err)
{
	const u64 go_on = GATE_GO_ON;
	struct mailbox box;
	int rc = box_write(gate, offsetof(struct mailbox, closing), &go_on, sizeof(go_on), err);

	if (!rc)
		rc = wait_done(gate, &box, 0, err);
	if (!rc && (u32)box.ret)
		rc = err_set(
			err, -ETIMEDOUT, ERR_GUEST_GATE, gate->cave,
			"the task in the gate did not wait for what leads there to be put back");
	return rc;
}

int gate_close(struct gate *gate, struct err *err)
{
	static const struct mailbox zero;
	struct guest *g = gate->g;
	/* what a copy that is being made may not have stays where it is */
	int rc = gate->written ? begin_close(gate, err) : guest_check_stays(g, err);

	if (!rc && gate->n_sites)
		rc = put_back(g, gate->sites, gate->n_sites, JOURNAL_GATE_SITE, err);
	fault_point("gate.sites_back");
	if (!rc)
		rc = interlock_out(g, err);
	if (!rc && gate->closing)
		rc = end_close(gate, err);
	if (!rc && gate->n_code) {
		rc = wait_outside(gate, err);
		if (!rc)
			rc = put_back(g, gate->code, gate->n_code, JOURNAL_CAVE, err);
	}
	fault_point("gate.code_back");
	/* a call that was given up may have ended since: before its result is wiped */
	if (!rc && journal_state(g->journal)->pending)
		rc = finish_call(gate, err);
	if (!rc)
		rc = box_write(gate, 0, &zero, sizeof(zero), err);
	if (!rc)
		rc = journal_mailbox(g->journal, 0, err);
	gate_free(gate);
	return rc;
}

/* Is it, or is it noted to be, this gate's interlock that the guest's call leads through? */
static bool is_hooked(const struct gate *gate)
{
	const struct text_change *hook = gate->g->hook;
	u64 target;

	return hook && insn_call_target(hook->addr, hook->new, &target) &&
	       target == gate_interlock_addr(gate);
}

/* Are they all in: the interlock, and the call sites that are free? */
static int is_led_to(struct gate *gate, struct err *err)
{
	struct text_change *hook = gate->g->hook;
	int rc;

	if (!is_hooked(gate) || !gate->n_sites)
		return 0;
	rc = text_check(gate->g, hook, 1, err);
	if (!rc)
		rc = text_check(gate->g, gate->sites, gate->n_sites, err);
	if (rc || hook->result != TEXT_ALREADY)
		return rc;
	for (size_t i = 0; i < gate->n_sites; i++) {
		if (gate->sites[i].result == TEXT_TODO)
			return 0;
	}
	return 1;
}

static int hook_again(struct gate *gate, struct err *err)
{
	struct guest *g = gate->g;
	int rc;

	if (!is_hooked(gate))
		return interlock_in(g, gate_interlock_addr(gate), err);
	rc = text_apply(g, g->hook, 1, err); /* not out and in: sites may lead here */
	if (!rc && g->hook->result != TEXT_DONE && g->hook->result != TEXT_ALREADY)
		rc = err_set(err, -EINVAL, ERR_GUEST_CHANGED, g->hook->addr,
			     "the call at 0x%llx, which led through the gate, changed under us",
			     (unsigned long long)g->hook->addr);
	return rc;
}

/*
 * What led to the code and was put back by the host alone, before a daemon died or a task of the guest gave up, leads
 * there once more: so the guest writes all of it as the gate is closed.
 */
static int lead_here(struct gate *gate, struct err *err)
{
	int rc = is_led_to(gate, err);

	if (rc)
		return MIN(rc, 0);
	rc = guest_check_stays(gate->g, err);
	if (!rc)
		rc = hook_again(gate, err);
	if (rc)
		return rc;
	return gate->n_sites ? text_apply(gate->g, gate->sites, gate->n_sites, err)
			     : put_sites(gate, err);
}

/* A gate of this version is closed as its daemon would have done, and its calls are numbered on. */
static int go_on(struct gate *gate, struct err *err)
{
	struct guest *g = gate->g;
	struct err none = { 0 };
	struct mailbox box = { 0 };
	bool made = g->rewrite && gate->n_code && gate->n_sites <= REWRITE_SITES &&
		    gate_is_as_made(gate);
	int rc = gate_box_read(gate, &box, err);

	if (!rc && made && box.state == MAILBOX_RUNNING &&
	    box.fn == interlock_back_addr(gate_interlock_addr(gate))) {
		rc = wait_done(gate, &box, GATE_WAITS, err);
		gate->written = gate->closing = !rc && box.state == MAILBOX_RUNNING;
	}
	gate->seq = box.seq;
	if (rc || gate->closing)
		return rc;
	rc = finish_call(gate, err);
	/* nothing has ever led to one that has called nothing, and of which only the code is noted */
	if (rc || !made || (!box.seq && !g->hook && !gate->n_sites))
		return rc;
	rc = lead_here(gate, err);
	if (!rc)
		rc = write_code_again(gate, err);
	/* nobody comes by in an idle guest: where nothing is being copied nobody need */
	if (rc && !guest_check_stays(g, &none) && vm_tells_leaving(g->vm))
		rc = 0;
	return rc;
}

int gate_recover(struct guest *g, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	struct gate *gate;
	int rc;

	if (!s->mailbox) /* no gate: a call that is still noted never ran */
		return s->pending ? journal_alloc(g->journal, s->pending, s->alloc[s->pending],
						  s->alloc_bytes[s->pending], err)
				  : 0;
	gate = calloc(1, sizeof(*gate));
	if (!gate)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the gate");
	gate->g = g;
	gate->mailbox = s->mailbox;
	rc = text_from_journal(g, JOURNAL_GATE_SITE, &gate->sites, &gate->n_sites, err);
	if (!rc)
		rc = interlock_adopt(g, err);
	if (!rc)
		rc = text_from_journal(g, JOURNAL_CAVE, &gate->code, &gate->n_code, err);
	if (!rc)
		rc = gate_adopt(gate, err);
	if (!rc)
		rc = go_on(gate, err);
	if (rc) {
		gate_free(gate);
		return rc;
	}
	return gate_close(gate, err);
}
