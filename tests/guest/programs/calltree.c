// SPDX-License-Identifier: Apache-2.0
/*
 * The same few system calls again and again, on one CPU, each round between two markers: for the
 * call trees of two tracers to be compared.
 *
 *   calltree [ROUNDS]
 *
 * Prints its pid, then waits for SIGUSR1. getppid() begins a round, getpgid() ends it.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static int round_of_calls(int fd, const int *p)
{
	struct stat st;
	struct utsname u;
	char buf[64];
	int d;

	if (fstat(fd, &st) || lseek(fd, 0, SEEK_SET) || uname(&u))
		return -1;
	d = dup(fd);
	if (d < 0 || close(d))
		return -1;
	if (write(p[1], "hello", 5) != 5 || read(p[0], buf, sizeof(buf)) != 5)
		return -1;
	if (!getcwd(buf, sizeof(buf)) || stat("/dev/null", &st) || access("/nowhere", R_OK) != -1)
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 10;
	int fd = open("/proc/version", O_RDONLY | O_CLOEXEC), p[2], sig;
	sigset_t set;
	cpu_set_t cpu;
	const struct sched_param first = { .sched_priority = 99 };

	/* a kernel that may be preempted anywhere shall have no reason to */
	if (argc > 2 && sched_setscheduler(0, SCHED_FIFO, &first))
		return 1;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu) || fd < 0 || pipe2(p, O_CLOEXEC))
		return 1;
	printf("%d\n", (int)getpid());
	fflush(stdout);
	/* what is slow the first time is done before anybody looks */
	for (int i = 0; i < 20; i++)
		if (round_of_calls(fd, p))
			return 1;
	if (sigwait(&set, &sig))
		return 2;
	for (long i = 0; i < rounds; i++) {
		syscall(SYS_getppid);
		if (round_of_calls(fd, p))
			return 1;
		syscall(SYS_getpgid, 0);
	}
	return 0;
}
