// SPDX-License-Identifier: Apache-2.0
/* vmm/qmp.c against a peer of our own at the other end of a socketpair. */
#include "vmm/qmp.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
#define SECOND   NSEC_PER_SEC
#define SHORT    (50 * NSEC_PER_MSEC)

/* What the peer sends after each command it reads; "$ID" stands for the command's id. NULL ends. */
struct script {
	int fd;
	const char *greeting;
	const char *const *reply;
	bool stay; /* keep the socket open until the client closes it */
	char got[8][256];
	int n_got;
};

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void say(int fd, const char *text, u64 id)
{
	const char *p;

	while ((p = strstr(text, "$ID"))) {
		dprintf(fd, "%.*s%llu", (int)(p - text), text, (unsigned long long)id);
		text = p + 3;
	}
	dprintf(fd, "%s", text);
}

static void *peer(void *arg)
{
	struct script *s = arg;
	char c;

	if (s->greeting)
		say(s->fd, s->greeting, 0);
	for (int i = 0; s->reply && s->reply[i]; i++) {
		ssize_t n = recv(s->fd, s->got[s->n_got], sizeof(s->got[0]) - 1, 0);

		if (n <= 0)
			break;
		s->n_got++;
		say(s->fd, s->reply[i], (u64)s->n_got);
	}
	if (s->stay)
		while (read(s->fd, &c, 1) > 0)
			;
	close(s->fd);
	return NULL;
}

static pthread_t start(struct script *s, int *fd_ret)
{
	pthread_t t;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	s->fd = pair[1];
	*fd_ret = pair[0];
	assert_int_equal(pthread_create(&t, NULL, peer, s), 0);
	return t;
}

/* Runs one command against @replies (the first answers qmp_capabilities). */
static int run(const char *const *replies, bool stay, u64 timeout, json_t **value, struct err *err)
{
	struct script s = { .greeting = GREETING, .reply = replies, .stay = stay };
	struct qmp *q = NULL;
	pthread_t t;
	int fd;
	int rc;

	t = start(&s, &fd);
	rc = qmp_open_fd(fd, SECOND, &q, err);
	if (rc == 0)
		rc = qmp_command(q, "query-x", NULL, value, timeout, err);
	qmp_close(q);
	pthread_join(t, NULL);
	return rc;
}

#define OK_CAPS "{\"return\": {}, \"id\": $ID}\r\n"

static void answer_among_events(void **state)
{
	const char *const replies[] = {
		"{\"event\": \"STOP\", \"data\": {}}\r\n" OK_CAPS "{\"event\": \"RESUME\"}\r\n",
		"{\"event\": \"A\"}{\"event\":\r\n \"B\", \"data\": {\"s\": \"}\\\"{\"}}\r\n"
		"{\"return\": \"late\", \"id\": 77}\r\n"
		"{\"return\": [1, {\"a\": \"}\"}], \"id\": $ID}\r\n",
		NULL,
	};
	struct err e = { 0 };
	json_t *value = NULL;

	(void)state;
	assert_int_equal(run(replies, true, SECOND, &value, &e), 0);
	assert_int_equal(json_array_size(value), 2);
	json_decref(value);
}

static void error_answer(void **state)
{
	const char *const replies[] = {
		OK_CAPS,
		"{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no such\"}, \"id\": $ID}\r\n",
		NULL,
	};
	struct err e = { 0 };
	json_t *value = NULL;

	(void)state;
	assert_int_equal(run(replies, true, SECOND, &value, &e), -EPROTO);
	assert_int_equal(e.code, ERR_VMM_PROTOCOL);
	assert_non_null(strstr(e.msg, "no such"));
	assert_null(value);
}

static void garbage(void **state)
{
	static const char *const bad[] = {
		"hello\r\n",
		"[1]\r\n",
		"{\"return\": nonsense, \"id\": $ID}\r\n",
		"{\"id\": $ID}\r\n",
		"{\"return\": {}}\r\n", /* of no command */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *const replies[] = { OK_CAPS, bad[i], NULL };
		struct err e = { 0 };

		assert_int_equal(run(replies, true, SECOND, NULL, &e), -EPROTO);
		assert_int_equal(e.code, ERR_VMM_PROTOCOL);
	}
}

