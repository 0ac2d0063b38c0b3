// SPDX-License-Identifier: Apache-2.0
/*
 * vmm/libvirt_link.c and qmp.c over it, against a libvirt of our own: answers, errors, a libvirtd that
 * hangs, dies and comes back, a domain that ends.
 */
#include "vmm/libvirt_link.h"

#include "test_vmm_libvirt_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define UUID   FAKE_UUID
#define SECOND NSEC_PER_SEC
#define SHORT  (50 * NSEC_PER_MSEC)

static int setup(void **state)
{
	(void)state;
	lv_lib_fake(&fake_lib);
	fake_lock();
	fake.refuse = fake.alive = fake.hang = fake.hang_open = fake.gone = false;
	fake.id = 3;
	fake.type = "QEMU";
	fake.answer = NULL;
	fake.error = 0;
	fake.n_tries = fake.n_open = fake.n_closed = fake.n_commands = fake.n_dom = fake.n_events =
		0;
	fake_unlock();
	return 0;
}

/* Nothing of a connection is left. */
static int check_closed(void **state)
{
	(void)state;
	assert_int_equal(fake.n_open, fake.n_closed);
	assert_int_equal(fake.n_dom, 0);
	assert_int_equal(fake.n_events, 0);
	return 0;
}

static struct lv_link *open_link(const char *domain)
{
	struct lv_target t = { .uri = "qemu:///system" };
	struct lv_link *l = NULL;
	struct err err = { 0 };

	snprintf(t.domain, sizeof(t.domain), "%s", domain);
	if (lv_link_open(&t, SECOND, &l, &err) < 0)
		fail_msg("%s", err.msg);
	return l;
}

static struct qmp *open_qmp(struct lv_link **link_ret)
{
	struct lv_link *l = open_link("vm");
	struct qmp *q = NULL;

	assert_int_equal(qmp_open_transport(&lv_link_transport, l, &q, NULL), 0);
	if (link_ret)
		*link_ret = l;
	return q;
}

static void set_answer(const char *answer)
{
	fake_lock();
	fake.answer = answer;
	fake_unlock();
}

static void expect_open_error(const char *domain, int no, enum err_code code)
{
	struct lv_target t = { .uri = "qemu:///system" };
	struct lv_link *l = NULL;
	struct err err = { 0 };

	snprintf(t.domain, sizeof(t.domain), "%s", domain);
	assert_int_equal(lv_link_open(&t, SECOND, &l, &err), no);
	assert_int_equal(err.code, code);
	assert_true(err.msg[0]);
	assert_null(l);
}

static const struct lv_target vm_target = { .uri = "qemu:///system", .domain = "vm" };

static void *attempt(void *arg)
{
	struct lv_link *l;

	(void)arg;
	assert_int_equal(lv_link_open(&vm_target, SHORT, &l, NULL), -ETIMEDOUT);
	return NULL;
}

