// SPDX-License-Identifier: Apache-2.0
/* The agent's life in a guest. See agent.h. */
#define LOG_PREFIX "agent"
#include "patcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "guest-agent/agent_abi.h"
#include "patcher/callers.h"
#include "patcher/gate.h"
#include "patcher/graph.h"
#include "patcher/interlock.h"
#include "patcher/lent.h"
#include "patcher/quiesce.h"
#include "patcher/rewrite.h"
#include "patcher/spare.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_RINGS_BYTES (128ull << 20)
#define QUIET_NS        (10 * NSEC_PER_SEC)
/* A frame for each 32 KiB of RAM: ten for each of the tasks that so much RAM commonly has. */
#define RAM_PER_FRAME   (32u << 10)
#define MAX_FRAMES      131072u
#define MIN_FRAMES      4096u
#define FRAMES_AT_ONCE  256u
#define FRAMES_PER_TASK 4u /* that is in a followed call */
#define PIECES_AT_ONCE  256u /* of text in one stop window */

/* What the agent may call, by AGENT_FIX_CALL_*: all of them process-global names since v5.10 or before. */
static const struct {
	const char *name;
	int fix;
	u32 bit;
} guest_calls[] = {
	{ "stack_trace_save_regs", AGENT_FIX_CALL_STACK, AGENT_CALL_STACK },
	{ "copy_from_user_nofault", AGENT_FIX_CALL_COPY, AGENT_CALL_COPY },
	{ "strncpy_from_user_nofault", AGENT_FIX_CALL_STRNCPY, AGENT_CALL_STRNCPY },
};

/* Sizes: as asked, halved until the rings take at most 1/16 of the guest's RAM. */
static int layout(struct guest *g, struct err *err)
{
	struct agent_header *h = &g->agent.header;
	u64 ram = 0, slots = 1, limit, fn;

	for (size_t i = 0; i < vm_ram_count(g->vm); i++)
		ram += vm_ram(g->vm, i)->len_bytes;
	/* a small part of RAM, and of the guest's 1 GiB for modules */
	limit = MIN(ram / 16, MAX_RINGS_BYTES);
	memset(h, 0, sizeof(*h));
	h->nr_cpus = kernel_nr_cpu_ids(g->k);
	while (slots * 2 * AGENT_RECORD_BYTES <= g->ring_bytes)
		slots *= 2;
	while (slots > AGENT_MIN_SLOTS && slots * AGENT_RECORD_BYTES * h->nr_cpus > limit)
		slots /= 2;
	h->ring_slots = (u32)slots;
	h->nr_frames = MIN_FRAMES;
	while (h->nr_frames < MAX_FRAMES && (u64)h->nr_frames * 2 * RAM_PER_FRAME <= ram)
		h->nr_frames *= 2;
	h->site_slots = AGENT_MIN_SITES;
	while (h->site_slots < AGENT_MAX_SITES && h->site_slots / 2 < kernel_site_count(g->k))
		h->site_slots *= 2;
	h->task_slots = h->nr_frames / FRAMES_PER_TASK;
	h->stack_max = 1;
	for (size_t i = 0; i < ARRAY_SIZE(guest_calls); i++)
		h->calls |= kernel_sym(g->k, guest_calls[i].name, &fn) ? 0 : guest_calls[i].bit;
	/* v6.1 mm/usercopy.c check_stack_object() walks frame pointers where kernels have them, and the agent's C
	 * has none; with ORC, whose unwinder has this function, they have not */
	if (!kernel_sym(g->k, "usercopy_abort", &fn) && kernel_sym(g->k, "unwind_module_init", &fn))
		h->calls &= ~(u32)(AGENT_CALL_COPY | AGENT_CALL_STRNCPY);
	if (agent_layout(h))
		return err_set(err, -EINVAL, ERR_GUEST_UNSUPPORTED, 0,
			       "no room for %u rings of %llu records", h->nr_cpus,
			       (unsigned long long)slots);
	g->agent.data_bytes = agent_data_bytes(h);
	g->agent.interlock = agent_text_bytes(h);
	g->agent.text_bytes = g->agent.interlock + AGENT_INTERLOCK_BYTES;
	return 0;
}

