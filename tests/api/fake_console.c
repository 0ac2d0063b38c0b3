// SPDX-License-Identifier: Apache-2.0
/*
 * Consoles of the fake engine's guests, behind vmm/console.h. In place of a VMM a process that only has the files of one.
 * What is typed the guest says again; and of the lines
 *
 *   flood N    it says N bytes
 *   end        its VMM ends, after last words
 *   deaf       it takes nothing any more
 *   talk       nor that, but says something all the time, for as long as the daemon lives: also when it was let go
 */
#include "fake_engine.h"

#include "base/console_ring.h"
#include "vmm/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING_FD  3 /* in the process that stands for a VMM */
#define INPUT_FD 4

struct fake_console {
	struct vm_console *console;
	struct console_ring ring;
	pid_t vmm;
	int typed; /* the pipe's other end */
	int stop[2]; /* a pipe, too: its end is that of the thread */
	pthread_t thread;
	atomic_bool talks;
};

static void be_vmm(int ring, int input)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ring = fcntl(ring, F_DUPFD, 512);
	input = fcntl(input, F_DUPFD, 512);
	dup2(ring, RING_FD);
	dup2(input, INPUT_FD);
	close_range(INPUT_FD + 1, ~0u, 0);
	for (;;)
		pause();
}

static void say(struct fake_console *c, const char *text)
{
	console_ring_put(&c->ring, text, strlen(text));
}

static void flood(struct fake_console *c, unsigned long n)
{
	char line[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\r\n";

	for (; n >= sizeof(line) - 1; n -= sizeof(line) - 1)
		say(c, line);
}

static _Noreturn void talk(struct fake_console *c)
{
	atomic_store(&c->talks, true);
	for (;;)
		flood(c, 64);
}

/* Return: false when it listens no more. */
static bool obey(struct fake_console *c, const char *line)
{
	if (strncmp(line, "flood ", 6) == 0)
		flood(c, strtoul(line + 6, NULL, 10));
	if (strcmp(line, "end") == 0) {
		say(c, "last words\r\n");
		kill(c->vmm, SIGKILL);
	}
	if (strcmp(line, "talk") == 0)
		talk(c);
	return strcmp(line, "deaf") != 0;
}

static bool next_byte(const struct fake_console *c, char *ret)
{
	struct pollfd p[] = { { .fd = c->typed, .events = POLLIN },
			      { .fd = c->stop[0], .events = POLLIN } };

	return poll(p, 2, -1) > 0 && !p[1].revents && read(c->typed, ret, 1) == 1;
}

static void *echo(void *arg)
{
	struct fake_console *c = arg;
	char line[64], byte;
	size_t n = 0;

	while (next_byte(c, &byte)) {
		console_ring_put(&c->ring, &byte, 1);
		if (byte != '\n') {
			n += n < sizeof(line) - 1;
			line[n - 1] = byte;
			continue;
		}
		line[n] = 0;
		n = 0;
		if (!obey(c, line))
			break;
	}
	return NULL;
}

struct fake_console *fake_console_create(bool takes)
{
	struct fake_console *c = calloc(1, sizeof(*c));
	int ring, input[2], pidfd;

	if (!c || console_ring_create(&c->ring, &ring, NULL) || pipe2(input, O_CLOEXEC) ||
	    pipe2(c->stop, O_CLOEXEC))
		abort();
	if (takes)
		console_ring_offer_input(&c->ring, INPUT_FD);
	c->typed = input[0];
	c->vmm = fork();
	if (c->vmm == 0)
		be_vmm(ring, input[1]);
	pidfd = pidfd_open(c->vmm, 0);
	/* until the process has them where it says */
	while (vm_console_find(c->vmm, pidfd, &c->console) ||
	       (takes && !vm_console_takes(c->console))) {
		vm_console_unref(c->console);
		c->console = NULL;
		usleep(1000);
	}
	close(pidfd);
	close(ring);
	close(input[1]);
	say(c, "Linux version 6.1.0-fake\r\nfake login: ");
	pthread_create(&c->thread, NULL, echo, c);
	return c;
}

void fake_console_destroy(struct fake_console *c)
{
	if (!c)
		return;
	vm_console_close(c->console);
	vm_console_unref(c->console);
	kill(c->vmm, SIGKILL);
	waitpid(c->vmm, NULL, 0);
	if (atomic_load(&c->talks)) {
		pthread_detach(c->thread); /* which has all of it */
		return;
	}
	close(c->stop[1]); /* streams may still have the other */
	pthread_join(c->thread, NULL);
	close(c->stop[0]);
	close(c->typed);
	console_ring_deinit(&c->ring);
	free(c);
}

bool fake_console_ended(const struct fake_console *c)
{
	return vm_console_ended(c->console);
}

const char *fake_console_state(const struct fake_console *c)
{
	return !c ? "none" : vm_console_takes(c->console) ? "write" : "read";
}

int guest_console(const struct guest *g, struct vm_console **ret, struct err *err)
{
	if (!g->console)
		return err_set(err, -ENOENT, ERR_CONSOLE_NONE, 0,
			       "the VMM of %s, process 4242, offers no console", g->target);
	*ret = vm_console_ref(g->console->console);
	return 0;
}