static void targets(void **state)
{
	static const struct {
		const char *arg, *uri, *domain; /* @uri NULL: refused */
	} t[] = {
		{ "qemu:///system/vm", "qemu:///system", "vm" },
		{ "qemu:///session/" UUID, "qemu:///session", UUID },
		{ "qemu:///system/a name:with.signs", "qemu:///system", "a name:with.signs" },
		{ "qemu+unix:///system/vm?socket=/run/x", "qemu+unix:///system?socket=/run/x",
		  "vm" },
		{ "qemu:///system", NULL, NULL },
		{ "qemu:///system/", NULL, NULL },
		{ "vm", NULL, NULL },
		{ "", NULL, NULL },
		{ "/", NULL, NULL },
		{ "qemu:///embed/vm", NULL, NULL },
		{ "test:///default/vm", NULL, NULL },
		{ "qemu+ssh://host/system/vm", NULL, NULL },
		{ "qemu://host/system/vm", NULL, NULL },
		{ "qemu:///system/vm?socket=/run/x", NULL, NULL },
		{ "qemu+ext:///system/vm?command=/bin/sh", NULL, NULL },
		{ "qemu+unix:///system/vm?socket=relative", NULL, NULL },
		{ "qemu+unix:///system/vm?socket=/x&command=/bin/sh", NULL, NULL },
		{ "qemu+unix:///system/vm?socket=/x%26command=/bin/sh", NULL, NULL },
		{ "qemu+unix:///system/vm?mode=direct", NULL, NULL },
	};
	struct lv_target ret;
	struct err err = { 0 };
	char longer[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		int rc = lv_target_parse(t[i].arg, &ret, &err);

		if (!t[i].uri) {
			if (rc != -EINVAL || err.code != ERR_TARGET_SYNTAX)
				fail_msg("%s was taken", t[i].arg);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(ret.uri, t[i].uri);
		assert_string_equal(ret.domain, t[i].domain);
	}
	memset(longer, 'x', sizeof(longer));
	memcpy(longer, "qemu:///system/", 15);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(lv_target_parse(longer, &ret, &err), -EINVAL);
}

static void a_command_and_its_answer(void **state)
{
	struct qmp *q = open_qmp(NULL);
	char *text = NULL;
	json_t *value = NULL;

	(void)state;
	set_answer("{\"return\": {\"running\": true}, \"id\": \"libvirt-17\"}");
	assert_int_equal(qmp_command(q, "query-status", NULL, &value, SECOND, NULL), 0);
	assert_true(json_is_true(json_object_get(value, "running")));
	json_decref(value);
	assert_string_equal(fake.command, "{\"execute\":\"query-status\"}");
	set_answer("{\"return\": \"text\\r\\n\"}");
	assert_int_equal(qmp_hmp(q, "info registers", 1, &text, SECOND, NULL), 0);
	assert_string_equal(text, "text\r\n");
	free(text);
	assert_non_null(strstr(fake.command, "\"cpu-index\":1"));
	assert_int_equal(qmp_fd(q), -1);
	qmp_close(q);
}

static void answers_that_are_none(void **state)
{
	static const char *const bad[] = { "",
					   "nonsense",
					   "[]",
					   "{}",
					   "{\"id\": 3}",
					   "7",
					   "{\"return\": ",
					   "{\"event\": \"STOP\"}",
					   "{\"return\": {}} {\"return\": {}}" };
	struct qmp *q = open_qmp(NULL);
	char *big = malloc(QMP_MAX_MESSAGE + 1);
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err = (struct err){ 0 };
		set_answer(bad[i]);
		if (qmp_command(q, "query-status", NULL, NULL, SECOND, &err) != -EPROTO ||
		    err.code != ERR_VMM_PROTOCOL)
			fail_msg("%s was taken", bad[i]);
	}
	set_answer("{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}");
	assert_int_equal(qmp_command(q, "quit", NULL, NULL, SECOND, &err), -EPROTO);
	assert_string_equal(err.msg, "QEMU refused quit: no");
	assert_non_null(big);
	memset(big, ' ', QMP_MAX_MESSAGE);
	big[QMP_MAX_MESSAGE] = '\0';
	set_answer(big);
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), -EPROTO);
	set_answer(NULL);
	free(big);
	/* and it goes on */
	set_answer("{\"return\": {}}");
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), 0);
	qmp_close(q);
}

static void errors_of_opening(void **state)
{
	(void)state;
	expect_open_error("other", -ENOENT, ERR_TARGET_NO_DOMAIN);
	expect_open_error("00000000-4c0e-49e1-a883-7322a1346cbe", -ENOENT, ERR_TARGET_NO_DOMAIN);
	fake.id = LV_NO_ID;
	expect_open_error("vm", -EBUSY, ERR_TARGET_OFF);
	fake.id = 3;
	fake.type = "LXC";
	expect_open_error("vm", -ENODEV, ERR_TARGET_NOT_VMM);
	fake.type = "QEMU";
	fake.refuse = true;
	fake.error = 38; /* VIR_ERR_SYSTEM_ERROR: nobody listens */
	expect_open_error("vm", -ENOTCONN, ERR_LIBVIRT);
	fake.error = LV_ERR_AUTH_FAILED;
	expect_open_error("vm", -EACCES, ERR_TARGET_PERMISSION);
	fake.error = LV_ERR_AUTH_UNAVAILABLE;
	expect_open_error("vm", -EACCES, ERR_TARGET_PERMISSION);
}