static int call1(struct gate *gate, struct guest *g, const char *fn, const u64 args[4], u64 *ret,
		 struct err *err)
{
	u64 addr;

	if (kernel_sym(g->k, fn, &addr))
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0, "this kernel has no %s", fn);
	return gate_call(gate, addr, args, ret, err);
}

/*
 * Memory from the guest's own module allocator: within reach of every call site, accounted for, and
 * shown in /proc/vmallocinfo. v6.1: module_alloc(size), writable, not executable. v6.10+:
 * execmem_alloc(type, size); the data kind, since from about v6.13 on the text kind may come
 * read-only and executable out of a cache of huge pages.
 */
static int borrow(struct gate *gate, struct guest *g, enum journal_what what, u64 bytes,
		  u64 *addr_ret, struct err *err)
{
	u64 fn, args[4] = { bytes };
	s64 type;
	int rc;

	if (kernel_sym(g->k, "module_alloc", &fn)) {
		if (kernel_sym(g->k, "execmem_alloc", &fn) ||
		    kernel_btf_enum(g->k, "EXECMEM_MODULE_DATA", &type))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel has neither module_alloc nor execmem_alloc");
		args[0] = (u64)type;
		args[1] = bytes;
	}
	rc = journal_pending(g->journal, what, bytes, gate_next_seq(gate), err);
	if (!rc)
		rc = gate_call(gate, fn, args, addr_ret, err);
	if (rc) /* withdrawn, or still running: then the journal knows that it is pending */
		return rc;
	fault_point("agent.borrowed");
	rc = journal_alloc(g->journal, what, *addr_ret, bytes, err);
	if (rc)
		return rc;
	if (!*addr_ret || (*addr_ret & ~PAGE_MASK))
		return err_set(err, -ENOMEM, ERR_GUEST_ALLOC, *addr_ret,
			       "the guest's kernel could not lend %llu KiB",
			       (unsigned long long)(bytes / 1024));
	return 0;
}

static int check_pages(struct guest *g, u64 addr, u64 bytes, bool text, struct err *err)
{
	for (u64 off = 0; off < bytes; off += PAGE_SIZE) {
		struct vm_mapping m;
		int rc = vm_walk(g->vm, gva(addr + off), &m, err);

		if (rc)
			return rc;
		if (m.executable != text || m.writable == text)
			return err_set(err, -EACCES, ERR_GUEST_UNSUPPORTED, addr + off,
				       "the page at 0x%llx came out %s and %s",
				       (unsigned long long)(addr + off),
				       m.writable ? "writable" : "read-only",
				       m.executable ? "executable" : "not executable");
	}
	return 0;
}

static int fixups(struct guest *g, agent_s64 *v, struct err *err)
{
	static const struct {
		int kind;
		const char *alone, *hot;
	} gs[] = {
		{ AGENT_FIX_GS_CURRENT, "current_task", "current_task" },
		{ AGENT_FIX_GS_CPU, "cpu_number", "cpu_number" },
		{ AGENT_FIX_GS_PREEMPT, "__preempt_count", "preempt_count" },
	};
	static const struct {
		int kind;
		const char *path;
	} task[] = {
		{ AGENT_FIX_TASK_PID, "pid" },
		{ AGENT_FIX_TASK_TGID, "tgid" },
		{ AGENT_FIX_TASK_COMM, "comm" },
		{ AGENT_FIX_TASK_START, "start_time" },
	};
	s32 disp;
	u32 off;
	u64 fn;

	for (size_t i = 0; i < ARRAY_SIZE(gs); i++) {
		if (guest_percpu_gs(g, gs[i].alone, gs[i].hot, &disp))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel has no per-CPU %s", gs[i].alone);
		v[gs[i].kind] = disp;
	}
	for (size_t i = 0; i < ARRAY_SIZE(task); i++) {
		if (kernel_btf_offset(g->k, "task_struct", task[i].path, &off))
			return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
				       "this kernel's struct task_struct has no %s", task[i].path);
		v[task[i].kind] = off;
	}
	/* there since v5.12 with CONFIG_SMP */
	v[AGENT_FIX_TASK_MIGRATE] =
		kernel_btf_offset(g->k, "task_struct", "migration_disabled", &off) ? -1 : (s64)off;
	v[AGENT_FIX_RETURN] = (agent_s64)guest_return_thunk(g);
	for (size_t i = 0; i < ARRAY_SIZE(guest_calls); i++)
		v[guest_calls[i].fix] =
			kernel_sym(g->k, guest_calls[i].name, &fn) ? 0 : (agent_s64)fn;
	return 0;
}

