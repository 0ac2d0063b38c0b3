// SPDX-License-Identifier: Apache-2.0
/* The host's side of the agent's rings. See ring.h. */
#include "tracers/ring.h"

#include <errno.h>
#include <string.h>

/* 2^56 records are 228 years at 10 million a second: a head beyond was not counted there. */
#define HEAD_MAX (1ull << 56)
#define LOW36    ((1ull << AGENT_CHECK_SHIFT) - 1)
#define WORDS    (AGENT_RECORD_BYTES / 8)
#define DATA_MAX AGENT_MAX_CALL_DATA

enum slot_state {
	SLOT_VALID,
	SLOT_UNWRITTEN, /* an older lap, or words that do not belong together */
	SLOT_NEWER, /* a later lap's */
	SLOT_SENSELESS, /* written whole, but of a type there is not */
};

struct span {
	u64 first; /* index of raw[0] */
	u64 n;
	u64 floor; /* indexes below may have been used again while raw was read */
	u64 head; /* as of before raw was read for the first time */
	u64 now_ns;
	unsigned int flags;
	size_t max; /* records that there is room for */
	bool fresh; /* a record is held: what is behind it in raw may have been read before it */
	u64 raw[RING_CHUNK * WORDS];
};

static int fail(struct ring_reader *r, int no)
{
	r->broken = no;
	return no;
}

/* Nobody but us writes tail: another one there is of another time, a snapshot's. 0; -ESTALE; -errno */
static int check_tail(struct ring_reader *r)
{
	u64 tail;
	int err = r->io.read(r->io.arg, r->cpu_off + offsetof(struct agent_cpu, tail), &tail, 8);

	if (err)
		return err;
	return tail == r->tail ? 0 : -ESTALE;
}

static int senseless(struct ring_reader *r)
{
	int err = check_tail(r);

	return err ? err : -EUCLEAN;
}

static int read_head(struct ring_reader *r, u64 *head_ret)
{
	u64 head_lost[2];
	int err = r->io.read(r->io.arg, r->cpu_off, head_lost, sizeof(head_lost));

	if (err)
		return fail(r, err);
	if (head_lost[0] < r->pos || head_lost[0] > HEAD_MAX)
		return fail(r, senseless(r));
	if (!r->overwrite && head_lost[0] - r->pos > r->slots)
		return fail(r, senseless(r));
	if (head_lost[1] < r->lost_start + r->stats.refused)
		return fail(r, senseless(r));
	r->stats.refused = head_lost[1] - r->lost_start;
	*head_ret = head_lost[0];
	return 0;
}

int ring_reader_init(struct ring_reader *r, const struct ring_io *io,
		     const struct agent_header *hdr, u32 cpu)
{
	u64 tail, lost, head;
	int err;

	if (cpu >= hdr->nr_cpus || hdr->ring_slots < AGENT_MIN_SLOTS ||
	    hdr->ring_slots > AGENT_MAX_SLOTS || (hdr->ring_slots & (hdr->ring_slots - 1)))
		return -EINVAL;
	memset(r, 0, sizeof(*r));
	r->io = *io;
	r->slots = hdr->ring_slots;
	r->shift = (u32)__builtin_ctz(hdr->ring_slots);
	r->overwrite = hdr->mode == AGENT_MODE_OVERWRITE;
	r->cpu_off = AGENT_CPU_OFF + (u64)cpu * AGENT_CPU_BYTES;
	r->ring_off = hdr->ring_off + (u64)cpu * hdr->ring_slots * AGENT_RECORD_BYTES;
	r->comm_next = UINT64_MAX;

	err = r->io.read(r->io.arg, r->cpu_off + offsetof(struct agent_cpu, tail), &tail, 8);
	if (err)
		return fail(r, err);
	err = r->io.read(r->io.arg, r->cpu_off + offsetof(struct agent_cpu, lost), &lost, 8);
	if (err)
		return fail(r, err);
	r->start = tail;
	r->pos = tail;
	r->tail = tail;
	r->lost_start = lost;
	return read_head(r, &head);
}

int ring_pending(struct ring_reader *r, u64 *n_ret)
{
	u64 head;
	int err = r->broken ? r->broken : read_head(r, &head);

	if (err)
		return err;
	*n_ret = head - r->pos;
	return 0;
}

static inline u64 rotl64(u64 v, unsigned int n)
{
	return v << n | v >> (64 - n);
}

