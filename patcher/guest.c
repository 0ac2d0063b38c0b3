// SPDX-License-Identifier: Apache-2.0
/* An attached guest. See guest.h. */
#define LOG_PREFIX "guest"
#include "patcher/guest.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/baseline.h"
#include "patcher/boot.h"
#include "patcher/ftrace.h"
#include "patcher/gate.h"
#include "patcher/graph.h"
#include "patcher/guest_priv.h"
#include "patcher/interlock.h"
#include "patcher/left.h"
#include "patcher/remains.h"
#include "patcher/rewrite.h"
#include "patcher/spare.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CAME_MAX 4 /* there is one; a guest could have more and more */

void guest_sleep_ns(u64 ns)
{
	sleep_ns(ns);
}

int guest_pause(struct guest *g, struct err *err)
{
	return vm_pause(g->vm, GUEST_PAUSE_NS, err);
}

int guest_read(struct guest *g, u64 addr, void *buf, size_t len, struct err *err)
{
	return vm_read(g->vm, gva(addr), buf, len, err);
}

int guest_percpu_gs(struct guest *g, const char *alone, const char *hot_member, s32 *ret)
{
	u32 off;

	if (!kernel_percpu_gs(g->k, alone, ret))
		return 0;
	if (kernel_percpu_gs(g->k, "pcpu_hot", ret) ||
	    kernel_btf_offset(g->k, "pcpu_hot", hot_member, &off))
		return -ENOENT;
	*ret += (s32)off;
	return 0;
}

int guest_member(const struct kernel *k, const char *type, const char *path,
		 struct guest_member *ret)
{
	if (kernel_btf_offset(k, type, path, &ret->off) ||
	    kernel_btf_member_size(k, type, path, &ret->bytes) || !ret->bytes ||
	    ret->bytes > sizeof(u64))
		return -ENOENT;
	return 0;
}

int guest_read_member(struct guest *g, u64 object, const struct guest_member *m, u64 *ret,
		      struct err *err)
{
	*ret = 0;
	return guest_read(g, object + m->off, ret, m->bytes, err);
}

static int keep_vmcoreinfo(struct guest *g, struct err *err)
{
	gva_t data;
	u64 size;

	if (!kernel_vmcoreinfo(g->k, &data, &size) || size > PAGE_SIZE)
		return 0;
	g->vmcoreinfo = malloc((size_t)size);
	if (!g->vmcoreinfo)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for vmcoreinfo");
	g->vmcoreinfo_bytes = size;
	return guest_read(g, data.v, g->vmcoreinfo, (size_t)size, err);
}

/*
 * init_task's stack canary is random at each boot (v6.1 init/main.c start_kernel(),
 * boot_init_stack_canary()), also without KASLR, and never changes after.
 */
static u64 read_boot_id(struct guest *g)
{
	u64 init, id;
	u32 off;

	if (kernel_sym(g->k, "init_task", &init) ||
	    kernel_btf_offset(g->k, "task_struct", "stack_canary", &off) ||
	    guest_read(g, init + off, &id, sizeof(id), NULL))
		return 0;
	return id;
}

bool guest_same_kernel(struct guest *g)
{
	u8 now[PAGE_SIZE];
	gva_t data;
	u64 size;

	if (!guest_kernel_is_live(g) || read_boot_id(g) != g->boot_id)
		return false;
	if (!g->vmcoreinfo || !kernel_vmcoreinfo(g->k, &data, &size))
		return true;
	return !guest_read(g, data.v, now, (size_t)g->vmcoreinfo_bytes, NULL) &&
	       !memcmp(now, g->vmcoreinfo, (size_t)g->vmcoreinfo_bytes);
}

void guest_note_restored(struct guest *g)
{
	g->restored = true;
}

/* Of a VMM that ends memory is gone before it is: what cannot be read tells nothing of the guest. */
static bool can_be_read(struct guest *g)
{
	u8 byte;

	return vm_state(g->vm) != VM_GONE &&
	       !vm_read_phys(g->vm, kernel_location(g->k)->image, &byte, sizeof(byte), NULL);
}

