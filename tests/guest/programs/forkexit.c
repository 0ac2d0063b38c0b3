// SPDX-License-Identifier: Apache-2.0
/*
 * Forks children that exit at once, one after another: each ends inside do_exit().
 *
 *   forkexit N
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;

	for (long i = 0; i < n; i++) {
		pid_t pid = fork();
		int st;

		if (!pid)
			syscall(SYS_exit_group, (int)(i & 0x7f));
		if (pid < 0 || waitpid(pid, &st, 0) != pid || !WIFEXITED(st) ||
		    WEXITSTATUS(st) != (i & 0x7f)) {
			fprintf(stderr, "forkexit: child %ld went wrong\n", i);
			return 1;
		}
	}
	puts("forkexit: ok");
	return 0;
}
