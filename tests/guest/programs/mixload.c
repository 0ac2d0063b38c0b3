// SPDX-License-Identifier: Apache-2.0
/*
 * Load of many kinds at once, each checking its own results: fork storm, pipes, files, futexes,
 * timers, signals, loopback and unix sockets, memory mappings, tasks killed inside a system call.
 *
 *   mixload [SECONDS]
 *
 * Prints one line a kind with how often it went round, then "mixload: ok". Exit status 1 when any
 * kind saw a wrong result: a tracer that damages a register or a stack shows up here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static time_t deadline;

static int running(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec < deadline;
}

/* A value that a damaged register would hardly leave right. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	return x ^ (x >> 29);
}

static int reap(pid_t pid, int want)
{
	int st;

	if (waitpid(pid, &st, 0) != pid || !WIFEXITED(st))
		return -1;
	return WEXITSTATUS(st) == want ? 0 : -1;
}

/* Children that exit at once, that exec, and that are killed while they run. */
static int forks(void)
{
	static unsigned int n;
	int st, want = (int)(++n & 0x7f);
	pid_t pid = fork();

	if (pid < 0)
		return errno == EAGAIN ? 0 : -1;
	if (!pid)
		_exit(want);
	if (reap(pid, want))
		return -1;
	pid = fork();
	if (pid < 0)
		return errno == EAGAIN ? 0 : -1;
	if (!pid) {
		execl("/bin/busybox", "true", (char *)NULL);
		_exit(127);
	}
	if (reap(pid, 0))
		return -1;
	pid = fork();
	if (pid < 0)
		return errno == EAGAIN ? 0 : -1;
	if (!pid) {
		for (;;)
			getppid();
	}
	kill(pid, SIGKILL);
	return waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) ? 0 : -1;
}

static int pipes(void)
{
	static uint64_t seed = 1;
	int to[2], from[2], rc = 0;
	pid_t pid;

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		uint64_t v;

		close(to[1]);
		while (read(to[0], &v, sizeof(v)) == sizeof(v)) {
			v = mix(v);
			if (write(from[1], &v, sizeof(v)) != sizeof(v))
				_exit(1);
		}
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	for (int i = 0; pid > 0 && i < 200 && !rc; i++) {
		uint64_t v = seed++, got = 0;

		if (write(to[1], &v, sizeof(v)) != sizeof(v) ||
		    read(from[0], &got, sizeof(got)) != sizeof(got) || got != mix(v))
			rc = -1;
	}
	close(to[1]);
	close(from[0]);
	if (pid > 0 && reap(pid, 0))
		rc = -1;
	return rc;
}

static int files(void)
{
	static unsigned int n;
	char a[64], b[64], buf[4096], got[4096];
	struct stat st;
	int fd, rc = -1;

	snprintf(a, sizeof(a), "/tmp/mixload.%d.%u", (int)getpid(), n);
	snprintf(b, sizeof(b), "/tmp/mixload.%d.%u.new", (int)getpid(), n++);
	memset(buf, (int)(n & 0xff), sizeof(buf));
	fd = open(a, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if (write(fd, buf, sizeof(buf)) == (ssize_t)sizeof(buf) && !fsync(fd) && !rename(a, b) &&
	    pread(fd, got, sizeof(got), 0) == (ssize_t)sizeof(got) &&
	    !memcmp(buf, got, sizeof(buf)) && !stat(b, &st) && st.st_size == (off_t)sizeof(buf) &&
	    stat(a, &st) && errno == ENOENT)
		rc = 0;
	close(fd);
	unlink(a);
	unlink(b);
	return rc;
}

static long futex(uint32_t *word, int op, uint32_t val)
{
	static const struct timespec limit = { .tv_sec = 20, .tv_nsec = 0 };

	return syscall(SYS_futex, word, op, val, &limit, NULL, 0);
}

/* Two processes hand a word to and fro; whose turn it is says its lowest bit. */
static int futexes(void)
{
	uint32_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc = 0;
	pid_t pid;

	if (word == MAP_FAILED)
		return -1;
	pid = fork();
	if (pid < 0) {
		munmap(word, 4096);
		return 0;
	}
	for (uint32_t me = !pid, i = 0; i < 100 && !rc; i++) {
		uint32_t v;

		while (((v = __atomic_load_n(word, __ATOMIC_ACQUIRE)) & 1) != me)
			if (futex(word, FUTEX_WAIT, v) && errno != EAGAIN && errno != EINTR) {
				rc = -1;
				break;
			}
		__atomic_store_n(word, v + 1, __ATOMIC_RELEASE);
		futex(word, FUTEX_WAKE, INT_MAX);
	}
	if (!pid)
		_exit(rc ? 1 : 0);
	if (reap(pid, 0) || *word != 200)
		rc = -1;
	munmap(word, 4096);
	return rc;
}

static volatile sig_atomic_t got_signals;

static void on_signal(int sig)
{
	(void)sig;
	got_signals++;
}

static int signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	int before;

	sigaction(SIGUSR2, &sa, NULL);
	before = got_signals;
	for (int i = 0; i < 100; i++)
		kill(getpid(), SIGUSR2);
	return got_signals == before + 100 ? 0 : -1;
}