int guest_check_alive(struct guest *g, struct err *err)
{
	bool same;
	int rc;

	if (vm_state(g->vm) == VM_GONE) {
		left_note_at_end(g);
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM of %s ended", g->target);
	}
	vm_check_ram(g->vm);
	/* one without KASLR and stack canaries looks the same in its next life: what was proven once stays so */
	same = !g->rebooted && guest_same_kernel(g);
	if (same && !g->restored && remains_agent_stays(g))
		return 0;
	if (!can_be_read(g)) /* nothing is forgotten: what it left is noted once it has ended */
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM of %s is ending", g->target);
	g->restored = same;
	g->rebooted = !same;
	if (same && journal_outstanding(g->journal)) /* until its memory was looked at */
		left_note(g);
	graph_forget(g);
	if (g->claimed) /* a drain may still be reading through the view */
		g->agent.loaded = false;
	else
		agent_forget(g);
	interlock_forget(g);
	rewrite_forget(g);
	free(g->armed);
	g->armed = NULL;
	g->n_armed = 0;
	rc = journal_forget(g->journal, err);
	if (rc)
		return rc;
	if (same)
		return err_set(
			err, -ESTALE, ERR_GUEST_RESTORED, 0,
			"the memory of %s was put back to an earlier time: a snapshot was loaded",
			g->target);
	return err_set(err, -ESTALE, ERR_GUEST_REBOOTED, 0,
		       "%s runs another kernel than at attach: it was rebooted", g->target);
}

/* The journal is of the kernel that runs now, or of one that was there before a reboot. */
static bool journal_is_current(struct guest *g)
{
	const struct journal_ident *id = &journal_state(g->journal)->ident;
	const struct kernel_location *loc = kernel_location(g->k);

	return id->kaslr_offset == loc->kaslr_offset && id->root == loc->root.v &&
	       id->boot_id == read_boot_id(g) && !strcmp(id->build_id, kernel_build_id(g->k));
}

/* Nothing proves that what was lent is there; a gate that was open may have left something all the same. */
static int forget_lent(struct guest *g, struct err *err)
{
	int rc = journal_freed(g->journal, JOURNAL_AGENT_TEXT, err);

	log_warn(
		"%s: the agent of an earlier daemon is not where the journal has it, as after a snapshot was loaded: what lies there stays with the guest",
		g->target);
	return rc ? rc : journal_freed(g->journal, JOURNAL_AGENT_DATA, err);
}

/* What a daemon that died left in the guest: put everything back. */
static int replay(struct guest *g, struct err *err)
{
	struct guest_restore r;
	int rc;

	if (!journal_outstanding(g->journal))
		return 0;
	if (!journal_is_current(g)) {
		log_info("%s: the guest was rebooted since; nothing is left to put back",
			 g->target);
		return journal_forget(g->journal, err);
	}
	rewrite_note_any(g); /* by the daemon that died, before it did */
	rc = text_from_journal(g, JOURNAL_SITE, &g->armed, &g->n_armed, err);
	if (!rc)
		rc = interlock_adopt(g, err);
	if (!rc)
		rc = ftrace_make_nop(g, &r, err);
	if (!rc && !remains_journalled_stays(g))
		rc = forget_lent(g, err);
	if (!rc)
		rc = agent_unload(g, err);
	if (!rc)
		rc = spare_return(g, err);
	if (!rc)
		log_info(
			"%s: put back what an earlier daemon had changed (%llu call sites, %llu return addresses)",
			g->target, (unsigned long long)r.sites_restored,
			(unsigned long long)g->returns_restored);
	return rc;
}

static int start_journal(struct guest *g, struct err *err)
{
	struct journal_ident id = { 0 };
	const struct kernel_location *loc = kernel_location(g->k);
	int rc;

	/* before: what is put back is put back in the kernel that is there now */
	g->boot_id = read_boot_id(g);
	rc = keep_vmcoreinfo(g, err);
	if (!rc)
		rc = replay(g, err);
	if (rc)
		return rc;
	snprintf(id.target, sizeof(id.target), "%s", g->target);
	snprintf(id.build_id, sizeof(id.build_id), "%s", kernel_build_id(g->k));
	id.kaslr_offset = loc->kaslr_offset;
	id.root = loc->root.v;
	id.boot_id = g->boot_id;
	id.levels = (u32)loc->levels;
	rc = journal_set_ident(g->journal, &id, err);
	fault_point("attach.journal");
	return rc;
}

