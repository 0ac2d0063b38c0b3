// SPDX-License-Identifier: Apache-2.0
/*
 * The verb top: a guest's functions while they are called, the costliest first. The trace comes as a recording
 * through a pipe; one thread adds it up, another shows what was new since it last did. On a terminal keys
 * change what it is sorted by.
 */
#include "api/cli.h"
#include "api/cli_options.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "tracers/output.h"
#include "tracers/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define TOP_CELL   32
#define TOP_LINES  40 /* where there is no window to fill */
#define HEAD_LINES 3
#define CLEAR      "\033[H\033[J"

struct top_line {
	const char *name, *module;
	u64 ip, hits, total_ns, self_ns;
	double key;
};

struct top {
	const struct trace_args *a;
	const char *sort;
	bool json, screen, keys; /* keys: a terminal to read them from */
	int pipe[2], quit[2];
	atomic_bool wanted; /* somebody waits for the lock */
	pthread_mutex_t lock; /* down to lost */
	struct profile *profile;
	struct rec_reader *reader;
	u64 records, lost;
	/* of what was shown last, the show thread's: */
	struct profile_row *before;
	size_t n_before;
	u64 records_before, lost_before, shown_ns;
};

static const char *const keys[] = { "total", "self", "hits", "avg", "name" };

static bool is_key(const char *sort)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i], sort) == 0)
			return true;
	}
	return false;
}

static double key_of(const struct top_line *l, const char *sort)
{
	if (strcmp(sort, "self") == 0)
		return (double)l->self_ns;
	if (strcmp(sort, "hits") == 0)
		return (double)l->hits;
	if (strcmp(sort, "avg") == 0)
		return l->hits ? (double)l->total_ns / (double)l->hits : 0;
	return strcmp(sort, "name") == 0 ? 0 : (double)l->total_ns;
}

static int by_key(const void *a, const void *b)
{
	const struct top_line *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? 1 : -1;
	return strcmp(x->name, y->name);
}

/* The lock is held but while we wait for more; whoever wants to show something gets it then. */
static ssize_t read_pipe(void *arg, char *buf, size_t len)
{
	struct top *t = arg;
	ssize_t n;

	pthread_mutex_unlock(&t->lock);
	while (atomic_load(&t->wanted))
		sched_yield();
	do {
		n = read(t->pipe[0], buf, len);
	} while (n < 0 && errno == EINTR);
	pthread_mutex_lock(&t->lock);
	return n;
}

static int add_all(struct top *t, struct err *err)
{
	struct output_names names = rec_reader_names(t->reader);
	struct trace_record rec;
	enum rec_kind kind = REC_RECORD;
	int rc = 0;

	while (!rc && (kind == REC_RECORD || kind == REC_LOST)) {
		rc = rec_reader_next(t->reader, &kind, &rec, err);
		if (!rc && kind == REC_LOST)
			t->lost += rec.seq;
		if (rc || kind != REC_RECORD)
			continue;
		t->records++;
		rc = profile_add(t->profile, &rec, &names);
	}
	return rc;
}

/* What comes through the pipe, to its end, whatever becomes of it: nobody is to wait for us. */
static void *add_up(void *arg)
{
	struct top *t = arg;
	FILE *file = fopencookie(t, "r", (cookie_io_functions_t){ .read = read_pipe });
	struct err err = { 0 };
	char rest[4096];

	pthread_mutex_lock(&t->lock);
	/* nothing at all comes when the trace was refused, which is said elsewhere */
	if (file && !rec_reader_open_file(file, &t->reader, &err) && add_all(t, &err) < 0)
		(void)cli_fail("%s", err.msg);
	pthread_mutex_unlock(&t->lock);
	while (read(t->pipe[0], rest, sizeof(rest)) > 0)
		;
	return NULL;
}

/* What there is now less what was shown before. Names stay good as long as the profile. */
static struct top_line *take(struct top *t, size_t *n_ret, u64 *records_ret, u64 *lost_ret)
{
	const struct profile_row *rows;
	struct top_line *lines;
	size_t n;

	atomic_store(&t->wanted, true);
	pthread_mutex_lock(&t->lock);
	atomic_store(&t->wanted, false);
	rows = profile_rows(t->profile, &n);
	lines = calloc(n + 1, sizeof(*lines));
	for (size_t i = 0; lines && i < n; i++) {
		const struct profile_row none = { 0 };
		const struct profile_row *was = i < t->n_before ? &t->before[i] : &none;

		lines[i] = (struct top_line){
			.name = rows[i].name ?: "?",
			.module = rows[i].module,
			.ip = rows[i].ip,
			.hits = rows[i].hits + rows[i].untimed - was->hits - was->untimed,
			.total_ns = rows[i].total_ns - was->total_ns,
			.self_ns = rows[i].self_ns - was->self_ns,
		};
	}
	free(t->before);
	t->before = calloc(n + 1, sizeof(*t->before));
	t->n_before = t->before ? n : 0;
	if (t->before && n)
		memcpy(t->before, rows, n * sizeof(*rows));
	*records_ret = t->records;
	*lost_ret = t->lost;
	pthread_mutex_unlock(&t->lock);
	*n_ret = lines ? n : 0;
	return lines;
}

