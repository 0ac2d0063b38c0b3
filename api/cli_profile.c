// SPDX-License-Identifier: Apache-2.0
/* What the verb profile shows: a recording of function_graph, added up by function. */
#include "api/cli.h"
#include "api/cli_filter.h"
#include "api/cli_options.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "tracers/output.h"
#include "tracers/profile_sort.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CELL 32

static const char *us(char cell[CELL], double ns)
{
	snprintf(cell, CELL, "%.3f", ns / 1000);
	return cell;
}

static void print_text(const struct profile_line *lines, size_t n)
{
	static const char *const head[] = { "HITS",   "TOTAL us", "SELF us",   "AVG us",
					    "MIN us", "MAX us",   "STDDEV us", "FUNCTION" };
	struct cli_table t = { 0 };

	cli_table_add(&t, ARRAY_SIZE(head), head);
	for (size_t i = 0; i < n; i++) {
		const struct profile_row *r = lines[i].row;
		char hits[CELL], cell[6][CELL], name[600];

		snprintf(hits, sizeof(hits), "%" PRIu64, r->hits + r->untimed);
		snprintf(name, sizeof(name), "%s%s%s%s", lines[i].name, r->module ? " [" : "",
			 r->module ?: "", r->module ? "]" : "");
		cli_table_add(&t, ARRAY_SIZE(head),
			      (const char *[]){ hits, us(cell[0], (double)r->total_ns),
						us(cell[1], (double)r->self_ns),
						us(cell[2], r->avg_ns),
						us(cell[3], (double)r->min_ns),
						us(cell[4], (double)r->max_ns),
						us(cell[5], r->stddev_ns), name });
	}
	cli_table_print(&t);
}

static void print_json(const struct profile_line *lines, size_t n)
{
	_cleanup_buf_ struct buf b = { 0 };

	buf_adds(&b, "{\"items\":[");
	for (size_t i = 0; i < n; i++) {
		buf_adds(&b, i ? ",\n" : "\n");
		profile_json_row(&b, &lines[i]);
	}
	buf_adds(&b, "\n]}\n");
	if (!buf_failed(&b))
		fwrite(b.data, 1, b.len, stdout);
}

/* Only those that are asked for; their times are what they were, whoever else is not shown. */
static void choose(struct profile_sorted *s, const struct rec_filter *f)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (rec_filter_chooses(f, s->line[i].name, s->line[i].row->module))
			s->line[n++] = s->line[i];
	}
	s->n = n;
}

static int show(struct cli *c, struct profile *p, const char *sort, const struct rec_filter *f)
{
	struct profile_sorted s;

	if (profile_sort(p, sort, &s))
		return cli_fail("out of memory");
	choose(&s, f);
	if (c->json)
		print_json(s.line, s.n);
	else
		print_text(s.line, s.n);
	profile_sorted_deinit(&s);
	return cli_flush(CLI_OK);
}

void cli_profile_excess(const struct profile *p, bool stacks)
{
	struct profile_excess over;

	profile_excess(p, &over);
	if (over.unnamed)
		fprintf(stderr,
			"%" PRIu64
			" times a function was one too many to be told apart: it is shown as %s\n",
			over.unnamed, OUTPUT_SHARED_NAME);
	if (over.shortened && stacks)
		fprintf(stderr,
			"%" PRIu64
			" times a stack was one too many to be told apart: it counts as what it "
			"begins with\n",
			over.shortened);
}

/* @f: by task; functions are chosen when all is added up. */
static int add_all(struct rec_reader *r, struct profile *p, struct rec_filter *f, u64 *lost_ret,
		   bool *cut_ret, struct err *err)
{
	struct rec_filter tasks = { .pids = f->pids };

	struct output_names names = rec_reader_names(r);
	struct trace_record rec;
	enum rec_kind kind = REC_END;
	int rc;

	do {
		rc = rec_reader_next(r, &kind, &rec, err);
		if (!rc && kind == REC_RECORD && rec_filter_takes(&tasks, &rec, &names) &&
		    profile_add(p, &rec, &names))
			rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a profile");
		if (!rc && kind == REC_LOST)
			*lost_ret += rec.seq;
	} while (!rc && (kind == REC_RECORD || kind == REC_LOST));
	*cut_ret = kind == REC_CUT;
	return rc;
}

int cli_profile_file(struct cli *c, const char *path, const struct trace_args *a)
{
	struct profile *p = profile_create(!a->no_graph_time);
	struct rec_reader *r = NULL;
	struct rec_filter filter;
	struct err err = { 0 };
	int status = CLI_OK;
	bool cut = false;
	u64 lost = 0;

	/* of a guest it was chosen when it was traced */
	rec_filter_init(&filter, strcmp(path, a->guest) == 0 ? a->body : NULL);
	if (!p)
		return cli_fail("out of memory");
	if (rec_reader_open(path, &r, &err) < 0 || add_all(r, p, &filter, &lost, &cut, &err) < 0)
		status = cli_fail("%s: %s (%s): %s", path, err.msg, err_code_name(err.code),
				  err_code_hint(err.code));
	if (status == CLI_OK)
		status = show(c, p, a->sort, &filter);
	if (status == CLI_OK && lost)
		fprintf(stderr, "%" PRIu64 " records lost: hits and times are too low\n", lost);
	if (status == CLI_OK)
		cli_profile_excess(p, false);
	if (status == CLI_OK && cut)
		status = cli_fail("%s was cut (file.cut): what came before is counted", path);
	rec_reader_close(r);
	profile_destroy(p);
	return status;
}
