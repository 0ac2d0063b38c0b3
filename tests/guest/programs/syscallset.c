// SPDX-License-Identifier: Apache-2.0
/*
 * System calls that are known, for a tracer of them to be compared with.
 *
 *   syscallset known      a list of calls, each once, then exit_group(7)
 *   syscallset getppid N  that many
 *   syscallset execs N    as many children, one after another, that execve() /bin/true
 *   syscallset race S     open() a path that another thread rewrites all the time, for S seconds; prints
 *                         how often which one of two was found
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void files(void)
{
	char buf[16], longest[301];
	int fd;

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	for (size_t i = 0; i < sizeof(longest) - 1; i += 100)
		longest[i] = '/';
	syscall(SYS_mkdirat, AT_FDCWD, "/tmp/sys-dir", 0750);
	fd = (int)syscall(SYS_openat, AT_FDCWD, "/tmp/sys-dir/file", O_RDWR | O_CREAT, 0640);
	syscall(SYS_write, fd, "hello", 5);
	syscall(SYS_read, fd, buf, sizeof(buf));
	syscall(SYS_close, fd);
	syscall(SYS_openat, AT_FDCWD, "/nowhere/at \"all\"\n", O_RDONLY, 0);
	syscall(SYS_openat, AT_FDCWD, (char *)16, O_RDONLY, 0);
	syscall(SYS_openat, AT_FDCWD, longest, O_RDONLY, 0);
	syscall(SYS_renameat2, AT_FDCWD, "/tmp/sys-dir/one", AT_FDCWD, "/tmp/sys-dir/two", 0);
	syscall(SYS_unlinkat, AT_FDCWD, "/tmp/sys-dir/file", 0);
	syscall(SYS_unlinkat, AT_FDCWD, "/tmp/sys-dir", AT_REMOVEDIR);
}

static void sockets(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/tmp/sys-socket" };
	int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);

	syscall(SYS_bind, fd, &un, sizeof(un));
	syscall(SYS_close, fd);
	syscall(SYS_unlinkat, AT_FDCWD, un.sun_path, 0);
	fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	syscall(SYS_connect, fd, &in, sizeof(in));
	syscall(SYS_close, fd);
}

static int execs(int n)
{
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	return 0;
}

static char shared[64];
static const char *const paths[2] = { "/proc/version", "/no/such/path" };

static void *rewrite(void *arg)
{
	(void)arg;
	for (unsigned i = 0;; i++)
		memcpy(shared, paths[i & 1], sizeof("/proc/version"));
	return NULL;
}

static int race(int seconds)
{
	time_t end = time(NULL) + seconds;
	unsigned found = 0, missing = 0;
	pthread_t t;

	if (pthread_create(&t, NULL, rewrite, NULL))
		return 1;
	while (time(NULL) < end) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, shared, O_RDONLY, 0);

		if (fd >= 0) {
			found++;
			close(fd);
		} else {
			missing++;
		}
	}
	printf("%u %u\n", found, missing);
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "getppid")) {
		for (int i = 0; i < n; i++)
			syscall(SYS_getppid);
		return 0;
	}
	if (!strcmp(argv[1], "execs"))
		return execs(n);
	if (!strcmp(argv[1], "race"))
		return race(n);
	files();
	sockets();
	syscall(SYS_exit_group, 7);
	return 0;
}
