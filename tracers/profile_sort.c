// SPDX-License-Identifier: Apache-2.0
/* See profile_sort.h. */
#include "tracers/profile_sort.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {
	"total", "self", "hits", "avg", "min", "max", "stddev", "name"
};

bool profile_is_key(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i], key) == 0)
			return true;
	}
	return false;
}

static double key_of(const struct profile_row *r, const char *key)
{
	const double values[] = {
		(double)r->total_ns, (double)r->self_ns, (double)(r->hits + r->untimed),
		r->avg_ns,           (double)r->min_ns,  (double)r->max_ns,
		r->stddev_ns
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (strcmp(keys[i], key) == 0)
			return values[i];
	}
	return 0; /* by name alone */
}

static int by_key(const void *a, const void *b)
{
	const struct profile_line *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	if (x->key != y->key)
		return x->key < y->key ? 1 : -1;
	if (r)
		return r;
	return x->row->ip < y->row->ip ? -1 : x->row->ip > y->row->ip;
}

int profile_sort(struct profile *p, const char *key, struct profile_sorted *ret)
{
	size_t n;
	const struct profile_row *rows = profile_rows(p, &n);

	*ret = (struct profile_sorted){ .n = n };
	ret->line = calloc(n + 1, sizeof(*ret->line));
	ret->unnamed = calloc(n + 1, sizeof(*ret->unnamed));
	if (!ret->line || !ret->unnamed) {
		profile_sorted_deinit(ret);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		struct profile_line *l = &ret->line[i];

		l->row = &rows[i];
		l->key = key_of(l->row, key);
		snprintf(ret->unnamed[i], PROFILE_NAME_TEXT, "0x%" PRIx64, l->row->ip);
		l->name = l->row->name ?: ret->unnamed[i];
	}
	qsort(ret->line, n, sizeof(*ret->line), by_key);
	return 0;
}

void profile_sorted_deinit(struct profile_sorted *s)
{
	free(s->line);
	free(s->unnamed);
	*s = (struct profile_sorted){ 0 };
}

/* By hand, as names may be any bytes. */
void profile_json_row(struct buf *b, const struct profile_line *l)
{
	const struct profile_row *r = l->row;

	buf_adds(b, "{\"function\":");
	out_json_string(b, l->name, strlen(l->name));
	buf_adds(b, ",\"module\":");
	if (r->module)
		out_json_string(b, r->module, strlen(r->module));
	else
		buf_adds(b, "null");
	buf_addf(b,
		 ",\"ip\":\"0x%" PRIx64 "\",\"hits\":%" PRIu64 ",\"untimed\":%" PRIu64
		 ",\"total_ns\":%" PRIu64 ",\"self_ns\":%" PRIu64
		 ",\"avg_ns\":%.0f,\"min_ns\":%" PRIu64 ",\"max_ns\":%" PRIu64
		 ",\"stddev_ns\":%.0f}",
		 r->ip, r->hits, r->untimed, r->total_ns, r->self_ns, r->avg_ns, r->min_ns,
		 r->max_ns, r->stddev_ns);
}