static inline enum slot_state slot_state(const struct ring_reader *r, const u64 *w, u64 index)
{
	u64 sum = (w[0] ^ rotl64(w[1], AGENT_CHECK_ROTATE) ^ (w[2] & LOW36)) * AGENT_CHECK_MUL;
	u16 lap = (u16)((index >> r->shift) + 1);
	u16 has = (u16)(w[0] >> AGENT_LAP_SHIFT);
	u64 type = w[2] >> AGENT_TYPE_SHIFT & AGENT_TYPE_MASK;

	if (has == lap && ((sum ^ w[2]) & ~LOW36) == 0)
		return type >= AGENT_REC_FUNCTION && type <= AGENT_REC_SWITCH ? SLOT_VALID
									      : SLOT_SENSELESS;
	return has != lap && (u16)(has - lap) < 0x8000 ? SLOT_NEWER : SLOT_UNWRITTEN;
}

static void take_comm(struct ring_reader *r, const u64 *w, u64 index, bool second)
{
	struct ring_record *c = &r->comm;

	r->stats.comms++;
	if (!second) {
		memset(c, 0, sizeof(*c));
		c->type = RING_COMM;
		c->pid = w[2] & AGENT_PID_MASK;
		c->tgid = (u32)w[0];
		memcpy(c->comm, &w[1], 8);
		r->comm_next = index + 1;
		return;
	}
	/* Half a name, after a slot that was lost, is no name. */
	if (r->comm_next != index || c->pid != (w[2] & AGENT_PID_MASK) || c->tgid != (u32)w[0])
		c->type = 0;
	memcpy(c->comm + 8, &w[1], 8);
	r->comm_next = UINT64_MAX;
}

/* Hand on the record at out[*n]. */
static inline void deliver(struct ring_reader *r, u8 type, size_t *n)
{
	switch (type) {
	case RING_GRAPH_ENTRY:
		r->stats.entries++;
		break;
	case RING_GRAPH_RETURN:
		r->stats.returns++;
		break;
	case RING_FUNCTION:
		r->stats.functions++;
		break;
	case RING_SWITCH:
		r->stats.switches++;
		break;
	default: /* a name: its slots are counted */
		break;
	}
	++*n;
}

static void decode(const u64 *w, u8 type, struct ring_record *out)
{
	out->tsc = w[0] & AGENT_TSC_MASK;
	out->ip = type == AGENT_REC_SWITCH ? 0 : (u64)(s64)(s32)(u32)w[1];
	out->parent = 0;
	out->ticks = 0;
	out->pid = w[2] & AGENT_PID_MASK;
	out->prev_pid = 0;
	out->ctx = w[2] >> AGENT_CTX_SHIFT & AGENT_CTX_MASK;
	out->type = type;
	out->n_args = 0;
	out->has_retval = out->has_depth = out->has_who = out->nr32 = false;
	out->depth = 0;
	out->capture = NULL;
	if (type == AGENT_REC_GRAPH_RETURN)
		out->ticks = agent_duration((u32)(w[1] >> 32));
	else if (type == AGENT_REC_SWITCH)
		out->prev_pid = w[1] & AGENT_PID_MASK;
	else
		out->parent = (u64)(s64)(s32)(u32)(w[1] >> 32);
}

/* NULL: counted. */
static struct ring_capture *take_room(struct ring_reader *r)
{
	struct ring_capture *c = r->captures;

	if (c) {
		r->captures = c->next;
	} else if (r->n_fresh) {
		c = r->fresh++;
		r->n_fresh--;
	} else {
		r->captures_dropped++;
	}
	return c;
}

/* The first of a capture's DATA takes room for it. */
static void take_capture(struct ring_reader *r, u32 program, const u64 *w, struct ring_record *rec)
{
	u64 sizes = w[0] & AGENT_TSC_MASK;
	struct ring_capture *c;

	if ((rec->type != RING_FUNCTION && rec->type != RING_GRAPH_ENTRY) || rec->capture)
		return;
	c = take_room(r);
	if (!c)
		return;
	*c = (struct ring_capture){ .program = (u8)program,
				    .there = (u32)(sizes >> AGENT_CAPTURE_THERE_SHIFT),
				    .n = MIN((u32)sizes & ((1u << AGENT_CAPTURE_THERE_SHIFT) - 1),
					     (u32)AGENT_CAPTURE_MAX),
				    .key = w[1] };
	rec->capture = c;
}

/* Of the rest what comes in order counts. */
static void take_bytes(u32 number, u64 word, struct ring_capture *c)
{
	if (c && !c->stack && number == c->n_words && number < AGENT_CAPTURE_WORDS)
		c->words[c->n_words++] = word;
}

static void take_call(u32 what, u64 word, struct ring_record *rec)
{
	if (what == AGENT_DATA_WHO) {
		rec->has_who = true;
		rec->who = word;
		return;
	}
	rec->nr1 = (u32)word + 1;
	rec->nr32 = what == AGENT_DATA_NR32;
}

