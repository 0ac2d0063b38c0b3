// SPDX-License-Identifier: Apache-2.0
/* A guest's VMM as a process: its folder, its start, its end. See cli_vmm.h. */
#include "api/cli_vmm.h"

#include "api/cli.h"
#include "api/listen.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define STOP_GRACE_NS (5 * NSEC_PER_SEC)
#define STOP_POLL_MS  100
#define LOCK_NS       (100 * NSEC_PER_MSEC) /* vmm_find() lets go of the lock by then */
#define LOCK_STEP_NS  (5 * (long)NSEC_PER_MSEC)

void vmm_arg(struct vmm_args *a, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (a->n == VMM_MAX_ARGS || vasprintf(&text, fmt, ap) < 0)
		a->failed = true;
	else
		a->list[a->n++] = text;
	va_end(ap);
}

void vmm_boot_args(struct vmm_args *a, const char *dash, const struct run_opts *o)
{
	const char *append = o->append ? o->append : "";
	bool console = strstr(append, "console=");

	vmm_arg(a, "%skernel", dash);
	vmm_arg(a, "%s", o->kernel);
	if (o->initrd) {
		vmm_arg(a, "%sinitrd", dash);
		vmm_arg(a, "%s", o->initrd);
	}
	vmm_arg(a, "%sappend", dash);
	vmm_arg(a, "%s%s%s", console ? "" : "console=ttyS0", *append && !console ? " " : "",
		append);
}

static void args_deinit(struct vmm_args *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->list[i]);
}

/* Does it belong to this user alone? Who could write there could direct the daemon. */
static bool is_ours(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

/* The folder: ours alone, in memory where there is such a place. And what is in it. */
static void name_files(const char *name, struct guest_vmm *vm)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	/* another user's, which sudo or su may have left in the environment, is not for us */
	if (runtime && *runtime == '/' && is_ours(runtime))
		snprintf(vm->dir, sizeof(vm->dir), "%.200s/hvftrace/guests/%s", runtime, name);
	else if (geteuid() == 0)
		snprintf(vm->dir, sizeof(vm->dir), "/run/hvftrace/guests/%s", name);
	else
		snprintf(vm->dir, sizeof(vm->dir), "/tmp/hvftrace-%u/guests/%s", geteuid(), name);
	snprintf(vm->socket, sizeof(vm->socket), "%s/%s", vm->dir, vm->kind->socket);
	snprintf(vm->console, sizeof(vm->console), "%s/console.log", vm->dir);
	snprintf(vm->pidfile, sizeof(vm->pidfile), "%s/pid", vm->dir);
	snprintf(vm->log, sizeof(vm->log), "%s/vmm.log", vm->dir);
	snprintf(vm->control, sizeof(vm->control), "%s/control", vm->dir);
}

static int make_dir(const char *name, struct guest_vmm *vm)
{
	struct err err = { 0 };

	name_files(name, vm);
	if (strlen(vm->socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return cli_fail("%s is too long for a socket's path", vm->socket);
	if (make_dirs(vm->dir, 0700, &err) < 0)
		return cli_fail("%s", err.msg);
	return CLI_OK;
}

/* The folder and the two above it, ".../hvftrace/guests/NAME". */
static int check_dir(const struct guest_vmm *vm)
{
	char path[sizeof(vm->dir)];

	snprintf(path, sizeof(path), "%s", vm->dir);
	for (int i = 0; i < 3; i++) {
		if (!is_ours(path))
			return cli_fail("%s does not belong to this user alone", path);
		*strrchr(path, '/') = 0;
	}
	return CLI_OK;
}

/* 0 when there is none. */
static pid_t read_pid(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[24] = "", *end;
	long pid;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return 0;
	pid = strtol(text, &end, 10);
	return end > text && pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

bool vmm_is_alive(const struct guest_vmm *vm)
{
	return vm->pid > 0 && (kill(vm->pid, 0) == 0 || errno == EPERM);
}

/* It is not our child: a descriptor tells when it has ended, and means no other process meanwhile. */
void vmm_stop(const struct guest_vmm *vm)
{
	_cleanup_close_ int fd = vm->pid > 0 ? pidfd_open(vm->pid, 0) : -1;
	struct pollfd ended = { .fd = fd, .events = POLLIN };
	static const int signals[] = { SIGTERM, SIGKILL };

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(signals); i++) {
		u64 end = monotonic_ns() + STOP_GRACE_NS;

		if (pidfd_send_signal(fd, signals[i], NULL, 0) < 0)
			return;
		/* a signal of ours may come while we wait */
		while (monotonic_ns() < end) {
			if (poll(&ended, 1, STOP_POLL_MS) > 0)
				return;
		}
	}
}

void vmm_last_words(const struct guest_vmm *vm, char *buf, size_t cap)
{
	_cleanup_fclose_ FILE *f = fopen(vm->log, "re");
	char line[400];

	snprintf(buf, cap, "it said nothing");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line)
			snprintf(buf, cap, "%s", line);
	}
}

static int report(const struct guest_vmm *vm)
{
	char why[400];

	vmm_last_words(vm, why, sizeof(why));
	return cli_fail("%s did not start: %s (%s)", vm->kind->name, why, vm->kind->failed);
}

/*
 * Wait until it has put itself into the background. When its first process ends before, the one in the
 * background does, too: it cannot tell the first that it is ready (Qemu 7.2 os-posix.c os_setup_post(), and ours).
 */
