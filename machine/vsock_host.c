// SPDX-License-Identifier: Apache-2.0
/* The host's side of a guest's sockets: programs, and bytes to them. See virtio_vsock.h. */
#include "machine/virtio_vsock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_PORT (1u << 30) /* of the host, for who connects to the guest */

struct vsock_conn *vsock_find(struct virtio_vsock *v, u32 host_port, u32 guest_port)
{
	for (u32 i = 0; i < VSOCK_MAX_CONNS; i++) {
		struct vsock_conn *c = &v->conn[i];

		if (c->state >= VSOCK_CONNECTS && c->host_port == host_port &&
		    c->guest_port == guest_port)
			return c;
	}
	return NULL;
}

void vsock_close(struct vsock_conn *c)
{
	if (c->state != VSOCK_FREE)
		close(c->fd);
	free(c->buf);
	*c = (struct vsock_conn){ .fd = -1 };
}

void vsock_accept(struct virtio_vsock *v)
{
	int fd = accept4(v->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (u32 i = 0; fd >= 0 && i < VSOCK_MAX_CONNS; i++) {
		if (v->conn[i].state != VSOCK_FREE)
			continue;
		v->conn[i] = (struct vsock_conn){ .state = VSOCK_ASKS, .fd = fd };
		return;
	}
	if (fd < 0)
		return;
	__atomic_fetch_add(&v->refused, 1, __ATOMIC_RELAXED);
	close(fd);
}

static u32 free_port(struct virtio_vsock *v)
{
	for (;;) {
		u32 port = v->next_port < FIRST_PORT ? FIRST_PORT : v->next_port;
		bool used = false;

		v->next_port = port + 1;
		for (u32 i = 0; i < VSOCK_MAX_CONNS; i++)
			used = used ||
			       (v->conn[i].state >= VSOCK_LISTENS && v->conn[i].host_port == port);
		if (!used)
			return port;
	}
}

/* "WORD PORT", a number of up to 32 bits */
static bool parse(const char *line, const char *word, u32 *port_ret)
{
	size_t n = strlen(word);
	u64 port = 0;

	if (strncmp(line, word, n) != 0 || line[n] != ' ' || !line[n + 1])
		return false;
	for (const char *at = line + n + 1; *at; at++) {
		if (*at < '0' || *at > '9')
			return false;
		port = port * 10 + (u64)(*at - '0');
		if (port > UINT32_MAX)
			return false;
	}
	*port_ret = (u32)port;
	return true;
}

static void obey(struct virtio_vsock *v, struct vsock_conn *c)
{
	u32 port;

	if (parse(c->line, "CONNECT", &port) && virtio_is_live(&v->dev)) {
		c->guest_port = port;
		c->host_port = free_port(v);
		c->state = VSOCK_CONNECTS;
		c->due = 1u << VIRTIO_VSOCK_OP_REQUEST;
	} else if (parse(c->line, "LISTEN", &port)) {
		c->host_port = port;
		c->state = VSOCK_LISTENS;
	} else {
		vsock_close(c);
	}
}

void vsock_read_line(struct virtio_vsock *v, struct vsock_conn *c)
{
	ssize_t n;
	char byte;

	/* byte by byte, as what follows the line is the guest's */
	for (;;) {
		do
			n = read(c->fd, &byte, 1);
		while (n < 0 && errno == EINTR);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n == 1 && byte == '\n')
			break;
		if (n != 1 || c->line_n == VSOCK_LINE - 1) {
			vsock_close(c);
			return;
		}
		c->line[c->line_n++] = byte;
	}
	c->line[c->line_n] = 0;
	obey(v, c);
}

bool vsock_open(struct vsock_conn *c, u32 port)
{
	char line[24];
	int n = snprintf(line, sizeof(line), "OK %u\n", port);

	c->buf = malloc(VSOCK_BUFFER);
	/* nothing was written to it before: so few bytes it takes at once, or it is gone */
	if (!c->buf || write(c->fd, line, (size_t)n) != n)
		return false;
	c->state = VSOCK_OPEN;
	return true;
}

bool vsock_take(struct vsock_conn *c, const struct virtq_chain *chain, u32 len)
{
	u32 done = 0;

	if (len > VSOCK_BUFFER - c->n)
		return false;
	while (done < len) {
		u32 at = (c->head + c->n) % VSOCK_BUFFER, part = MIN(len - done, VSOCK_BUFFER - at);

		if (!virtq_read(chain, sizeof(struct virtio_vsock_hdr) + done, c->buf + at, part))
			return false;
		c->n += part;
		done += part;
	}
	return vsock_pass_on(c);
}

bool vsock_pass_on(struct vsock_conn *c)
{
	while (c->n) {
		ssize_t did = write(c->fd, c->buf + c->head, MIN(c->n, VSOCK_BUFFER - c->head));

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0 && errno == EAGAIN)
			break;
		if (did <= 0)
			return false;
		c->head = (c->head + (u32)did) % VSOCK_BUFFER;
		c->n -= (u32)did;
		c->forwarded += (u32)did;
	}
	if (c->guest_done && !c->n)
		(void)shutdown(c->fd, SHUT_WR);
	/* the guest has no more room for us, as it knows of, than half: say that there is */
	if (c->forwarded - c->told >= VSOCK_BUFFER / 2)
		c->due |= 1u << VIRTIO_VSOCK_OP_CREDIT_UPDATE;
	return true;
}
