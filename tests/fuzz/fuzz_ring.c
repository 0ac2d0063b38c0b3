// SPDX-License-Identifier: Apache-2.0
/*
 * The ring reader against a guest that writes what it likes when it likes. The input is a little
 * program: write words, valid records, head or lost; drain; change memory while it is being read.
 * Properties: only this CPU's bytes are touched, tail never passes head nor goes back, every index
 * is accounted for once, what is delivered is well formed, a failure is final.
 */
#include "tracers/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS      64
#define CPUS       3
#define CPU        1
#define RING_OFF   8192
#define DATA_BYTES (RING_OFF + CPUS * SLOTS * AGENT_RECORD_BYTES)
#define MY_CPU     (AGENT_CPU_OFF + CPU * AGENT_CPU_BYTES)
#define MY_RING    (RING_OFF + CPU * SLOTS * AGENT_RECORD_BYTES)
#define OUT_MAX    128
#define ROOMS      4
#define LOW36      0xfffffffffull

#define CHECK(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const u8 *input, size_t len);

static struct {
	const u8 *input;
	size_t len;
	u64 data[DATA_BYTES / 8];
	struct ring_reader reader;
	struct ring_record out[OUT_MAX];
	struct ring_capture rooms[ROOMS];
	u64 now_ns, tail, seen_head;
	u32 mode;
	bool racing; /* reads are followed by an operation of the guest */
	bool live;
	unsigned int with_data; /* RING_DATA or 0, for all of a reader's life */
} f;

static u64 take(unsigned int bytes)
{
	u64 v = 0;

	for (; bytes && f.len; bytes--, f.len--)
		v = v << 8 | *f.input++;
	return v;
}

static struct agent_cpu *cpu(void)
{
	return (struct agent_cpu *)&f.data[MY_CPU / 8];
}

static void write_valid(u64 index, u64 w0, u64 w1, u64 low)
{
	u64 *w = &f.data[MY_RING / 8 + index % SLOTS * 3];

	w[0] = (index / SLOTS + 1) << 48 | (w0 & AGENT_TSC_MASK);
	w[1] = w1;
	w[2] = (w[0] ^ (w1 << 23 | w1 >> 41) ^ (low & LOW36)) * AGENT_CHECK_MUL;
	w[2] = (w[2] & ~LOW36) | (low & LOW36);
}

static void guest_op(u64 op)
{
	u64 count;

	switch (op % 9) {
	case 0: /* a record, as the agent writes it */
		write_valid(cpu()->head++, take(4), take(4), 1ull << AGENT_TYPE_SHIFT | take(1));
		break;
	case 1: /* many */
		for (count = take(1); count; count--)
			write_valid(cpu()->head++, count, count, 1ull << AGENT_TYPE_SHIFT);
		break;
	case 2: /* of any type, anywhere */
		write_valid(cpu()->head + take(1) - 128, take(4), take(8), take(5));
		break;
	case 3: /* a pair */
		write_valid(cpu()->head++, 5, take(8), 2ull << AGENT_TYPE_SHIFT | 9);
		write_valid(cpu()->head++, 5, take(8), 3ull << AGENT_TYPE_SHIFT | 9);
		break;
	case 4: /* reserved, not written */
		cpu()->head += take(1) % 4;
		break;
	case 5:
		f.data[MY_RING / 8 + take(1) % (SLOTS * 3)] = take(8);
		break;
	case 6:
		cpu()->head = take(1) & 1 ? take(8) : cpu()->head + take(1);
		break;
	case 8: /* a record with DATA, some of them not written */
		write_valid(cpu()->head++, 77, take(4), (u64)(take(1) % 8) << AGENT_TYPE_SHIFT | 9);
		for (count = take(1) % 10; count; count--) {
			u64 what = take(1), low = 6ull << AGENT_TYPE_SHIFT | 9;
			u64 kind = (what & 3) << 8 | (what >> 7) << 10;

			low |= (kind | (what >> 2 & 7)) << AGENT_CTX_SHIFT;
			if (!(what & 0x40)) /* of a capture its sizes */
				write_valid(cpu()->head, kind == AGENT_DATA_CAPTURE ? take(6) : 77,
					    what, low);
			cpu()->head++;
		}
		break;
	default:
		cpu()->lost += take(1) & 1 ? take(8) : 1;
		break;
	}
}

static int io_read(void *arg, u64 off, void *buf, size_t len)
{
	(void)arg;
	CHECK(off % 8 == 0 && len % 8 == 0 && len > 0);
	CHECK((off >= MY_CPU && off + len <= MY_CPU + AGENT_CPU_BYTES) ||
	      (off >= MY_RING && off + len <= MY_RING + SLOTS * AGENT_RECORD_BYTES));
	memcpy(buf, (u8 *)f.data + off, len);
	if (off == MY_CPU)
		f.seen_head = cpu()->head;
	if (f.racing && f.len)
		guest_op(take(1));
	return f.racing && f.len % 61 == 60 ? -ESRCH : 0;
}