/* As text even though nothing runs there: under TCG the page may have held code before. */
static int write_pieces(struct guest *g, const struct vm_text *pieces, size_t n, struct err *err)
{
	int rc = guest_pause(g, err);

	if (rc)
		return rc;
	rc = vm_write_text(g->vm, pieces, n, err);
	if (vm_resume(g->vm, rc ? NULL : err))
		return rc ? rc : -EIO;
	return rc;
}

static int write_interlock(struct guest *g, u8 *page, struct err *err)
{
	const struct interlock_place p = {
		.code = g->agent.text + g->agent.interlock,
		.ours = g->agent.text + agent_blob_get()->ftrace_caller,
		.count = g->agent.data + offsetof(struct agent_header, taken),
	};

	memset(page, 0xcc, AGENT_INTERLOCK_BYTES);
	return interlock_code(g, &p, page, err);
}

static int write_text(struct guest *g, struct err *err)
{
	const struct agent_blob *blob = agent_blob_get();
	size_t n = (size_t)g->agent.text_bytes / sizeof(((struct vm_text *)0)->bytes);
	_cleanup_free_ u8 *text = malloc((size_t)g->agent.text_bytes);
	_cleanup_free_ struct vm_text *pieces = calloc(n, sizeof(*pieces));
	agent_s64 values[AGENT_FIX_MAX] = { 0 };
	int rc;

	if (!text || !pieces)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the agent");
	rc = fixups(g, values, err);
	if (rc)
		return rc;
	memcpy(text, blob->text, blob->text_bytes);
	if (agent_link(blob, &g->agent.header, values, text))
		return err_set(err, -ERANGE, ERR_GUEST_UNSUPPORTED, g->agent.text,
			       "the agent's text at 0x%llx does not reach its data at 0x%llx",
			       (unsigned long long)g->agent.text,
			       (unsigned long long)g->agent.data);
	rc = write_interlock(g, text + g->agent.interlock, err);
	if (rc)
		return rc;
	g->agent.tracer = blob->ftrace_stub;
	if (spare_owns(g->agent.text))
		return spare_put_text(g, text, err);
	for (size_t i = 0; i < n; i++) {
		pieces[i].addr = gva(g->agent.text + i * sizeof(pieces[i].bytes));
		pieces[i].len = sizeof(pieces[i].bytes);
		memcpy(pieces[i].bytes, text + i * sizeof(pieces[i].bytes),
		       sizeof(pieces[i].bytes));
	}
	for (size_t i = 0; !rc && i < n; i += PIECES_AT_ONCE)
		rc = write_pieces(g, pieces + i, MIN(n - i, (size_t)PIECES_AT_ONCE), err);
	return rc;
}