static void print_json(const struct top *t, const struct top_line *lines, size_t n, u64 ns)
{
	_cleanup_buf_ struct buf b = { 0 };

	buf_addf(&b,
		 "{\"interval_ns\":%" PRIu64 ",\"records\":%" PRIu64 ",\"lost\":%" PRIu64
		 ",\"items\":[",
		 ns, t->records_before, t->lost_before);
	for (size_t i = 0; i < n; i++) {
		buf_addf(&b, "%s{\"function\":", i ? "," : "");
		out_json_string(&b, lines[i].name, strlen(lines[i].name));
		buf_adds(&b, ",\"module\":");
		if (lines[i].module)
			out_json_string(&b, lines[i].module, strlen(lines[i].module));
		else
			buf_adds(&b, "null");
		buf_addf(&b,
			 ",\"ip\":\"0x%" PRIx64 "\",\"hits\":%" PRIu64 ",\"total_ns\":%" PRIu64
			 ",\"self_ns\":%" PRIu64 "}",
			 lines[i].ip, lines[i].hits, lines[i].total_ns, lines[i].self_ns);
	}
	buf_adds(&b, "]}\n");
	if (!buf_failed(&b))
		fwrite(b.data, 1, b.len, stdout);
}

static void print_table(const struct top_line *lines, size_t n, double seconds)
{
	static const char *const head[] = { "HITS",    "HITS/s", "TOTAL us",
					    "SELF us", "AVG us", "FUNCTION" };
	struct cli_table table = { 0 };

	cli_table_add(&table, ARRAY_SIZE(head), head);
	for (size_t i = 0; i < n; i++) {
		const struct top_line *l = &lines[i];
		char cell[5][TOP_CELL], name[600];
		double total = (double)l->total_ns / 1000, self = (double)l->self_ns / 1000;

		snprintf(cell[0], TOP_CELL, "%" PRIu64, l->hits);
		snprintf(cell[1], TOP_CELL, "%.0f", (double)l->hits / seconds);
		snprintf(cell[2], TOP_CELL, "%.3f", total);
		snprintf(cell[3], TOP_CELL, "%.3f", self);
		snprintf(cell[4], TOP_CELL, "%.3f", l->hits ? total / (double)l->hits : 0);
		snprintf(name, sizeof(name), "%s%s%s%s", l->name, l->module ? " [" : "",
			 l->module ?: "", l->module ? "]" : "");
		cli_table_add(
			&table, ARRAY_SIZE(head),
			(const char *[]){ cell[0], cell[1], cell[2], cell[3], cell[4], name });
	}
	cli_table_print(&table);
}

static size_t lines_to_show(const struct top *t)
{
	struct winsize w;

	if (t->a->lines)
		return t->a->lines;
	if (t->json)
		return SIZE_MAX;
	if (t->screen && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > HEAD_LINES + 1)
		return w.ws_row - HEAD_LINES - 1u;
	return TOP_LINES;
}

static void show(struct top *t)
{
	u64 records, lost, now, ns;
	size_t n, called = 0;
	_cleanup_free_ struct top_line *lines = take(t, &n, &records, &lost);

	now = clock_ns(CLOCK_MONOTONIC);
	ns = MAX(now - t->shown_ns, 1ull);
	t->shown_ns = now;
	for (size_t i = 0; i < n; i++) {
		if (!lines[i].hits)
			continue;
		lines[called] = lines[i];
		lines[called].key = key_of(&lines[called], t->sort);
		called++;
	}
	if (called)
		qsort(lines, called, sizeof(*lines), by_key);
	records -= t->records_before;
	lost -= t->lost_before;
	t->records_before += records;
	t->lost_before += lost;
	n = MIN(called, lines_to_show(t));
	if (t->json) {
		print_json(t, lines, n, ns);
	} else {
		printf("%s%s: %zu functions called, %" PRIu64 " records/s, %" PRIu64
		       " lost; by %s%s\n\n",
		       t->screen ? CLEAR : "", t->a->guest, called,
		       (u64)((double)records / ((double)ns / 1e9)), lost, t->sort,
		       t->keys ? " (t s h a n; q ends)" : "");
		print_table(lines, n, (double)ns / 1e9);
	}
	fflush(stdout);
}

/* One key. Return: false: it ends all. */
static bool take_key(struct top *t, char key)
{
	if (key == 'q')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (keys[i][0] == key)
			t->sort = keys[i];
	}
	return true;
}

