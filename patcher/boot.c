// SPDX-License-Identifier: Apache-2.0
/*
 * Holding a guest before its first initcall. See boot.h.
 *
 *   image in its place -> ftrace_init() -> fork_init() -> ... rest_init() -> the first initcall
 *   located, read         sites are nops    held here
 *
 * The image is looked for while the guest boots; a kernel that unpacks itself moves it about, so what was
 * found is looked at again before it is believed. How far it is two of its variables tell. While it is held for its
 * tables to be read, the VMM is asked for a breakpoint behind fork_init(), which no vCPU can miss; from a VMM that has
 * none it is let go of, and polled.
 */
#define LOG_PREFIX "boot"
#include "patcher/boot.h"

#include "base/clock.h"
#include "base/log.h"
#include "patcher/text.h"

#include <errno.h>
#include <string.h>

#define START_NS      (2 * NSEC_PER_SEC)
#define LOOK_NS       NSEC_PER_MSEC /* between looks for an image */
#define POLL_NS       (50 * NSEC_PER_MSEC / 1000)
#define POLLS_A_CHECK 1000u /* of the image being still the one */
#define WAIT_NS       (50 * NSEC_PER_MSEC) /* for the breakpoint, between such checks */
#define PASSED_NS \
	NSEC_PER_SEC /* behind fork_init() so long, and not at the breakpoint: it is not reached any more */

/* Of what a step says when it did not fail. */
enum how {
	HELD,
	AGAIN, /* the image is another one by now: from the beginning */
	POLL /* no breakpoint; the guest runs */
};

/* What tells how far the kernel is. */
struct milestones {
	u64 ftrace_enabled; /* v6.1 kernel/trace/ftrace.c ftrace_init(): set when its sites are nops */
	u64 max_threads; /* v6.1 kernel/fork.c fork_init(): set when clocks and the stack canary are */
	u64 state; /* system_state */
};

static int too_late(const struct guest *g, u64 deadline, struct err *err)
{
	if (monotonic_ns() < deadline)
		return 0;
	return err_set(err, -ETIMEDOUT, ERR_GUEST_FIRMWARE, 0,
		       "the guest's kernel did not come up in time (%s)", g->target);
}

/* An ELF image is there at once, a bzImage when it has unpacked itself. */
static int find_image(struct guest *g, const struct sym_mem *mem, struct kernel_location *ret,
		      u64 deadline, struct err *err)
{
	struct err e = { 0 };
	int rc;

	while (kernel_locate(mem, NULL, NULL, ret, &e)) {
		if (vm_state(g->vm) == VM_GONE)
			return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM of %s ended",
				       g->target);
		rc = too_late(g, deadline, err);
		if (rc)
			return rc;
		guest_sleep_ns(LOOK_NS);
	}
	return 0;
}

/* @g->k by what is in memory now. The guest is held meanwhile: it would run far during that. */
static int load(struct guest *g, const struct sym_mem *mem, const struct kernel_location *loc,
		struct err *err)
{
	struct kernel *k = NULL;
	int rc;

	vm_set_root(g->vm, loc->root, loc->levels);
	rc = kernel_load(mem, loc, &k, err);
	if (rc)
		return rc;
	kernel_destroy(g->k);
	g->k = k;
	return 0;
}

static int find_milestones(struct guest *g, struct milestones *m, struct err *err)
{
	if (kernel_sym(g->k, "ftrace_enabled", &m->ftrace_enabled) ||
	    kernel_sym(g->k, "max_threads", &m->max_threads) ||
	    kernel_sym(g->k, "system_state", &m->state))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "this kernel has no ftrace_enabled, max_threads or system_state: it "
			       "cannot be held while it boots");
	return 0;
}

