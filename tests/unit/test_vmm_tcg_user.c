// SPDX-License-Identifier: Apache-2.0
/* vmm/tcg_window.c on a QEMU of another user, with no more of root's capabilities than the service's unit leaves. */
#include "vmm/tcg_window.h"

#include "vmm/qmp.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UNIT  "../packaging/systemd/hvftraced.service"
#define OTHER 12345

/* Those that the unit may name; one that is missing here fails the test. */
static const struct {
	const char *name;
	int number;
} known[] = { { "CAP_CHOWN", CAP_CHOWN },
	      { "CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE },
	      { "CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH },
	      { "CAP_KILL", CAP_KILL },
	      { "CAP_SYS_PTRACE", CAP_SYS_PTRACE } };

/* As bits. */
static u64 of_the_unit(void)
{
	static const char key[] = "CapabilityBoundingSet=";
	char line[512] = "", *word, *save;
	FILE *f = fopen(UNIT, "r");
	u64 ret = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && strncmp(line, key, strlen(key)) != 0)
		;
	fclose(f);
	assert_int_equal(strncmp(line, key, strlen(key)), 0);
	for (word = strtok_r(line + strlen(key), " \n", &save); word;
	     word = strtok_r(NULL, " \n", &save)) {
		size_t i;

		for (i = 0; i < ARRAY_SIZE(known) && strcmp(known[i].name, word) != 0; i++)
			;
		if (i == ARRAY_SIZE(known))
			fail_msg("%s is new", word);
		ret |= 1ull << known[i].number;
	}
	return ret;
}

static bool set_caps(u64 mask)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (u32)mask, .permitted = (u32)mask },
		{ .effective = (u32)(mask >> 32), .permitted = (u32)(mask >> 32) }
	};

	return syscall(SYS_capset, &head, data) == 0;
}

/* QEMU's monitor: the directory that it is told to make a socket in is looked at. */
struct monitor {
	int fd;
	bool asked, is_theirs;
};

static void *serve(void *arg)
{
	struct monitor *m = arg;
	char got[1024];
	ssize_t n;

	dprintf(m->fd, "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n");
	while ((n = recv(m->fd, got, sizeof(got) - 1, 0)) > 0) {
		char *id, *path;
		const char *value = "{}";
		struct stat st;

		got[n] = '\0';
		id = strstr(got, "\"id\":");
		path = strstr(got, "gdbserver unix:");
		if (strstr(got, "\"query-status\""))
			value = "{\"status\": \"running\", \"running\": true}";
		else if (strstr(got, "\"query-chardev\""))
			value = "[]";
		else if (path)
			value = "\"no\"";
		if (path) {
			path += strlen("gdbserver unix:");
			path[strcspn(path, ",")] = '\0';
			*strrchr(path, '/') = '\0';
			m->asked = true;
			m->is_theirs = stat(path, &st) == 0 && st.st_uid == OTHER &&
				       st.st_mode == (S_IFDIR | 0700);
		}
		dprintf(m->fd, "{\"return\": %s, \"id\": %d}\r\n", value, atoi(id + 5));
	}
	close(m->fd);
	return NULL;
}

/* In a process of its own. Return: its exit status. */
static int try_window(pid_t qemu, u64 caps)
{
	struct monitor m = { 0 };
	struct tcg_window *w;
	struct err err = { 0 };
	struct qmp *q;
	pthread_t thread;
	u64 started;
	int pair[2];

	if (!set_caps(caps) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 77;
	m.fd = pair[1];
	if (pthread_create(&thread, NULL, serve, &m) ||
	    qmp_open_fd(pair[0], 20 * NSEC_PER_SEC, &q, &err) < 0 ||
	    tcg_window_create(q, qemu, &w, &err) < 0)
		return 2;
	(void)!tcg_window_pause(w, NSEC_PER_SEC, &started, &err); /* it opens no gdbstub */
	tcg_window_destroy(w);
	qmp_close(q);
	pthread_join(thread, NULL);
	if (!m.asked)
		fprintf(stderr, "%s\n", err.msg);
	return !m.asked || !m.is_theirs;
}

static void as_the_packaged_daemon(void **state)
{
	u64 caps = of_the_unit();
	pid_t qemu, daemon;
	int status;

	(void)state;
	if (geteuid() != 0)
		skip(); /* needs another user */
	qemu = fork();
	if (!qemu) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresgid(OTHER, OTHER, OTHER) || setresuid(OTHER, OTHER, OTHER))
			_exit(1);
		for (;;)
			pause();
	}
	while (kill(qemu, 0) == 0) { /* until it is the other user's */
		char path[32];
		struct stat st;

		snprintf(path, sizeof(path), "/proc/%d", (int)qemu);
		if (stat(path, &st) == 0 && st.st_uid != 0)
			break;
		usleep(1000);
	}
	daemon = fork();
	if (!daemon)
		_exit(try_window(qemu, caps));
	assert_int_equal(waitpid(daemon, &status, 0), daemon);
	kill(qemu, SIGKILL);
	waitpid(qemu, NULL, 0);
	if (status == 77 << 8)
		skip(); /* root without root's capabilities */
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_the_packaged_daemon) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