/* Until it is time to show more. Return: false: it is over */
static bool wait_a_while(struct top *t, u64 until)
{
	struct pollfd p[2] = { { .fd = t->quit[0], .events = POLLIN },
			       { .fd = t->keys ? STDIN_FILENO : -1, .events = POLLIN } };
	u64 now;
	char key;

	while ((now = clock_ns(CLOCK_MONOTONIC)) < until) {
		if (poll(p, 2, (int)((until - now) / NSEC_PER_MSEC) + 1) < 0 && errno != EINTR)
			return false;
		if (p[0].revents)
			return false;
		if (!p[1].revents)
			continue;
		if (read(STDIN_FILENO, &key, 1) == 1)
			return take_key(t, key);
		p[1].fd = -1;
	}
	return true;
}

static void *show_on(void *arg)
{
	struct top *t = arg;
	u64 left = t->a->iterations, next;

	t->shown_ns = clock_ns(CLOCK_MONOTONIC);
	for (;;) {
		next = t->shown_ns + t->a->interval_ns;
		if (!wait_a_while(t, next))
			break;
		show(t);
		if (left && !--left)
			break;
	}
	kill(getpid(), SIGTERM); /* which ends the trace, if it has not ended */
	return NULL;
}

static int start(struct top *t)
{
	t->profile = profile_create(!t->a->no_graph_time);
	if (!t->profile)
		return cli_fail("out of memory");
	if (pipe2(t->pipe, O_CLOEXEC) < 0 || pipe2(t->quit, O_CLOEXEC) < 0)
		return cli_fail("no pipe: %s", strerrordesc_np(errno));
	pthread_mutex_init(&t->lock, NULL);
	return CLI_OK;
}

static void finish(struct top *t)
{
	int *const all[] = { &t->pipe[0], &t->pipe[1], &t->quit[0], &t->quit[1] };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (*all[i] >= 0)
			close(*all[i]);
	}
	rec_reader_close(t->reader);
	if (t->profile)
		profile_destroy(t->profile);
	free(t->before);
}

/* Keys without Enter, and not shown. Undo: tcsetattr(@was). */
static bool take_keyboard(struct termios *was)
{
	struct termios raw;

	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, was) < 0)
		return false;
	raw = *was;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	return tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static int run(struct cli *c, struct top *t)
{
	pthread_t adding, showing;
	struct termios was;
	sigset_t set;
	int status;

	cli_follow_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL); /* before there are threads, which inherit it */
	t->keys = t->screen && take_keyboard(&was);
	if (pthread_create(&adding, NULL, add_up, t)) {
		status = cli_fail("no thread");
	} else if (pthread_create(&showing, NULL, show_on, t)) {
		status = cli_fail("no thread");
		close(t->pipe[1]);
		t->pipe[1] = -1;
		pthread_join(adding, NULL);
	} else {
		status = cli_trace_into(c, t->a, t->pipe[1]);
		close(t->pipe[1]);
		t->pipe[1] = -1;
		if (write(t->quit[1], "", 1) < 0)
			status = CLI_FAILED;
		pthread_join(showing, NULL);
		pthread_join(adding, NULL);
	}
	if (t->keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &was);
	return status;
}

static int top(struct cli *c, struct trace_args *a)
{
	struct top t = { .a = a,
			 .sort = a->sort,
			 .json = c->json,
			 .screen = !c->json && isatty(STDOUT_FILENO),
			 .pipe = { -1, -1 },
			 .quit = { -1, -1 } };
	int status;

	if (!a->iterations_given)
		a->iterations = isatty(STDOUT_FILENO) ? 0 : 1;
	status = start(&t);
	if (status == CLI_OK)
		status = run(c, &t);
	if (t.profile)
		cli_profile_excess(t.profile, false);
	finish(&t);
	return status == CLI_OK ? cli_flush(status) : status;
}

int cli_top(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "sort", required_argument, NULL, OPT_SORT },
		{ "no-graph-time", no_argument, NULL, OPT_NO_GRAPH_TIME },
		{ "interval", required_argument, NULL, OPT_INTERVAL },
		{ "iterations", required_argument, NULL, OPT_ITERATIONS },
		{ "lines", required_argument, NULL, OPT_LINES },
		TRACE_LONG,
		{ NULL, 0, NULL, 0 }
	};
	struct trace_args a;
	int status;

	trace_args_init(&a, "function_graph");
	a.interval_ns = NSEC_PER_SEC;
	status = trace_args_parse(c, argc, argv, "p:" TRACE_SHORT, longs, &a);
	if (status == -1 && json_is_true(json_object_get(a.body, "persistent")))
		status = cli_usage(argv[0], "what is added up is of one kernel: no --persistent");
	if (status == -1 && !is_key(a.sort))
		status = cli_usage(argv[0], "--sort takes " CLI_TOP_KEYS ", not \"%s\"", a.sort);
	if (status == -1 &&
	    strcmp(json_string_value(json_object_get(a.body, "tracer")), "syscalls") == 0)
		status = cli_usage(argv[0], "-p takes function or function_graph");
	if (status == -1)
		status = top(c, &a);
	trace_args_deinit(&a);
	return status == CLI_HELP_SHOWN ? CLI_OK : status;
}
