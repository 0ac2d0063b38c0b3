// SPDX-License-Identifier: Apache-2.0
/* hvftrace events: what happened, and with -f what happens. */
#include "api/cli.h"
#include "api/cli_http.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct events_args {
	struct cli *c;
	CURL *h;
	bool follow;
	u64 after;
	struct buf line; /* what has come of the next one */
};

/* NAME=VALUE of a member that is no object. */
static void put_member(const char *key, json_t *v)
{
	static const char *const shown[] = { "seq", "type", "time" };
	json_t *verified = json_object_get(v, "verified");

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
		if (strcmp(key, shown[i]) == 0)
			return;
	}
	if (json_is_string(v)) {
		printf(" %s=", key);
		cli_text(stdout, json_string_value(v));
	} else if (json_is_integer(v)) {
		printf(" %s=%lld", key, (long long)json_integer_value(v));
	} else if (json_is_boolean(v)) {
		printf(" %s=%s", key, json_is_true(v) ? "yes" : "no");
	} else if (verified) {
		printf(" verified=%s", json_is_true(verified) ? "yes" : "no");
	}
}

static void show(const struct events_args *a, json_t *event)
{
	const char *time = json_string_value(json_object_get(event, "time"));
	const char *type = json_string_value(json_object_get(event, "type"));
	const char *key;
	json_t *v;

	if (!type || (!a->c->json && strcmp(type, "heartbeat") == 0))
		return;
	if (a->c->json) {
		json_dumpf(event, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	printf("%-30.30s %s", time ? time : "-", type);
	json_object_foreach(event, key, v)
	{
		put_member(key, v);
	}
	putchar('\n');
}

static int list(struct events_args *a)
{
	char path[96];
	json_t *doc, *items, *event;
	size_t i, n;
	int status;

	do {
		snprintf(path, sizeof(path), "/v1/events?after=%llu", (unsigned long long)a->after);
		status = cli_request(a->c, "GET", path, NULL, &doc);
		if (status != CLI_OK)
			return status;
		items = json_object_get(doc, "items");
		n = json_array_size(items);
		json_array_foreach(items, i, event)
		{
			show(a, event);
		}
		a->after = (u64)json_integer_value(json_object_get(doc, "next_after"));
		json_decref(doc);
	} while (n);
	return cli_flush(CLI_OK);
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
	struct events_args *a = arg;
	long status = 0;
	char *end;

	buf_add(&a->line, data, size * n);
	if (buf_failed(&a->line))
		return 0;
	curl_easy_getinfo(a->h, CURLINFO_RESPONSE_CODE, &status);
	while (status == 200 && (end = memchr(a->line.data, '\n', a->line.len))) {
		size_t len = (size_t)(end + 1 - a->line.data);
		json_t *event = json_loadb(a->line.data, len, 0, NULL);

		show(a, event);
		json_decref(event);
		memmove(a->line.data, a->line.data + len, a->line.len - len);
		a->line.len -= len;
	}
	/* nobody reads any more: then there is nothing more to do */
	return fflush(stdout) == 0 ? size * n : 0;
}

static int follow(struct events_args *a)
{
	struct cli_reply reply = { 0 };
	CURLcode r;
	int status = CLI_OK;

	a->h = cli_http_prepare(a->c, curl_easy_init(), "GET", "/v1/events/stream");
	if (!a->h)
		return cli_fail("out of memory");
	curl_easy_setopt(a->h, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(a->h, CURLOPT_WRITEDATA, a);
	r = curl_easy_perform(a->h);
	curl_easy_getinfo(a->h, CURLINFO_RESPONSE_CODE, &reply.status);
	if (r != CURLE_OK && r != CURLE_WRITE_ERROR) {
		status = cli_http_no_answer(a->c, a->h, r);
	} else if (reply.status != 200) {
		reply.doc = json_loadb(a->line.data ? a->line.data : "", a->line.len, 0, NULL);
		status = cli_refused(&reply);
		cli_reply_deinit(&reply);
	}
	curl_easy_cleanup(a->h);
	buf_deinit(&a->line);
	return status;
}

int cli_events(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { CLI_COMMON_LONG,
					       { "follow", no_argument, NULL, 'f' },
					       { NULL, 0, NULL, 0 } };
	struct events_args a = { .c = c };
	int opt, r;

	while ((opt = getopt_long(argc, argv, "f" CLI_COMMON_SHORT, longs, NULL)) != -1) {
		if (opt == 'f') {
			a.follow = true;
			continue;
		}
		r = cli_common_option(c, argv[0], opt, optarg);
		if (r != -1)
			return r == CLI_HELP_SHOWN ? CLI_OK : r;
	}
	if (optind < argc)
		return cli_usage(argv[0], "what is \"%s\"?", argv[optind]);
	return a.follow ? follow(&a) : list(&a);
}

int cli_mark(struct cli *c, int argc, char **argv)
{
	_cleanup_free_ char *id = NULL, *path = NULL;
	json_t *doc;
	int status;

	if (!cli_no_options(c, argc, argv, &status))
		return status;
	if (argc - optind != 2)
		return cli_usage(argv[0], "which trace, and what text?");
	id = cli_escape(argv[optind]);
	if (!id || asprintf(&path, "/v1/traces/%s/markers", id) < 0)
		return cli_fail("out of memory");
	status = cli_request(c, "POST", path, json_pack("{s:s}", "text", argv[optind + 1]), &doc);
	if (status != CLI_OK)
		return status;
	if (c->json) {
		json_dumpf(doc, stdout, JSON_COMPACT);
		putchar('\n');
	}
	json_decref(doc);
	return cli_flush(CLI_OK);
}
