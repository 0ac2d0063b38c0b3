// SPDX-License-Identifier: Apache-2.0
/*
 * System calls whose arguments point to memory, for a tracer of them to be compared with.
 *
 *   syscallmem memory      what is read and written: buffers, vectors, structs, addresses
 *   syscallmem threads     four threads with calls of their own
 *   syscallmem signals     handlers, calls that they interrupt, children that are killed
 *   syscallmem execs       execve() that fails, and one that does not
 *   syscallmem unmap S     open() a path whose page another thread maps, unmaps and rewrites, for S seconds;
 *                          prints how often it was found, was not, and was not there
 *   syscallmem fork N      N children that call getppid() once, each a child of the one before
 *   syscallmem uid N       getppid() as this user
 *   syscallmem cost N WHAT  N of getppid, write, openat, which fails, or open: openat() and close(); prints
 *                           the ns that they took of its processor, and of the clock, without the N / 10 before
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void buffers(void)
{
	char one[40], two[8], dents[1024];
	struct iovec in[2] = { { one, sizeof(one) }, { two, sizeof(two) } };
	struct iovec out[2] = { { "first part, which is longer than what is shown", 46 },
				{ "second", 6 } };
	struct stat st;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/tmp/mem-file", O_RDWR | O_CREAT | O_TRUNC,
			      0600);
	int dir;

	syscall(SYS_write, fd, "a line of text\n\1\2\377 and binary", 30);
	syscall(SYS_writev, fd, out, 2);
	syscall(SYS_lseek, fd, 0, SEEK_SET);
	syscall(SYS_read, fd, one, 10);
	syscall(SYS_readv, fd, in, 2);
	syscall(SYS_pread64, fd, two, sizeof(two), 2);
	syscall(SYS_pwrite64, fd, "xyz", 3, 0);
	syscall(SYS_fstat, fd, &st);
	syscall(SYS_newfstatat, AT_FDCWD, "/tmp/mem-file", &st, 0);
	syscall(SYS_newfstatat, AT_FDCWD, "/tmp/no-such-file", &st, 0);
	syscall(SYS_read, fd, (void *)8, 10);
	syscall(SYS_close, fd);
	dir = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
	syscall(SYS_getdents64, dir, dents, sizeof(dents));
	syscall(SYS_getdents64, dir, dents, sizeof(dents));
	syscall(SYS_close, dir);
	syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", one, sizeof(one));
	syscall(SYS_getcwd, one, sizeof(one));
	syscall(SYS_unlinkat, AT_FDCWD, "/tmp/mem-file", 0);
}

static void structs(void)
{
	struct timespec ts = { 0, 1000 }, left;
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = 7 }, got[4];
	struct pollfd p[2] = { { .fd = 0, .events = POLLIN }, { .fd = -1, .events = POLLOUT } };
	struct utsname u;
	struct rlimit lim;
	struct rusage usage;
	int pair[2], ep;

	syscall(SYS_nanosleep, &ts, &left);
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
	syscall(SYS_uname, &u);
	syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim);
	syscall(SYS_getrusage, RUSAGE_SELF, &usage);
	syscall(SYS_pipe2, pair, O_CLOEXEC);
	ep = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, pair[0], &ev);
	syscall(SYS_write, pair[1], "x", 1);
	syscall(SYS_epoll_wait, ep, got, 4, 1000);
	p[0].fd = pair[0];
	syscall(SYS_poll, p, 2, 1000);
	syscall(SYS_fcntl, pair[0], F_GETFL);
	syscall(SYS_fcntl, pair[0], F_SETFL, O_NONBLOCK);
	syscall(SYS_fcntl, pair[0], F_SETFD, FD_CLOEXEC);
	syscall(SYS_ioctl, pair[0], 0x541b /* FIONREAD */, &ep);
	syscall(SYS_close, pair[0]);
	syscall(SYS_close, pair[1]);
}

static void messages(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f }, from;
	socklen_t len = sizeof(a);
	char buf[64];
	struct iovec v = { "a message", 9 }, w = { buf, sizeof(buf) };
	struct msghdr out = {
		.msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = &v, .msg_iovlen = 1
	};
	struct msghdr in = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &w, .msg_iovlen = 1
	};
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0), one = 1, pair[2];

	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	syscall(SYS_bind, fd, &a, sizeof(a));
	syscall(SYS_getsockname, fd, &a, &len);
	syscall(SYS_sendto, fd, "to myself", 9, 0, &a, sizeof(a));
	syscall(SYS_recvfrom, fd, buf, sizeof(buf), 0, &from, &len);
	syscall(SYS_sendmsg, fd, &out, 0);
	syscall(SYS_recvmsg, fd, &in, 0);
	syscall(SYS_bind, -1, &a, sizeof(a));
	syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair);
	syscall(SYS_close, pair[0]);
	syscall(SYS_close, pair[1]);
	syscall(SYS_close, fd);
}

static void *thread(void *arg)
{
	char name[16], buf[32];

	snprintf(name, sizeof(name), "thread-%ld", (long)arg);
	syscall(SYS_prctl, 15 /* PR_SET_NAME */, name, 0, 0, 0);
	for (int i = 0; i < 10; i++) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/comm", O_RDONLY, 0);

		syscall(SYS_read, fd, buf, sizeof(buf));
		syscall(SYS_close, fd);
		syscall(SYS_sched_yield);
	}
	return NULL;
}

