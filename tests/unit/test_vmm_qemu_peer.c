// SPDX-License-Identifier: Apache-2.0
/* vmm/qemu.c: which process a monitor may name as its own, by what the kernel says or does not say. */
#include "vmm/proc.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_proc_holds_peer(pid_t pid, int fd);

static int kernel_says;

int __wrap_proc_holds_peer(pid_t pid, int fd)
{
	assert_int_equal(pid, getpid());
	assert_true(fd >= 0);
	return kernel_says;
}

/* A monitor in this process, which says that a vCPU is a thread of it. */
struct monitor {
	int listener;
	bool believed; /* asked for more than who it is */
};

static void *serve(void *arg)
{
	struct monitor *m = arg;
	char got[512];
	ssize_t n;
	int fd = accept(m->listener, NULL, NULL);

	dprintf(fd, "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n");
	while ((n = recv(fd, got, sizeof(got) - 1, 0)) > 0) {
		unsigned long long id;
		char *p;

		got[n] = '\0';
		p = strstr(got, "\"id\":");
		id = p ? strtoull(p + 5, NULL, 10) : 0;
		if (strstr(got, "\"query-cpus-fast\"")) {
			dprintf(fd, "{\"return\": [{\"thread-id\": %d}], \"id\": %llu}\r\n",
				(int)getpid(), id);
			continue;
		}
		m->believed |= strstr(got, "\"qmp_capabilities\"") == NULL;
		dprintf(fd, "{\"return\": {}, \"id\": %llu}\r\n", id);
	}
	close(fd);
	return NULL;
}

/* Return: is a monitor believed when the kernel says @says of it? */
static bool is_believed(int says, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct monitor m = { .listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	char dir[] = "/tmp/hvf-peer-XXXXXX", target[128];
	pthread_t thread;
	struct vm *vm = NULL;

	kernel_says = says;
	*err = (struct err){ 0 };
	assert_non_null(mkdtemp(dir));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/qmp", dir);
	snprintf(target, sizeof(target), "qemu:%s", addr.sun_path);
	assert_int_equal(bind(m.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(m.listener, 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, &m), 0);
	assert_int_not_equal(vm_attach(target, &vm, err), 0); /* it has no RAM */
	pthread_join(thread, NULL);
	close(m.listener);
	unlink(addr.sun_path);
	rmdir(dir);
	return m.believed;
}

static void who_holds_the_other_end(void **state)
{
	struct err err;

	(void)state;
	assert_true(is_believed(1, &err));
	assert_false(is_believed(0, &err));
	assert_int_equal(err.code, ERR_TARGET_NOT_VMM);
	assert_false(is_believed(-ESRCH, &err));
	assert_int_equal(err.code, ERR_TARGET_NOT_VMM);
	assert_false(is_believed(-EACCES, &err));
	assert_int_equal(err.code, ERR_TARGET_PERMISSION);
}

/* Same user as the listener is all that is left then. */
static void a_kernel_without_a_way_to_tell(void **state)
{
	struct err err;

	(void)state;
	assert_true(is_believed(-ENOENT, &err));
}

/* A sandbox without AF_NETLINK, or no descriptors left: whoever could be asked is not guessed at. */
static void a_kernel_that_is_not_asked(void **state)
{
	static const int all[] = { -EAFNOSUPPORT, -EPERM, -EMFILE, -EAGAIN, -EPROTO };
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_false(is_believed(all[i], &err));
		assert_int_equal(err.code, ERR_IO);
		assert_non_null(strstr(err.msg, strerror(-all[i])));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_holds_the_other_end),
		cmocka_unit_test(a_kernel_without_a_way_to_tell),
		cmocka_unit_test(a_kernel_that_is_not_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
