// SPDX-License-Identifier: Apache-2.0
/* Guests that may come back with an agent in them. See left.h. */
#define LOG_PREFIX "recover"
#include "patcher/left.h"

#include "base/cleanup.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PREFIX     "saved-"
#define SUFFIX     ".target"
#define TARGET_MAX 128u

static void path_of(const char *state_dir, const char *target, char path[PATH_MAX])
{
	unsigned long crc = crc32(0, (const Bytef *)target, (uInt)strlen(target));

	snprintf(path, PATH_MAX, "%s/" PREFIX "%08lx" SUFFIX, state_dir, crc);
}

bool left_note_target(const char *state_dir, const char *target)
{
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];
	ssize_t n = (ssize_t)strlen(target);

	path_of(state_dir, target, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, target, (size_t)n) != n || fdatasync(fd)) {
		log_error("%s: its memory may have an agent, and no note of that could be made: %s",
			  target, strerror(errno));
		return false;
	}
	log_info("%s: its memory may have an agent of another time; looked at later", target);
	return true;
}

void left_note(const struct guest *g)
{
	(void)left_note_target(g->state_dir, g->target);
}

void left_settled(const struct guest *g)
{
	char path[PATH_MAX];

	path_of(g->state_dir, g->target, path);
	unlink(path);
}

void left_note_at_end(struct guest *g)
{
	enum vm_end end = g->noted ? VM_END_GONE : vm_end(g->vm);

	/* what is in a snapshot was not put there by this trace only */
	if (end == VM_END_GONE || (end == VM_END_SAVED && !journal_outstanding(g->journal)))
		return;
	left_note(g);
	g->noted = true;
}

static bool is_note(const char *name)
{
	size_t len = strlen(name);

	return len > strlen(PREFIX SUFFIX) && strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
	       strcmp(name + len - strlen(SUFFIX), SUFFIX) == 0;
}

bool left_any(const char *state_dir)
{
	DIR *dir = opendir(state_dir);
	bool any = false;
	struct dirent *e;

	while (dir && !any && (e = readdir(dir)))
		any = is_note(e->d_name);
	if (dir)
		closedir(dir);
	return any;
}

/* Has it nothing any more that could come back, or has somebody taken it out who attached it? */
static bool is_settled(enum err_code code)
{
	switch (code) {
	case ERR_TARGET_SYNTAX:
	case ERR_TARGET_NO_DOMAIN:
	case ERR_TARGET_NO_SOCKET:
	case ERR_TARGET_NO_PROCESS:
	case ERR_TARGET_SEALED:
	case ERR_GUEST_ATTACHED:
	case ERR_GUEST_FIRMWARE: /* it boots */
	case ERR_GUEST_NOT_LINUX:
		return true;
	default:
		return false;
	}
}

/* true: that was it. */
static bool look_at(const char *state_dir, const char *target)
{
	const struct guest_opts opts = { .state_dir = state_dir };
	struct err err = { 0 };
	struct guest *g;

	if (guest_attach(target, &opts, &g, &err)) {
		log_debug("%s: %s", target, err.msg);
		return is_settled(err.code);
	}
	if (guest_detach(g, NULL, &err)) { /* the journal has it now */
		log_error("%s: %s", target, err.msg);
		return true;
	}
	log_info("%s: runs again; nothing of an agent is in it", target);
	return true;
}

void left_look(const char *state_dir)
{
	DIR *dir = opendir(state_dir);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char target[TARGET_MAX + 1] = "", path[PATH_MAX];
		_cleanup_close_ int fd = -1;

		if (!is_note(e->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", state_dir, e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, target, TARGET_MAX) <= 0 || look_at(state_dir, target))
			unlink(path);
	}
	if (dir)
		closedir(dir);
}
