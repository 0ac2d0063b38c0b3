// SPDX-License-Identifier: Apache-2.0
/* Whose process is it? What vmm/proc.c says of sockets and command lines. */
#include "vmm/proc.h"
#include "vmm/vm_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A process that was started with "-uuid abc", holds none of our sockets and waits for its end. */
static pid_t start_other(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		dup2(ready[1], 1);
		close_range(3, ~0u, 0);
		execl("/bin/sh", "sh", "-c", "echo; kill -STOP $$", "-uuid", "abc", NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end_other(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void other_end_of_a_socket(void **state)
{
	pid_t other;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	other = start_other();
	assert_int_equal(proc_holds_peer(getpid(), pair[0]), 1);
	assert_int_equal(proc_holds_peer(other, pair[0]), 0);
	end_other(other);
	/* nobody holds it: gone, or told as nothing */
	close(pair[1]);
	assert_true(proc_holds_peer(getpid(), pair[0]) <= 0);
	close(pair[0]);
}

/* The kernel knows no other end then; that is not another process's. */
static void a_connection_that_waits(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(addr);
	int listener, fd, accepted;

	(void)state;
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	/* autobind, unix(7): in no folder */
	assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(proc_holds_peer(getpid(), fd), -EAGAIN);
	accepted = accept(listener, NULL, NULL);
	assert_int_equal(proc_holds_peer(getpid(), fd), 1);
	close(accepted);
	close(listener);
	close(fd);
}

/* As under a service manager that leaves no AF_NETLINK: @no is what socket(2) fails with. */
static void no_netlink(int no)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)no),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(77);
}

/* That it may not be asked is not what a kernel says that has no way to tell. */
static void who_may_not_be_asked(void **state)
{
	static const struct {
		int fails, want;
	} t[] = { { EAFNOSUPPORT, -EAFNOSUPPORT },
		  { EPERM, -EPERM },
		  { EMFILE, -EMFILE },
		  { EPROTONOSUPPORT, -ENOENT } }; /* the kernel has no sock_diag */
	int pair[2], status;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		pid_t pid = fork();

		if (!pid) {
			no_netlink(t[i].fails);
			_exit(proc_holds_peer(getppid(), pair[0]) != t[i].want);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status == 77 << 8)
			skip(); /* no seccomp here */
		assert_int_equal(status, 0);
	}
	close(pair[0]);
	close(pair[1]);
}

static void words_of_a_command_line(void **state)
{
	pid_t other = start_other();

	(void)state;
	assert_true(proc_has_option(other, "-uuid", "abc"));
	assert_false(proc_has_option(other, "-uuid", "ab"));
	assert_false(proc_has_option(other, "uuid", "abc"));
	assert_false(proc_has_option(other, "-uuid", "abcd"));
	assert_false(proc_has_option(other, "-c", "abc"));
	assert_true(proc_arg_contains(other, "bc"));
	end_other(other);
}

/* What tells that a VMM has memory to lend, and takes orders about it. */
static void files_and_signals(void **state)
{
	int fd = memfd_create("hvftrace-test@1000", MFD_CLOEXEC);
	sigset_t set, old;
	char link[64];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(proc_find_fd(getpid(), "/memfd:hvftrace-test@", link, sizeof(link)), 0);
	assert_string_equal(link, "/memfd:hvftrace-test@1000 (deleted)");
	assert_int_equal(proc_find_fd(getpid(), "/memfd:hvftrace-test@", link, 24), 0);
	assert_string_equal(link, "/memfd:hvftrace-test@10"); /* cut, not run over */
	assert_int_equal(proc_find_fd(getpid(), "/memfd:other", link, sizeof(link)), -ENOENT);
	close(fd);
	assert_int_equal(proc_find_fd(getpid(), "/memfd:hvftrace-test@", link, sizeof(link)),
			 -ENOENT);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	assert_false(proc_blocks_signal(getpid(), SIGRTMIN));
	sigprocmask(SIG_BLOCK, &set, &old);
	assert_true(proc_blocks_signal(getpid(), SIGRTMIN));
	assert_false(proc_blocks_signal(getpid(), SIGRTMIN + 1));
	assert_false(proc_blocks_signal(getpid(), 0));
	assert_false(proc_blocks_signal(getpid(), 65));
	sigprocmask(SIG_SETMASK, &old, NULL);
	assert_false(proc_blocks_signal(getpid(), SIGRTMIN));
}

static void names_of_threads(void **state)
{
	char name[32], short_one[4];

	(void)state;
	assert_int_equal(prctl(PR_SET_NAME, "vcpu 12"), 0);
	proc_thread_name(getpid(), getpid(), name, sizeof(name));
	assert_string_equal(name, "vcpu 12");
	proc_thread_name(getpid(), getpid(), short_one, sizeof(short_one));
	assert_string_equal(short_one, "vcp");
	assert_int_equal(prctl(PR_SET_NAME, "vcpu\n13"), 0);
	proc_thread_name(getpid(), getpid(), name, sizeof(name));
	assert_string_equal(name, "vcpu");
	proc_thread_name(getpid(), 1, name, sizeof(name));
	assert_string_equal(name, "");
}

/* In a world of its own: who holds /dev/sev there has a guest whose memory is kept from us. 77: not allowed */
static int with_sev(void)
{
	struct vm vm = { .pid = getpid() };
	struct err err = { 0 };
	int fd;

	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 77;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev", "tmpfs", 0, NULL))
		return 77;
	if (vm_check_confidential(&vm, &err))
		return 1;
	fd = open("/dev/sev", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || vm_check_confidential(&vm, &err) != -EACCES)
		return 2;
	if (err.code != ERR_TARGET_SEALED || !strstr(err.msg, "AMD SEV"))
		return 3;
	close(fd);
	return vm_check_confidential(&vm, &err) ? 4 : 0;
}

static void a_guest_that_is_kept_from_its_host(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(with_sev());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_end_of_a_socket),
		cmocka_unit_test(a_connection_that_waits),
		cmocka_unit_test(who_may_not_be_asked),
		cmocka_unit_test(words_of_a_command_line),
		cmocka_unit_test(files_and_signals),
		cmocka_unit_test(names_of_threads),
		cmocka_unit_test(a_guest_that_is_kept_from_its_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
