// SPDX-License-Identifier: Apache-2.0
/* api/listen.c: folders and locks; sockets are tested as a black box. */
#include "api/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static int make_tmp(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/hvf-listen-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_tmp(void **state)
{
	char cmd[128];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf -- '%s'", dir);
	return system(cmd); /* NOLINT(cert-env33-c): a fixed command over our own mkdtemp() name */
}

static void folders_are_made_on_the_way(void **state)
{
	struct err err = { 0 };
	struct stat st;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/a//b/c/", dir);
	assert_int_equal(make_dirs(path, 0700, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(make_dirs(path, 0700, &err), 0);
	assert_int_equal(make_dirs("", 0700, &err), 0);
	assert_int_equal(make_dirs("/proc/nonsense/x", 0700, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/proc/nonsense"));
}

/* In a process of its own: a lock of the same process would not be in the way. */
static int lock_in_child(const char *path, struct err *err)
{
	int fds[2], fd, r = -1;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		r = state_dir_lock(path, &fd, err);
		if (write(fds[1], &r, sizeof(r)) != (ssize_t)sizeof(r) ||
		    write(fds[1], err, sizeof(*err)) != (ssize_t)sizeof(*err))
			_exit(1);
		_exit(0);
	}
	assert_int_equal(read(fds[0], &r, sizeof(r)), sizeof(r));
	assert_int_equal(read(fds[0], err, sizeof(*err)), sizeof(*err));
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
	return r;
}

static void a_state_directory_has_one_owner(void **state)
{
	struct err err = { 0 };
	char path[128], pid[32];
	struct stat st;
	int fd = -1;

	(void)state;
	snprintf(path, sizeof(path), "%s/state", dir);
	assert_int_equal(state_dir_lock(path, &fd, &err), 0);
	assert_int_equal(lock_in_child(path, &err), -EBUSY);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	assert_non_null(strstr(err.msg, pid));
	/* a journal's reader must not find something of ours in a file of its own */
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	close(fd);
	assert_int_equal(lock_in_child(path, &err), 0);
}

static void places_are_checked(void **state)
{
	static const char *const bad[] = { "",
					   "unix",
					   "unix:",
					   "tcp:",
					   "tcp:1",
					   "tcp::1",
					   "tcp:[::1]",
					   "tcp:[::1:80",
					   "tcp:127.0.0.1:",
					   "tcp:127.0.0.1:+1",
					   "tcp:127.0.0.1:1x",
					   "tcp:127.0.0.1:99999",
					   "http:127.0.0.1:80" };
	struct listen_socket s;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err = (struct err){ 0 };
		assert_int_equal(listen_open(bad[i], &s, &err), -EINVAL);
		assert_int_equal(err.code, ERR_BAD_REQUEST);
		assert_int_equal(s.fd, -1);
	}
	assert_int_equal(listen_open("tcp:10.0.0.1:80", &s, &err), -EACCES);
	assert_int_equal(listen_open("tcp:[2001:db8::1]:80", &s, &err), -EACCES);
	assert_int_equal(listen_open("tcp:localhost:0", &s, &err), 0);
	assert_true(s.is_tcp);
	close(s.fd);
}

static void loopback_is_known_by_name_and_address(void **state)
{
	static const char *const here[] = { "localhost",   "LocalHost:80", "127.0.0.1",
					    "127.0.0.1:1", "127.0.0.2:80", "127.255.255.254",
					    "[::1]",       "[::1]:8080",   "[0:0:0:0:0:0:0:1]:1",
					    "localhost:" };
	static const char *const elsewhere[] = {
		"",
		":80",
		"evil.example",
		"localhost.evil.example",
		"127.0.0.1.evil.example",
		"127.0.0.1@evil.example",
		"127.0.0.1:80.evil.example",
		"127.0.0.1:80:90",
		"127.1",
		"0x7f.0.0.1",
		"128.0.0.1",
		"10.0.0.1:80",
		"0.0.0.0",
		"[::]",
		"[::2]:80",
		"[::1",
		"[::1]x",
		"::1",
		"[localhost]",
		"[127.0.0.1]",
		"[::1%lo]",
		"127.0.0.1 ",
		"1270000000000000000000000000000000000000000000000000000000000000000.0.0.1"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		assert_true(listen_is_loopback(here[i]));
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		assert_false(listen_is_loopback(elsewhere[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folders_are_made_on_the_way),
		cmocka_unit_test(a_state_directory_has_one_owner),
		cmocka_unit_test(places_are_checked),
		cmocka_unit_test(loopback_is_known_by_name_and_address),
	};

	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
