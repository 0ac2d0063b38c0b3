// SPDX-License-Identifier: Apache-2.0
/* Who types at a guest's console. See console.h. */
#include "machine/console.h"

#include "machine/listen.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Wait for @fd. Return: false when it is time to stop. */
static bool wait_for(const struct console *c, int fd)
{
	struct pollfd p[] = { { .fd = fd, .events = POLLIN },
			      { .fd = c->stop_fd, .events = POLLIN } };

	for (;;) {
		if (poll(p, 2, -1) > 0)
			return !p[1].revents;
		if (errno != EINTR)
			return false;
	}
}

/* Pass on what comes from @fd until its end. Return: false when it is time to stop. */
static bool pass_on(const struct console *c, int fd)
{
	u8 buf[256];

	for (;;) {
		ssize_t n;

		if (!wait_for(c, fd))
			return false;
		n = read(fd, buf, sizeof(buf));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return true;
		if (!c->sink.receive(c->sink.dev, buf, (size_t)n))
			return false;
	}
}

static void *run(void *arg)
{
	const struct console *c = arg;

	if (!c->listens) {
		(void)pass_on(c, c->fd);
		return NULL;
	}
	while (wait_for(c, c->fd)) {
		int client = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
		bool go_on = true;

		if (client >= 0) {
			go_on = pass_on(c, client);
			close(client);
		}
		if (!go_on)
			break;
	}
	return NULL;
}

int console_open(struct console *c, const char *input, struct console_sink sink, struct err *err)
{
	int rc = 0;

	*c = (struct console){ .sink = sink, .fd = -1, .stop_fd = -1 };
	if (!input)
		return 0;
	c->listens = strcmp(input, "-") != 0;
	if (c->listens)
		rc = listen_at(input, "--input", &c->fd, err);
	else
		c->fd = STDIN_FILENO;
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

	if (c->fd < 0)
		return 0;
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
	c->fd = c->stop_fd = -1;
	c->started = false;
}
