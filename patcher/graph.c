// SPDX-License-Identifier: Apache-2.0
/* Hijacked return addresses of an attached guest. See graph.h. */
#define LOG_PREFIX "graph"
#include "patcher/graph.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/frames.h"
#include "patcher/quiesce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_NS    NSEC_PER_SEC
#define UNLOAD_NS    (5 * NSEC_PER_SEC)
#define QUIET_NS     (10 * NSEC_PER_SEC)
#define POLL_NS      (20 * NSEC_PER_MSEC)
#define PUT_BACK_NS  (5 * NSEC_PER_SEC)
#define CELLS_MANY   4096u
#define WINDOW_LEAST 4u /* frames in one window, however short it is to be */

struct graph {
	struct frames f;
};

static int mem_read(void *arg, u64 addr, void *buf, size_t len)
{
	const struct guest *g = arg;

	return vm_read(g->vm, gva(addr), buf, len, NULL);
}

/* A cell of a kernel stack is data: no instruction is changed, and its page is never read-only. */
static int mem_write(void *arg, u64 addr, const void *buf, size_t len)
{
	const struct guest *g = arg;

	return vm_write_data(g->vm, gva(addr), buf, len, NULL);
}

static int data_read(void *arg, u64 off, void *buf, size_t len)
{
	const struct guest *g = arg;

	return vm_view_read(g->agent.view, off, buf, len);
}

static int data_write(void *arg, u64 off, const void *buf, size_t len)
{
	const struct guest *g = arg;

	if (!agent_is_in_view(g))
		return -ESTALE;
	return vm_view_write(g->agent.view, off, buf, len);
}

/* Also the same memory: a snapshot that is loaded again is the same kernel, at another time. */
static bool is_ours(void *arg)
{
	struct guest *g = arg;
	struct agent_header h;

	return guest_same_kernel(g) &&
	       !guest_read(g, g->agent.data, &h, offsetof(struct agent_header, enabled), NULL) &&
	       h.magic == AGENT_MAGIC && h.session == g->agent.header.session &&
	       agent_is_in_view(g);
}

static int task_offsets(struct guest *g, struct frames *f, struct err *err)
{
	/* v5.14 commit 2f064a59a11f renamed state, and made it 32 bits wide */
	const char *state = "__state";
	const struct kernel *k = g->k;
	struct guest_member on_cpu;

	if (kernel_btf_offset(k, "task_struct", state, &f->state)) {
		state = "state";
		if (kernel_btf_offset(k, "task_struct", state, &f->state))
			state = NULL;
	}
	if (!state || kernel_btf_member_size(k, "task_struct", state, &f->state_bytes) ||
	    f->state_bytes > sizeof(u64) ||
	    kernel_btf_offset(k, "task_struct", "start_time", &f->start_time) ||
	    guest_member(k, "task_struct", "on_cpu", &on_cpu))
		return err_set(
			err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			"this kernel's struct task_struct has no state, start_time or on_cpu");
	f->on_cpu = on_cpu.off;
	f->on_cpu_bytes = on_cpu.bytes;
	return 0;
}

/* Where the guest's own tracing makes functions return to. */
static void foreign(struct guest *g, struct frames *f)
{
	static const char *const names[FRAMES_FOREIGN] = {
		"arch_rethook_trampoline", /* v5.18+ */
		"__kretprobe_trampoline", /* v5.15+ */
		"kretprobe_trampoline",
		"return_to_handler",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (kernel_sym(g->k, names[i], &f->foreign[i]))
			f->foreign[i] = 0;
	}
}

int graph_prepare(struct guest *g, struct err *err)
{
	struct graph *graph;
	int rc;

	if (g->agent.returns)
		return 0;
	graph = calloc(1, sizeof(*graph));
	if (!graph)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for return addresses");
	graph->f.io = (struct frames_io){ mem_read, mem_write, data_read, data_write, is_ours, g };
	rc = task_offsets(g, &graph->f, err);
	if (!rc && frames_init(&graph->f, &g->agent.header))
		rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for return addresses");
	if (rc) {
		free(graph);
		return rc;
	}
	foreign(g, &graph->f);
	g->agent.returns = graph;
	return 0;
}

