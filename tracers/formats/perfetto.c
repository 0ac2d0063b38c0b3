// SPDX-License-Identifier: Apache-2.0
/*
 * Perfetto's protobuf: a Trace is a row of TracePackets, so it is written as it comes. Calls are slices
 * on a track a task, made with TrackEvents that refer to interned names; task switches are slices on a
 * track a CPU (not ftrace's own sched_switch packets: those have to say in which state a task was left,
 * which is not known). What was lost is an instant on a track of its own, in a packet that says that those
 * before it were dropped; it has a packet sequence of its own, as a drop ends the life of interned names.
 *
 * Source: Perfetto protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto,
 * track_descriptor.proto, thread_descriptor.proto, process_descriptor.proto, debug_annotation.proto,
 * interned_data.proto: the numbers below.
 */
#include "tracers/formats/pb.h"
#include "tracers/formats/priv.h"
#include "tracers/formats/spans.h"
#include "tracers/out_values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	TRACE_PACKET = 1,
	/* TracePacket */
	P_TIMESTAMP = 8,
	P_SEQUENCE_ID = 10, /* trusted_packet_sequence_id */
	P_TRACK_EVENT = 11,
	P_INTERNED_DATA = 12,
	P_SEQUENCE_FLAGS = 13,
	P_PREVIOUS_DROPPED = 42,
	P_TRACK_DESCRIPTOR = 60,
	/* TrackDescriptor */
	D_UUID = 1,
	D_NAME = 2,
	D_PROCESS = 3,
	D_THREAD = 4,
	D_PARENT_UUID = 5,
	PROCESS_PID = 1,
	PROCESS_NAME = 6,
	THREAD_PID = 1,
	THREAD_TID = 2,
	THREAD_NAME = 5,
	/* TrackEvent */
	E_DEBUG_ANNOTATIONS = 4,
	E_TYPE = 9,
	E_NAME_IID = 10,
	E_TRACK_UUID = 11,
	E_CATEGORIES = 22,
	E_NAME = 23,
	/* DebugAnnotation */
	A_UINT = 3,
	A_STRING = 6,
	A_POINTER = 7,
	A_NAME = 10,
	/* InternedData */
	I_EVENT_NAMES = 2,
	NAME_IID = 1,
	NAME_NAME = 2,
	/* values */
	TYPE_SLICE_BEGIN = 1,
	TYPE_SLICE_END = 2,
	TYPE_INSTANT = 3,
	FLAG_CLEARED = 1, /* SEQ_INCREMENTAL_STATE_CLEARED */
	FLAG_NEEDS = 2, /* SEQ_NEEDS_INCREMENTAL_STATE */
	SEQUENCE = 1,
	SEQUENCE_LOST = 2,
};

#define PACKET_BYTES (3 * 1024 + ARGS_TEXT_MAX + 1024)

/* Tracks: what they are in the upper half, which one in the lower. */
#define TRACK_GUEST 1ull
#define TRACK_LOST  2ull
#define TRACK_TASK  (1ull << 32)
#define TRACK_IDLE  (2ull << 32)
#define TRACK_CPU   (3ull << 32)
#define TRACK_GROUP (4ull << 32)

struct perfetto {
	u32 interned; /* symbols up to this number are */
	struct {
		bool named, open;
		u32 pid;
	} * cpu;
	u32 n_cpus;
	bool cleared; /* the first packet of the sequence was written */
};

static int create(struct export *x, struct err *err)
{
	x->priv = calloc(1, sizeof(struct perfetto));
	return x->priv ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for an export");
}

static void destroy(struct export *x)
{
	struct perfetto *f = x->priv;

	if (f)
		free(f->cpu);
	free(f);
}

/* A packet of @sequence being made: @p goes on inside of it. */
struct packet {
	u8 *start, *p;
};

static bool packet_open(struct export *x, struct buf *b, struct packet *k, u32 sequence)
{
	struct perfetto *f = x->priv;
	u8 *p = (u8 *)buf_reserve(b, PACKET_BYTES);
	u32 flags = sequence == SEQUENCE ? FLAG_NEEDS : 0;

	if (!p)
		return false;
	if (sequence == SEQUENCE && !f->cleared) {
		flags |= FLAG_CLEARED;
		f->cleared = true;
	}
	k->start = p = pb_open(p, TRACE_PACKET);
	p = pb_u64(p, P_SEQUENCE_ID, sequence);
	if (flags)
		p = pb_u64(p, P_SEQUENCE_FLAGS, flags);
	k->p = p;
	return true;
}

