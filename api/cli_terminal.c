// SPDX-License-Identifier: Apache-2.0
/* The verb console: what a guest of `hvftrace run` says, and what is typed to it. */
#include "api/cli_terminal.h"
#include "api/cli_vmm.h"
#include "api/names.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#define SHOWN_BEFORE (32 << 10) /* bytes of what it said before we came */
#define LOOK_MS      50 /* a file does not tell that it grew */

struct terminal {
	int file; /* what the guest says */
	int input; /* what it receives; -1: nothing */
	int ended; /* pidfd of its VMM; -1: it does not run */
	bool typing; /* standard input is not at its end */
	struct terminal_keys keys;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int open_input(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(addr.sun_path))
		return -1;
	memcpy(addr.sun_path, path, strlen(path) + 1);
	return connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -1 : no_cleanup_fd(fd);
}

/* The last of what it said, from the beginning of a line on. */
static void go_near_end(int fd)
{
	struct stat st;
	char c = 0;

	if (fstat(fd, &st) < 0 || st.st_size <= SHOWN_BEFORE ||
	    lseek(fd, st.st_size - SHOWN_BEFORE, SEEK_SET) < 0)
		return;
	for (int i = 0; i < 256 && c != '\n'; i++) {
		if (read(fd, &c, 1) != 1)
			return;
	}
}

bool terminal_write(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t did = write(fd, p, n);

		if (did < 0 && errno == EINTR && !interrupted)
			continue;
		if (did <= 0)
			return false;
		p += did;
		n -= (size_t)did;
	}
	return true;
}

/* All that is new. Return: false when nobody takes it. */
static bool show(const struct terminal *t)
{
	char buf[16384];
	ssize_t n;

	while ((n = read(t->file, buf, sizeof(buf))) > 0) {
		if (!terminal_write(STDOUT_FILENO, buf, (size_t)n))
			return false;
	}
	return true;
}

/* Return: false to leave. */
static bool pass_keys(struct terminal *t)
{
	char buf[4096], *leave;
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	t->typing = n > 0;
	if (n <= 0)
		return !t->keys.raw; /* a terminal that hung up */
	leave = t->keys.raw ? memchr(buf, TERMINAL_LEAVE, (size_t)n) : NULL;
	if (leave)
		n = leave - buf;
	/* one that has ended is found out by its end */
	(void)terminal_write(t->input, buf, (size_t)n);
	return !leave;
}

/* Until the guest ends, or nobody wants to see it any more. Return: exit status. */
static int follow(struct terminal *t)
{
	struct pollfd p[2] = { { .fd = t->ended, .events = POLLIN } };

	while (!interrupted) {
		p[1] = (struct pollfd){ .fd = t->typing ? STDIN_FILENO : -1, .events = POLLIN };
		if (poll(p, 2, LOOK_MS) < 0 && errno != EINTR)
			return cli_fail("poll: %s", strerrordesc_np(errno));
		if (!show(t) || (p[1].revents && !pass_keys(t)))
			break;
		if (p[0].revents)
			return show(t) ? CLI_OK : CLI_FAILED;
	}
	return CLI_OK;
}

void terminal_make_raw(struct terminal_keys *k)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &k->before) < 0)
		return;
	raw = k->before;
	cfmakeraw(&raw);
	raw.c_oflag = k->before.c_oflag; /* the guest's lines end as lines do */
	k->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
	if (k->raw)
		fputs("(Ctrl-] leaves)\r\n", stderr);
}

/* What was not read goes: a terminal answers what a guest sends it, and the user's shell is to run nothing of that. */
void terminal_restore(const struct terminal_keys *k)
{
	pid_t front = tcgetpgrp(STDIN_FILENO);

	if (k->raw)
		(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &k->before);
	else if (isatty(STDOUT_FILENO) && (front < 0 || front == getpgrp()))
		(void)tcflush(STDIN_FILENO, TCIFLUSH);
}

const volatile sig_atomic_t *terminal_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction act = { .sa_handler = on_signal };

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &act, NULL);
	return &interrupted;
}

static int talk(const struct guest_vmm *vm, struct terminal *t)
{
	int status;

	go_near_end(t->file);
	if (t->ended < 0) {
		(void)show(t);
		terminal_restore(&t->keys);
		return cli_fail("the guest does not run (any more) (run.not_running): that was its "
				"console, %s",
				vm->console);
	}
	(void)terminal_signals();
	t->typing = t->input >= 0;
	if (!t->typing && isatty(STDIN_FILENO))
		fputs("(of a guest in QEMU the console is only shown; Ctrl-C leaves)\n", stderr);
	if (t->typing)
		terminal_make_raw(&t->keys);
	status = follow(t);
	terminal_restore(&t->keys);
	return status;
}

/* One that this user has run. */
static int console_own(const char *name)
{
	_cleanup_close_ int file = -1, input = -1, ended = -1;
	struct guest_vmm vm;
	struct terminal t;
	int status = vmm_find(name, &vm);

	if (status != CLI_OK)
		return status;
	file = open(vm.console, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0)
		return cli_fail("%s: %s", vm.console, strerrordesc_np(errno));
	ended = vm.pid ? pidfd_open(vm.pid, 0) : -1;
	input = ended >= 0 ? open_input(vm.socket) : -1;
	t = (struct terminal){ .file = file, .input = input, .ended = ended };
	return talk(&vm, &t);
}

int cli_console(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { CLI_COMMON_LONG,
					       { "attached", no_argument, NULL, 'a' },
					       { NULL, 0, NULL, 0 } };
	bool attached = false;
	const char *name;
	int opt, status;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		if (opt == 'a') {
			attached = true;
			continue;
		}
		status = cli_common_option(c, argv[0], opt, optarg);
		if (status != -1)
			return status == CLI_HELP_SHOWN ? CLI_OK : status;
	}
	name = argv[optind];
	if (optind + 1 != argc || !name_valid(name))
		return cli_usage(argv[0], "which guest?");
	/* a daemon with a URL is one elsewhere, perhaps: its guests are not ours */
	if (attached || c->url)
		return console_attached(c, name, false);
	status = vmm_is_own(name) ? CONSOLE_NO_GUEST : console_attached(c, name, true);
	return status == CONSOLE_NO_GUEST ? console_own(name) : status;
}