void graph_forget(struct guest *g)
{
	struct graph *graph = g->agent.returns;

	g->agent.returns = NULL;
	if (!graph)
		return;
	frames_deinit(&graph->f);
	free(graph);
}

u32 graph_cells(struct guest *g, const struct frames_cell **ret)
{
	*ret = g->agent.returns ? g->agent.returns->f.cells : NULL;
	return g->agent.returns ? g->agent.returns->f.n_cells : 0;
}

void graph_forget_cells(struct guest *g)
{
	if (g->agent.returns)
		g->agent.returns->f.n_cells = 0;
}

static int failed(struct guest *g, int rc, struct err *err)
{
	if (rc == -ENOMEM)
		return err_set(err, rc, ERR_NO_MEMORY, 0, "no memory for return addresses");
	if (rc == -ESRCH)
		return err_set(err, rc, ERR_VMM_GONE, 0, "the VMM of %s ended", g->target);
	if (rc == -ESTALE && guest_same_kernel(g)) {
		guest_note_restored(g);
		return err_set(
			err, rc, ERR_GUEST_RESTORED, 0,
			"the agent's frames are of an earlier time: a snapshot of %s was loaded",
			g->target);
	}
	if (rc == -ESTALE)
		return err_set(err, rc, ERR_GUEST_REBOOTED, 0, "%s was rebooted", g->target);
	return err_set(err, rc, ERR_GUEST_MEMORY, g->agent.data,
		       "the agent's frames cannot be read or written");
}

int graph_collect(struct guest *g, void (*fn)(void *arg, const struct tracing_unreturned *u),
		  void *arg, struct err *err)
{
	int rc;

	if (!g->agent.returns)
		return 0;
	rc = frames_collect(&g->agent.returns->f, false, fn, arg);
	return rc ? failed(g, rc, err) : 0;
}

/*
 * The part of the agent's text that matters: with sites armed, tasks go through ftrace_caller all the
 * time. Trampolines and the graph functions, which follow the function tracer's, are not entered any
 * more but by returns; what both share is not stayed in.
 */
static int quiesce(struct guest *g, u64 timeout_ns, struct err *err)
{
	const struct agent_blob *blob = agent_blob_get();
	u64 lo = g->agent.text;

	if (g->n_armed)
		lo += MIN(MIN(blob->ftrace_graph_caller, blob->graph_full_caller),
			  blob->return_to_handler);
	return quiesce_range(g, lo, g->agent.text + g->agent.text_bytes, timeout_ns, err);
}

/* As many of @n frames as a window's time allows. */
static int put_back_window(struct guest *g, const u32 *frame, u32 n, u32 *done, u64 *restored,
			   struct err *err)
{
	u64 end = monotonic_ns() + g->window_limit_ns / 2;
	struct err e = { 0 };
	u32 i = 0;
	int rc = guest_pause(g, err);

	if (rc)
		return rc;
	for (; rc >= 0 && i < n && (i < WINDOW_LEAST || monotonic_ns() < end); i++) {
		rc = frames_put_back(&g->agent.returns->f, frame[i]);
		*restored += rc == 1;
		/* this one is counted as left; the others have nothing to do with it */
		rc = rc == -EPERM ? 0 : rc;
	}
	*done += i;
	if (vm_resume(g->vm, &e) && rc >= 0)
		return err_set(err, e.no, e.code, e.addr, "%s", e.msg);
	return rc < 0 ? failed(g, rc, err) : 0;
}

static int put_back_all(struct guest *g, u64 *restored, struct err *err)
{
	_cleanup_free_ u32 *frame = NULL;
	u64 deadline = monotonic_ns() + PUT_BACK_NS;
	u32 n = 0, done = 0;
	struct frames *f = &g->agent.returns->f;
	int rc = f->n_cells > CELLS_MANY ? frames_shorten_cells(f) : 0;

	if (!g->rewrite)
		f->n_cells = 0;
	if (!rc)
		rc = frames_candidates(f, &frame, &n);
	if (rc)
		return failed(g, rc, err);
	/* a guest may make frames up that take long: what is left is counted */
	while (!rc && done < n && monotonic_ns() < deadline)
		rc = put_back_window(g, frame + done, n - done, &done, restored, err);
	return rc;
}