static void packet_close(struct buf *b, struct packet *k)
{
	b->len = (size_t)((char *)pb_close(k->start, k->p) - b->data);
}

/* The names that came since the last time. */
static void intern(struct export *x, struct buf *b)
{
	struct perfetto *f = x->priv;
	struct packet k;
	u8 *data, *name;

	while (f->interned < syms_count(x->syms)) {
		const struct exp_sym *sym = syms_at(x->syms, f->interned + 1);

		if (!packet_open(x, b, &k, SEQUENCE))
			return;
		f->interned++;
		data = k.p = pb_open(k.p, P_INTERNED_DATA);
		name = k.p = pb_open(k.p, I_EVENT_NAMES);
		k.p = pb_u64(k.p, NAME_IID, f->interned);
		k.p = pb_bytes(k.p, NAME_NAME, sym->name, sym->name_len);
		k.p = pb_close(name, k.p);
		k.p = pb_close(data, k.p);
		packet_close(b, &k);
	}
}

struct track {
	u64 uuid, parent;
	const char *name;
	u32 pid, tid; /* a thread's, or with tid 0 a process's */
};

static void add_track(struct export *x, struct buf *b, const struct track *t)
{
	struct packet k;
	u8 *d, *inner;

	if (!packet_open(x, b, &k, SEQUENCE))
		return;
	d = k.p = pb_open(k.p, P_TRACK_DESCRIPTOR);
	k.p = pb_u64(k.p, D_UUID, t->uuid);
	if (t->parent)
		k.p = pb_u64(k.p, D_PARENT_UUID, t->parent);
	if (!t->pid)
		k.p = pb_bytes(k.p, D_NAME, t->name, strlen(t->name));
	if (t->pid && t->tid) {
		inner = k.p = pb_open(k.p, D_THREAD);
		k.p = pb_u64(k.p, THREAD_PID, t->pid);
		k.p = pb_u64(k.p, THREAD_TID, t->tid);
		k.p = pb_bytes(k.p, THREAD_NAME, t->name, strlen(t->name));
		k.p = pb_close(inner, k.p);
	} else if (t->pid) {
		inner = k.p = pb_open(k.p, D_PROCESS);
		k.p = pb_u64(k.p, PROCESS_PID, t->pid);
		k.p = pb_bytes(k.p, PROCESS_NAME, t->name, strlen(t->name));
		k.p = pb_close(inner, k.p);
	}
	k.p = pb_close(d, k.p);
	packet_close(b, &k);
}

static u8 *add_text(u8 *p, const char *name, const char *text, size_t len)
{
	u8 *a = p = pb_open(p, E_DEBUG_ANNOTATIONS);

	p = pb_bytes(p, A_NAME, name, strlen(name));
	p = pb_bytes(p, A_STRING, text, len);
	return pb_close(a, p);
}

static u8 *add_number(u8 *p, const char *name, u64 v, u32 kind)
{
	u8 *a = p = pb_open(p, E_DEBUG_ANNOTATIONS);

	p = pb_bytes(p, A_NAME, name, strlen(name));
	p = pb_u64(p, kind, v);
	return pb_close(a, p);
}