static void by_uuid(void **state)
{
	struct lv_link *l = open_link(UUID);

	(void)state;
	assert_string_equal(lv_link_uuid(l), UUID);
	lv_link_close(l);
	l = open_link("vm");
	assert_string_equal(lv_link_uuid(l), UUID);
	lv_link_close(l);
}

static void errors_of_a_command(void **state)
{
	static const struct {
		int lv, no;
		enum err_code code;
	} t[] = { { 1, -EPROTO, ERR_VMM_PROTOCOL },
		  { LV_ERR_OPERATION_TIMEOUT, -ETIMEDOUT, ERR_VMM_TIMEOUT },
		  { LV_ERR_ACCESS_DENIED, -EACCES, ERR_TARGET_PERMISSION } };
	struct lv_link *l;
	struct qmp *q = open_qmp(&l);
	struct err err = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		fake.error = t[i].lv;
		assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), t[i].no);
		assert_int_equal(err.code, t[i].code);
	}
	/* it is off: over, also when it is started again */
	fake.error = LV_ERR_OPERATION_INVALID;
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
	assert_int_equal(lv_link_run(l), LV_RUN_ENDED);
	set_answer("{\"return\": {}}");
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), -ESRCH);
	qmp_close(q);
}

static void the_connection_is_lost_and_comes_back(void **state)
{
	struct lv_link *l;
	struct qmp *q = open_qmp(&l);
	struct err err = { 0 };

	(void)state;
	set_answer("{\"return\": {}}");
	fake_lock();
	fake.alive = false;
	fake.refuse = true;
	fake.error = 38;
	fake_unlock();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err),
				 -ENOTCONN);
		assert_int_equal(err.code, ERR_LIBVIRT);
	}
	assert_int_equal(fake.n_commands, 0);
	fake_lock();
	fake.refuse = false;
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), 0);
	assert_int_equal(fake.n_open, 2);
	assert_int_equal(fake.n_events, 3);
	/* back, but the domain was started anew meanwhile: never the new QEMU */
	fake_lock();
	fake.alive = false;
	fake.id++;
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), -ESRCH);
	assert_int_equal(fake.n_commands, 1);
	qmp_close(q);
}

static void the_domain_is_gone_when_it_comes_back(void **state)
{
	struct qmp *q = open_qmp(NULL);
	struct err err = { 0 };

	(void)state;
	fake_lock();
	fake.alive = false;
	fake.gone = true;
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, &err), -ESRCH);
	assert_int_equal(err.code, ERR_VMM_GONE);
	qmp_close(q);
}

static void a_libvirtd_that_hangs(void **state)
{
	struct qmp *q = open_qmp(NULL);
	struct err err = { 0 };
	struct timespec nap = { 0, 5000000 };
	int rc;

	(void)state;
	fake_lock();
	fake.hang = true;
	fake.answer = "{\"return\": {}}";
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SHORT, &err), -ETIMEDOUT);
	assert_int_equal(err.code, ERR_VMM_TIMEOUT);
	/* nobody queues behind it */
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, 60 * SECOND, &err), -ETIMEDOUT);
	fake_lock();
	assert_int_equal(fake.n_commands, 1);
	fake.hang = false;
	fake_unlock();
	for (int i = 0; i < 200; i++) {
		rc = qmp_command(q, "query-status", NULL, NULL, SECOND, &err);
		if (rc == 0)
			break;
		nanosleep(&nap, NULL);
	}
	assert_int_equal(rc, 0);
	qmp_close(q);
}

static void closed_while_libvirtd_hangs(void **state)
{
	struct qmp *q = open_qmp(NULL);
	struct timespec nap = { 0, 5000000 };
	unsigned closed = 0;

	(void)state;
	fake_lock();
	fake.hang = true;
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SHORT, NULL), -ETIMEDOUT);
	qmp_close(q); /* returns all the same */
	fake_lock();
	assert_int_equal(fake.n_closed, 0);
	fake.hang = false;
	fake_unlock();
	for (int i = 0; i < 400 && !closed; i++) {
		nanosleep(&nap, NULL);
		fake_lock();
		closed = fake.n_closed;
		fake_unlock();
	}
	assert_int_equal(closed, 1);
}