static int write_frames(struct guest_agent *a)
{
	struct agent_frame frames[FRAMES_AT_ONCE];
	int rc = 0;

	for (u32 first = 0; !rc && first < a->header.nr_frames; first += FRAMES_AT_ONCE) {
		u32 n = MIN(FRAMES_AT_ONCE, a->header.nr_frames - first);

		agent_init_frames(&a->header, first, n, frames);
		rc = vm_view_write(a->view, a->header.frames_off + (u64)first * AGENT_FRAME_BYTES,
				   frames, n * sizeof(*frames));
	}
	for (u32 cpu = 0; !rc && cpu < a->header.nr_cpus; cpu++) {
		u64 list = agent_first_frame(&a->header, cpu);

		rc = vm_view_write(a->view,
				   AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES +
					   offsetof(struct agent_cpu, free_frames),
				   &list, sizeof(list));
	}
	return rc;
}

static int write_data(struct guest *g, struct err *err)
{
	static const u8 zeros[1 << 16];
	struct guest_agent *a = &g->agent;
	struct agent_header *h = &a->header;
	int rc;

	rc = vm_view_create(g->vm, gva(a->data), a->data_bytes, &a->view, err);
	if (rc)
		return rc;
	for (u64 off = 0; !rc && off < a->data_bytes; off += sizeof(zeros))
		rc = vm_view_write(a->view, off, zeros,
				   MIN(sizeof(zeros), (size_t)(a->data_bytes - off)));
	if (getrandom(&h->session, sizeof(h->session), 0) != (ssize_t)sizeof(h->session))
		h->session = monotonic_ns();
	if (!rc)
		rc = vm_view_write(a->view, 0, h, sizeof(*h));
	if (!rc)
		rc = write_frames(a);
	if (rc)
		return err_set(err, rc, ERR_VMM_GONE, a->data, "cannot write the agent's memory");
	return 0;
}

static int protect(struct gate *gate, struct guest *g, struct err *err)
{
	const u64 args[4] = { g->agent.text, g->agent.text_bytes / PAGE_SIZE };
	u64 fn, ret = 0;
	int rc;

	/* v6.2+ has both in one; before, read-only first, so that it is never both W and X */
	if (!kernel_sym(g->k, "set_memory_rox", &fn)) {
		rc = gate_call(gate, fn, args, &ret, err);
	} else {
		rc = call1(gate, g, "set_memory_ro", args, &ret, err);
		fault_point("agent.half_protected");
		if (!rc && !(u32)ret)
			rc = call1(gate, g, "set_memory_x", args, &ret, err);
	}
	if (rc)
		return rc;
	if ((u32)ret)
		return err_set(err, -EACCES, ERR_GUEST_ALLOC, g->agent.text,
			       "the guest could not protect the agent's text (%d)", (int)ret);
	rc = check_pages(g, g->agent.text, g->agent.text_bytes, true, err);
	return rc ? rc : check_pages(g, g->agent.data, g->agent.data_bytes, false, err);
}

/* Everything that lies in the agent's memory, once that is mapped and writable for us. */
static int fill(struct guest *g, struct err *err)
{
	struct guest_agent *a = &g->agent;
	int rc;

	a->header.text = a->text;
	a->header.data = a->data;
	rc = write_data(g, err);
	if (!rc)
		rc = write_text(g, err);
	fault_point("agent.written");
	return rc;
}

static int load_through(struct gate *gate, struct guest *g, struct err *err)
{
	struct guest_agent *a = &g->agent;
	int rc;

	rc = borrow(gate, g, JOURNAL_AGENT_TEXT, a->text_bytes, &a->text, err);
	if (!rc)
		rc = borrow(gate, g, JOURNAL_AGENT_DATA, a->data_bytes, &a->data, err);
	if (!rc)
		rc = check_pages(g, a->text, a->text_bytes, false, err);
	if (!rc)
		rc = lent_prove(gate, g, a->text, a->text_bytes, err);
	if (!rc)
		rc = lent_prove(gate, g, a->data, a->data_bytes, err);
	if (!rc)
		rc = fill(g, err);
	if (!rc)
		rc = rewrite_lent(gate, g, err);
	if (!rc)
		rc = protect(gate, g, err);
	fault_point("agent.protected");
	return rc;
}