static void head(struct export *x, struct buf *b)
{
	const struct output_meta *m = &x->meta;
	char name[256], time[40], zero[40];
	struct packet k;
	u8 *event;

	snprintf(name, sizeof(name), "guest %.64s, Linux %.80s", m->guest, m->release);
	add_track(x, b, &(struct track){ .uuid = TRACK_GUEST, .name = name });
	add_track(x, b,
		  &(struct track){
			  .uuid = TRACK_LOST, .parent = TRACK_GUEST, .name = "lost events" });
	if (!packet_open(x, b, &k, SEQUENCE_LOST))
		return;
	k.p = pb_u64(k.p, P_TIMESTAMP, 0);
	event = k.p = pb_open(k.p, P_TRACK_EVENT);
	k.p = pb_u64(k.p, E_TYPE, TYPE_INSTANT);
	k.p = pb_u64(k.p, E_TRACK_UUID, TRACK_GUEST);
	k.p = pb_bytes(k.p, E_NAME, "trace", 5);
	k.p = add_text(k.p, "producer", "hvftrace " HVF_VERSION, strlen("hvftrace " HVF_VERSION));
	k.p = add_text(k.p, "guest", m->guest, strnlen(m->guest, sizeof(m->guest)));
	k.p = add_text(k.p, "kernel", m->release, strnlen(m->release, sizeof(m->release)));
	k.p = add_text(k.p, "tracer", m->tracer, strnlen(m->tracer, sizeof(m->tracer)));
	k.p = add_text(k.p, "clock", "the guest's trace clock", 23);
	snprintf(name, sizeof(name), "%s", export_time(m->started_ns, time));
	k.p = add_text(k.p, "started", name, strlen(name));
	snprintf(name, sizeof(name), "%s", export_time(m->boot_ns, zero));
	k.p = add_text(k.p, "clock_zero", name, strlen(name));
	k.p = pb_close(event, k.p);
	packet_close(b, &k);
}

static u64 track_of(const struct task *t)
{
	return t->pid ? TRACK_TASK | t->pid : TRACK_IDLE | (u32)t->key;
}

static void name_task(struct export *x, struct buf *b, const struct task *t)
{
	u32 tgid = t->tgid ? t->tgid : t->pid;
	struct track track = { .uuid = track_of(t), .name = t->comm, .pid = tgid, .tid = t->pid };
	char idle[32];

	snprintf(idle, sizeof(idle), "idle on CPU %u", (u32)t->key);
	if (!t->pid) {
		track.name = idle;
		track.parent = TRACK_GUEST;
	}
	add_track(x, b, &track);
	if (t->pid && tgid == t->pid)
		add_track(x, b,
			  &(struct track){
				  .uuid = TRACK_GROUP | tgid, .name = t->comm, .pid = tgid });
}

/* An event of @track, up to its annotations; ends with event_close(). */
static bool event_open(struct export *x, struct buf *b, struct packet *k, u8 **event_ret, u64 ts_ns)
{
	if (!packet_open(x, b, k, SEQUENCE))
		return false;
	k->p = pb_u64(k->p, P_TIMESTAMP, ts_ns);
	*event_ret = k->p = pb_open(k->p, P_TRACK_EVENT);
	return true;
}

static void event_close(struct buf *b, struct packet *k, u8 *event)
{
	k->p = pb_close(event, k->p);
	packet_close(b, k);
}

static void begin_call(struct export *x, struct buf *b, const struct span *s)
{
	const struct exp_sym *sym = syms_at(x->syms, s->call->sym);
	struct packet k;
	u8 *event;

	intern(x, b);
	if (!event_open(x, b, &k, &event, s->ts_ns))
		return;
	k.p = pb_u64(k.p, E_TYPE, TYPE_SLICE_BEGIN);
	k.p = pb_u64(k.p, E_TRACK_UUID, track_of(s->task));
	k.p = pb_u64(k.p, E_NAME_IID, s->call->sym);
	if (sym->module)
		k.p = add_text(k.p, "module", sym->module, strlen(sym->module));
	if (s->call->args)
		k.p = add_text(k.p, "args", s->call->args, strlen(s->call->args));
	if (s->entry_lost) {
		k.p = add_text(k.p, "entry", "lost", 4);
		k.p = add_number(k.p, "duration_ns", s->r->duration_ns, A_UINT);
	}
	event_close(b, &k, event);
}

