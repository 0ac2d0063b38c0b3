// SPDX-License-Identifier: Apache-2.0
/*
 * GDB remote protocol client. See gdbstub_client.h.
 *
 * QEMU acknowledges every packet with '+', also where it does not know QStartNoAckMode (7.2). It
 * needs no acknowledgement of its answers: the next '$' stands for one (gdb_read_byte()). None may
 * be sent after a detach: any byte that comes while the guest runs stops it.
 */
#include "vmm/gdbstub_client.h"

#include "base/clock.h"

#include "vmm/vm_ops.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/*
 * How many writes may be unanswered: enough that QEMU never waits for us. What is under way fits a
 * socket's default buffer, and answers are taken whenever sending would block.
 */
#define MAX_IN_FLIGHT 2048
#define GATHER_NS     200000 /* between looks at the answers of a pipeline */
#define OUT_ROOM      128 /* more than a packet of ours takes */

static const char hex_digits[16] = "0123456789abcdef";

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t gdb_encode(char *out, size_t cap, const char *payload, size_t len)
{
	size_t n = 0;
	u8 sum = 0;

	if (cap < 4)
		return 0;
	out[n++] = '$';
	for (size_t i = 0; i < len; i++) {
		char c = payload[i];
		bool escape = c == '$' || c == '#' || c == '}' || c == '*';

		if (n + 2 + 3 > cap)
			return 0;
		if (escape) {
			out[n++] = '}';
			sum = (u8)(sum + '}');
			c ^= 0x20;
		}
		out[n++] = c;
		sum = (u8)(sum + (u8)c);
	}
	if (n + 3 > cap)
		return 0;
	out[n++] = '#';
	out[n++] = hex_digits[sum >> 4];
	out[n++] = hex_digits[sum & 15];
	return n;
}

static void put(struct gdb_decoder *d, char c)
{
	if (d->len < GDB_PAYLOAD_MAX)
		d->payload[d->len++] = c;
	else
		d->bad = true;
}

/* Run length: the character before '*' again, as often as the next one says ("Packet overview"). */
static void repeat(struct gdb_decoder *d, char count)
{
	int n = (u8)count - 29;

	if (d->len == 0 || n < 3 || (u8)count > 126) {
		d->bad = true;
		return;
	}
	for (; n > 0; n--)
		put(d, d->payload[d->len - 1]);
}

static void body(struct gdb_decoder *d, char c)
{
	if (c == '$') { /* a packet that was cut short: this one counts */
		d->len = 0;
		d->sum = 0;
		d->bad = false;
		d->state = GDB_BODY;
		return;
	}
	if (c == '#') {
		d->bad = d->bad || d->state != GDB_BODY; /* ends after '}' or '*' */
		d->state = GDB_SUM1;
		return;
	}
	d->sum = (u8)(d->sum + (u8)c);
	if (d->state == GDB_ESCAPE)
		put(d, (char)(c ^ 0x20));
	else if (d->state == GDB_REPEAT)
		repeat(d, c);
	else if (c != '}' && c != '*')
		put(d, c);
	if (d->state == GDB_BODY && c == '}')
		d->state = GDB_ESCAPE;
	else if (d->state == GDB_BODY && c == '*')
		d->state = GDB_REPEAT;
	else
		d->state = GDB_BODY;
}

static int finish(struct gdb_decoder *d, char c)
{
	int hi = hex_value((char)d->want);
	int lo = hex_value(c);

	d->state = GDB_IDLE;
	d->payload[d->len] = '\0';
	if (d->bad || hi < 0 || lo < 0 || (hi << 4 | lo) != d->sum)
		return -EPROTO;
	return 1;
}

int gdb_decode(struct gdb_decoder *d, const char *data, size_t len, size_t *used_ret)
{
	for (size_t i = 0; i < len; i++) {
		char c = data[i];
		int rc;

		switch (d->state) {
		case GDB_IDLE:
			if (c == '$') {
				d->len = 0;
				d->sum = 0;
				d->bad = false;
				d->state = GDB_BODY;
			}
			break;
		case GDB_BODY:
		case GDB_ESCAPE:
		case GDB_REPEAT:
			body(d, c);
			break;
		case GDB_SUM1:
			d->want = (u8)c;
			d->state = GDB_SUM2;
			break;
		case GDB_SUM2:
			rc = finish(d, c);
			*used_ret = i + 1;
			return rc;
		}
	}
	*used_ret = len;
	return 0;
}

bool gdb_is_stop_reply(const char *p)
{
	return strchr("TSWX", p[0]) && p[0] && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0;
}

/* poll() until @events, or -ETIMEDOUT. */
static int wait_for(int fd, short events, u64 deadline)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		u64 now = monotonic_ns();
		u64 left = deadline > now ? (deadline - now) / NSEC_PER_MSEC + 1 : 0;
		int n = poll(&p, 1, (int)MIN(left, (u64)INT32_MAX));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -ESRCH;
		if (monotonic_ns() >= deadline)
			return -ETIMEDOUT;
	}
}

/* Appends a packet to what is to be sent. */
static bool queue(struct gdb_conn *c, const char *payload, size_t len)
{
	size_t n = gdb_encode(c->out + c->out_len, sizeof(c->out) - c->out_len, payload, len);

	c->out_len += n;
	c->pending += n > 0;
	return n > 0;
}

/* What the socket takes at once. 0; -EAGAIN some is left; -ESRCH. */
static int send_some(struct gdb_conn *c)
{
	while (c->out_pos < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_pos, c->out_len - c->out_pos,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			c->out_pos += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return -ESRCH;
		else if (errno == EAGAIN)
			return -EAGAIN;
	}
	c->out_pos = 0;
	c->out_len = 0;
	return 0;
}

