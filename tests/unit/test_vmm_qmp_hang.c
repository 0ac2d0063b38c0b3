// SPDX-License-Identifier: Apache-2.0
/* vmm/qmp.c against a monitor that hangs, closes its connection and comes back, or that others want, too. */
#include "vmm/qmp.h"

#include "base/clock.h"
#include "vmm/proc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
#define SECOND   NSEC_PER_SEC
#define SHORT    (50 * NSEC_PER_MSEC) /* for what is not going to come */
#define LONG     (5 * SECOND) /* for what comes at once, unless the host is busy */
#define LATE_US  20000
#define IDLE     (200 * NSEC_PER_MSEC)

/* A QEMU: its monitor has one client at a time. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char dir[32], path[64];
	int listener;
	pthread_t thread;
	bool hang; /* it reads no further */
	bool late; /* to accept a connection */
	bool accepts_none;
	bool closes; /* at the next command */
	bool ends;
	unsigned flood,
		n_flooded; /* @flood: events after the next answer, as nobody has asked for them */
	unsigned n_clients, n_commands, n_events; /* @n_events: of those sent before each answer */
	/* as whoever asks about its process is told: */
	bool is_dead;
	int check;
	unsigned n_checked;
} vm = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void wait_while_it_hangs(void)
{
	pthread_mutex_lock(&vm.lock);
	while (vm.hang && !vm.ends)
		pthread_cond_wait(&vm.changed, &vm.lock);
	pthread_mutex_unlock(&vm.lock);
}

/* One command of which the answer tells the number. false: the connection is to be closed. */
static bool answer(int fd, const char *command)
{
	const char *id = strstr(command, "\"id\":");
	unsigned n;
	bool closes;

	pthread_mutex_lock(&vm.lock);
	n = ++vm.n_commands;
	closes = vm.closes;
	vm.closes = false;
	pthread_mutex_unlock(&vm.lock);
	for (unsigned i = 0; i < vm.n_events; i++)
		dprintf(fd, "{\"event\": \"X\", \"data\": {}}\r\n");
	if (!closes && strstr(command, "\"refused\""))
		dprintf(fd, "{\"error\": {\"desc\": \"no\"}, \"id\": %d}\r\n", atoi(id + 5));
	else if (!closes)
		dprintf(fd, "{\"return\": %u, \"id\": %d}\r\n", n, atoi(id + 5));
	for (; vm.flood; vm.flood--) {
		if (dprintf(fd, "{\"event\": \"X\", \"data\": {}}\r\n") < 0)
			return false;
		pthread_mutex_lock(&vm.lock);
		vm.n_flooded++;
		pthread_mutex_unlock(&vm.lock);
	}
	return !closes;
}

static void serve(int fd)
{
	char got[4096], *end;
	size_t len = 0;
	ssize_t n;

	dprintf(fd, GREETING);
	for (;;) {
		wait_while_it_hangs();
		n = recv(fd, got + len, sizeof(got) - len - 1, 0);
		if (n <= 0)
			return;
		len += (size_t)n;
		got[len] = '\0';
		/* a command of the client ends with its id, which it has last but for arguments */
		while ((end = strchr(got, '}'))) {
			*end = '\0';
			wait_while_it_hangs();
			if (!answer(fd, got))
				return;
			len -= (size_t)(end + 1 - got);
			memmove(got, end + 1, len + 1);
		}
	}
}

static bool is_set(const bool *what)
{
	bool ret;

	pthread_mutex_lock(&vm.lock);
	ret = *what;
	pthread_mutex_unlock(&vm.lock);
	return ret;
}

static unsigned count(const unsigned *what)
{
	unsigned ret;

	pthread_mutex_lock(&vm.lock);
	ret = *what;
	pthread_mutex_unlock(&vm.lock);
	return ret;
}

static void *run(void *arg)
{
	struct pollfd p = { .fd = vm.listener, .events = POLLIN };
	int fd;

	(void)arg;
	while (poll(&p, 1, -1) >= 0) {
		if (is_set(&vm.late))
			usleep(LATE_US);
		while (is_set(&vm.accepts_none))
			usleep(1000);
		fd = accept(vm.listener, NULL, NULL);
		if (fd < 0)
			break;
		wait_while_it_hangs();
		pthread_mutex_lock(&vm.lock);
		vm.n_clients++;
		pthread_mutex_unlock(&vm.lock);
		serve(fd);
		close(fd);
	}
	return NULL;
}