static void end_call(struct export *x, struct buf *b, const struct span *s)
{
	static const char *const ends[] = {
		[SPAN_RETURN_LOST] = "return lost",
		[SPAN_NEVER] = "task ended inside",
	};
	char ret[RETVAL_TEXT_MAX];
	struct packet k;
	u8 *event;

	if (s->how == SPAN_INSIDE || !event_open(x, b, &k, &event, s->ts_ns))
		return; /* a slice without an end is one that is not over */
	k.p = pb_u64(k.p, E_TYPE, TYPE_SLICE_END);
	k.p = pb_u64(k.p, E_TRACK_UUID, track_of(s->task));
	if (s->how != SPAN_RETURNED)
		k.p = add_text(k.p, "end", ends[s->how], strlen(ends[s->how]));
	else if (s->r->has_retval)
		k.p = add_text(k.p, "ret", ret, (size_t)(fmt_retval(ret, s->r, x->names) - ret));
	/* durations without sleep are not what lies between the two */
	if (s->how == SPAN_RETURNED && !s->entry_lost &&
	    s->r->duration_ns != s->ts_ns - MIN(s->ts_ns, s->call->ts_ns))
		k.p = add_number(k.p, "duration_ns", s->r->duration_ns, A_UINT);
	event_close(b, &k, event);
}

static const struct span_ops span_ops = { begin_call, end_call };

static void instant(struct export *x, struct buf *b, const struct trace_record *r,
		    const struct task *t)
{
	u32 ip = export_sym(x, r->ip), parent = export_sym(x, r->parent);
	char args[ARGS_TEXT_MAX];
	const struct exp_sym *caller;
	struct packet k;
	u8 *event;

	intern(x, b);
	if (!event_open(x, b, &k, &event, r->ts_ns))
		return;
	caller = syms_at(x->syms, parent);
	k.p = pb_u64(k.p, E_TYPE, TYPE_INSTANT);
	k.p = pb_u64(k.p, E_TRACK_UUID, track_of(t));
	k.p = pb_u64(k.p, E_NAME_IID, ip);
	k.p = add_text(k.p, "parent", caller->name, caller->name_len);
	k.p = add_number(k.p, "cpu", r->cpu, A_UINT);
	if (r->n_args)
		k.p = add_text(k.p, "args", args, (size_t)(fmt_args(args, r, x->names) - args));
	event_close(b, &k, event);
}

static bool cpu_room(struct export *x, u32 cpu)
{
	struct perfetto *f = x->priv;
	void *more;

	if (cpu < f->n_cpus)
		return true;
	more = reallocarray(f->cpu, cpu + 1, sizeof(*f->cpu));
	if (!more) {
		export_fail(x, -ENOMEM);
		return false;
	}
	f->cpu = more;
	memset(f->cpu + f->n_cpus, 0, (cpu + 1 - f->n_cpus) * sizeof(*f->cpu));
	f->n_cpus = cpu + 1;
	return true;
}

static void run_event(struct export *x, struct buf *b, const struct trace_record *r, u32 type)
{
	struct packet k;
	u8 *event;

	if (!event_open(x, b, &k, &event, r->ts_ns))
		return;
	k.p = pb_u64(k.p, E_TYPE, type);
	k.p = pb_u64(k.p, E_TRACK_UUID, TRACK_CPU | r->cpu);
	if (type == TYPE_SLICE_BEGIN) {
		k.p = pb_bytes(k.p, E_NAME, r->comm, strnlen(r->comm, TRACE_COMM_LEN));
		k.p = add_number(k.p, "pid", r->pid, A_UINT);
	}
	event_close(b, &k, event);
}

static void switched(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct perfetto *f = x->priv;
	char name[32];

	if (!cpu_room(x, r->cpu))
		return;
	snprintf(name, sizeof(name), "CPU %u", r->cpu);
	if (!f->cpu[r->cpu].named)
		add_track(x, b,
			  &(struct track){ .uuid = TRACK_CPU | r->cpu,
					   .parent = TRACK_GUEST,
					   .name = name });
	f->cpu[r->cpu].named = true;
	if (f->cpu[r->cpu].open)
		run_event(x, b, r, TYPE_SLICE_END);
	f->cpu[r->cpu].open = r->pid != 0;
	if (r->pid)
		run_event(x, b, r, TYPE_SLICE_BEGIN);
}

static void record(struct export *x, struct buf *b, const struct trace_record *r)
{
	struct task *t;
	unsigned news;

	if (r->type == TRACE_SWITCH)
		switched(x, b, r);
	if (r->type > TRACE_GRAPH_NEVER)
		return;
	t = export_task(x, r, &news);
	if (!t)
		return;
	if (news)
		name_task(x, b, t);
	if (r->type == TRACE_FUNCTION)
		instant(x, b, r, t);
	else
		spans_add(x, b, t, r, &span_ops);
}

