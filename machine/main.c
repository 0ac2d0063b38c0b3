// SPDX-License-Identifier: Apache-2.0
/*
 * hvftrace-vmm: a guest in a process of its own, so that it outlives whoever traces it. Says one line
 * when the guest ends, and why.
 */
#include "machine/accel.h"
#include "machine/console.h"
#include "machine/control.h"
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
	sigaddset(&set, SPARE_SIGNAL);
	sigaddset(&set, DEBUG_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Orders are signals with a value; kill(2) has none: only who knows what it does gets something done. */
static bool is_order(struct machine *m, const struct signalfd_siginfo *info)
{
	bool queued = info->ssi_code == SI_QUEUE;

	if (info->ssi_signo == (u32)SPARE_SIGNAL) {
		if (queued)
			machine_lend(m, info->ssi_int == SPARE_LEND ? SPARE_LEND : SPARE_TAKE_BACK);
		return true;
	}
	if (info->ssi_signo == (u32)DEBUG_SIGNAL) {
		if (queued)
			debug_order(m, info->ssi_ptr);
		return true;
	}
	return false;
}

/* Wait until the guest ends, or a signal ends it. */
static void wait_for_end(struct machine *m, int signals)
{
	struct pollfd p[] = { { .fd = m->end_fd, .events = POLLIN },
			      { .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo info = { 0 };

	while (!p[0].revents) {
		if (poll(p, 2, debug_tick(m)) < 0 || !p[1].revents ||
		    read(signals, &info, sizeof(info)) != (ssize_t)sizeof(info) ||
		    is_order(m, &info))
			continue;
		machine_end(m, EXIT_GUEST_ENDED, "the guest was ended by signal %u (%s)",
			    info.ssi_signo, sigdescr_np((int)info.ssi_signo));
		return;
	}
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

static void say_lost(const struct machine *m)
{
	u64 n = output_lost();

	if (n)
		output_say("%llu bytes of the console's output were lost", (unsigned long long)n);
	for (u32 i = 0; i < m->n_nets; i++) {
		struct net_counters k = virtio_net_counters(&m->net[i]);

		if (k.rx_dropped || k.tx_dropped)
			output_say(
				"network card %u: %llu packets to the guest and %llu from it were "
				"dropped",
				i, (unsigned long long)k.rx_dropped,
				(unsigned long long)k.tx_dropped);
	}
}

static int start(struct machine *m, const struct options *o, struct console *console,
		 struct control *control, struct err *err)
{
	const struct sandbox s = { .vm = m->vm,
				   .reboot = !o->no_reboot,
				   .net = o->n_nets > 0,
				   .vsock = o->vsock.path != NULL };
	int rc = machine_start(m, err);

	if (!rc)
		rc = console_start(console, err);
	if (!rc)
		rc = control_start(control, m, err);
	return rc ? rc : sandbox_enter(&s, err);
}

/* Run the guest to its end. Return: exit status. */
static int run(struct machine *m, const struct options *o, struct control *control, int ready,
	       int signals)
{
	_cleanup_close_ int pidfile = -1;
	struct console console;
	struct err err = { 0 };
	int rc;

	rc = console_open(&console, o->input, machine_console(m), &err);
	if (!rc && o->pidfile)
		rc = write_pidfile(o->pidfile, &pidfile, &err);
	if (!rc)
		rc = start(m, o, &console, control, &err);
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
	machine_stop(m);
	console_close(&console);
	if (pidfile >= 0)
		(void)!ftruncate(pidfile, 0);
	output_flush();
	say_lost(m);
	control_tell(control, m->why);
	output_say("%s", m->why);
	return m->status;
}

static struct machine_config configure(const struct options *o, int out_fd, struct control *control)
{
	struct machine_config config = {
		.kernel = o->kernel,
		.protocol = o->protocol,
		.initrd = o->initrd,
		.cmdline = o->append ? o->append : "",
		.cpus = o->cpus,
		.memory_bytes = o->memory_bytes,
		.out_fd = out_fd,
		.n_disks = o->n_disks,
		.n_nets = o->n_nets,
		.vsock = o->vsock,
		.no_reboot = o->no_reboot,
		.lend = o->wait, /* what waits is traced from its first instruction on */
		.triple_fault_resets = o->triple_fault_resets,
		.tell = control_tell,
		.tell_arg = control,
	};
	struct accel_verdict accel;

	accel_probe(&accel);
	config.emulated = accel.insns_per_sec > 0 && !accel.use_kvm;
	memcpy(config.disk, o->disk, sizeof(config.disk));
	memcpy(config.net, o->net, sizeof(config.net));
	return config;
}

/* The console's output, and signals. */
static int open_files(const struct options *o, int *out_ret, int *signals_ret, struct err *err)
{
	int out = STDOUT_FILENO, rc;

	if (o->console)
		out = open(o->console, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	*signals_ret = open_signals();
	if (out < 0 || *signals_ret < 0)
		return err_set(err, -errno, ERR_IO, 0, "%s: %s",
			       o->console ? o->console : "signals", strerrordesc_np(errno));
	rc = output_open(out, out_ret, err);
	return rc ? rc : output_offer(err);
}

int main(int argc, char **argv)
{
	_cleanup_close_ int ready = -1;
	_cleanup_close_ int signals = -1;
	struct machine_config config;
	struct machine *m = NULL;
	struct control control;
	struct err err = { 0 };
	struct options o;
	int status, out_fd = -1;

	sandbox_prepare();
	status = options_parse(argc, argv, &o);
	if (status == -1 && o.daemonize)
		status = daemonize(&ready);
	if (status != -1)
		return status;
	if (open_files(&o, &out_fd, &signals, &err) < 0)
		return fail(&err);
	config = configure(&o, out_fd, &control);
	if (control_open(&control, o.control, &err) < 0 || machine_create(&config, &m, &err) < 0) {
		control_close(&control);
		return fail(&err);
	}
	status = run(m, &o, &control, ready, signals);
	/* it knows the machine: it ends first */
	control_close(&control);
	machine_destroy(m);
	return status;
}