static int timers(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct itimerval it = { .it_value = { .tv_usec = 2000 },
				.it_interval = { .tv_usec = 2000 } };
	struct itimerval off = { 0 };
	struct timespec nap = { .tv_nsec = 1000000 }, long_nap = { .tv_sec = 10 };

	sigaction(SIGALRM, &sa, NULL);
	if (nanosleep(&nap, NULL) && errno != EINTR)
		return -1;
	/* an alarm must cut the long nap short; they repeat as the first may come before the nap */
	if (setitimer(ITIMER_REAL, &it, NULL) || !nanosleep(&long_nap, NULL) || errno != EINTR)
		return -1;
	return setitimer(ITIMER_REAL, &off, NULL);
}

static int echo(int client, int server)
{
	for (uint64_t i = 0; i < 50; i++) {
		uint64_t v = mix(i), got = 0;

		if (send(client, &v, sizeof(v), MSG_NOSIGNAL) != sizeof(v) ||
		    recv(server, &got, sizeof(got), MSG_WAITALL) != sizeof(got) || got != v)
			return -1;
	}
	return 0;
}

static int tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	struct linger hard = { .l_onoff = 1, .l_linger = 0 };
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s = -1, rc = -1;

	if (l >= 0 && c >= 0 && !bind(l, (struct sockaddr *)&a, sizeof(a)) && !listen(l, 1) &&
	    !getsockname(l, (struct sockaddr *)&a, &len) &&
	    !connect(c, (struct sockaddr *)&a, sizeof(a)))
		s = accept(l, NULL, NULL);
	if (s >= 0) {
		/* reset at close: a thousand rounds must not fill the table with TIME_WAIT */
		setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		rc = echo(c, s);
		close(c);
		c = -1;
		close(s);
	}
	if (c >= 0)
		close(c);
	if (l >= 0)
		close(l);
	return rc;
}

static int unixsock(void)
{
	int p[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p))
		return -1;
	rc = echo(p[0], p[1]);
	close(p[0]);
	close(p[1]);
	return rc;
}

static int maps(void)
{
	size_t len = 64 * 4096;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = 0;

	if (p == MAP_FAILED)
		return -1;
	for (size_t i = 0; i < len; i += 4096)
		p[i] = (char)(i >> 12);
	if (mprotect(p, len / 2, PROT_READ))
		rc = -1;
	for (size_t i = 0; i < len; i += 4096)
		if (p[i] != (char)(i >> 12))
			rc = -1;
	munmap(p, len);
	return rc;
}

/* A child that sleeps in the kernel, in one call or another, killed there. */
static int kills(void)
{
	static unsigned int n;
	unsigned int how = n++ % 4;
	struct timespec nap = { .tv_nsec = 500000 };
	int p[2], st;
	uint32_t word = 0;
	char c;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		if (how == 0 && read(p[0], &c, 1))
			_exit(1);
		if (how == 1)
			pause();
		if (how == 2)
			sleep(1000);
		for (;;)
			futex(&word, FUTEX_WAIT, 0);
	}
	nanosleep(&nap, NULL);
	if (pid > 0)
		kill(pid, SIGKILL);
	close(p[0]);
	close(p[1]);
	if (pid < 0)
		return errno == EAGAIN ? 0 : -1;
	return waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) ? 0 : -1;
}

static const struct kind {
	const char *name;
	int (*once)(void);
} kinds[] = {
	{ "forks", forks },     { "pipes", pipes },   { "files", files }, { "futexes", futexes },
	{ "signals", signals }, { "timers", timers }, { "tcp", tcp },     { "unix", unixsock },
	{ "maps", maps },       { "kills", kills },
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void run(const struct kind *k)
{
	unsigned long n = 0;

	while (running()) {
		if (k->once()) {
			fprintf(stderr, "mixload: %s: wrong result in round %lu: %s\n", k->name, n,
				strerror(errno));
			exit(1);
		}
		n++;
	}
	printf("%s %lu\n", k->name, n);
	fflush(stdout);
	exit(n ? 0 : 1);
}

int main(int argc, char **argv)
{
	struct timespec t;
	pid_t pids[N_KINDS];
	int bad = 0;

	clock_gettime(CLOCK_MONOTONIC, &t);
	deadline = t.tv_sec + (argc > 1 ? strtol(argv[1], NULL, 10) : 10);
	for (size_t i = 0; i < N_KINDS; i++) {
		pids[i] = fork();
		if (!pids[i])
			run(&kinds[i]);
	}
	for (size_t i = 0; i < N_KINDS; i++)
		if (pids[i] < 0 || reap(pids[i], 0)) {
			fprintf(stderr, "mixload: %s failed\n", kinds[i].name);
			bad = 1;
		}
	puts(bad ? "mixload: failed" : "mixload: ok");
	return bad;
}