static void set(bool *what, bool value)
{
	pthread_mutex_lock(&vm.lock);
	*what = value;
	pthread_cond_broadcast(&vm.changed);
	pthread_mutex_unlock(&vm.lock);
}

static int setup(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	(void)state;
	vm.hang = vm.late = vm.accepts_none = vm.closes = vm.ends = vm.is_dead = false;
	vm.n_clients = vm.n_commands = vm.n_events = vm.n_checked = vm.flood = vm.n_flooded = 0;
	vm.check = 0;
	strcpy(vm.dir, "/tmp/hvf-qmp-XXXXXX");
	assert_non_null(mkdtemp(vm.dir));
	snprintf(vm.path, sizeof(vm.path), "%s/qmp", vm.dir);
	memcpy(addr.sun_path, vm.path, sizeof(vm.path));
	vm.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(vm.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(vm.listener, 64), 0);
	return pthread_create(&vm.thread, NULL, run, NULL);
}

static int teardown(void **state)
{
	(void)state;
	set(&vm.ends, true);
	shutdown(vm.listener, SHUT_RDWR);
	pthread_join(vm.thread, NULL);
	close(vm.listener);
	unlink(vm.path);
	return rmdir(vm.dir);
}

static bool lives(void *arg, int wait_ms)
{
	assert_ptr_equal(arg, &vm);
	assert_true(wait_ms >= 0);
	return !vm.is_dead;
}

/* As the backend does it, by what the kernel says. */
static int check(void *arg, int fd, struct err *err)
{
	int rc;

	assert_ptr_equal(arg, &vm);
	assert_true(fd >= 0);
	vm.n_checked++;
	if (vm.check)
		return err_set(err, vm.check, ERR_TARGET_NOT_VMM, 0, "it is another");
	rc = proc_holds_peer(getpid(), fd);
	if (rc == 1 || rc == -ENOENT) /* -ENOENT: it has no way to tell */
		return 0;
	return err_set(err, rc == 0 ? -ENODEV : -EIO, ERR_IO, 0, "the kernel says %d", rc);
}

static const struct qmp_peer peer = { .lives = lives, .check = check };

static struct qmp *open_qmp(void)
{
	struct qmp *q = NULL;

	assert_int_equal(qmp_open(vm.path, LONG, &q, NULL), 0);
	qmp_set_peer(q, &peer, &vm);
	return q;
}

/* One that comes through: its answer is its own. */
static void ask(struct qmp *q)
{
	json_t *value = NULL;

	assert_int_equal(qmp_command(q, "query-x", NULL, &value, LONG, NULL), 0);
	assert_int_equal(json_integer_value(value), count(&vm.n_commands));
	json_decref(value);
	assert_false(qmp_silent(q));
}

static void expect(struct qmp *q, u64 timeout_ns, int rc)
{
	struct err err = { 0 };

	assert_int_equal(qmp_command(q, "query-x", NULL, NULL, timeout_ns, &err), rc);
	assert_true(err.msg[0]);
}

static void until_it_answers(struct qmp *q)
{
	u64 end = monotonic_ns() + 20 * SECOND;

	while (qmp_silent(q) && monotonic_ns() < end)
		;
	assert_false(qmp_silent(q));
}

/* However long it hangs and however often it is asked: it finds one command, and nothing is lost by that. */
static void a_long_hang(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	ask(q);
	set(&vm.hang, true);
	for (int i = 0; i < 600; i++)
		assert_int_equal(qmp_command(q, "query-x", NULL, NULL, NSEC_PER_MSEC / 4, NULL),
				 -ETIMEDOUT);
	assert_true(qmp_silent(q));
	set(&vm.hang, false);
	ask(q);
	assert_int_equal(count(&vm.n_commands), 4); /* with that of the greeting */
	assert_int_equal(count(&vm.n_clients), 1);
	qmp_close(q);
}