static void forget_baseline(struct guest *g)
{
	free(g->baseline);
	g->baseline = NULL;
	free(g->baseline_ip);
	g->baseline_ip = NULL;
	g->n_baseline = 0;
}

/* Call sites as they are; what came with the memory, an agent or a gate, is put back first. */
static int take_stock(struct guest *g, struct err *err)
{
	bool found = true;
	int rc = 0;

	for (int i = 0; !rc && found; i++) {
		forget_baseline(g);
		rc = baseline_take(g, err);
		if (i == CAME_MAX || rc)
			return rc;
		rc = remains_find(g, &found, err);
		if (!rc && !found)
			rc = gate_came(g, &found, err);
		if (!rc && found)
			rc = replay(g, err);
	}
	return rc;
}

static void guest_free(struct guest *g)
{
	if (!g)
		return;
	agent_forget(g);
	rewrite_forget(g);
	interlock_forget(g);
	journal_close(g->journal);
	kernel_destroy(g->k);
	vm_detach(g->vm);
	forget_baseline(g);
	free(g->vmcoreinfo);
	free(g->armed);
	pthread_mutex_destroy(&g->seen_lock);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

int guest_attach(const char *target, const struct guest_opts *opts, struct guest **ret,
		 struct err *err)
{
	struct guest *g = calloc(1, sizeof(*g));
	struct guest_info info;
	gpa_t spare;
	int rc;

	if (!g)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	pthread_mutex_init(&g->lock, NULL);
	pthread_mutex_init(&g->seen_lock, NULL);
	snprintf(g->target, sizeof(g->target), "%s", target);
	snprintf(g->state_dir, sizeof(g->state_dir), "%s", opts->state_dir);
	g->window_limit_ns = opts->window_limit_ns ? opts->window_limit_ns : GUEST_WINDOW_LIMIT_NS;
	g->ring_bytes = opts->ring_bytes ? opts->ring_bytes : GUEST_RING_BYTES;
	rc = vm_attach(target, &g->vm, err);
	if (!rc)
		rc = vm_claim(g->vm, err);
	if (!rc)
		vm_set_window_limit(g->vm, g->window_limit_ns);
	if (!rc)
		g->rewrite = vm_accel(g->vm) != VM_ACCEL_TCG && !vm_spare_offered(g->vm, &spare);
	/* the journal first: its lock keeps another daemon, and another attach of ours, away */
	if (!rc)
		rc = journal_open(opts->state_dir, vm_pid(g->vm), vm_pid_start_time(g->vm),
				  &g->journal, err);
	/* a page that is to come by postcopy must not be asked for by us */
	if (!rc)
		rc = guest_check_stays(g, err);
	if (!rc)
		rc = opts->boot_ns ? boot_hold(g, opts->boot_ns, err) : guest_find_kernel(g, err);
	if (!rc)
		rc = start_journal(g, err);
	if (!rc)
		rc = take_stock(g, err);
	if (rc) {
		guest_free(g);
		return rc;
	}
	guest_info(g, &info); /* for who looks while it is busy */
	*ret = g;
	return 0;
}

static int give_all_back(struct guest *g, struct guest_restore *r, struct err *err)
{
	bool had_agent = g->agent.loaded;
	int rc = 0;

	if (g->n_armed || g->hook) /* the interlock may be all that is left */
		rc = ftrace_make_nop(g, r, err);
	if (!rc)
		rc = agent_unload(g, err);
	if (!rc)
		rc = spare_return(g, err);
	r->returns_restored = g->returns_restored;
	if (rc)
		return rc;
	r->memory_freed = had_agent;
	r->verified = baseline_verify(g) && !journal_outstanding(g->journal);
	fault_point("detach.verified");
	if (!r->verified)
		return err_set(
			err, -EIO, ERR_GUEST_CHANGED, 0,
			"%s: something is not as it was at attach; the daemon's log says what",
			g->target);
	return 0;
}

/* Of a guest that was rebooted: the agent is no more, the memory that its VMM lent for it is still. */
static int return_memory(struct guest *g, struct err *err)
{
	agent_forget(g);
	return spare_return(g, err);
}

int guest_detach(struct guest *g, struct guest_restore *ret, struct err *err)
{
	struct guest_restore r = { 0 };
	struct err gone = { 0 };
	int rc;

	guest_lock(g);
	if (vm_held(g->vm))
		(void)vm_release(g->vm, &gone);
	gone = (struct err){ 0 };
	rc = guest_check_alive(g, &gone);
	if (gone.code == ERR_VMM_GONE || gone.code == ERR_GUEST_REBOOTED) {
		log_info("%s; nothing is left to put back", gone.msg);
		if (gone.code == ERR_GUEST_REBOOTED)
			rc = return_memory(g, err);
		else
			rc = 0;
		journal_discard(no_cleanup_ptr(g->journal));
	} else if (gone.code == ERR_GUEST_RESTORED) {
		log_info("%s", gone.msg);
		rc = guest_renew(g, err);
		r.verified = !rc;
	} else if (!rc) {
		rc = give_all_back(g, &r, err);
	} else {
		err_set(err, rc, gone.code, gone.addr, "%s", gone.msg);
	}
	guest_unlock(g);
	if (ret)
		*ret = r;
	guest_free(g);
	return rc;
}

int guest_release(struct guest *g, struct err *err)
{
	int rc = 0;

	guest_lock(g);
	if (vm_held(g->vm))
		rc = vm_release(g->vm, err);
	guest_unlock(g);
	return rc;
}

int guest_renew(struct guest *g, struct err *err)
{
	const struct kernel_location *loc;
	struct err alive = { 0 };
	int rc = guest_check_alive(g, &alive);

	if (!rc)
		return 0;
	if (alive.code != ERR_GUEST_REBOOTED && alive.code != ERR_GUEST_RESTORED)
		return err_set(err, rc, alive.code, alive.addr, "%s", alive.msg);
	if (g->claimed)
		return err_set(err, -EBUSY, ERR_CONFLICT, 0,
			       "a trace of the old kernel has not ended");
	rc = guest_find_kernel(g, err);
	if (rc) { /* it stays the kernel that is no more */
		loc = kernel_location(g->k);
		vm_set_root(g->vm, loc->root, loc->levels);
		return rc;
	}
	g->rebooted = false;
	free(g->vmcoreinfo);
	g->vmcoreinfo = NULL;
	forget_baseline(g);
	g->site_ns = g->window_ns = 0;
	rc = start_journal(g, err);
	if (!rc)
		rc = take_stock(g, err);
	if (!rc) {
		g->restored = false;
		left_settled(g);
	}
	return rc;
}

int guest_refresh(struct guest *g, bool fresh, struct err *err)
{
	return fresh || !g->n_baseline || kernel_stale(g->k) ? baseline_refresh(g, err) : 0;
}

int guest_check_stays(struct guest *g, struct err *err)
{
	switch (vm_leaves(g->vm)) {
	case VM_STAYS:
		if (vm_tells_leaving(g->vm))
			rewrite_settled(g);
		return 0;
	case VM_LEAVES:
		return err_set(err, -EBUSY, ERR_GUEST_LEAVES, 0,
			       "the memory of %s is being copied away", g->target);
	default:
		return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
			       "the monitor of %s does not answer: whether the guest's memory is "
			       "being copied away is not known, and nothing is changed in it",
			       g->target);
	}
}

struct vm *guest_vm(struct guest *g)
{
	return g->vm;
}

struct kernel *guest_kernel(struct guest *g)
{
	return g->k;
}

void guest_lock(struct guest *g)
{
	pthread_mutex_lock(&g->lock);
}

void guest_unlock(struct guest *g)
{
	pthread_mutex_unlock(&g->lock);
}
