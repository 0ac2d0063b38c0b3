// SPDX-License-Identifier: Apache-2.0
/* Calls, errors and time by call, laid out as strace -c does. */
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
	struct row *rows;
	size_t n, cap;
};

struct sys_summary *sys_summary_create(void)
{
	return calloc(1, sizeof(struct sys_summary));
}

void sys_summary_destroy(struct sys_summary *s)
{
	if (!s)
		return;
	free(s->rows);
	free(s);
}

static struct row *row_find(struct sys_summary *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->rows[i].name == name || !strcmp(s->rows[i].name, name))
			return &s->rows[i];
	if (s->n == ROWS_MAX)
		return NULL;
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		struct row *rows = realloc(s->rows, cap * sizeof(*rows));

		if (!rows)
			return NULL;
		s->rows = rows;
		s->cap = cap;
	}
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

	buf_addf(b, "%6.2f %11.6f %11llu %9llu ", percent, seconds,
		 (unsigned long long)(r->calls ? r->ns / r->calls / 1000 : 0),
		 (unsigned long long)r->calls);
	if (r->errors)
		buf_addf(b, "%9llu %s\n", (unsigned long long)r->errors, name);
	else
		buf_addf(b, "%9s %s\n", "", name);
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
