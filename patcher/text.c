// SPDX-License-Identifier: Apache-2.0
/* Transactions over guest text. See text.h. */
#include "patcher/text.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_BYTES      65536u /* one read covers sites this close together */
#define GAP_BYTES       4096u
#define BATCH_FIRST     32u
#define BATCH_MAX       65536u
#define BUSY_RETRY_NS   NSEC_PER_MSEC
#define BUSY_TIMEOUT_NS (2 * NSEC_PER_SEC)

/* What a window needs, allocated before it opens. */
struct scratch {
	u64 *addr;
	u8 *bytes;
	bool *ok;
	struct vm_text *text;
};

static void scratch_deinit(struct scratch *s)
{
	free(s->addr);
	free(s->bytes);
	free(s->ok);
	free(s->text);
}

/* Touched here, so that no page of it is first touched while the guest waits. */
static void *touched(size_t n, size_t size)
{
	void *p = calloc(n, size);

	for (size_t off = 0; p && off < n * size; off += PAGE_SIZE)
		((volatile u8 *)p)[off] = 0;
	return p;
}

static int scratch_init(struct scratch *s, size_t n, struct err *err)
{
	s->addr = touched(n, sizeof(*s->addr));
	s->bytes = touched(n, JOURNAL_TEXT_MAX);
	s->ok = touched(n, sizeof(*s->ok));
	s->text = touched(n, sizeof(*s->text));
	if (s->addr && s->bytes && s->ok && s->text)
		return 0;
	return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to change %zu call sites", n);
}

/* Where the run of sites from @i on ends that one read covers. */
static size_t run_end(const struct text_sites *s, size_t i)
{
	size_t end = i + 1;

	while (end < s->n && s->addr[end] >= s->addr[end - 1] &&
	       s->addr[end] - s->addr[end - 1] <= GAP_BYTES &&
	       s->addr[end] - s->addr[i] + s->len <= SPAN_BYTES)
		end++;
	return end;
}

int text_read_sites(struct guest *g, const struct text_sites *s, struct err *err)
{
	_cleanup_free_ u8 *span = malloc(SPAN_BYTES);
	struct err e = { 0 };
	size_t i = 0;

	if (!span)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to read call sites");
	while (i < s->n) {
		size_t end = run_end(s, i);
		u64 start = s->addr[i];
		bool whole = !guest_read(g, start, span, s->addr[end - 1] - start + s->len, &e);

		for (; i < end; i++) {
			u8 *out = s->out + i * s->len;

			s->ok[i] = whole || !guest_read(g, s->addr[i], out, s->len, &e);
			if (whole)
				memcpy(out, span + (s->addr[i] - start), s->len);
			if (!s->ok[i] && e.code == ERR_VMM_GONE)
				return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "%s", e.msg);
		}
	}
	return 0;
}

static int read_scratch(struct guest *g, struct scratch *s, size_t n, u32 len, struct err *err)
{
	struct text_sites sites = { s->addr, n, len, s->bytes, s->ok };

	return text_read_sites(g, &sites, err);
}

/*
 * Is the record still of this site, and does the guest itself have no reference to it? Not asked when
 * undoing: records move (v6.1 kernel/trace/ftrace.c ftrace_free_mem()), and nothing else in the guest
 * can hold a call to an address of ours: the bytes are the proof.
 */
static int check_records(struct guest *g, struct text_change *c, size_t n, struct scratch *s,
			 struct err *err)
{
	u32 ip_off, flags_off;
	size_t m = 0;
	u64 refs;
	int rc;

	for (size_t i = 0; i < n; i++) {
		if (c[i].rec && !c[i].undo)
			s->addr[m++] = c[i].rec;
	}
	if (!m)
		return 0;
	if (kernel_btf_offset(g->k, "dyn_ftrace", "ip", &ip_off) || ip_off != 0 ||
	    kernel_btf_offset(g->k, "dyn_ftrace", "flags", &flags_off) || flags_off != 8)
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "struct dyn_ftrace of this kernel has another layout");
	refs = kernel_site_use_mask(g->k);
	rc = read_scratch(g, s, m, 16, err);
	if (rc)
		return rc;
	m = 0;
	for (size_t i = 0; i < n; i++) {
		u64 rec[2];

		if (!c[i].rec || c[i].undo)
			continue;
		memcpy(rec, s->bytes + m * 16, sizeof(rec));
		if (!s->ok[m++] || rec[0] != c[i].addr)
			c[i].result = TEXT_UNMAPPED; /* the module went away, the record with it */
		else if (rec[1] & refs)
			c[i].result = TEXT_IN_USE;
	}
	return 0;
}

static int check_bytes(struct guest *g, struct text_change *c, size_t n, struct scratch *s,
		       struct err *err)
{
	int rc;