static int wait_for_daemon(pid_t pid, const struct guest_vmm *vm,
			   const volatile sig_atomic_t *interrupted)
{
	const struct timespec step = { .tv_nsec = 10 * (long)NSEC_PER_MSEC };
	bool told = false;
	int r, status;

	for (;;) {
		r = waitpid(pid, &status, WNOHANG);
		if (r < 0 && errno != EINTR)
			return cli_fail("waitpid: %s", strerrordesc_np(errno));
		if (r > 0)
			break;
		if (*interrupted && !told) {
			kill(-pid, SIGTERM);
			told = true;
		}
		nanosleep(&step, NULL);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return CLI_OK;
	return *interrupted ? CLI_FAILED : report(vm);
}

static int spawn(char **args, const struct guest_vmm *vm, const volatile sig_atomic_t *interrupted)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int r;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, vm->log,
					 O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	/* a group of its own: Ctrl-C is for us, and we end it in order */
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	r = posix_spawnp(&pid, args[0], &files, &attr, args, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (r)
		return cli_fail("cannot start %s: %s (%s): %s", args[0], strerrordesc_np(r),
				vm->kind->missing, vm->kind->remedy);
	return wait_for_daemon(pid, vm, interrupted);
}

/* Whoever only looks whether the guest runs holds it for a moment. Return: 0, -1 with errno. */
static int take_lock(int fd)
{
	const struct timespec step = { .tv_nsec = LOCK_STEP_NS };
	u64 end = monotonic_ns() + LOCK_NS;
	int r;

	while ((r = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK &&
	       monotonic_ns() < end)
		nanosleep(&step, NULL);
	return r;
}

/*
 * Of all guests of one name one runs. The VMM inherits the lock, so it lasts as long as that, whatever pid
 * files say.
 */
static int lock_dir(const struct guest_vmm *vm, const char *name, int *fd_ret)
{
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/lock", vm->dir);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_fail("%s: %s", path, strerrordesc_np(errno));
	if (take_lock(fd) < 0) {
		pid_t pid = read_pid(vm->pidfile);

		if (!pid)
			return cli_fail("a guest %s is being started already (run.name_taken): "
					"choose another --name",
					name);
		return cli_fail("a guest %s runs already, pid %d (run.name_taken): choose another "
				"--name",
				name, (int)pid);
	}
	*fd_ret = no_cleanup_fd(fd);
	return CLI_OK;
}

/* May the VMM's process have it, too? */
static bool inherit(int fd)
{
	return fd < 0 || fcntl(fd, F_SETFD, 0) == 0;
}

/* With what it is to inherit: the lock, its end of the console's pipe, and the memory that others find that in. */
static int start_locked(const struct run_opts *o, const volatile sig_atomic_t *interrupted,
			struct guest_vmm *vm, int lock)
{
	_cleanup_close_ int console = -1, offered = -1;
	struct vmm_args args = { .n = 0 };
	int status;

	unlink(vm->socket);
	unlink(vm->control);
	unlink(vm->pidfile);
	if (vm->kind->needs_drain) {
		status = console_drain(vm->console, &console, &offered);
		if (status != CLI_OK)
			return status;
	}
	vm->console_fd = console;
	if (!inherit(lock) || !inherit(console) || !inherit(offered))
		return cli_fail("fcntl: %s", strerrordesc_np(errno));
	vm->kind->args(&args, o, vm);
	status = args.failed ? cli_fail("out of memory") : spawn(args.list, vm, interrupted);
	args_deinit(&args);
	vm->console_fd = -1;
	vm->pid = read_pid(vm->pidfile);
	if (status == CLI_OK && !vm->pid)
		status = *interrupted ? CLI_FAILED : report(vm);
	/* one that did not start may have left it: nobody is to be taken for it */
	if (status != CLI_OK && !*interrupted) {
		unlink(vm->pidfile);
		vm->pid = 0;
	}
	return status;
}

bool vmm_is_own(const char *name)
{
	struct guest_vmm vm = { .kind = &vmm_own };

	name_files(name, &vm);
	return is_ours(vm.dir);
}

int vmm_find(const char *name, struct guest_vmm *ret)
{
	_cleanup_close_ int fd = -1;
	char lock[PATH_MAX];

	*ret = (struct guest_vmm){ .kind = &vmm_own, .console_fd = -1 };
	name_files(name, ret);
	if (!is_ours(ret->dir))
		return cli_fail(
			"this user has run no guest %s here, nor is one attached (run.not_found): "
			"hvftrace ls shows those that are",
			name);
	snprintf(lock, sizeof(lock), "%s/lock", ret->dir);
	fd = open(lock, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	/* whoever runs has it */
	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		ret->pid = read_pid(ret->pidfile);
	return CLI_OK;
}

int vmm_start(const struct vmm_kind *kind, const struct run_opts *o,
	      const volatile sig_atomic_t *interrupted, struct guest_vmm *ret)
{
	_cleanup_close_ int lock = -1;
	int status;

	*ret = (struct guest_vmm){ .kind = kind, .console_fd = -1 };
	status = make_dir(o->name, ret);
	if (status == CLI_OK)
		status = check_dir(ret);
	if (status == CLI_OK)
		status = lock_dir(ret, o->name, &lock);
	if (status == CLI_OK)
		status = start_locked(o, interrupted, ret, lock);
	if (kind->by_pid)
		snprintf(ret->target, sizeof(ret->target), "pid:%d", (int)ret->pid);
	else
		snprintf(ret->target, sizeof(ret->target), "qemu:%s", ret->socket);
	return status;
}