static void take_stack(struct ring_reader *r, u32 number, u64 word, struct ring_record *rec)
{
	struct ring_capture *c = rec->capture;

	if (!c && !number) {
		c = take_room(r);
		if (!c)
			return;
		*c = (struct ring_capture){ .stack = true, .n = AGENT_CAPTURE_MAX };
		rec->capture = c;
	}
	if (c && c->stack && number == c->n_words && number < AGENT_CAPTURE_WORDS)
		c->words[c->n_words++] = word;
}

/* A DATA slot: into the record that is held in @rec, if it is one of its own. */
static void take_data(struct ring_reader *r, const u64 *w, struct ring_record *rec)
{
	u32 what = w[2] >> AGENT_CTX_SHIFT & AGENT_CTX_MASK, number = what & AGENT_DATA_NUMBER;

	r->stats.data++;
	if (!r->held || rec->pid != (w[2] & AGENT_PID_MASK))
		return;
	if ((what & AGENT_DATA_KIND) == AGENT_DATA_CAPTURE) { /* which has something else there */
		take_capture(r, number, w, rec);
		return;
	}
	if (rec->tsc != (w[0] & AGENT_TSC_MASK))
		return;
	switch (what & AGENT_DATA_KIND) {
	case AGENT_DATA_ARG: /* one behind a gap is of no use: which is it? */
		if (rec->type == RING_GRAPH_RETURN || number != rec->n_args ||
		    number >= AGENT_MAX_ARGS)
			return;
		rec->args[rec->n_args++] = w[1];
		return;
	case AGENT_DATA_RETVAL:
		if (rec->type != RING_GRAPH_RETURN)
			return;
		rec->has_retval = true;
		rec->retval = w[1];
		return;
	case AGENT_DATA_DEPTH:
		rec->has_depth = true;
		rec->depth = (u16)MIN(w[1], (u64)UINT16_MAX);
		return;
	case AGENT_DATA_NR:
		if (rec->type == RING_GRAPH_ENTRY || rec->type == RING_FUNCTION)
			take_call(what, w[1], rec);
		return;
	case AGENT_DATA_STACK:
		take_stack(r, number, w[1], rec);
		return;
	case AGENT_DATA_BYTES:
		take_bytes(number, w[1], rec->capture);
		return;
	default: /* of a later agent */
		return;
	}
}

/* The record at out[*n] gets no more DATA. */
static void let_go(struct ring_reader *r, struct ring_record *out, size_t *n)
{
	struct ring_capture *c;

	if (!r->held)
		return;
	c = out[*n].capture;
	if (c && c->n > 8u * c->n_words) {
		c->cut = !c->stack;
		c->n = 8u * c->n_words;
	}
	r->held = false;
	deliver(r, out[*n].type, n);
}

/*
 * A valid slot. A record that is held lies at out[*n]; whatever is not its DATA comes after it. false:
 * there is no room, the slot is not taken.
 */
static inline bool take(struct ring_reader *r, struct span *s, u64 i, struct ring_record *out,
			size_t *n)
{
	const u64 *w = &s->raw[i * WORDS];
	unsigned int type = w[2] >> AGENT_TYPE_SHIFT & AGENT_TYPE_MASK;

	if (type == AGENT_REC_DATA) {
		take_data(r, w, &out[*n]);
		return true;
	}
	let_go(r, out, n);
	if (*n == s->max)
		return false;
	if (type == AGENT_REC_COMM_A || type == AGENT_REC_COMM_B) {
		take_comm(r, w, s->first + i, type == AGENT_REC_COMM_B);
		if (type == AGENT_REC_COMM_A || r->comm.type != RING_COMM)
			return true;
		out[*n] = r->comm;
		deliver(r, RING_COMM, n);
		return true;
	}
	decode(w, (u8)type, &out[*n]);
	if ((s->flags & RING_DATA) && type != AGENT_REC_SWITCH)
		r->held = s->fresh = true;
	else
		deliver(r, (u8)type, n);
	return true;
}

/* Should the slot at @index, reserved but not written, be waited for? Notes since when it is. */
static bool wait_for(struct ring_reader *r, const struct span *s, u64 index)
{
	u64 head = s->head, waited;

	if (s->flags & RING_FINAL)
		return false;
	if (!r->stalled) {
		r->stalled = true;
		r->stall_since_ns = s->now_ns;
		r->stall_head = head;
	}
	waited = s->now_ns > r->stall_since_ns ? s->now_ns - r->stall_since_ns : 0;
	if (r->overwrite && index < r->stall_head && waited >= RING_STALL_NS)
		return false; /* everything that was reserved then has had its time */
	/* Overwrite mode loses the rest of the ring if it waits until it is lapped. */
	if (r->overwrite && head - index > r->slots / 2)
		return false;
	if (index >= r->stall_head) { /* this one is younger than the one waited for before */
		r->stall_since_ns = s->now_ns;
		r->stall_head = head;
		waited = 0;
	}
	r->stats.stalled_ns = waited;
	return true;
}