/* Text back to what it was given as, then both pieces back to the allocator. */
static int give_back(struct gate *gate, struct guest *g, enum journal_what what, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	u64 addr = s->alloc[what], bytes = s->alloc_bytes[what], free_fn;
	const u64 range[4] = { addr, bytes / PAGE_SIZE };
	const u64 arg[4] = { addr };
	int rc = 0;

	if (!addr)
		return 0;
	if (what == JOURNAL_AGENT_TEXT) {
		rc = call1(gate, g, "set_memory_nx", range, NULL, err);
		if (!rc)
			rc = call1(gate, g, "set_memory_rw", range, NULL, err);
		if (!rc)
			rc = check_pages(g, addr, bytes, false, err);
		fault_point("agent.unprotected");
	}
	if (rc)
		return rc;
	if (kernel_sym(g->k, "module_memfree", &free_fn) &&
	    kernel_sym(g->k, "execmem_free", &free_fn))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, addr,
			       "this kernel has neither module_memfree nor execmem_free");
	rc = journal_pending_free(g->journal, what, gate_next_seq(gate), err);
	if (!rc)
		rc = gate_call(gate, free_fn, arg, NULL, err);
	fault_point("agent.freed");
	return rc ? rc : journal_freed(g->journal, what, err);
}

/* In the VMM's own memory above RAM; nothing of the guest runs for it. -ENOENT: there is none. */
static int load_spare(struct guest *g, struct err *err)
{
	struct guest_agent *a = &g->agent;
	int rc = spare_take(g, err);

	if (!rc)
		rc = fill(g, err);
	if (!rc)
		rc = check_pages(g, a->text, a->text_bytes, true, err);
	if (!rc)
		rc = check_pages(g, a->data, a->data_bytes, false, err);
	return rc;
}

int agent_wait_quiet(struct gate *gate, struct guest *g, struct err *err)
{
	static const char *const sync[] = { "synchronize_rcu_tasks_rude", "synchronize_rcu_tasks",
					    "synchronize_rcu" };
	const struct journal_state *s = journal_state(g->journal);
	u64 text = s->alloc[JOURNAL_AGENT_TEXT];
	const u64 none[4] = { 0 };
	u64 fn;
	int rc;

	if (!text)
		return 0;
	for (size_t i = 0; gate && i < ARRAY_SIZE(sync); i++) {
		if (kernel_sym(g->k, sync[i],
			       &fn)) /* a kernel without preemption has no use for them */
			continue;
		rc = gate_call(gate, fn, none, NULL, err);
		if (rc)
			return rc;
	}
	return quiesce_range(g, text, text + s->alloc_bytes[JOURNAL_AGENT_TEXT], QUIET_NS, err);
}

void agent_forget(struct guest *g)
{
	graph_forget(g);
	vm_view_destroy(g->agent.view);
	memset(&g->agent, 0, sizeof(g->agent));
}

static int unload_through(struct gate *gate, struct guest *g, struct err *err)
{
	int rc = agent_wait_quiet(gate, g, err);

	if (!rc)
		rc = graph_unload(g, err);
	/* and nobody who returned through it before, be it in an interrupt or in a task that exits */
	if (!rc && g->agent.graph_used)
		rc = agent_wait_quiet(gate, g, err);
	if (!rc)
		rc = rewrite_put_back(gate, g, err);
	fault_point("agent.rewritten");
	if (!rc)
		rc = give_back(gate, g, JOURNAL_AGENT_TEXT, err);
	if (!rc)
		rc = give_back(gate, g, JOURNAL_AGENT_DATA, err);
	return rc;
}

bool agent_left_cpu(struct guest *g, u32 cpu, const struct guest_member *on_cpu)
{
	u64 busy = 0, runs;

	if (!g->agent.view || cpu >= g->agent.header.nr_cpus ||
	    vm_view_read(g->agent.view,
			 AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES +
				 offsetof(struct agent_cpu, busy),
			 &busy, sizeof(busy)) ||
	    !busy)
		return true;
	/* who died inside left it behind, and is on no CPU any more */
	return guest_read_member(g, busy, on_cpu, &runs, NULL) || !runs;
}

