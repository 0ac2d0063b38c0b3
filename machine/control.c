// SPDX-License-Identifier: Apache-2.0
/* See control.h. */
#include "machine/control.h"

#include "base/clock.h"
#include "machine/listen.h"
#include "machine/machine.h"
#include "machine/output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER        1024
#define DROP_AGAIN_MS 1000

int control_open(struct control *c, const char *path, struct err *err)
{
	*c = (struct control){ .fd = -1, .wake_fd = -1 };
	pthread_mutex_init(&c->lock, NULL);
	for (u32 i = 0; i < CONTROL_CLIENTS; i++)
		c->client[i].fd = -1;
	if (!path)
		return 0;
	c->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (c->wake_fd < 0)
		return err_set(err, -errno, ERR_IO, 0, "eventfd: %s", strerrordesc_np(errno));
	return listen_at(path, "--control", &c->fd, err);
}

static void wake(const struct control *c)
{
	const u64 one = 1;

	(void)!write(c->wake_fd, &one, sizeof(one));
}

/* A line to one client, whole or not at all: one that does not read is let go. With the lock. */
static void send_line(struct control *c, struct control_client *k, const char *text)
{
	ssize_t n = (ssize_t)strlen(text);

	if (k->fd < 0 || k->dead || write(k->fd, text, (size_t)n) == n)
		return;
	k->dead = true;
	wake(c);
}

void control_tell(void *arg, const char *line)
{
	struct control *c = arg;
	char text[ANSWER];

	snprintf(text, sizeof(text), "event %.900s\n", line);
	pthread_mutex_lock(&c->lock);
	for (u32 i = 0; i < CONTROL_CLIENTS; i++)
		send_line(c, &c->client[i], text);
	pthread_mutex_unlock(&c->lock);
}

static void describe(struct machine *m, char *buf, size_t cap)
{
	char debug[96];
	int n = snprintf(buf, cap, "ok life %u console_lost %llu", machine_life(m),
			 (unsigned long long)output_lost());

	for (u32 i = 0; i < m->n_nets && n > 0 && (size_t)n < cap; i++) {
		struct net_counters k = virtio_net_counters(&m->net[i]);

		n += snprintf(
			buf + n, cap - (size_t)n,
			" net%u rx %llu tx %llu rx_dropped %llu tx_dropped %llu tap_errors %llu", i,
			(unsigned long long)k.rx_packets, (unsigned long long)k.tx_packets,
			(unsigned long long)k.rx_dropped, (unsigned long long)k.tx_dropped,
			(unsigned long long)k.tap_errors);
	}
	if (m->has_vsock && n > 0 && (size_t)n < cap)
		n += snprintf(
			buf + n, cap - (size_t)n, " vsock_refused %llu",
			(unsigned long long)__atomic_load_n(&m->vsock.refused, __ATOMIC_RELAXED));
	debug_status(m, debug, sizeof(debug));
	if (n > 0 && (size_t)n < cap)
		n += snprintf(buf + n, cap - (size_t)n, "%s", debug);
	if (n > 0 && (size_t)n + 1 < cap)
		memcpy(buf + n, "\n", 2);
}

/* "WORD", for vCPU 0, or "WORD N" */
static bool takes_vcpu(const char *line, const char *word, u32 *vcpu_ret)
{
	size_t len = strlen(word), n;
	const char *number = line + len + 1;

	if (strncmp(line, word, len) != 0)
		return false;
	*vcpu_ret = 0;
	if (!line[len])
		return true;
	n = line[len] == ' ' ? strspn(number, "0123456789") : 0;
	if (n < 1 || n > 4 || number[n])
		return false;
	*vcpu_ret = (u32)strtoul(number, NULL, 10);
	return true;
}

/* "WORD ADDR", in hex */
static bool takes_addr(const char *line, const char *word, u64 *addr_ret)
{
	size_t len = strlen(word), n;
	const char *number = line + len + 1;

	if (strncmp(line, word, len) != 0 || line[len] != ' ')
		return false;
	if (number[0] == '0' && number[1] == 'x')
		number += 2;
	n = strspn(number, "0123456789abcdefABCDEF");
	if (n < 1 || n > 16 || number[n])
		return false;
	*addr_ret = strtoull(number, NULL, 16);
	return true;
}