static void end_of_file(void **state)
{
	const char *const cut[] = { OK_CAPS, "{\"return\": {\"a", NULL };
	const char *const none[] = { OK_CAPS, NULL };
	struct err e = { 0 };

	(void)state;
	assert_int_equal(run(cut, false, SECOND, NULL, &e), -ESRCH);
	assert_int_equal(e.code, ERR_VMM_GONE);
	/* the peer is gone before we write: -ESRCH, no SIGPIPE */
	assert_int_equal(run(none, false, SECOND, NULL, &e), -ESRCH);
}

static void no_answer_in_time(void **state)
{
	const char *const replies[] = { OK_CAPS, "{\"event\": \"X\"}\r\n{\"ret", NULL };
	struct err e = { 0 };
	u64 start_ns = now_ns();

	(void)state;
	assert_int_equal(run(replies, true, SHORT, NULL, &e), -ETIMEDOUT);
	assert_int_equal(e.code, ERR_VMM_TIMEOUT);
	assert_true(now_ns() - start_ns < 5 * SECOND);
}

static void no_greeting(void **state)
{
	struct script s = { .stay = true };
	struct script wrong = { .greeting = "{\"return\": {}}\r\n", .stay = true };
	struct qmp *q = NULL;
	struct err e = { 0 };
	pthread_t t;
	int fd;

	(void)state;
	t = start(&s, &fd);
	assert_int_equal(qmp_open_fd(fd, SHORT, &q, &e), -ETIMEDOUT);
	pthread_join(t, NULL);
	t = start(&wrong, &fd);
	assert_int_equal(qmp_open_fd(fd, SECOND, &q, &e), -EPROTO);
	pthread_join(t, NULL);
}

static void hmp_text(void **state)
{
	const char *const replies[] = {
		OK_CAPS,
		"{\"return\": \"line\\r\\n\", \"id\": $ID}\r\n",
		"{\"return\": 7, \"id\": $ID}\r\n",
		NULL,
	};
	struct script s = { .greeting = GREETING, .reply = replies, .stay = true };
	struct qmp *q = NULL;
	char *text = NULL;
	pthread_t t;
	int fd;

	(void)state;
	t = start(&s, &fd);
	assert_int_equal(qmp_open_fd(fd, SECOND, &q, NULL), 0);
	assert_int_equal(qmp_hmp(q, "info \"x\"", 3, &text, SECOND, NULL), 0);
	assert_string_equal(text, "line\r\n");
	free(text);
	assert_int_equal(qmp_hmp(q, "info y", -1, &text, SECOND, NULL), -EPROTO);
	qmp_close(q);
	pthread_join(t, NULL);
	assert_non_null(strstr(s.got[1], "\"command-line\":\"info \\\"x\\\"\""));
	assert_non_null(strstr(s.got[1], "\"cpu-index\":3"));
	assert_null(strstr(s.got[2], "cpu-index"));
}

static void *flood(void *arg)
{
	int fd = *(int *)arg;
	static char block[65536];

	memset(block, 'a', sizeof(block));
	say(fd, GREETING "{\"x\": \"", 0);
	while (send(fd, block, sizeof(block), MSG_NOSIGNAL) > 0)
		;
	close(fd);
	return NULL;
}

/* A message without an end is given up at a bound. */
static void too_long(void **state)
{
	struct qmp *q = NULL;
	struct err e = { 0 };
	pthread_t t;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(pthread_create(&t, NULL, flood, &pair[1]), 0);
	assert_int_equal(qmp_open_fd(pair[0], 20 * SECOND, &q, &e), -EPROTO);
	assert_non_null(strstr(e.msg, "too long"));
	pthread_join(t, NULL);
}

/* The end of an object is found alike however the bytes arrive. */
static void scan_in_pieces(void **state)
{
	static const char text[] = " \r\n{\"a\": [\"}\\\\\", \"\\\"]\", {}]} {\"next\"";
	const ssize_t want = (ssize_t)(strstr(text, " {\"next") - text);

	(void)state;
	for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
		struct qmp_scan scan = { 0 };
		ssize_t n = qmp_scan_object(&scan, text, cut);

		if (n == 0)
			n = qmp_scan_object(&scan, text, sizeof(text) - 1);
		assert_int_equal(n, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answer_among_events),
		cmocka_unit_test(error_answer),
		cmocka_unit_test(garbage),
		cmocka_unit_test(end_of_file),
		cmocka_unit_test(no_answer_in_time),
		cmocka_unit_test(no_greeting),
		cmocka_unit_test(hmp_text),
		cmocka_unit_test(too_long),
		cmocka_unit_test(scan_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