/* Give back what was put back; 1: somebody may still be on the way, by @deadline. */
static int settle(struct guest *g, u64 deadline, struct err *err)
{
	u64 now = monotonic_ns();
	struct err e = { 0 };
	int rc = quiesce(g, deadline > now ? deadline - now : 0, &e);

	if (rc && e.code == ERR_VMM_GONE)
		return err_set(err, rc, e.code, e.addr, "%s", e.msg);
	if (rc) {
		log_debug("%s: %s", g->target, e.msg);
		return 1;
	}
	rc = frames_settle(&g->agent.returns->f);
	return rc ? failed(g, rc, err) : 0;
}

/*
 * Memory that the guest got after the attach reads as not mapped, and so does what page tables in it
 * map: v6.1 mm/memory_hotplug.c add_memory_resource() raises max_pfn (x86 update_end_of_memory_vars()).
 */
static bool all_ram_is_known(struct guest *g)
{
	const struct vm_ram *last;
	u64 addr, max_pfn;

	if (kernel_sym(g->k, "max_pfn", &addr) ||
	    guest_read(g, addr, &max_pfn, sizeof(max_pfn), NULL))
		return false;
	last = vm_ram(g->vm, vm_ram_count(g->vm) - 1);
	if (max_pfn > (last->base.v + last->len_bytes) / PAGE_SIZE && vm_more_ram(g->vm))
		last = vm_ram(g->vm, vm_ram_count(g->vm) - 1);
	return max_pfn <= (last->base.v + last->len_bytes) / PAGE_SIZE;
}

/* The dead, what can be put back, and, once nobody is on the way, what was on the way then. */
static int put_back_rounds(struct guest *g, u64 *restored, struct err *err)
{
	u64 deadline = monotonic_ns() + SETTLE_NS, before;
	int rc = frames_collect(&g->agent.returns->f, all_ram_is_known(g), NULL, NULL);

	if (rc)
		return failed(g, rc, err);
	for (int round = 0; !rc && round < 3; round++) {
		before = *restored;
		rc = put_back_all(g, restored, err);
		if (!rc && round && *restored == before)
			break;
		if (!rc)
			rc = settle(g, deadline, err);
	}
	return MIN(rc, 0);
}

int graph_put_back(struct guest *g, struct guest_restore *ret, struct err *err)
{
	struct frames_count count = { 0 };
	int rc, rc2;

	ret->returns_restored = ret->returns_left = 0;
	if (!g->agent.returns)
		return 0;
	rc = put_back_rounds(g, &ret->returns_restored, err);
	rc2 = frames_count(&g->agent.returns->f, &count);
	ret->returns_left = count.in_use - count.restored;
	return !rc && rc2 ? failed(g, rc2, err) : rc;
}

int graph_settle(struct guest *g, struct err *err)
{
	struct frames_count count;
	int rc;

	if (!g->agent.returns)
		return 0;
	rc = frames_count(&g->agent.returns->f, &count);
	if (rc)
		return failed(g, rc, err);
	if (count.restored)
		rc = settle(g, monotonic_ns() + SETTLE_NS, err);
	return MIN(rc, 0);
}

static int not_ours(u64 addr, struct err *err)
{
	return err_set(err, -EINVAL, ERR_GUEST_CHANGED, addr,
		       "the agent's memory at 0x%llx is not as it was left; it stays in the guest",
		       (unsigned long long)addr);
}

/* An agent from before function_graph: the header begins the same. */
static bool has_no_frames(const struct agent_header *h, u64 text, u64 data)
{
	return h->magic == AGENT_MAGIC && h->abi_version < FRAMES_FIRST_ABI && h->text == text &&
	       h->data == data;
}

