// SPDX-License-Identifier: Apache-2.0
/* Words and numbers of the command: messages, durations, tables. See cli.h. */
#include "api/body.h"
#include "api/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WORD 32

void cli_text(FILE *f, const char *s)
{
	for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
		/* C0, DEL, and C1 as UTF-8 (c2 80..9f): what a terminal may act on */
		if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
			c++;
		else if (*c >= 0x20 && *c != 0x7f) {
			putc(*c, f);
			continue;
		}
		putc('?', f);
	}
}

/* https://no-color.org: set to anything but the empty string */
const char *cli_colour(const char *code)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if ((no && *no) || !term || strcmp(term, "dumb") == 0 || !isatty(STDOUT_FILENO))
		return "";
	return code;
}

int cli_fail(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fputs("hvftrace: ", stderr);
	cli_text(stderr, line);
	putc('\n', stderr);
	return CLI_FAILED;
}

int(cli_usage)(const char *verb, const char *fmt, ...)
{
	const struct cli_verb *v = verb ? cli_verb_find(verb) : NULL;
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fputs("hvftrace: ", stderr);
	cli_text(stderr, line);
	if (v)
		fprintf(stderr, "\nusage: hvftrace %s%s%s\n", v->name, *v->args ? " " : "",
			v->args);
	else
		fputs("\ntry hvftrace help\n", stderr);
	return CLI_USAGE;
}

/* Levenshtein's distance with neighbours exchanged as one step (optimal string alignment). */
static unsigned distance(const char *a, const char *b)
{
	unsigned d[MAX_WORD + 1][MAX_WORD + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > MAX_WORD || lb > MAX_WORD)
		return MAX_WORD;
	for (size_t i = 0; i <= la; i++) {
		for (size_t j = 0; j <= lb; j++) {
			if (!i || !j) {
				d[i][j] = (unsigned)(i + j);
				continue;
			}
			d[i][j] = MIN(MIN(d[i - 1][j], d[i][j - 1]) + 1,
				      d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = MIN(d[i][j], d[i - 2][j - 2] + 1);
		}
	}
	return d[la][lb];
}

const char *cli_closest(const char *word, const char *const *words, size_t n)
{
	const char *best = NULL;
	unsigned least = 3, d;

	for (size_t i = 0; i < n; i++) {
		d = distance(word, words[i]);
		if (d < least && d < strlen(words[i])) {
			least = d;
			best = words[i];
		}
	}
	return best;
}

/* Digits and what follows them. */
static bool number(const char *text, u64 *n_ret, const char **rest_ret)
{
	unsigned long long n;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	*n_ret = n;
	*rest_ret = end;
	return !errno;
}

bool cli_duration(const char *text, u64 *ns_ret)
{
	static const struct {
		const char *unit;
		u64 ns;
	} units[] = {
		{ "", NSEC_PER_SEC },
		{ "s", NSEC_PER_SEC },
		{ "ms", NSEC_PER_MSEC },
		{ "m", 60 * NSEC_PER_SEC },
		{ "h", 3600 * NSEC_PER_SEC },
		{ "us", 1000 },
		{ "ns", 1 },
	};
	const char *rest;
	u64 n;

	if (!number(text, &n, &rest))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(rest, units[i].unit) == 0)
			return !__builtin_mul_overflow(n, units[i].ns, ns_ret) && n;
	}
	return false;
}

int cli_window_limit(const char *verb, const char *text, u64 *ns_ret)
{
	if (cli_duration(text, ns_ret) && *ns_ret >= BODY_MIN_WINDOW && *ns_ret <= BODY_MAX_WINDOW)
		return -1;
	return cli_usage(verb, "--window-limit takes 1ms to 1s, not \"%s\"", text);
}

bool cli_size(const char *text, u64 *bytes_ret)
{
	static const char letters[] = "KMGT";
	const char *rest, *l;
	u64 n;

	if (!number(text, &n, &rest) || !n)
		return false;
	*bytes_ret = n;
	if (!*rest)
		return true;
	l = strchr(letters, *rest >= 'a' ? *rest - 32 : *rest);
	return l && *l && !rest[1] &&
	       !__builtin_mul_overflow(n, 1ull << (10 * (l - letters + 1)), bytes_ret);
}

int cli_flush(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (errno == EPIPE) /* the reader has seen enough */
		return status;
	return cli_fail("cannot write the output: %s", strerrordesc_np(errno));
}

void cli_table_add(struct cli_table *t, size_t n_cols, const char *const *cells)
{
	char ***rows = realloc(t->rows, (t->n_rows + 1) * sizeof(*rows));

	if (!rows)
		return;
	t->rows = rows;
	t->n_cols = n_cols;
	rows[t->n_rows] = calloc(n_cols, sizeof(char *));
	if (!rows[t->n_rows])
		return;
	for (size_t i = 0; i < n_cols; i++)
		rows[t->n_rows][i] = strdup(cells[i] ? cells[i] : "-");
	t->n_rows++;
}

static const char *cell(const struct cli_table *t, size_t row, size_t col)
{
	return t->rows[row][col] ? t->rows[row][col] : "-";
}

/* How wide it is on a terminal, near enough: characters, not bytes. */
static size_t text_width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

void cli_table_print(struct cli_table *t)
{
	size_t width[16] = { 0 };

	for (size_t r = 0; r < t->n_rows; r++) {
		for (size_t i = 0; i < t->n_cols && i < ARRAY_SIZE(width); i++)
			width[i] = MAX(width[i], text_width(cell(t, r, i)));
	}
	for (size_t r = 0; r < t->n_rows; r++) {
		for (size_t i = 0; i < t->n_cols && i < ARRAY_SIZE(width); i++) {
			cli_text(stdout, cell(t, r, i));
			if (i + 1 < t->n_cols)
				printf("%*s", (int)(width[i] - text_width(cell(t, r, i)) + 2), "");
			free(t->rows[r][i]);
		}
		putchar('\n');
		free(t->rows[r]);
	}
	free(t->rows);
	*t = (struct cli_table){ 0 };
}