static int flush(struct gdb_conn *c, u64 deadline)
{
	int rc;

	while ((rc = send_some(c)) == -EAGAIN) {
		rc = wait_for(c->fd, POLLOUT, deadline);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* A packet that is here, into @c->dec.payload. 0; -EAGAIN there is none yet; -ESRCH; -EPROTO. */
static int take_answer(struct gdb_conn *c)
{
	for (;;) {
		size_t used = 0;
		ssize_t n;
		int rc = gdb_decode(&c->dec, c->in + c->in_pos, c->in_len - c->in_pos, &used);

		c->in_pos += used;
		if (rc < 0)
			return rc;
		/* stop replies come unasked and answer nothing here */
		if (rc == 1 && gdb_is_stop_reply(c->dec.payload))
			continue;
		if (rc == 1) {
			c->pending -= c->pending > 0;
			return 0;
		}
		n = recv(c->fd, c->in, sizeof(c->in), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return -EAGAIN;
		if (n <= 0)
			return -ESRCH;
		c->in_pos = 0;
		c->in_len = (size_t)n;
	}
}

static int next_answer(struct gdb_conn *c, u64 deadline)
{
	int rc;

	while ((rc = take_answer(c)) == -EAGAIN) {
		rc = wait_for(c->fd, POLLIN, deadline);
		if (rc < 0)
			return rc;
	}
	return rc;
}

int gdb_request(struct gdb_conn *c, const char *payload, u64 deadline_ns)
{
	int rc = queue(c, payload, strlen(payload)) ? flush(c, deadline_ns) : -ENOBUFS;

	return rc < 0 ? rc : next_answer(c, deadline_ns);
}

int gdb_connect(struct gdb_conn *c, const char *path, u64 deadline_ns)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	int rc;

	memset(c, 0, sizeof(*c));
	c->fd = -1;
	if (len >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, len);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -errno;
	if (connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		rc = -errno;
		gdb_drop(c);
		return rc;
	}
	/*
	 * QEMU stops the machine when the connection opens, before it reads from it (gdb_chr_event():
	 * vm_stop()): any answer means that every vCPU is out. Where the answer is not "OK" the mode
	 * is not known and packets are acknowledged, which is fine too.
	 */
	rc = gdb_request(c, "QStartNoAckMode", deadline_ns);
	if (rc == 0)
		rc = gdb_request(c, "Qqemu.PhyMemMode:1", deadline_ns);
	if (rc == 0 && strcmp(c->dec.payload, "OK") != 0)
		rc = -EPROTO;
	return rc;
}

/* "M<gpa>,<len>:<bytes>" */
static size_t write_payload(char *out, const struct vm_phys_text *t)
{
	size_t n = 0;
	int shift = 60;

	out[n++] = 'M';
	while (shift > 0 && !(t->gpa >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		out[n++] = hex_digits[t->gpa >> shift & 15];
	out[n++] = ',';
	if (t->len >> 4)
		out[n++] = hex_digits[t->len >> 4 & 15];
	out[n++] = hex_digits[t->len & 15];
	out[n++] = ':';
	for (u32 i = 0; i < t->len; i++) {
		out[n++] = hex_digits[t->bytes[i] >> 4];
		out[n++] = hex_digits[t->bytes[i] & 15];
	}
	return n;
}

/*
 * Nothing could be sent nor taken. poll() would wake us for each small answer, which costs QEMU more
 * than the write that it answers: sleep while they gather.
 */
static int wait_pipeline(const struct gdb_conn *c, u64 deadline)
{
	struct timespec pause = { 0, GATHER_NS };

	if (monotonic_ns() >= deadline)
		return -ETIMEDOUT;
	if (c->out_pos < c->out_len)
		return wait_for(c->fd, POLLIN | POLLOUT, deadline);
	nanosleep(&pause, NULL);
	return 0;
}

int gdb_write_phys(struct gdb_conn *c, const struct vm_phys_text *text, size_t n, size_t *bad_ret,
		   u64 deadline_ns)
{
	size_t queued = 0;
	size_t answered = 0;
	int result = 0;

	while (answered < n) {
		size_t before = answered;
		int rc;

		while (queued < n && queued - answered < MAX_IN_FLIGHT &&
		       sizeof(c->out) - c->out_len >= 2ul * OUT_ROOM) {
			char payload[OUT_ROOM / 2];

			queue(c, payload, write_payload(payload, &text[queued]));
			queued++;
		}
		rc = send_some(c);
		if (rc == -ESRCH)
			return rc;
		while (answered < queued && (rc = take_answer(c)) == 0) {
			if (result == 0 && strcmp(c->dec.payload, "OK") != 0) {
				*bad_ret = answered;
				result = -EPERM;
			}
			answered++;
		}
		if (rc < 0 && rc != -EAGAIN)
			return rc;
		if (answered < n && answered == before) {
			rc = wait_pipeline(c, deadline_ns);
			if (rc < 0)
				return rc;
		}
	}
	return result;
}

int gdb_detach(struct gdb_conn *c, u64 deadline_ns)
{
	int rc;

	if (c->fd < 0)
		return -ESRCH;
	if (!c->detaching) {
		/* gdb_write_phys() always leaves room for these two */
		c->detaching = queue(c, "Qqemu.PhyMemMode:0", 18) && queue(c, "D", 1);
		if (!c->detaching)
			return -ENOBUFS;
	}
	rc = flush(c, deadline_ns);
	/* answers to whatever was still under way come first; the last one is the detach's */
	while (rc == 0 && c->pending)
		rc = next_answer(c, deadline_ns);
	if (rc == -ETIMEDOUT)
		return rc;
	gdb_drop(c);
	return rc;
}

void gdb_drop(struct gdb_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}