	for (size_t i = 0; i < n; i++)
		s->addr[i] = c[i].addr;
	rc = read_scratch(g, s, n, c[0].len, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		const u8 *found = s->bytes + i * c[0].len;

		if (c[i].result != TEXT_TODO)
			continue;
		if (!s->ok[i])
			c[i].result = TEXT_UNMAPPED;
		else if (!memcmp(found, c[i].new, c[i].len))
			c[i].result = TEXT_ALREADY;
		else if (memcmp(found, c[i].old, c[i].len))
			c[i].result = TEXT_DIFFERS;
	}
	return 0;
}

static int check(struct guest *g, struct text_change *c, size_t n, struct scratch *s,
		 struct err *err)
{
	int rc;

	for (size_t i = 0; i < n; i++)
		c[i].result = TEXT_TODO;
	rc = check_records(g, c, n, s, err);
	return rc ? rc : check_bytes(g, c, n, s, err);
}

int text_check(struct guest *g, struct text_change *c, size_t n, struct err *err)
{
	struct scratch s = { 0 };
	int rc = 0;

	if (!n)
		return 0;
	rc = scratch_init(&s, n, err);
	if (!rc)
		rc = check(g, c, n, &s, err);
	scratch_deinit(&s);
	return rc;
}

/* Owner of a guest mutex: 0 when nobody has it. v6.1 kernel/locking/mutex.h: the low bits are flags;
 * PREEMPT_RT: include/linux/mutex.h, struct mutex holds an rt_mutex_base. */
static int mutex_owner(struct guest *g, const char *name, u64 *owner_ret, struct err *err)
{
	u64 addr, owner;
	u32 off;
	int rc;

	*owner_ret = 0;
	if (kernel_sym(g->k, name, &addr))
		return 0;
	if (kernel_btf_offset(g->k, "mutex", "owner", &off) &&
	    kernel_btf_offset(g->k, "mutex", "rtmutex.owner", &off))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, addr,
			       "struct mutex of this kernel has no owner");
	rc = guest_read(g, addr + off, &owner, sizeof(owner), err);
	if (!rc)
		*owner_ret = owner & ~7ull;
	return rc;
}

int text_guest_busy(struct guest *g, struct err *err)
{
	static const char *const locks[] = { "text_mutex", "ftrace_lock" };

	for (size_t i = 0; i < ARRAY_SIZE(locks); i++) {
		u64 owner;
		int rc = mutex_owner(g, locks[i], &owner, err);

		if (rc)
			return rc;
		if (owner)
			return 1;
	}
	return 0;
}

/* Window open: verify, write, read back. */
static int change_in_window(struct guest *g, struct text_change *c, size_t n, struct scratch *s,
			    struct err *err)
{
	size_t m = 0;
	int rc;

	rc = check(g, c, n, s, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (c[i].result != TEXT_TODO)
			continue;
		s->text[m].addr = gva(c[i].addr);
		s->text[m].len = c[i].len;
		memcpy(s->text[m++].bytes, c[i].new, c[i].len);
	}
	if (!m)
		return 0;
	fault_point("text.before_write");
	rc = vm_write_text(g->vm, s->text, m, err);
	if (rc)
		return rc;
	fault_point("text.after_write");
	for (size_t i = 0; i < n; i++)
		s->addr[i] = c[i].addr;
	rc = read_scratch(g, s, n, c[0].len, err);
	for (size_t i = 0; !rc && i < n; i++) {
		if (c[i].result != TEXT_TODO)
			continue;
		if (!s->ok[i] || memcmp(s->bytes + i * c[0].len, c[i].new, c[i].len))
			return err_set(err, -EPERM, ERR_GUEST_CHANGED, c[i].addr,
				       "the write at 0x%llx did not take",
				       (unsigned long long)c[i].addr);
		c[i].result = TEXT_DONE;
	}
	return rc;
}

/*
 * What a window with @n sites took, @work_ns of it for them: the rest is what it takes to stop and let go, which
 * many sites share. Smoothed, so that one slow window does not make the next ones tiny.
 */
static void learn(struct guest *g, size_t n, u64 work_ns)
{
	struct vm_windows w;
	double site = (double)work_ns / (double)n, rest;

	vm_windows(g->vm, &w);
	rest = w.last_ns > work_ns ? (double)(w.last_ns - work_ns) : 0;
	/* of few sites most is what is done once: looking at locks, the first walk of the page table */
	if (n >= BATCH_FIRST)
		g->site_ns = g->site_ns > 0 ? (g->site_ns + site) * 0.5 : site;
	g->window_ns = g->window_ns > 0 ? (g->window_ns + rest) * 0.5 : rest;
}