/* Whoever only looks finds out that it answers, and asks nothing for that. */
static void the_end_of_a_hang(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	vm.n_events = 30;
	set(&vm.hang, true);
	expect(q, SHORT, -ETIMEDOUT);
	assert_true(qmp_silent(q));
	assert_true(qmp_silent(q));
	set(&vm.hang, false);
	until_it_answers(q);
	assert_int_equal(count(&vm.n_commands), 2);
	ask(q);
	qmp_close(q);
}

/* To refuse is an answer, and one that was owed is nobody else's. */
static void a_late_refusal(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	set(&vm.hang, true);
	assert_int_equal(qmp_command(q, "refused", NULL, NULL, SHORT, NULL), -ETIMEDOUT);
	set(&vm.hang, false);
	ask(q);
	assert_int_equal(qmp_command(q, "refused", NULL, NULL, LONG, NULL), -EPROTO);
	assert_false(qmp_silent(q));
	qmp_close(q);
}

/* A command is not sent twice; the next one finds another connection, whose other end is looked at. */
static void a_connection_that_is_lost(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	set(&vm.closes, true);
	expect(q, LONG, -ENOTCONN);
	until_it_answers(q);
	assert_int_equal(count(&vm.n_clients), 2);
	assert_int_equal(count(&vm.n_commands), 3);
	ask(q);
	assert_true(vm.n_checked >= 1);
	/* and by itself, too */
	set(&vm.closes, true);
	expect(q, LONG, -ENOTCONN);
	until_it_answers(q);
	ask(q);
	assert_int_equal(count(&vm.n_clients), 3);
	qmp_close(q);
}

/* Before it is accepted the kernel knows no other end of it, which is not somebody else's then. */
static void an_accept_that_comes_late(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	set(&vm.late, true);
	for (unsigned i = 2; i < 5; i++) {
		set(&vm.closes, true);
		expect(q, LONG, -ENOTCONN);
		ask(q);
		assert_int_equal(count(&vm.n_clients), i);
	}
	qmp_close(q);
}

/* Nor while it is not accepted for longer than a command waits. */
static void an_accept_that_comes_too_late(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	set(&vm.accepts_none, true);
	set(&vm.closes, true);
	expect(q, LONG, -ENOTCONN);
	expect(q, SHORT, -ETIMEDOUT);
	assert_true(qmp_silent(q));
	set(&vm.accepts_none, false);
	until_it_answers(q);
	ask(q);
	assert_int_equal(count(&vm.n_clients), 2);
	qmp_close(q);
}

/* Who listens there now is not believed, and not told anything. */
static void somebody_else_by_now(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	vm.check = -ENODEV;
	set(&vm.closes, true);
	expect(q, LONG, -ENOTCONN);
	for (int i = 0; i < 3; i++) {
		expect(q, LONG, -ENOTCONN);
		assert_true(qmp_silent(q));
	}
	assert_int_equal(count(&vm.n_commands), 2);
	/* nor waited for */
	set(&vm.hang, true);
	expect(q, SHORT, -ENOTCONN);
	set(&vm.hang, false);
	vm.check = 0;
	ask(q);
	qmp_close(q);
}

static void a_qemu_that_ended(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	vm.is_dead = true;
	set(&vm.closes, true);
	expect(q, LONG, -ESRCH);
	assert_false(qmp_silent(q));
	expect(q, LONG, -ESRCH);
	assert_int_equal(count(&vm.n_checked), 0);
	qmp_close(q);
}

/* It hangs when a connection is made again: there is one, which is waited for. */
static void a_hang_before_the_greeting(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	set(&vm.closes, true);
	expect(q, LONG, -ENOTCONN);
	set(&vm.hang, true);
	for (int i = 0; i < 5; i++) {
		expect(q, SHORT, -ETIMEDOUT);
		assert_true(qmp_silent(q));
	}
	set(&vm.hang, false);
	until_it_answers(q);
	ask(q);
	assert_int_equal(count(&vm.n_clients), 2);
	qmp_close(q);
}