/* What its agent went on recording, which nobody will read any more. */
static void tell_unread(struct guest *g)
{
	u64 unread = 0, refused = 0;

	for (u32 cpu = 0; cpu < g->agent.header.nr_cpus; cpu++) {
		struct agent_cpu c;

		if (vm_view_read(g->agent.view, AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES, &c,
				 sizeof(c)))
			return;
		unread += c.head > c.tail ? c.head - c.tail : 0;
		refused += c.lost;
	}
	log_info("%s: %llu records were not read, %llu more were refused by full rings: all lost",
		 g->target, (unsigned long long)unread, (unsigned long long)refused);
}

/*
 * What an earlier daemon lent and left. Text gets executable last, after data was written, and is so
 * no more once it was proven quiet: if it is not, nothing of the guest has ever returned through it,
 * or will. 0; 1: there is nothing to put back.
 */
static int adopt(struct guest *g, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	u64 text = s->alloc[JOURNAL_AGENT_TEXT], data = s->alloc[JOURNAL_AGENT_DATA];
	struct guest_agent *a = &g->agent;
	struct agent_header h = { 0 };
	struct vm_mapping m;
	int rc = vm_walk(g->vm, gva(text), &m, err);

	if (rc)
		return rc;
	if (!m.executable)
		return 1;
	if (!data || s->alloc_bytes[JOURNAL_AGENT_DATA] < sizeof(h))
		return not_ours(text, err);
	rc = vm_view_create(g->vm, gva(data), s->alloc_bytes[JOURNAL_AGENT_DATA], &a->view, err);
	if (rc)
		return rc;
	rc = vm_view_read(a->view, 0, &h, sizeof(h));
	if (rc)
		rc = failed(g, rc, err);
	else
		rc = has_no_frames(&h, text, data);
	if (rc ||
	    !frames_header_ok(&h, text, s->alloc_bytes[JOURNAL_AGENT_TEXT] - AGENT_INTERLOCK_BYTES,
			      data, s->alloc_bytes[JOURNAL_AGENT_DATA])) {
		vm_view_destroy(a->view);
		a->view = NULL;
		return rc ? rc : not_ours(data, err);
	}
	a->header = h;
	a->text = text;
	a->text_bytes = s->alloc_bytes[JOURNAL_AGENT_TEXT];
	a->data = data;
	a->data_bytes = s->alloc_bytes[JOURNAL_AGENT_DATA];
	a->graph_used = true;
	tell_unread(g);
	return 0;
}

static int unload_loop(struct guest *g, struct err *err)
{
	u64 deadline = monotonic_ns() + UNLOAD_NS;
	struct frames_count count;
	int rc;

	for (;;) {
		rc = put_back_rounds(g, &g->returns_restored, err);
		if (rc)
			return rc;
		rc = frames_count(&g->agent.returns->f, &count);
		if (rc)
			return failed(g, rc, err);
		if (!count.in_use)
			return 0;
		if (monotonic_ns() > deadline)
			return err_set(
				err, -EBUSY, ERR_GUEST_BUSY, g->agent.text,
				"%u calls of the guest still return through the agent; detach again later",
				count.in_use);
		guest_sleep_ns(POLL_NS);
	}
}

int graph_unload(struct guest *g, struct err *err)
{
	const u32 off = 0;
	int rc;

	g->returns_restored = 0;
	if (!journal_state(g->journal)->alloc[JOURNAL_AGENT_TEXT])
		return 0;
	if (!g->agent.view) {
		rc = adopt(g, err);
		if (rc)
			return MIN(rc, 0);
	}
	if (!g->agent.graph_used)
		return 0;
	rc = agent_write_header(g, offsetof(struct agent_header, enabled), &off, sizeof(off), err);
	if (!rc)
		rc = graph_prepare(g, err);
	if (rc)
		return rc;
	/* where the reclaim ring stands only the daemon knew that filled it */
	g->agent.returns->f.discard = !g->agent.loaded;
	rc = unload_loop(g, err);
	/* a frame is free some instructions before its task has left */
	if (!rc)
		rc = quiesce(g, QUIET_NS, err);
	fault_point("graph.unloaded");
	return rc;
}
