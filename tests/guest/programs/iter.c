// SPDX-License-Identifier: Apache-2.0
/*
 * The bench's work: N times open, read and close of a proc file, then stat of it.
 *
 *   iter [N [ROUNDS]]    prints one line a round: ns per iteration
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WORK_FILE "/proc/version"

static unsigned long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static int work(void)
{
	char buf[256];
	struct stat st;
	int fd = open(WORK_FILE, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, buf, sizeof(buf)) <= 0)
		return -1;
	close(fd);
	return stat(WORK_FILE, &st);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 10000;
	long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1;

	if (n < 1)
		return 2;
	for (long r = 0; r < rounds; r++) {
		unsigned long long t = now_ns();

		for (long i = 0; i < n; i++) {
			if (work()) {
				perror("iter: " WORK_FILE);
				return 1;
			}
		}
		printf("%llu\n", (now_ns() - t) / (unsigned long long)n);
		fflush(stdout);
	}
	return 0;
}
