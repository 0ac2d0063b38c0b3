// SPDX-License-Identifier: Apache-2.0
/*
 * hvftrace-vmm: a guest in a process of its own, so that it outlives whoever traces it. Says one line
 * when the guest ends, and why.
 */
#include "machine/accel.h"
#include "machine/console.h"
#include "machine/machine.h"
#include "machine/options.h"
#include "machine/output.h"
#include "machine/sandbox.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

static int fail(const struct err *err)
{
	fprintf(stderr, "hvftrace-vmm: %s\n", err->msg);
	return EXIT_CANNOT_START;
}

/* Everything that ends us in order comes through a descriptor. Before any thread is started. */
static int open_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Wait until the guest ends, or a signal ends it. */
static void wait_for_end(struct machine *m, int signals)
{
	struct pollfd p[] = { { .fd = m->end_fd, .events = POLLIN },
			      { .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo info;

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (p[1].revents && read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		machine_end(m, EXIT_GUEST_ENDED, "the guest was ended by signal %u (%s)",
			    info.ssi_signo, sigdescr_np((int)info.ssi_signo));
}

/* It stays open: at the end it is emptied, as files cannot be removed any more by then. */
static int write_pidfile(const char *path, int *fd_ret, struct err *err)
{
	_cleanup_close_ int fd =
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		return err_set(err, -errno, ERR_IO, 0, "--pidfile %s: %s", path,
			       strerrordesc_np(errno));
	*fd_ret = no_cleanup_fd(fd);
	return 0;
}

/* The parent returns its exit status once the child says that the guest runs, or ends; the child -1. */
static int daemonize(int *ready_ret)
{
	int ready[2], devnull;
	ssize_t n;
	char byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		fprintf(stderr, "hvftrace-vmm: %s\n", strerrordesc_np(errno));
		return EXIT_CANNOT_START;
	}
	if (pid > 0) {
		close(ready[1]);
		do {
			n = read(ready[0], &byte, 1);
		} while (n < 0 && errno == EINTR);
		return n == 1 ? EXIT_GUEST_ENDED : EXIT_CANNOT_START;
	}
	close(ready[0]);
	setsid();
	devnull = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (devnull >= 0) {
		dup2(devnull, STDIN_FILENO);
		dup2(devnull, STDOUT_FILENO);
		close(devnull);
	}
	*ready_ret = ready[1];
	return -1;
}

/* Run the guest to its end. Return: exit status. */
static int run(struct machine *m, const struct options *o, int ready, int signals)
{
	_cleanup_close_ int pidfile = -1;
	struct console console;
	struct err err = { 0 };
	int rc;

	rc = console_open(&console, o->input, machine_console(m), &err);
	if (!rc && o->pidfile)
		rc = write_pidfile(o->pidfile, &pidfile, &err);
	if (!rc)
		rc = machine_start(m, &err);
	if (!rc)
		rc = console_start(&console, &err);
	if (!rc)
		rc = sandbox_enter(&err);
	if (rc) {
		console_close(&console);
		return fail(&err);
	}
	/* who started us and went away meanwhile does not want the guest */
	if (ready >= 0 && write(ready, "1", 1) != 1)
		machine_end(m, EXIT_CANNOT_START, "nobody waits for the guest any more");
	if (o->wait)
		raise(SIGSTOP); /* whoever wants it held sends SIGCONT */
	machine_go(m);
	wait_for_end(m, signals);
	console_close(&console);
	if (pidfile >= 0)
		(void)!ftruncate(pidfile, 0);
	fprintf(stderr, "hvftrace-vmm: %s\n", m->why);
	return m->status;
}

int main(int argc, char **argv)
{
	_cleanup_close_ int ready = -1;
	_cleanup_close_ int signals = -1;
	struct machine_config config;
	struct accel_verdict accel;
	struct machine *m = NULL;
	struct err err = { 0 };
	struct options o;
	struct stat st;
	int status;

	status = options_parse(argc, argv, &o);
	if (status == -1 && o.daemonize)
		status = daemonize(&ready);
	if (status != -1)
		return status;
	accel_probe(&accel);
	config = (struct machine_config){
		.kernel = o.kernel,
		.initrd = o.initrd,
		.cmdline = o.append ? o.append : "",
		.cpus = o.cpus,
		.memory_bytes = o.memory_bytes,
		.out_fd = STDOUT_FILENO,
		.emulated = accel.insns_per_sec > 0 && !accel.use_kvm,
	};
	memcpy(config.disk, o.disk, sizeof(config.disk));
	config.n_disks = o.n_disks;
	if (o.console)
		config.out_fd = open(o.console, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (config.out_fd >= 0 && fstat(config.out_fd, &st) == 0 && S_ISREG(st.st_mode))
		output_limit(OUTPUT_FILE_MAX);
	signals = open_signals();
	if (config.out_fd < 0 || signals < 0) {
		(void)err_set(&err, -errno, ERR_IO, 0, "%s: %s", o.console ? o.console : "signals",
			      strerrordesc_np(errno));
		return fail(&err);
	}
	if (machine_create(&config, &m, &err) < 0)
		return fail(&err);
	status = run(m, &o, ready, signals);
	machine_destroy(m);
	return status;
}