/* Is the image, by its virtual addresses, where it was found? */
static bool is_in_place(struct guest *g)
{
	const struct kernel_location *loc = kernel_location(g->k);
	char banner[sizeof(loc->banner)];
	size_t n = strlen(loc->banner);
	u64 addr;

	return !kernel_sym(g->k, "linux_banner", &addr) && !guest_read(g, addr, banner, n, NULL) &&
	       !memcmp(banner, loc->banner, n);
}

/* Are clocks, the stack canary and call sites there? Not before all of them is anything traced. */
static bool has_sites(struct guest *g, const struct milestones *m, u32 *threads_ret)
{
	u32 enabled = 0;

	*threads_ret = 0;
	return !guest_read(g, m->ftrace_enabled, &enabled, sizeof(enabled), NULL) &&
	       !guest_read(g, m->max_threads, threads_ret, sizeof(*threads_ret), NULL) &&
	       enabled == 1 && *threads_ret;
}

static int still_there(struct guest *g, u64 deadline, struct err *err)
{
	if (vm_state(g->vm) == VM_GONE)
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM of %s ended", g->target);
	return too_late(g, deadline, err);
}

/* HELD means: now it is to be held. */
static int wait_for_sites(struct guest *g, const struct milestones *m, u64 deadline,
			  struct err *err)
{
	u32 threads;
	int rc;

	for (u32 i = 0;; i++) {
		if (has_sites(g, m, &threads))
			return HELD;
		if (i % POLLS_A_CHECK == POLLS_A_CHECK - 1) {
			rc = still_there(g, deadline, err);
			if (rc)
				return rc;
			if (!is_in_place(g))
				return AGAIN;
		}
		guest_sleep_ns(POLL_NS);
	}
}

/* Held: did we come in time, and is nobody about to change text? AGAIN: let it go on and come again. */
static int check_held(struct guest *g, const struct milestones *m, struct err *err)
{
	u32 state;
	int rc;

	if (!is_in_place(g))
		return AGAIN;
	rc = guest_read(g, m->state, &state, sizeof(state), err);
	if (rc)
		return rc;
	/* SYSTEM_BOOTING is 0; initcalls come after it (v6.1 init/main.c rest_init()) */
	if (state)
		return err_set(err, -EAGAIN, ERR_GUEST_NOT_HELD, m->state,
			       "the guest went past its first initcalls before it could be held");
	return text_guest_busy(g, err);
}

/* Behind fork_init() and before the first initcall: v6.1 init/main.c start_kernel(), as before v4.15 and since v6.9. */
static bool find_stop(struct guest *g, const char **name_ret, u64 *addr_ret)
{
	static const char *const names[] = { "proc_caches_init", "rest_init", "do_one_initcall" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		*name_ret = names[i];
		if (!kernel_sym(g->k, names[i], addr_ret))
			return true;
	}
	return false;
}

/* The breakpoint is set. HELD, at it; else it is gone, and the guest runs. */
static int wait_for_stop(struct guest *g, const struct milestones *m, u64 deadline, struct err *err)
{
	u64 passed_ns = 0;
	u32 threads;
	int rc;

	for (;;) {
		rc = vm_break_wait(g->vm, WAIT_NS, err);
		if (rc != -ETIMEDOUT)
			return rc;
		rc = still_there(g, deadline, err);
		if (!rc && !is_in_place(g))
			rc = AGAIN;
		if (!rc && !passed_ns && has_sites(g, m, &threads))
			passed_ns = monotonic_ns();
		if (!rc && passed_ns && monotonic_ns() > passed_ns + PASSED_NS)
			rc = err_set(err, -ECANCELED, ERR_CONFLICT, 0,
				     "the guest does not come to it");
		if (rc) {
			vm_unbreak(g->vm);
			return rc;
		}
	}
}

static int let_go(struct guest *g, struct err *err)
{
	int rc = vm_release(g->vm, err);

	return rc ? rc : POLL;
}