/* Slots @i .. @i + @n of @s. */
static int read_slots(struct ring_reader *r, struct span *s, u64 i, u64 n)
{
	u64 slot = (s->first + i) & (r->slots - 1), now;
	int err;

	err = r->io.read(r->io.arg, r->ring_off + slot * AGENT_RECORD_BYTES, &s->raw[i * WORDS],
			 n * AGENT_RECORD_BYTES);
	if (err)
		return fail(r, err);
	s->fresh = false;
	s->floor = 0;
	if (!r->overwrite)
		return 0;
	/* One copy does not order the words in it against head: look at head again, after it. */
	err = read_head(r, &now);
	if (err)
		return err;
	if (now < s->head)
		return fail(r, -EUCLEAN);
	s->floor = now > r->slots ? now - r->slots : 0;
	return 0;
}

/*
 * Behind the record that is held comes a slot that was not written. The agent writes DATA before their
 * record: whoever reads the record and then, in another read, the slots behind it, has them all. In the
 * one read that gave the record they may be missing, as nothing orders the words of that.
 */
static int settle(struct ring_reader *r, struct span *s, u64 i, struct ring_record *out, size_t *n)
{
	if (s->fresh)
		return read_slots(r, s, i, MIN(s->n - i, (u64)DATA_MAX));
	let_go(r, out, n);
	return 0;
}

/*
 * Decode; stops early at a slot that is worth waiting for, or when @out is full. @taken_ret: how many
 * slots were taken; valid on failure too.
 */
static int take_span(struct ring_reader *r, struct span *s, struct ring_record *out, size_t *n,
		     u64 *taken_ret)
{
	u64 i = 0;
	int err = 0;

	while (i < s->n && *n < s->max) {
		u64 index = s->first + i;
		enum slot_state state = slot_state(r, &s->raw[i * WORDS], index);

		if (__builtin_expect(state == SLOT_VALID, 1)) {
			if (!take(r, s, i, out, n))
				break;
		} else if (r->held) {
			err = settle(r, s, i, out, n);
			if (err)
				break;
			continue;
		} else if (index < s->floor) {
			r->stats.overwritten++;
		} else if (state == SLOT_UNWRITTEN && wait_for(r, s, index)) {
			break;
		} else {
			r->stats.torn++;
		}
		i++;
	}
	*taken_ret = i;
	return err;
}

static void skip_overwritten(struct ring_reader *r, u64 head)
{
	u64 gone;

	if (head - r->pos <= r->slots)
		return;
	gone = head - r->slots - r->pos;
	r->stats.overwritten += gone;
	r->pos += gone;
}

static int drain(struct ring_reader *r, struct ring_record *out, struct span *s, size_t *n_ret)
{
	u64 taken;
	int err = read_head(r, &s->head);

	if (err)
		return err;
	skip_overwritten(r, s->head);
	while (r->pos < s->head && *n_ret < s->max) {
		s->first = r->pos;
		s->n = MIN(s->head - r->pos, r->slots - (r->pos & (r->slots - 1)));
		s->n = MIN(s->n, MIN((u64)RING_CHUNK, s->max - *n_ret + DATA_MAX));
		err = read_slots(r, s, 0, s->n);
		if (err)
			return err;
		err = take_span(r, s, out, n_ret, &taken);
		r->pos += taken;
		if (err || (taken < s->n && *n_ret < s->max))
			return err;
	}
	r->stalled = false;
	r->stats.stalled_ns = 0;
	return 0;
}

int ring_drain(struct ring_reader *r, struct ring_record *out, size_t max, u64 now_ns,
	       unsigned int flags, size_t *n_ret)
{
	struct span s;
	u64 from = r->pos;
	int err;

	*n_ret = 0;
	if (r->broken)
		return r->broken;
	if (!max)
		return 0;
	s.now_ns = now_ns;
	s.flags = flags;
	s.max = max;
	s.fresh = false;
	err = drain(r, out, &s, n_ret);
	/* a record and its DATA are reserved together: nothing behind head is its own */
	let_go(r, out, n_ret);
	if (err || r->pos == from)
		return err;
	err = check_tail(r);
	if (!err)
		err = r->io.write(r->io.arg, r->cpu_off + offsetof(struct agent_cpu, tail), &r->pos,
				  8);
	r->tail = r->pos;
	return err ? fail(r, err) : 0;
}