/* It accepts and says nothing: each attempt keeps a thread, so there is an end to them, until it answers. */
static void a_libvirtd_that_never_answers(void **state)
{
	enum {
		AT_ONCE = 24
	};
	struct timespec nap = { 0, 5000000 };
	pthread_t thread[AT_ONCE];
	struct lv_link *l = NULL;
	struct err err = { 0 };
	int rc = -EAGAIN;

	(void)state;
	fake_lock();
	fake.hang_open = true;
	fake_unlock();
	/* none is refused that does not know of the others yet */
	for (size_t i = 0; i < AT_ONCE; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, attempt, NULL), 0);
	for (size_t i = 0; i < AT_ONCE; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(fake.n_tries, AT_ONCE);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(lv_link_open(&vm_target, SECOND, &l, &err), -EAGAIN);
		assert_int_equal(err.code, ERR_LIBVIRT);
	}
	assert_int_equal(fake.n_tries, AT_ONCE);
	fake_lock();
	fake.hang_open = false;
	fake_unlock();
	for (int i = 0; i < 400 && rc == -EAGAIN; i++) {
		nanosleep(&nap, NULL);
		rc = lv_link_open(&vm_target, SECOND, &l, &err);
	}
	assert_int_equal(rc, 0);
	lv_link_close(l);
	for (unsigned closed = 0; closed <= AT_ONCE;) {
		nanosleep(&nap, NULL);
		fake_lock();
		closed = fake.n_closed;
		fake_unlock();
	}
}

/* Who listens at @path as user @uid; NULL: it cannot be done. */
static int listen_as(const char *path, uid_t uid)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(seteuid(uid), 0); /* the kernel keeps who calls listen() */
	rc = listen(fd, 8);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, 0);
	return fd;
}

static void expect_uri(const char *socket, const char *real, int no, enum err_code code)
{
	struct lv_target t = { .domain = "vm" };
	char uri[LV_URI_BYTES], want[300];
	struct err err = { 0 };
	int rc;

	snprintf(t.uri, sizeof(t.uri), "qemu+unix:///system?socket=%s", socket);
	rc = lv_target_uri(&t, uri, &err);
	if (rc != no || (no && err.code != code))
		fail_msg("%s: %d %s", socket, rc, err.msg);
	snprintf(want, sizeof(want), "qemu+unix:///system?socket=%s", real);
	if (!no)
		assert_string_equal(uri, want);
}

static void whose_socket(void **state)
{
	char dir[] = "/tmp/hvf-lv-XXXXXX", path[64], link[64];
	const uid_t other = 12345;
	int fd;

	(void)state;
	if (geteuid() != 0)
		skip(); /* needs another user */
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	expect_uri(path, NULL, -ENOTCONN, ERR_LIBVIRT);
	fd = listen_as(path, 0);
	expect_uri(path, path, 0, ERR_NONE);
	assert_int_equal(symlink(path, link), 0);
	expect_uri(link, path, 0, ERR_NONE);
	/* somebody else's, by any of its marks */
	assert_int_equal(chown(path, other, other), 0);
	expect_uri(path, NULL, -EACCES, ERR_TARGET_SOCKET);
	expect_uri(link, NULL, -EACCES, ERR_TARGET_SOCKET);
	assert_int_equal(chown(path, 0, 0), 0);
	assert_int_equal(chown(dir, other, other), 0);
	expect_uri(path, NULL, -EACCES, ERR_TARGET_SOCKET);
	assert_int_equal(chown(dir, 0, 0), 0);
	assert_int_equal(chmod(dir, 0777), 0);
	expect_uri(path, NULL, -EACCES, ERR_TARGET_SOCKET);
	assert_int_equal(chmod(dir, 01777), 0);
	expect_uri(path, path, 0, ERR_NONE);
	close(fd);
	expect_uri(path, NULL, -ENOTCONN, ERR_LIBVIRT); /* nobody listens */
	fd = listen_as(path, other);
	expect_uri(path, NULL, -EACCES, ERR_TARGET_SOCKET);
	close(fd);
	unlink(path);
	unlink(link);
	rmdir(dir);
}