enum debug_word {
	WORD_NONE,
	WORD_BREAK,
	WORD_UNBREAK,
	WORD_STEP,
	WORD_GO
};

static enum debug_word debug_word(const char *line, u64 *addr_ret, u32 *vcpu_ret)
{
	if (takes_addr(line, "break", addr_ret))
		return WORD_BREAK;
	if (takes_addr(line, "unbreak", addr_ret))
		return WORD_UNBREAK;
	if (takes_vcpu(line, "step", vcpu_ret))
		return WORD_STEP;
	return strcmp(line, "go") == 0 ? WORD_GO : WORD_NONE;
}

/* Return: false when it is none of these commands. */
static bool debugs(struct control *c, struct control_client *k, const char *line, char *answer,
		   size_t cap)
{
	u64 addr = 0, rip = 0;
	u32 vcpu = 0;
	enum debug_word word = debug_word(line, &addr, &vcpu);
	struct err err = { 0 };
	int rc = 0;

	if (word == WORD_NONE)
		return false;
	if (c->debugger && (c->debugger != k || c->debugger_left)) /* @k may have its place */
		rc = err_set(&err, -EBUSY, ERR_CONFLICT, 0, "another client has set breakpoints");
	else if (word == WORD_BREAK)
		rc = debug_break(c->m, addr, &err);
	else if (word == WORD_UNBREAK)
		rc = debug_unbreak(c->m, addr, &err);
	else if (word == WORD_STEP)
		rc = debug_step(c->m, vcpu, &rip, &err);
	else
		rc = debug_go(c->m, &err);
	if (!rc && word == WORD_BREAK)
		c->debugger = k;
	if (rc)
		snprintf(answer, cap, "error %s\n", err.msg);
	else if (word == WORD_STEP)
		snprintf(answer, cap, "ok vcpu %u rip %llx\n", vcpu, (unsigned long long)rip);
	else
		snprintf(answer, cap, "ok\n");
	return true;
}

/* No lock held: the machine takes its own. */
static void obey(struct control *c, struct control_client *k, const char *line, char *answer,
		 size_t cap)
{
	const char *text = "ok\n";
	struct machine *m = c->m;
	char slots[128];
	u32 vcpu;

	if (strcmp(line, "status") == 0) {
		describe(m, answer, cap);
		return;
	}
	if (debugs(c, k, line, answer, cap))
		return;
	if (strcmp(line, "power") == 0) {
		if (!legacy_press_power(&m->legacy))
			text = "error the guest does not listen to its power button\n";
	} else if (strcmp(line, "slots") == 0) {
		machine_slots(m, slots, sizeof(slots));
		snprintf(answer, cap, "ok %s\n", slots);
		return;
	} else if (takes_vcpu(line, "registers", &vcpu)) {
		machine_registers(m, vcpu, answer, cap);
		return;
	} else if (strcmp(line, "reset") == 0) {
		machine_reset(m, "was reset by its control socket");
	} else if (strcmp(line, "end") == 0) {
		machine_end(m, EXIT_GUEST_ENDED, "the guest was ended by its control socket");
	} else {
		text = "error commands are status, slots, registers N, break ADDR, unbreak ADDR, "
		       "step N, go, power, reset and end\n";
	}
	snprintf(answer, cap, "%s", text);
}

/* Whole lines out of what a client sent. Only this thread changes clients, but for letting them go. */
static void take(struct control *c, struct control_client *k, const char *buf, size_t n)
{
	char answer[ANSWER];

	for (size_t i = 0; i < n; i++) {
		if (buf[i] != '\n') {
			if (k->n < CONTROL_LINE - 1)
				k->line[k->n++] = buf[i];
			continue;
		}
		k->line[k->n] = 0;
		k->n = 0;
		obey(c, k, k->line, answer, sizeof(answer));
		pthread_mutex_lock(&c->lock);
		send_line(c, k, answer);
		pthread_mutex_unlock(&c->lock);
	}
}