int agent_write_header(struct guest *g, size_t off, const void *v, size_t n, struct err *err)
{
	int rc;

	if (!agent_is_in_view(g)) {
		if (vm_state(g->vm) != VM_GONE)
			return err_set(
				err, -ESTALE, ERR_GUEST_RESTORED, g->agent.data,
				"the agent's memory is not what it was: a snapshot was loaded");
		return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "the VMM of %s ended", g->target);
	}
	rc = vm_view_write(g->agent.view, off, v, n);
	if (rc)
		return err_set(err, rc, ERR_VMM_GONE, g->agent.data,
			       "cannot write the agent's header");
	return 0;
}

static void undo_load(struct gate *gate, struct guest *g)
{
	struct err err = { 0 };
	int rc;

	if (unload_through(gate, g, &err))
		log_error("%s: %s; the journal keeps what is left", g->target, err.msg);
	agent_forget(g);
	rc = gate_close(gate, &err);
	if (!rc) /* what a call that was given up has lent after all */
		rc = agent_unload(g, &err);
	if (rc)
		log_error("%s: %s; the journal keeps what is left", g->target, err.msg);
}

static void give_spare_back(struct guest *g)
{
	struct err err = { 0 };

	if (agent_unload(g, &err))
		log_error("%s: %s; the journal keeps what is left", g->target, err.msg);
	agent_forget(g);
}

int agent_load(struct guest *g, struct err *err)
{
	u64 start = monotonic_ns();
	struct gate *gate;
	int rc;

	if (g->agent.loaded) /* its gate may not have closed then */
		return gate_recover(g, err);
	/* what an attempt that failed could not give back */
	rc = agent_unload(g, err);
	if (rc)
		return rc;
	agent_forget(g);
	rc = layout(g, err);
	if (!rc)
		rc = load_spare(g, err);
	if (rc != -ENOENT) {
		if (rc)
			give_spare_back(g);
		g->agent.loaded = !rc;
		g->lend_ns = monotonic_ns() - start;
		return rc;
	}
	rc = gate_open(g, &gate, err);
	if (rc)
		return rc;
	rc = load_through(gate, g, err);
	if (rc) {
		undo_load(gate, g);
		return rc;
	}
	g->agent.loaded = true;
	rc = gate_close(gate, err);
	g->lend_ns = monotonic_ns() - start;
	return rc;
}

int agent_unload(struct guest *g, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	struct err first = { 0 };
	struct gate *gate;
	int rc, rc2;

	/* what is being copied away may hold our sites for ever: then what they call must stay, too */
	if (journal_outstanding(g->journal)) {
		rc = guest_check_stays(g, err);
		if (rc)
			return rc;
	}
	rc = gate_recover(g, err); /* may enter an allocation that was under way */
	if (rc)
		return rc;
	if (!s->alloc[JOURNAL_AGENT_TEXT] && !s->alloc[JOURNAL_AGENT_DATA])
		return 0;
	/* a snapshot of when more was armed than the journal has, or something that we lost */
	rc = callers_let_go(g, err);
	if (rc)
		return rc;
	if (spare_owns(s->alloc[JOURNAL_AGENT_TEXT]) || spare_owns(s->alloc[JOURNAL_AGENT_DATA])) {
		rc = spare_unload(g, err);
		if (!rc)
			agent_forget(g);
		return rc;
	}
	rc = gate_open(g, &gate, err);
	if (rc)
		return rc;
	rc = unload_through(gate, g, &first);
	rc2 = gate_close(gate, err);
	if (rc)
		return err_set(err, rc, first.code, first.addr, "%s", first.msg);
	if (!rc2)
		agent_forget(g);
	return rc2;
}
