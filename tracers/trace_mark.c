// SPDX-License-Identifier: Apache-2.0
/*
 * Markers: texts from the host between a trace's records. Their texts stay where they are for as long as
 * the trace is there; a record says which.
 */
#include "tracers/trace_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct trace_marker {
	char *text;
	u64 host_ns;
};

struct trace_markers {
	atomic_size_t n; /* filled; they do not change any more */
	size_t n_taken; /* in the store; the trace's thread's */
	struct trace_marker marker[TRACE_MAX_MARKERS];
};

void trace_markers_destroy(struct trace_markers *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		free(m->marker[i].text);
	free(m);
}

/* t->lock held. */
static int add(struct trace *t, const char *text, u64 host_ns, struct err *err)
{
	struct trace_markers *m = t->markers;
	char *copy;

	if (!m)
		m = t->markers = calloc(1, sizeof(*m));
	if (m && m->n == TRACE_MAX_MARKERS)
		return err_set(err, -ENOSPC, ERR_TRACE_MARKERS, 0, "the trace has %d markers",
			       TRACE_MAX_MARKERS);
	copy = m ? strndup(text, TRACE_MARKER_MAX) : NULL;
	if (!copy)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a marker");
	m->marker[m->n] = (struct trace_marker){ copy, host_ns };
	m->n++;
	return 0;
}

int trace_mark(struct trace *t, const char *text, u64 host_ns, struct err *err)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	if (!t->thread_runs || t->stop || t->info.state != TRACE_RUNNING)
		rc = err_set(err, -EBUSY, ERR_CONFLICT, 0, "the trace was stopped");
	else
		rc = add(t, text, host_ns, err);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int trace_markers_copy(struct trace *from, struct trace *to, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&from->lock);
	for (size_t i = 0; from->markers && i < from->markers->n && !rc; i++)
		rc = add(to, from->markers->marker[i].text, 0, err);
	pthread_mutex_unlock(&from->lock);
	return rc;
}

size_t trace_take_markers(struct trace *t, bool all)
{
	struct trace_record r = { .type = TRACE_MARKER, .comm = "<...>" };
	struct trace_markers *m;
	u64 boot_ns;
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	m = t->markers;
	boot_ns = t->info.boot_ns;
	pthread_mutex_unlock(&t->lock);
	if (!m || (!boot_ns && !all))
		return 0;
	for (; m->n_taken < m->n; m->n_taken++, n++) {
		u64 at = m->marker[m->n_taken].host_ns;

		r.prev_pid = (u32)m->n_taken;
		r.ts_ns = boot_ns && at > boot_ns ? at - boot_ns : 0;
		trace_keep_record(t, &r);
	}
	return n;
}

void trace_fill_markers(struct trace *t, struct trace_page *page)
{
	for (size_t i = 0; i < page->n; i++) {
		struct trace_record *r = &page->buf[i];

		if (r->type != TRACE_MARKER)
			continue;
		/* one that is in the store is in the table, which does not move */
		r->text = t->markers->marker[r->prev_pid].text;
		r->prev_pid = 0;
	}
}
