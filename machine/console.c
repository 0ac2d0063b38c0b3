// SPDX-License-Identifier: Apache-2.0
/* Who types at a guest's console. See console.h. */
#include "machine/console.h"

#include "machine/listen.h"
#include "machine/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define INPUT_BYTES 16384 /* of what is typed and not yet received, beside what the device has */

enum from {
	FROM_STOP, /* it is time to stop */
	FROM_PIPE,
	FROM_FD
};

/* Which can be read from: @fd, -1 is never, or one of ours. */
static enum from wait_for(const struct console *c, int fd)
{
	struct pollfd p[] = { [FROM_STOP] = { .fd = c->stop_fd, .events = POLLIN },
			      [FROM_PIPE] = { .fd = c->pipe[0], .events = POLLIN },
			      [FROM_FD] = { .fd = fd, .events = POLLIN } };

	for (;;) {
		if (poll(p, ARRAY_SIZE(p), -1) > 0)
			return p[FROM_STOP].revents   ? FROM_STOP
			       : p[FROM_PIPE].revents ? FROM_PIPE
						      : FROM_FD;
		if (errno != EINTR)
			return FROM_STOP;
	}
}

/* What there is. Return: 1; 0 at its end; -1 when it is time to stop. */
static int pass_some(const struct console *c, int fd)
{
	u8 buf[256];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 1;
	if (n <= 0)
		return 0;
	return c->sink.receive(c->sink.dev, buf, (size_t)n) ? 1 : -1;
}

/* Pass on what comes from @fd until its end, and from the pipe. Return: false when it is time to stop. */
static bool pass_on(const struct console *c, int fd)
{
	enum from from;
	int r;

	while ((from = wait_for(c, fd)) != FROM_STOP) {
		r = pass_some(c, from == FROM_PIPE ? c->pipe[0] : fd);
		if (r < 0)
			return false;
		if (!r && from == FROM_FD)
			return true;
	}
	return false;
}

/* Clients of the socket, one after the other. Return: false when it is time to stop. */
static bool serve(const struct console *c)
{
	enum from from = wait_for(c, c->fd);
	bool go_on;
	int client;

	if (from != FROM_FD)
		return from == FROM_PIPE && pass_some(c, c->pipe[0]) >= 0;
	client = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	if (client < 0)
		return true;
	go_on = pass_on(c, client);
	close(client);
	return go_on;
}

static void *run(void *arg)
{
	const struct console *c = arg;

	if (c->listens) {
		while (serve(c))
			;
		return NULL;
	}
	/* at the end of standard input, or without any, there is the pipe still */
	if (c->fd < 0 || pass_on(c, c->fd))
		(void)pass_on(c, -1);
	return NULL;
}

/* The second end is for others to write to, and not for us: it is there so that the pipe has no end. */
static int open_pipe(struct console *c, struct err *err)
{
	if (pipe2(c->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(err, -errno, ERR_IO, 0, "pipe: %s", strerrordesc_np(errno));
	(void)fcntl(c->pipe[1], F_SETPIPE_SZ, INPUT_BYTES);
	output_offer_input(c->pipe[1]);
	return 0;
}

int console_open(struct console *c, const char *input, struct console_sink sink, struct err *err)
{
	int rc = 0;

	*c = (struct console){ .sink = sink, .fd = -1, .pipe = { -1, -1 }, .stop_fd = -1 };
	c->listens = input && strcmp(input, "-") != 0;
	if (c->listens)
		rc = listen_at(input, "--input", &c->fd, err);
	else if (input)
		c->fd = STDIN_FILENO;
	if (!rc)
		rc = open_pipe(c, err);
	if (rc)
		return rc;
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (c->stop_fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "eventfd: %s", strerrordesc_np(errno));
	return 0;
}

int console_start(struct console *c, struct err *err)
{
	int no;

	no = pthread_create(&c->thread, NULL, run, c);
	if (no)
		return err_set(err, -no, ERR_IO, 0, "the console's thread: %s",
			       strerrordesc_np(no));
	c->started = true;
	(void)pthread_setname_np(c->thread, "console");
	return 0;
}

void console_close(struct console *c)
{
	const u64 one = 1;

	if (c->started) {
		c->sink.close(c->sink.dev);
		(void)!write(c->stop_fd, &one, sizeof(one));
		pthread_join(c->thread, NULL);
	}
	if (c->listens && c->fd >= 0)
		close(c->fd);
	if (c->stop_fd >= 0)
		close(c->stop_fd);
	for (int i = 0; i < 2; i++) {
		if (c->pipe[i] >= 0)
			close(c->pipe[i]);
		c->pipe[i] = -1;
	}
	c->fd = c->stop_fd = -1;
	c->started = false;
}
