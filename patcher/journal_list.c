// SPDX-License-Identifier: Apache-2.0
/* Which journals there are. */
#include "patcher/journal.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* What journal_keep() had not finished when its daemon died. Whoever is at it holds the lock. */
static void remove_leftover(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		unlink(path);
}

/* guest-PID-START.journal */
static bool parse_name(const char *name, int *pid_ret, u64 *start_ret, bool *leftover_ret)
{
	char *end;
	long pid;

	if (strncmp(name, "guest-", 6) != 0)
		return false;
	pid = strtol(name + 6, &end, 10);
	if (pid <= 0 || pid > INT_MAX || *end != '-')
		return false;
	*pid_ret = (int)pid;
	*start_ret = strtoull(end + 1, &end, 10);
	*leftover_ret = !strcmp(end, ".journal" JOURNAL_NEW);
	return *leftover_ret || !strcmp(end, ".journal");
}

int journal_list(const char *state_dir,
		 void (*fn)(void *arg, pid_t pid, u64 start_time, const char *path), void *arg,
		 struct err *err)
{
	DIR *dir = opendir(state_dir);
	struct dirent *e;

	if (!dir) {
		if (errno == ENOENT)
			return 0;
		return err_set(err, -errno, ERR_JOURNAL, 0,
			       "cannot read the state directory %s: %s", state_dir,
			       strerror(errno));
	}
	while ((e = readdir(dir))) {
		char path[512];
		u64 start;
		bool leftover;
		int pid;

		if (!parse_name(e->d_name, &pid, &start, &leftover))
			continue;
		snprintf(path, sizeof(path), "%s/%s", state_dir, e->d_name);
		if (leftover)
			remove_leftover(path);
		else
			fn(arg, pid, start, path);
	}
	closedir(dir);
	return 0;
}
