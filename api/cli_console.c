// SPDX-License-Identifier: Apache-2.0
/* A process between QEMU and the file of a guest's console. See cli_vmm.h. */
#include "api/cli.h"
#include "api/cli_vmm.h"
#include "base/cleanup.h"
#include "base/console_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define CONSOLE_MAX (64ull << 20) /* as OUTPUT_FILE_MAX of our own VMM */

/* Until nobody has the other end any more: QEMU ended. */
static void copy(int from, int to, struct console_ring *ring)
{
	u64 left = CONSOLE_MAX;
	u8 buf[16384];

	for (;;) {
		ssize_t n = read(from, buf, sizeof(buf)), done = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		console_ring_put(ring, buf, (size_t)n);
		n = (ssize_t)MIN((u64)n, left);
		while (done < n) {
			ssize_t did = write(to, buf + done, (size_t)(n - done));

			if (did < 0 && errno == EINTR)
				continue;
			if (did <= 0)
				break; /* no room: lost, and the next may find some */
			done += did;
		}
		left -= (u64)n;
	}
}

/* In a session of its own, with nothing of ours that somebody may wait for the end of. */
static void drain(int from, int to, struct console_ring *ring)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		signal(signals[i], i ? SIG_DFL : SIG_IGN);
	if (null < 0)
		_exit(1);
	(void)dup2(null, STDERR_FILENO);
	/* from and to are the first two that stay; all others go */
	from = fcntl(from, F_DUPFD_CLOEXEC, 512);
	to = fcntl(to, F_DUPFD_CLOEXEC, 512);
	if (from < 0 || to < 0 || dup2(from, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0)
		_exit(1);
	(void)close_range(3, ~0u, 0);
	copy(STDIN_FILENO, STDOUT_FILENO, ring);
	_exit(0);
}

int console_drain(const char *path, int *fd_ret, int *offered_ret)
{
	_cleanup_close_ int file =
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	_cleanup_close_ int from = -1, offered = -1;
	struct console_ring ring;
	struct err err = { 0 };
	int ends[2];
	pid_t pid;

	if (file < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return cli_fail("%s: %s", path, strerrordesc_np(errno));
	from = ends[0];
	if (console_ring_create(&ring, &offered, &err) < 0) {
		close(ends[1]);
		return cli_fail("%s", err.msg);
	}
	pid = fork();
	if (pid == 0)
		drain(from, file, &ring);
	console_ring_deinit(&ring);
	if (pid < 0) {
		close(ends[1]);
		return cli_fail("fork: %s", strerrordesc_np(errno));
	}
	*fd_ret = ends[1];
	*offered_ret = no_cleanup_fd(offered);
	return CLI_OK;
}
