// SPDX-License-Identifier: Apache-2.0
/* Starting QEMU. See cli_qemu.h. */
#include "api/cli_qemu.h"

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
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define QEMU     "qemu-system-x86_64"
#define MAX_ARGS 64

#define STOP_GRACE_NS (5 * NSEC_PER_SEC)
#define STOP_POLL_MS  100

struct args {
	char **list;
	size_t n;
	bool failed;
};

static void add(struct args *a, const char *fmt, ...) printf_like(2, 3);
static void add(struct args *a, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (a->n == MAX_ARGS || vasprintf(&text, fmt, ap) < 0)
		a->failed = true;
	else
		a->list[a->n++] = text;
	va_end(ap);
}

/* A file's name among QEMU's comma separated options, where a comma is written as two. */
static void add_drive(struct args *a, const char *path, const char *format)
{
	char escaped[2 * PATH_MAX];
	size_t n = 0;

	for (const char *c = path; *c && n + 2 < sizeof(escaped); c++) {
		if (*c == ',')
			escaped[n++] = ',';
		escaped[n++] = *c;
	}
	escaped[n] = 0;
	add(a, "-drive");
	add(a, "file=%s,format=%s,if=virtio", escaped, format);
}

/* Said to QEMU outright: letting it guess lets a guest that writes a raw disk choose the format. */
static const char *disk_format(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char magic[4] = { 0 };

	if (fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	    memcmp(magic, "QFI\xfb", sizeof(magic)) == 0)
		return "qcow2";
	return "raw";
}

static void add_machine(struct args *a, const struct qemu_opts *o)
{
	unsigned long long mib = (o->memory_bytes + (1 << 20) - 1) >> 20;

	add(a, "-name");
	add(a, "guest=%s", o->name);
	add(a, "-accel");
	add(a, o->kvm ? "kvm" : "tcg,thread=multi");
	add(a, "-cpu");
	add(a, o->kvm ? "host" : "max");
	add(a, "-smp");
	add(a, "%u", o->cpus);
	add(a, "-m");
	add(a, "%lluM", mib);
	/* shared, so that the daemon can map the guest's RAM */
	add(a, "-object");
	add(a, "memory-backend-memfd,id=ram,size=%lluM,share=on", mib);
	add(a, "-machine");
	add(a, "q35,memory-backend=ram");
}

char **qemu_args(const struct qemu_opts *o, const struct qemu_vm *vm)
{
	struct args a = { .list = calloc(MAX_ARGS + 1, sizeof(char *)) };
	const char *append = o->append ? o->append : "";

	if (!a.list)
		return NULL;
	add(&a, QEMU);
	add_machine(&a, o);
	add(&a, "-nodefaults");
	add(&a, "-no-user-config");
	add(&a, "-display");
	add(&a, "none");
	add(&a, "-kernel");
	add(&a, "%s", o->kernel);
	if (o->initrd) {
		add(&a, "-initrd");
		add(&a, "%s", o->initrd);
	}
	add(&a, "-append");
	add(&a, "%s%s%s", strstr(append, "console=") ? "" : "console=ttyS0",
	    *append && !strstr(append, "console=") ? " " : "", append);
	for (size_t i = 0; i < o->n_disks; i++)
		add_drive(&a, o->disks[i], disk_format(o->disks[i]));
	add(&a, "-chardev");
	add(&a, "file,id=console,path=%s", vm->console);
	add(&a, "-serial");
	add(&a, "chardev:console");
	add(&a, "-qmp");
	add(&a, "unix:%s,server=on,wait=off", vm->qmp);
	add(&a, "-pidfile");
	add(&a, "%s", vm->pidfile);
	add(&a, "-daemonize");
	if (a.failed) {
		qemu_args_free(a.list);
		return NULL;
	}
	return a.list;
}

void qemu_args_free(char **args)
{
	for (size_t i = 0; args && args[i]; i++)
		free(args[i]);
	free(args);
}