static int threads(void)
{
	pthread_t t[4];

	for (long i = 0; i < 4; i++) {
		if (pthread_create(&t[i], NULL, thread, (void *)i))
			return 1;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static void handler(int sig)
{
	(void)sig;
}

/* A read that a signal interrupts, whose handler has it begun again. */
static void restarted(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	int fd[2], status;
	char c;
	pid_t pid;

	if (pipe(fd))
		_exit(1);
	sigaction(SIGUSR1, &sa, NULL);
	pid = fork();
	if (!pid) {
		usleep(50000);
		kill(getppid(), SIGUSR1);
		usleep(50000);
		_exit(write(fd[1], "x", 1) != 1);
	}
	syscall(SYS_read, fd[0], &c, 1);
	syscall(SYS_wait4, pid, &status, 0, NULL);
	close(fd[0]);
	close(fd[1]);
}

static void signals(void)
{
	struct sigaction sa = { .sa_handler = handler };
	struct timespec second = { 1, 0 }, left;
	sigset_t set;
	int status;
	pid_t pid;

	restarted();
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	syscall(SYS_kill, getpid(), SIGUSR1);
	syscall(SYS_kill, getpid(), SIGUSR2);
	syscall(SYS_rt_sigpending, &set, 8);
	pid = fork();
	if (!pid) {
		struct timespec ts = { 0, 50000000 };

		nanosleep(&ts, NULL);
		kill(getppid(), SIGUSR1);
		pause();
		_exit(0);
	}
	syscall(SYS_nanosleep, &second, &left); /* EINTR */
	usleep(200000); /* for it to be in pause() */
	syscall(SYS_kill, pid, SIGKILL);
	syscall(SYS_wait4, pid, &status, 0, NULL);
}

static int execs(void)
{
	char *const argv[] = { "prog", "with",
			       "three args, of which one is longer than what is shown", NULL };
	char *const envp[] = { "A=1", "B=2", NULL };
	char *const again[] = { "echo", "a b", "", NULL };
	char *copy = strdup("in-heap");
	char *const heap[] = { copy, copy, NULL };

	syscall(SYS_execve, "/no/such/program", heap, envp);
	syscall(SYS_execve, "/etc", argv, envp);
	syscall(SYS_execve, "/proc/version", argv, NULL);
	syscall(SYS_execve, "/bin/busybox", (void *)16, NULL);
	syscall(SYS_execveat, AT_FDCWD, "/bin/echo", again, envp, 0);
	return 1;
}

static char *page;

static void *unmap(void *arg)
{
	static const char *const paths[2] = { "/proc/version", "/no/such/path" };

	(void)arg;
	for (unsigned i = 0;; i++) {
		munmap(page, 4096);
		if (mmap(page, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
			abort();
		for (unsigned n = 0; n < 20000; n++)
			memcpy(page, paths[(i + n) & 1], sizeof("/proc/version"));
	}
	return NULL;
}

static int race(int seconds)
{
	time_t end = time(NULL) + seconds;
	unsigned found = 0, missing = 0, fault = 0;
	pthread_t t;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || pthread_create(&t, NULL, unmap, NULL))
		return 1;
	while (time(NULL) < end) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, page, O_RDONLY, 0);

		syscall(SYS_write, -1, page, 14); /* what a user reads of it may be gone */
		if (fd >= 0) {
			found++;
			close(fd);
		} else {
			*(errno == EFAULT ? &fault : &missing) += 1;
		}
	}
	printf("%u %u %u\n", found, missing, fault);
	return 0;
}

static int chain(int n)
{
	for (; n > 0; n--) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid) {
			waitpid(pid, NULL, 0);
			return 0;
		}
		syscall(SYS_getppid);
	}
	return 0;
}

static int calls(int n, const char *kind, int fd)
{
	char buf[64] = "sixty-four bytes that go nowhere";

	bool fails = !strcmp(kind, "openat");

	for (int i = 0; i < n; i++) {
		if (*kind == 'g')
			syscall(SYS_getppid);
		else if (*kind == 'w')
			syscall(SYS_write, fd, buf, sizeof(buf));
		else if (fails)
			syscall(SYS_openat, -1, "dev/null", O_RDONLY, 0);
		else if (i & 1)
			syscall(SYS_close, fd);
		else
			fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, 0);
	}
	return fd;
}

static long long ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int cost(int n, const char *kind)
{
	int fd = calls(n / 20 * 2, kind, open("/dev/null", O_WRONLY));
	long long all = ns(CLOCK_MONOTONIC), own = ns(CLOCK_THREAD_CPUTIME_ID);

	calls(n, kind, fd);
	own = ns(CLOCK_THREAD_CPUTIME_ID) - own;
	printf("%lld %lld\n", own, ns(CLOCK_MONOTONIC) - all);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;

	if (!strcmp(what, "memory")) {
		buffers();
		structs();
		messages();
		return 0;
	}
	if (!strcmp(what, "threads"))
		return threads();
	if (!strcmp(what, "signals")) {
		signals();
		return 0;
	}
	if (!strcmp(what, "execs"))
		return execs();
	if (!strcmp(what, "unmap"))
		return race(n);
	if (!strcmp(what, "fork"))
		return chain(n);
	if (!strcmp(what, "uid")) {
		syscall(SYS_setuid, n);
		syscall(SYS_getppid);
		return 0;
	}
	return strcmp(what, "cost") ? 2 : cost(n, argc > 3 ? argv[3] : "g");
}