/* The guest is held; afterwards it is so for HELD alone. @at_ret is where, NULL if it was there already. */
static int by_breakpoint(struct guest *g, const struct milestones *m, u64 deadline,
			 const char **at_ret, struct err *err)
{
	const char *name = "";
	struct err e = { 0 };
	u64 addr = 0;
	u32 threads;
	int rc;

	*at_ret = NULL;
	if (has_sites(g, m, &threads))
		return HELD;
	if (!find_stop(g, &name, &addr))
		return let_go(g, err);
	rc = vm_break(g->vm, gva(addr), &e);
	if (!rc)
		rc = wait_for_stop(g, m, deadline, &e);
	if (rc < 0 && rc != -ESRCH && monotonic_ns() < deadline) {
		log_info("%s: polled, not stopped at %s: %s", g->target, name, e.msg);
		return POLL;
	}
	if (rc < 0 && err)
		*err = e;
	if (rc)
		return rc;
	*at_ret = name;
	/* a kernel whose ftrace_init() gave up has none */
	return has_sites(g, m, &threads) ? HELD : let_go(g, err);
}

/* The guest runs; afterwards it is held for HELD, and perhaps after a failure: who lets go of it lets it run. */
static int by_polling(struct guest *g, const struct milestones *m, u64 deadline, struct err *err)
{
	int rc;

	for (;;) {
		rc = wait_for_sites(g, m, deadline, err);
		if (rc != HELD)
			return rc;
		rc = vm_hold(g->vm, GUEST_HOLD_NS, err);
		if (!rc)
			rc = check_held(g, m, err);
		if (rc != AGAIN)
			return rc;
		rc = too_late(g, deadline, err);
		if (!rc)
			rc = vm_release(g->vm, err);
		if (rc)
			return rc;
	}
}

static int try_hold(struct guest *g, const struct sym_mem *mem, u64 deadline, const char **at_ret,
		    struct err *err)
{
	struct kernel_location loc;
	struct milestones m;
	struct err e = { 0 };
	int rc;

	rc = find_image(g, mem, &loc, deadline, err);
	if (!rc)
		rc = vm_hold(g->vm, GUEST_HOLD_NS, err);
	if (rc)
		return rc;
	/* an image that is being unpacked or moved may be damaged */
	if (load(g, mem, &loc, &e)) {
		rc = vm_release(g->vm, err);
		guest_sleep_ns(LOOK_NS);
		return rc ? rc : AGAIN;
	}
	rc = find_milestones(g, &m, err);
	if (!rc)
		rc = by_breakpoint(g, &m, deadline, at_ret, err);
	if (rc == HELD) {
		rc = check_held(g, &m, err);
		if (rc == AGAIN)
			rc = let_go(g, err);
	}
	if (rc == POLL) {
		*at_ret = NULL;
		rc = by_polling(g, &m, deadline, err);
	}
	/* what changed since: the number of CPUs, and the sites themselves */
	return rc ? rc : load(g, mem, &loc, err);
}

int boot_hold(struct guest *g, u64 timeout_ns, struct err *err)
{
	u64 start = monotonic_ns(), deadline = start + timeout_ns;
	const char *at = NULL;
	struct vm_ram spare;
	struct sym_mem mem;
	int rc;

	if (!vm_spare(g->vm, &spare))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "the VMM of %s has no memory for the agent: tracing from boot needs "
			       "hvftrace-vmm",
			       g->target);
	guest_mem(g, &mem);
	rc = vm_start(g->vm, START_NS, err);
	if (!rc)
		rc = too_late(g, deadline, err);
	while (!rc) {
		rc = try_hold(g, &mem, deadline, &at, err);
		if (rc <= 0)
			break;
		rc = too_late(g, deadline, err);
	}
	if (rc)
		return rc;
	g->find_ns = monotonic_ns() - start;
	log_info("%s: held %s%s before its first initcall, after %llu ms", g->target,
		 at ? "by a breakpoint at " : "by polling", at ? at : "",
		 (unsigned long long)(g->find_ns / NSEC_PER_MSEC));
	return 0;
}