/* The folder: ours alone, in memory where there is such a place. */
static int make_dir(const char *name, struct qemu_vm *vm)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	struct err err = { 0 };

	if (runtime && *runtime == '/')
		snprintf(vm->dir, sizeof(vm->dir), "%.200s/hvftrace/guests/%s", runtime, name);
	else if (geteuid() == 0)
		snprintf(vm->dir, sizeof(vm->dir), "/run/hvftrace/guests/%s", name);
	else
		snprintf(vm->dir, sizeof(vm->dir), "/tmp/hvftrace-%u/guests/%s", geteuid(), name);
	snprintf(vm->qmp, sizeof(vm->qmp), "%s/qmp", vm->dir);
	snprintf(vm->console, sizeof(vm->console), "%s/console.log", vm->dir);
	snprintf(vm->pidfile, sizeof(vm->pidfile), "%s/pid", vm->dir);
	snprintf(vm->log, sizeof(vm->log), "%s/qemu.log", vm->dir);
	if (strlen(vm->qmp) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return cli_fail("%s is too long for a socket's path", vm->qmp);
	if (make_dirs(vm->dir, 0700, &err) < 0)
		return cli_fail("%s", err.msg);
	return CLI_OK;
}

/* The folder must be ours and closed to others: who could write there could direct the daemon. */
static int check_dir(const struct qemu_vm *vm)
{
	struct stat st;

	if (lstat(vm->dir, &st) < 0)
		return cli_fail("%s: %s", vm->dir, strerrordesc_np(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return cli_fail("%s does not belong to this user alone", vm->dir);
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

bool qemu_is_alive(const struct qemu_vm *vm)
{
	return vm->pid > 0 && (kill(vm->pid, 0) == 0 || errno == EPERM);
}

/* It is not our child: a descriptor tells when it has ended, and means no other process meanwhile. */
void qemu_stop(const struct qemu_vm *vm)
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

/* The last line that QEMU said, as the reason why it did not start. */
static int report(const struct qemu_vm *vm)
{
	_cleanup_fclose_ FILE *f = fopen(vm->log, "re");
	char line[400], last[400] = "";

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line)
			memcpy(last, line, sizeof(last));
	}
	return cli_fail("QEMU did not start: %s (run.qemu_failed)",
			*last ? last : "it said nothing");
}

/*
 * Wait until QEMU has put itself into the background. When its first process ends before, the one in the
 * background does, too: it cannot tell the first that it is ready (Qemu 7.2 os-posix.c os_setup_post()).
 */
static int wait_for_daemon(pid_t pid, const struct qemu_vm *vm,
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

static int spawn(char **args, const struct qemu_vm *vm, const volatile sig_atomic_t *interrupted)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int r;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, vm->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
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
		return cli_fail("cannot start %s: %s (run.no_qemu): install qemu-system-x86",
				args[0], strerrordesc_np(r));
	return wait_for_daemon(pid, vm, interrupted);
}

int qemu_start(const struct qemu_opts *o, const volatile sig_atomic_t *interrupted,
	       struct qemu_vm *ret)
{
	char **args;
	int status;

	*ret = (struct qemu_vm){ 0 };
	status = make_dir(o->name, ret);
	if (status == CLI_OK)
		status = check_dir(ret);
	if (status != CLI_OK)
		return status;
	ret->pid = read_pid(ret->pidfile);
	if (qemu_is_alive(ret))
		return cli_fail(
			"a guest %s runs already, pid %d (run.name_taken): choose another --name",
			o->name, (int)ret->pid);
	ret->pid = 0;
	unlink(ret->qmp);
	unlink(ret->pidfile);
	args = qemu_args(o, ret);
	if (!args)
		return cli_fail("out of memory");
	status = spawn(args, ret, interrupted);
	qemu_args_free(args);
	ret->pid = read_pid(ret->pidfile);
	if (status == CLI_OK && !ret->pid)
		status = *interrupted ? CLI_FAILED : report(ret);
	return status;
}