static void serve(struct control *c, struct control_client *k)
{
	char buf[256];
	ssize_t n = read(k->fd, buf, sizeof(buf));

	if (n > 0)
		take(c, k, buf, (size_t)n);
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		k->dead = true;
}

static void welcome(struct control *c)
{
	int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	pthread_mutex_lock(&c->lock);
	for (u32 i = 0; fd >= 0 && i < CONTROL_CLIENTS; i++) {
		if (c->client[i].fd < 0) {
			c->client[i] = (struct control_client){ .fd = fd };
			fd = -1;
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (fd >= 0)
		close(fd);
}

/* What to wait for; those that are dead are closed. Return: false when it is time to stop. */
static bool prepare(struct control *c, struct pollfd *p)
{
	bool go_on;

	p[0] = (struct pollfd){ .fd = c->wake_fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = c->fd, .events = POLLIN };
	pthread_mutex_lock(&c->lock);
	for (u32 i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *k = &c->client[i];

		if (k->dead) {
			if (c->debugger == k)
				c->debugger_left = true;
			close(k->fd);
			*k = (struct control_client){ .fd = -1 };
		}
		p[2 + i] = (struct pollfd){ .fd = k->fd, .events = POLLIN };
	}
	go_on = !c->stopping;
	pthread_mutex_unlock(&c->lock);
	return go_on;
}

/*
 * Of a client that left. They stay where a vCPU does not leave the guest in time, and are its own, nobody else's, until
 * they are gone; as each try holds the other vCPUs, there is time between them.
 */
static void drop_breakpoints(struct control *c)
{
	struct err err = { 0 };
	bool first = !c->drop_again_ns;
	int rc;

	if (!c->debugger_left || monotonic_ns() < c->drop_again_ns)
		return;
	rc = debug_drop(c->m, &err);
	if (rc && rc != -ESHUTDOWN) {
		c->drop_again_ns = monotonic_ns() + DROP_AGAIN_MS * NSEC_PER_MSEC;
		if (first)
			machine_tell(c->m, "breakpoints stay for now: %s", err.msg);
		return;
	}
	c->debugger = NULL;
	c->debugger_left = false;
	c->drop_again_ns = 0;
}

static void *run(void *arg)
{
	struct pollfd p[2 + CONTROL_CLIENTS];
	struct control *c = arg;
	u64 n;

	while (prepare(c, p)) {
		int wait;

		drop_breakpoints(c);
		wait = debug_tick(c->m);
		if (poll(p, ARRAY_SIZE(p), wait < 0 && c->debugger_left ? DROP_AGAIN_MS : wait) < 0)
			continue;
		if (p[0].revents)
			(void)!read(c->wake_fd, &n, sizeof(n));
		for (u32 i = 0; i < CONTROL_CLIENTS; i++) {
			if (p[2 + i].revents)
				serve(c, &c->client[i]);
		}
		if (p[1].revents)
			welcome(c);
	}
	return NULL;
}

int control_start(struct control *c, struct machine *m, struct err *err)
{
	int no;

	if (c->fd < 0)
		return 0;
	c->m = m;
	no = pthread_create(&c->thread, NULL, run, c);
	if (no)
		return err_set(err, -no, ERR_IO, 0, "the control socket's thread: %s",
			       strerrordesc_np(no));
	c->started = true;
	(void)pthread_setname_np(c->thread, "control");
	return 0;
}

void control_close(struct control *c)
{
	if (c->started) {
		pthread_mutex_lock(&c->lock);
		c->stopping = true;
		pthread_mutex_unlock(&c->lock);
		wake(c);
		pthread_join(c->thread, NULL);
	}
	c->started = false;
	for (u32 i = 0; i < CONTROL_CLIENTS; i++) {
		if (c->client[i].fd >= 0)
			close(c->client[i].fd);
		c->client[i].fd = -1;
	}
	if (c->fd >= 0)
		close(c->fd);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	c->fd = c->wake_fd = -1;
}