/* Another client: does it get a greeting? */
static bool another_is_greeted(u64 timeout_ns)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct pollfd p = { .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
			    .events = POLLIN };
	bool greeted;

	memcpy(addr.sun_path, vm.path, sizeof(vm.path));
	assert_int_equal(connect(p.fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	greeted = poll(&p, 1, (int)(timeout_ns / NSEC_PER_MSEC)) == 1;
	close(p.fd);
	return greeted;
}

/* Whoever wants the monitor has it once we do not use it, and our next command finds it again. */
static void left_to_others(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	assert_int_equal(qmp_share(q, IDLE, NULL), 0);
	for (int i = 0; i < 3; i++) {
		ask(q);
		assert_true(another_is_greeted(LONG));
		assert_false(qmp_silent(q));
	}
	assert_true(vm.n_checked >= 2);
	qmp_close(q);
}

/* It is kept for as long as that is asked for, and what comes meanwhile is read. */
static void kept_for_us(void **state)
{
	struct qmp *q = open_qmp();
	u64 end = monotonic_ns() + 4 * LONG;

	(void)state;
	assert_int_equal(qmp_share(q, IDLE, NULL), 0);
	ask(q);
	qmp_keep(q, true);
	ask(q);
	vm.flood = 40000; /* more than there is room for in a socket */
	ask(q);
	while (count(&vm.n_flooded) < 40000 && monotonic_ns() < end)
		usleep(1000);
	assert_int_equal(count(&vm.n_flooded), 40000);
	assert_false(another_is_greeted(4 * IDLE));
	ask(q);
	qmp_keep(q, false);
	assert_true(another_is_greeted(LONG));
	qmp_close(q);
}

/* An answer that is owed is waited for, and taken by whoever is there. */
static void not_left_while_it_owes(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	assert_int_equal(qmp_share(q, IDLE, NULL), 0);
	set(&vm.hang, true);
	expect(q, SHORT, -ETIMEDOUT);
	assert_false(another_is_greeted(4 * IDLE));
	assert_int_equal(count(&vm.n_clients), 1);
	assert_true(qmp_silent(q));
	set(&vm.hang, false);
	assert_true(another_is_greeted(LONG));
	until_it_answers(q);
	assert_int_equal(count(&vm.n_commands), 2);
	ask(q);
	qmp_close(q);
}

/* What was left may have ended, or be somebody else's. */
static void not_there_any_more(void **state)
{
	struct qmp *q = open_qmp();

	(void)state;
	assert_int_equal(qmp_share(q, IDLE, NULL), 0);
	assert_true(another_is_greeted(LONG));
	vm.check = -ENODEV;
	expect(q, LONG, -ENOTCONN);
	assert_int_equal(count(&vm.n_commands), 1);
	vm.check = 0;
	ask(q);
	assert_true(another_is_greeted(LONG));
	vm.is_dead = true;
	expect(q, LONG, -ESRCH);
	qmp_close(q);
}

/* By its path it could not be come back to. */
static void not_left_without_a_way_back(void **state)
{
	char away[sizeof(vm.path) + 4];
	struct qmp *q;

	(void)state;
	q = open_qmp();
	snprintf(away, sizeof(away), "%s.old", vm.path);
	assert_int_equal(rename(vm.path, away), 0);
	assert_int_equal(qmp_share(q, IDLE, NULL), 0);
	for (int i = 0; i < 3; i++) {
		usleep(4 * IDLE / 1000);
		ask(q);
	}
	assert_int_equal(count(&vm.n_clients), 1);
	assert_int_equal(rename(away, vm.path), 0);
	assert_true(another_is_greeted(LONG));
	qmp_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_long_hang),
		TEST(the_end_of_a_hang),
		TEST(a_late_refusal),
		TEST(a_connection_that_is_lost),
		TEST(an_accept_that_comes_late),
		TEST(an_accept_that_comes_too_late),
		TEST(somebody_else_by_now),
		TEST(a_qemu_that_ended),
		TEST(a_hang_before_the_greeting),
		TEST(left_to_others),
		TEST(kept_for_us),
		TEST(not_left_while_it_owes),
		TEST(not_there_any_more),
		TEST(not_left_without_a_way_back),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