static int apply_batch(struct guest *g, struct text_change *c, size_t n, struct scratch *s,
		       struct err *err)
{
	u64 deadline = monotonic_ns() + BUSY_TIMEOUT_NS;
	struct err e = { 0 };
	int rc, busy;
	u64 work;

	for (;;) {
		rc = guest_pause(g, err);
		if (rc)
			return rc;
		work = monotonic_ns();
		busy = text_guest_busy(g, err);
		rc = busy ? 0 : change_in_window(g, c, n, s, err);
		work = monotonic_ns() - work;
		if (vm_resume(g->vm, &e) && !rc)
			return err_set(err, e.no, e.code, e.addr, "%s", e.msg);
		if (busy < 0 || rc)
			return busy < 0 ? busy : rc;
		if (!busy)
			break;
		if (monotonic_ns() > deadline)
			return err_set(err, -EBUSY, ERR_GUEST_BUSY, 0,
				       "the guest held text_mutex or ftrace_lock for 2 s");
		guest_sleep_ns(BUSY_RETRY_NS);
	}
	learn(g, n, work);
	return 0;
}

/*
 * How many sites the next window has time for. Where stopping takes all of the limit by itself, small batches do not
 * help: it would only be passed more often.
 */
static size_t batch_size(const struct guest *g, size_t left)
{
	double limit = (double)g->window_limit_ns;
	double ns = MAX(limit * 0.6 - g->window_ns, limit * 0.1);
	size_t n = BATCH_FIRST;

	if (g->site_ns > 0 && ns > g->site_ns * BATCH_FIRST)
		n = ns < g->site_ns * BATCH_MAX ? (size_t)(ns / g->site_ns) : BATCH_MAX;
	return MIN(n, left);
}

int text_apply(struct guest *g, struct text_change *c, size_t n, struct err *err)
{
	struct scratch s = { 0 };
	size_t done = 0, batch;
	int rc = 0;

	if (!n)
		return 0;
	rc = scratch_init(&s, MIN(n, (size_t)BATCH_MAX), err);
	if (rc) {
		scratch_deinit(&s);
		return rc;
	}
	while (!rc && done < n) {
		batch = batch_size(g, n - done);
		rc = apply_batch(g, c + done, batch, &s, err);
		done += batch;
		fault_point("text.between_batches");
	}
	scratch_deinit(&s);
	return rc;
}

static void to_journal(const struct text_change *c, enum journal_kind kind,
		       struct journal_text *ret)
{
	*ret = (struct journal_text){ .addr = c->addr, .rec = c->rec, .kind = kind, .len = c->len };
	memcpy(ret->old, c->old, sizeof(ret->old));
	memcpy(ret->new, c->new, sizeof(ret->new));
}

int text_journal(struct guest *g, const struct text_change *c, size_t n, enum journal_kind kind,
		 struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct journal_text t;
		int rc;

		to_journal(&c[i], kind, &t);
		rc = journal_add_text(g->journal, &t, err);
		if (rc)
			return rc;
	}
	return journal_flush(g->journal, err);
}

int text_keep_in_journal(struct guest *g, const struct text_change *c, size_t n,
			 enum journal_kind kind, struct err *err)
{
	_cleanup_free_ struct journal_text *t = calloc(n + 1, sizeof(*t));

	if (!t)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the journal");
	for (size_t i = 0; i < n; i++)
		to_journal(&c[i], kind, &t[i]);
	return journal_keep(g->journal, kind, t, n, err);
}

int text_from_journal(struct guest *g, enum journal_kind kind, struct text_change **ret,
		      size_t *n_ret, struct err *err)
{
	const struct journal_state *s = journal_state(g->journal);
	struct text_change *c = calloc(s->n_text + 1, sizeof(*c));
	size_t n = 0;

	if (!c)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to read the journal");
	for (size_t i = 0; i < s->n_text; i++) {
		const struct journal_text *t = &s->text[i];

		if (t->kind != kind)
			continue;
		c[n] = (struct text_change){ .addr = t->addr, .rec = t->rec, .len = t->len };
		memcpy(c[n].old, t->old, sizeof(t->old));
		memcpy(c[n++].new, t->new, sizeof(t->new));
	}
	text_sort(c, n);
	*ret = c;
	*n_ret = n;
	return 0;
}

void text_swap(struct text_change *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		u8 tmp[JOURNAL_TEXT_MAX];

		memcpy(tmp, c[i].old, sizeof(tmp));
		memcpy(c[i].old, c[i].new, sizeof(tmp));
		memcpy(c[i].new, tmp, sizeof(tmp));
		c[i].undo = !c[i].undo;
		c[i].result = TEXT_TODO;
	}
}

static int by_addr(const void *a, const void *b)
{
	const struct text_change *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

void text_sort(struct text_change *c, size_t n)
{
	qsort(c, n, sizeof(*c), by_addr);
}