static u8 *add_call_args(u8 *p, const struct syscall_event *e)
{
	char name[8];

	if (e->nr >= 0)
		p = add_number(p, "nr", (u64)e->nr, A_UINT);
	for (u32 i = 0; i < e->n_args; i++) {
		snprintf(name, sizeof(name), "arg%u", i);
		p = add_number(p, name, e->args[i], A_POINTER);
	}
	return p;
}

static void syscall_event(struct export *x, struct buf *b, const struct syscall_event *e)
{
	struct trace_record who = { .pid = e->pid, .tgid = e->tgid, .cpu = e->cpu };
	bool over = e->state != SYSCALL_NEVER && e->state != SYSCALL_UNFINISHED;
	u32 sym = export_call_sym(x, e);
	char ret[24];
	unsigned news;
	struct packet k;
	struct task *t;
	u8 *event;

	memcpy(who.comm, e->comm, sizeof(who.comm));
	t = export_task(x, &who, &news);
	if (!t)
		return;
	if (news)
		name_task(x, b, t);
	intern(x, b);
	/* what never comes back is an instant: it would be around all that follows */
	if (!event_open(x, b, &k, &event, e->ts_ns))
		return;
	k.p = pb_u64(k.p, E_TYPE, over ? TYPE_SLICE_BEGIN : TYPE_INSTANT);
	k.p = pb_u64(k.p, E_TRACK_UUID, track_of(t));
	k.p = pb_u64(k.p, E_NAME_IID, sym);
	k.p = pb_bytes(k.p, E_CATEGORIES, "syscall", 7);
	k.p = add_call_args(k.p, e);
	event_close(b, &k, event);
	if (!over || !event_open(x, b, &k, &event, e->ts_ns + e->duration_ns))
		return;
	k.p = pb_u64(k.p, E_TYPE, TYPE_SLICE_END);
	k.p = pb_u64(k.p, E_TRACK_UUID, track_of(t));
	snprintf(ret, sizeof(ret), "%lld", (long long)e->ret);
	k.p = add_text(k.p, "ret", ret, strlen(ret));
	event_close(b, &k, event);
}

static void lost(struct export *x, struct buf *b, u64 count)
{
	struct packet k;
	char name[48];
	u8 *event;

	if (!packet_open(x, b, &k, SEQUENCE_LOST))
		return;
	snprintf(name, sizeof(name), "lost %llu events", (unsigned long long)count);
	k.p = pb_u64(k.p, P_TIMESTAMP, x->last_ns);
	k.p = pb_u64(k.p, P_PREVIOUS_DROPPED, 1);
	event = k.p = pb_open(k.p, P_TRACK_EVENT);
	k.p = pb_u64(k.p, E_TYPE, TYPE_INSTANT);
	k.p = pb_u64(k.p, E_TRACK_UUID, TRACK_LOST);
	k.p = pb_bytes(k.p, E_NAME, name, strlen(name));
	k.p = add_number(k.p, "count", count, A_UINT);
	event_close(b, &k, event);
}

static bool end(struct export *x, struct buf *b)
{
	struct packet k;
	u8 *event;

	if (!packet_open(x, b, &k, SEQUENCE_LOST))
		return false;
	k.p = pb_u64(k.p, P_TIMESTAMP, x->last_ns);
	event = k.p = pb_open(k.p, P_TRACK_EVENT);
	k.p = pb_u64(k.p, E_TYPE, TYPE_INSTANT);
	k.p = pb_u64(k.p, E_TRACK_UUID, TRACK_GUEST);
	k.p = pb_bytes(k.p, E_NAME, "end of trace", 12);
	k.p = add_number(k.p, "records", x->n_records, A_UINT);
	k.p = add_number(k.p, "lost", x->n_lost, A_UINT);
	k.p = add_number(k.p, "left_out", x->n_left_out, A_UINT);
	k.p = add_text(k.p, "restored", x->meta.restored ? "yes" : "not known",
		       x->meta.restored ? 3 : 9);
	event_close(b, &k, event);
	return false;
}

const struct export_ops export_perfetto = {
	.create = create,
	.destroy = destroy,
	.head = head,
	.record = record,
	.syscall = syscall_event,
	.lost = lost,
	.end = end,
};
