// SPDX-License-Identifier: Apache-2.0
/* Calls, errors and time by call, laid out as strace -c does. */
#include "tracers/out_layout.h"
#include "tracers/syscalls/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 2048u

struct row {
	const char *name; /* points into the table of calls, as events do */
	u64 calls, errors, ns;
};

struct sys_summary {
	size_t n;
	struct row rows[ROWS_MAX];
};

struct sys_summary *sys_summary_create(void)
{
	return calloc(1, sizeof(struct sys_summary));
}

void sys_summary_destroy(struct sys_summary *s)
{
	free(s);
}

static struct row *row_find(struct sys_summary *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->rows[i].name == name || !strcmp(s->rows[i].name, name))
			return &s->rows[i];
	if (s->n == ROWS_MAX)
		return NULL;
	s->rows[s->n] = (struct row){ .name = name };
	return &s->rows[s->n++];
}

int sys_summary_add(struct sys_summary *s, const struct syscall_event *e)
{
	struct row *r = row_find(s, e->entry->name);

	if (!r)
		return -ENOMEM;
	r->calls++;
	r->errors += syscall_failed(e);
	r->ns += e->duration_ns;
	return 0;
}

static int by_time(const void *pa, const void *pb)
{
	const struct row *a = pa, *b = pb;

	if (a->ns != b->ns)
		return a->ns < b->ns ? 1 : -1;
	if (a->calls != b->calls)
		return a->calls < b->calls ? 1 : -1;
	return strcmp(a->name, b->name);
}

static void put_row(struct buf *b, const struct row *r, double percent, const char *name)
{
	double seconds = (double)r->ns / 1e9;
	u64 each_us = 0;

	if (r->calls)
		each_us = (u64)((double)r->ns / 1e3 / (double)r->calls);
	buf_addf(b, "%6.2f %11.6f %11llu %9llu ", percent, seconds, (unsigned long long)each_us,
		 (unsigned long long)r->calls);
	if (r->errors)
		buf_addf(b, "%9llu ", (unsigned long long)r->errors);
	else
		buf_addf(b, "%9s ", "");
	out_printable(b, name);
	buf_adds(b, "\n");
}

void sys_summary_print(struct sys_summary *s, struct buf *b)
{
	static const char line[] =
		"------ ----------- ----------- --------- --------- ----------------\n";
	struct row total = { .name = "total" };

	if (s->n)
		qsort(s->rows, s->n, sizeof(*s->rows), by_time);
	for (size_t i = 0; i < s->n; i++) {
		total.calls += s->rows[i].calls;
		total.errors += s->rows[i].errors;
		total.ns += s->rows[i].ns;
	}
	buf_adds(b, "% time     seconds  usecs/call     calls    errors syscall\n");
	buf_adds(b, line);
	for (size_t i = 0; i < s->n; i++) {
		const struct row *r = &s->rows[i];
		double part = total.ns ? (double)r->ns / (double)total.ns : 0.0;

		put_row(b, r, 100.0 * part, r->name);
	}
	buf_adds(b, line);
	put_row(b, &total, 100.0, "total");
}