static void events_say_the_state(void **state)
{
	static const struct {
		int event;
		enum lv_run run;
	} t[] = { { LV_EVENT_RESUMED, LV_RUN_RUNNING },
		  { LV_EVENT_SUSPENDED, LV_RUN_STOPPED },
		  { LV_EVENT_STARTED, LV_RUN_RUNNING },
		  { LV_EVENT_CRASHED, LV_RUN_STOPPED },
		  { 99, LV_RUN_STOPPED },
		  { LV_EVENT_RESUMED, LV_RUN_RUNNING },
		  { LV_EVENT_PMSUSPENDED, LV_RUN_STOPPED },
		  { LV_EVENT_SHUTDOWN, LV_RUN_STOPPED },
		  { LV_EVENT_STOPPED, LV_RUN_ENDED },
		  { LV_EVENT_STARTED, LV_RUN_ENDED } };
	struct lv_link *l = open_link("vm");
	u32 serial = lv_link_serial(l);

	(void)state;
	assert_int_equal(lv_link_run(l), LV_RUN_UNKNOWN);
	lv_link_note_run(l, true, serial - 1); /* asked before an event: not to be believed */
	assert_int_equal(lv_link_run(l), LV_RUN_UNKNOWN);
	lv_link_note_run(l, false, serial);
	assert_int_equal(lv_link_run(l), LV_RUN_STOPPED);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		fake.lifecycle(NULL, NULL, t[i].event, 99, fake.arg);
		assert_int_equal(lv_link_run(l), t[i].run);
	}
	assert_int_not_equal(lv_link_serial(l), serial);
	lv_link_close(l);
}

static void why_it_ended_is_kept(void **state)
{
	static const int t[] = { 0, LV_STOPPED_SAVED, LV_STOPPED_FROM_SNAPSHOT };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct lv_link *l = open_link("vm");
		int detail;

		assert_false(lv_link_stopped(l, &detail));
		fake.lifecycle(NULL, NULL, LV_EVENT_STOPPED, t[i], fake.arg);
		/* the domain runs on in another QEMU: that is not this one's state */
		fake.lifecycle(NULL, NULL, LV_EVENT_STARTED, 5, fake.arg);
		assert_true(lv_link_stopped(l, &detail));
		assert_int_equal(detail, t[i]);
		lv_link_close(l);
	}
}

static void no_event_after_loss_is_believed(void **state)
{
	struct lv_link *l;
	struct qmp *q = open_qmp(&l);

	(void)state;
	set_answer("{\"return\": {}}");
	fake.lifecycle(NULL, NULL, LV_EVENT_RESUMED, 0, fake.arg);
	assert_int_equal(lv_link_run(l), LV_RUN_RUNNING);
	fake_lock();
	fake.alive = false;
	fake_unlock();
	assert_int_equal(qmp_command(q, "query-status", NULL, NULL, SECOND, NULL), 0);
	assert_int_equal(lv_link_run(l), LV_RUN_UNKNOWN);
	/* the library says it by itself, too */
	fake.lifecycle(NULL, NULL, LV_EVENT_SUSPENDED, 0, fake.arg);
	fake.on_close(NULL, 1, fake.arg);
	assert_int_equal(lv_link_run(l), LV_RUN_UNKNOWN);
	assert_false(lv_link_was_running(l));
	qmp_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, check_closed)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets),
		TEST(a_command_and_its_answer),
		TEST(answers_that_are_none),
		TEST(errors_of_opening),
		TEST(by_uuid),
		TEST(errors_of_a_command),
		TEST(the_connection_is_lost_and_comes_back),
		TEST(the_domain_is_gone_when_it_comes_back),
		TEST(a_libvirtd_that_hangs),
		TEST(closed_while_libvirtd_hangs),
		TEST(a_libvirtd_that_never_answers),
		cmocka_unit_test(whose_socket),
		TEST(events_say_the_state),
		TEST(why_it_ended_is_kept),
		TEST(no_event_after_loss_is_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
