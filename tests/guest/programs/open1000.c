// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a file exactly N times with openat(2) and does nothing else that opens: the yardstick for
 * "no record too many, none lost". Linked statically, so that no loader opens libraries.
 *
 *   open1000 [-w] [N [FILE]]    N is 1000, FILE /proc/version when not given
 *
 * Prints its pid first. With -w it then waits for SIGUSR1, so that a tracer can be set on the pid.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int wait_for_go(void)
{
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigwait(&set, &sig);
}

int main(int argc, char **argv)
{
	long n = 1000;
	const char *file = "/proc/version";
	int wait = argc > 1 && !strcmp(argv[1], "-w");
	sigset_t set;

	/* blocked before the pid is known to anyone: a signal that comes early is kept */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (argc > 1 + wait)
		n = strtol(argv[1 + wait], NULL, 10);
	if (argc > 2 + wait)
		file = argv[2 + wait];
	printf("%d\n", (int)getpid());
	fflush(stdout);
	if (wait && wait_for_go())
		return 2;
	for (long i = 0; i < n; i++) {
		long fd = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);

		if (fd < 0) {
			fprintf(stderr, "open1000: %s: %s\n", file, strerror(errno));
			return 1;
		}
		close((int)fd);
	}
	return 0;
}
