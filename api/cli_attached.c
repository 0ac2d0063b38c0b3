// SPDX-License-Identifier: Apache-2.0
/* The verb console, of a guest that the daemon has attached: here or elsewhere. */
#include "api/cli_http.h"
#include "api/cli_terminal.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define KEYS_MAX 4096 /* as much is taken at a time */
#define AGAIN_MS 100 /* then a guest that took nothing may do so */
#define LOOK_MS  1000

struct attached {
	struct cli *c;
	CURLM *multi;
	CURL *stream;
	char *console; /* path */
	struct terminal_keys keys;
	struct buf refusal; /* what came instead of a stream */
	bool typing; /* standard input is read */
	bool leaving; /* once what was typed before is sent */
	bool full; /* the guest took nothing when it was asked last */
	bool unseen; /* standard output is closed */
	size_t n; /* typed, and not sent */
	char text[KEYS_MAX];
};

static size_t show(char *data, size_t size, size_t n, void *arg)
{
	struct attached *a = arg;
	long status = 0;

	curl_easy_getinfo(a->stream, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return cli_http_collect(data, size, n, &a->refusal);
	a->unseen = !terminal_write(STDOUT_FILENO, data, size * n);
	return a->unseen ? 0 : size * n;
}

static int start(struct attached *a)
{
	_cleanup_free_ char *path = NULL;

	if (asprintf(&path, "%s?follow=true", a->console) < 0)
		return cli_fail("out of memory");
	a->multi = curl_multi_init();
	a->stream = cli_http_prepare(a->c, curl_easy_init(), "GET", path);
	if (!a->multi || !a->stream)
		return cli_fail("out of memory");
	curl_easy_setopt(a->stream, CURLOPT_WRITEFUNCTION, show);
	curl_easy_setopt(a->stream, CURLOPT_WRITEDATA, a);
	curl_multi_add_handle(a->multi, a->stream);
	return CLI_OK;
}

/* Send what was typed; what the guest does not take now stays. Return: exit status. */
static int send_keys(struct attached *a)
{
	struct cli_reply r = { 0 };
	int status = cli_send_bytes(a->c, a->console, a->text, a->n, &r);

	if (*a->c->interrupted) {
		cli_reply_deinit(&r);
		return CLI_OK; /* there may be no answer */
	}
	a->full = status == CLI_OK && strcmp(cli_reply_code(&r), "console.full") == 0;
	if (status == CLI_OK && r.status != 200 && (!a->full || a->leaving))
		status = cli_refused(&r);
	if (!a->full)
		a->n = 0;
	cli_reply_deinit(&r);
	return status;
}

/* To where keys are put that there is room for; else, as a terminal does, with a sign that they are lost. */
static void read_keys(struct attached *a)
{
	size_t room = sizeof(a->text) - a->n;
	char lost[KEYS_MAX], *leave, *to = room ? a->text + a->n : lost;
	ssize_t n = read(STDIN_FILENO, to, room ? room : sizeof(lost));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	a->typing = n > 0;
	if (n <= 0) {
		a->leaving = a->keys.raw; /* a terminal that hung up */
		return;
	}
	leave = a->keys.raw ? memchr(to, TERMINAL_LEAVE, (size_t)n) : NULL;
	a->leaving = leave;
	if (room)
		a->n += (size_t)(leave ? leave - to : n);
	else if (!leave)
		fputc('\a', stderr);
}

/* Of a terminal also what waits for the guest to take something: the key that leaves may be behind it. */
static bool wants_keys(const struct attached *a)
{
	return a->typing && (!a->n || a->keys.raw);
}

/* Until the stream ends, or nobody wants to see it any more. @left_ret: the latter. Return: exit status. */
static int follow(struct attached *a, bool *left_ret)
{
	int running = 1, status = CLI_OK;

	*left_ret = false;
	while (status == CLI_OK && running && !*left_ret) {
		struct curl_waitfd input = { STDIN_FILENO, CURL_WAIT_POLLIN, 0 };

		if (curl_multi_perform(a->multi, &running) != CURLM_OK)
			return cli_fail("the stream broke (daemon.protocol)");
		if (running)
			curl_multi_poll(a->multi, &input, wants_keys(a),
					a->full ? AGAIN_MS : LOOK_MS, NULL);
		if (input.revents)
			read_keys(a);
		if (a->n)
			status = send_keys(a);
		*left_ret = *a->c->interrupted || (a->leaving && !a->n);
	}
	return status;
}

/* The stream has ended by itself: why? @ran: the guest did, when it began. */
static int judge(struct attached *a, const char *guest, bool ran)
{
	struct cli_reply r = { 0 };
	int status = CLI_OK, left;
	CURLMsg *m = curl_multi_info_read(a->multi, &left);
	const char *state;

	if (a->unseen)
		return CLI_OK;
	if (m && m->data.result != CURLE_OK)
		return cli_http_no_answer(a->c, a->stream, m->data.result);
	status = cli_call(a->c, "GET", guest, NULL, &r);
	state = json_string_value(json_object_get(r.doc, "state"));
	if (status == CLI_OK && r.status != 200)
		status = cli_refused(&r);
	else if (status == CLI_OK && (!state || strcmp(state, "gone") != 0))
		status = cli_fail("the daemon let nobody follow any more");
	else if (status == CLI_OK && !ran)
		status = cli_fail(
			"the guest does not run any more (vmm.gone): that was its console");
	cli_reply_deinit(&r);
	return status;
}

/* Whether one may type is asked before the terminal is changed for it. */
static void prepare_keys(struct attached *a)
{
	struct cli_reply r = { 0 };
	const char *detail;

	if (cli_send_bytes(a->c, a->console, "", 0, &r) == CLI_OK) {
		detail = json_string_value(json_object_get(r.doc, "detail"));
		a->typing = r.status == 200;
		if (!a->typing && detail)
			fprintf(stderr, "(only shown, Ctrl-C leaves: %s)\n", detail);
	}
	cli_reply_deinit(&r);
	if (a->typing)
		terminal_make_raw(&a->keys);
}

static int talk(struct attached *a, const char *guest, bool ran)
{
	long http_status = 0;
	bool left = false;
	int status;

	a->c->interrupted = terminal_signals();
	if (ran)
		prepare_keys(a);
	status = start(a);
	if (status == CLI_OK)
		status = follow(a, &left);
	terminal_restore(&a->keys);
	if (status != CLI_OK || left)
		return status;
	curl_easy_getinfo(a->stream, CURLINFO_RESPONSE_CODE, &http_status);
	if (http_status && http_status != 200)
		return cli_http_refused(http_status, &a->refusal);
	return judge(a, guest, ran);
}

static void attached_deinit(struct attached *a)
{
	if (a->multi && a->stream)
		curl_multi_remove_handle(a->multi, a->stream);
	curl_easy_cleanup(a->stream);
	if (a->multi)
		curl_multi_cleanup(a->multi);
	buf_deinit(&a->refusal);
	free(a->console);
}

int console_attached(struct cli *c, const char *guest, bool fallback)
{
	_cleanup_free_ char *path = cli_guest_path(guest, "");
	struct attached a = { .c = c, .console = cli_guest_path(guest, "/console") };
	struct cli_reply r = { 0 };
	const char *state;
	int status;

	if (!path || !a.console)
		return cli_fail("out of memory");
	status = cli_call(c, "GET", path, NULL, &r);
	state = json_string_value(json_object_get(r.doc, "state"));
	if (fallback && status == CLI_OK && r.status == 404)
		status = CONSOLE_NO_GUEST;
	else if (status == CLI_OK && r.status != 200)
		status = cli_refused(&r);
	else if (status == CLI_OK)
		status = talk(&a, path, state && strcmp(state, "gone") != 0);
	cli_reply_deinit(&r);
	attached_deinit(&a);
	return status;
}