static int io_write(void *arg, u64 off, const void *buf, size_t len)
{
	u64 v;

	(void)arg;
	CHECK(off == MY_CPU + offsetof(struct agent_cpu, tail) && len == 8);
	memcpy(&v, buf, 8);
	CHECK(v > f.tail && v <= f.seen_head);
	f.tail = v;
	cpu()->tail = v;
	return 0;
}

static void open_reader(void)
{
	struct agent_header h = { .nr_cpus = CPUS, .ring_slots = SLOTS, .mode = f.mode };
	struct ring_io io = { io_read, io_write, NULL };

	h.ring_off = RING_OFF;
	f.tail = cpu()->tail;
	f.with_data = take(1) & 1 ? RING_DATA : 0;
	f.live = ring_reader_init(&f.reader, &io, &h, CPU) == 0;
	f.reader.fresh = f.rooms;
	f.reader.n_fresh = ROOMS;
}

static void check_capture(const struct ring_record *r)
{
	const struct ring_capture *c = r->capture;

	CHECK(f.with_data && c >= f.rooms && c < f.rooms + ROOMS);
	CHECK(c->n_words <= AGENT_CAPTURE_WORDS && c->n <= 8u * c->n_words);
	CHECK(c->stack || r->type == RING_FUNCTION || r->type == RING_GRAPH_ENTRY);
}

static void check_rooms(void)
{
	size_t free = f.reader.n_fresh;

	for (const struct ring_capture *c = f.reader.captures; c; c = c->next)
		CHECK(++free <= ROOMS);
	CHECK(free == ROOMS);
}

static void check_records(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ring_record *r = &f.out[i];

		CHECK(r->pid <= AGENT_PID_MASK);
		CHECK(r->type >= RING_FUNCTION && r->type <= RING_SWITCH &&
		      r->type != AGENT_REC_COMM_B && r->type != AGENT_REC_DATA);
		if (r->type == RING_COMM)
			continue;
		CHECK(r->n_args <= AGENT_MAX_ARGS && r->prev_pid <= AGENT_PID_MASK);
		CHECK(f.with_data || !(r->n_args || r->has_retval || r->has_depth));
		CHECK(r->type == RING_GRAPH_RETURN ? !r->n_args : !r->has_retval);
		CHECK(r->tsc <= AGENT_TSC_MASK && r->ctx <= AGENT_CTX_MASK);
		CHECK(r->ip == (u64)(s64)(s32)r->ip && r->parent == (u64)(s64)(s32)r->parent);
		CHECK(r->type == RING_GRAPH_RETURN ? !r->parent : !r->ticks);
		if (r->capture)
			check_capture(r);
	}
}

static u64 delivered(const struct ring_stats *s)
{
	return s->functions + s->entries + s->returns + s->switches;
}

static void drain(void)
{
	struct ring_stats was = f.reader.stats, *is = &f.reader.stats;
	size_t max = take(1) % (OUT_MAX + 1), n = OUT_MAX + 1;
	unsigned int flags = (take(1) % 4 == 3 ? RING_FINAL : 0) | f.with_data;
	const bool was_held = f.reader.held;
	u64 slots;
	int err;

	f.now_ns += take(1) * NSEC_PER_MSEC * 4;
	err = ring_drain(&f.reader, f.out, max, f.now_ns, flags, &n);
	CHECK(n <= max);
	check_records(n);
	for (size_t i = 0; i < n; i++) {
		if (f.out[i].type != RING_COMM)
			ring_give_back(&f.reader, &f.out[i]);
	}
	check_rooms();
	slots = delivered(is) + is->comms + is->data + is->torn + is->overwritten + f.reader.held;
	CHECK(f.reader.pos - f.reader.start == slots);
	CHECK(delivered(is) - delivered(&was) <= n);
	CHECK(n - (delivered(is) - delivered(&was)) <= (is->comms - was.comms + 1) / 2);
	CHECK(f.mode == AGENT_MODE_OVERWRITE || is->overwritten == 0);
	CHECK(delivered(is) + is->comms + is->torn + is->data + f.reader.held - delivered(&was) -
		      was.comms - was.torn - was.data - was_held <=
	      SLOTS);
	CHECK(!f.reader.held || f.with_data);
	CHECK(is->refused >= was.refused);
	if (!err) {
		CHECK(f.tail == f.reader.pos);
		return;
	}
	CHECK(ring_drain(&f.reader, f.out, max, f.now_ns, flags, &n) == err && n == 0);
	f.live = false;
}

int LLVMFuzzerTestOneInput(const u8 *input, size_t len)
{
	memset(&f, 0, sizeof(f));
	f.input = input;
	f.len = len;
	f.mode = take(1) & 1 ? AGENT_MODE_OVERWRITE : AGENT_MODE_DISCARD;
	cpu()->head = take(1) & 1 ? take(7) : 0;
	cpu()->tail = cpu()->head;
	open_reader();
	while (f.len && f.live) {
		u64 op = take(1);

		if (op & 0x80) {
			f.racing = op & 0x40;
			drain();
			f.racing = false;
		} else if (op == 0x7f) {
			open_reader();
		} else {
			guest_op(op);
		}
	}
	return 0;
}
