// SPDX-License-Identifier: Apache-2.0
/*
 * The agent as built, its layout in memory, and the fields of its text that only the guest's kernel
 * decides. Host code in the agent's folder: knows the blob, not how it gets into a guest.
 */
#include "guest-agent/agent_abi.h"
#include "guest-agent/linkage.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

extern const struct agent_blob agent_blob __attribute__((visibility("hidden")));

/* No member of task_struct lies further in; it was 9.5 KiB in v6.12 with everything on. */
#define TASK_STRUCT_MAX 0x40000
#define COMM_LAST_BYTE  15
#define PAGE            4096ull

const struct agent_blob *agent_blob_get(void)
{
	return &agent_blob;
}

/* There may be none. */
static int check_table(agent_u32 slots, agent_u32 min, agent_u32 max)
{
	return slots && (slots < min || slots > max || (slots & (slots - 1))) ? -EINVAL : 0;
}

static int check_sizes(const struct agent_header *hdr)
{
	if (hdr->nr_cpus == 0 || hdr->nr_cpus > AGENT_MAX_CPUS)
		return -EINVAL;
	if (hdr->ring_slots < AGENT_MIN_SLOTS || hdr->ring_slots > AGENT_MAX_SLOTS)
		return -EINVAL;
	if (hdr->nr_frames < AGENT_MIN_FRAMES || hdr->nr_frames > AGENT_MAX_FRAMES)
		return -EINVAL;
	if ((hdr->ring_slots & (hdr->ring_slots - 1)) || (hdr->nr_frames & (hdr->nr_frames - 1)))
		return -EINVAL;
	return check_table(hdr->site_slots, AGENT_MIN_SITES, AGENT_MAX_SITES) ||
			       check_table(hdr->task_slots, AGENT_TASK_BUCKET, AGENT_MAX_TASKS)
		       ? -EINVAL
		       : 0;
}

static agent_u64 page_up(agent_u64 v)
{
	return (v + PAGE - 1) & ~(PAGE - 1);
}

static agent_u32 ring_off(const struct agent_header *hdr)
{
	return (agent_u32)page_up(AGENT_CPU_OFF + hdr->nr_cpus * AGENT_CPU_BYTES);
}

static agent_u64 frames_off(const struct agent_header *hdr)
{
	return page_up(ring_off(hdr) +
		       (agent_u64)hdr->nr_cpus * hdr->ring_slots * AGENT_RECORD_BYTES);
}

static agent_u64 reclaim_off(const struct agent_header *hdr)
{
	return frames_off(hdr) + (agent_u64)hdr->nr_frames * AGENT_FRAME_BYTES;
}

/* A multiple of 64, as the frames' number is. */
static agent_u64 sites_off(const struct agent_header *hdr)
{
	return reclaim_off(hdr) + (agent_u64)hdr->nr_frames * sizeof(agent_u32);
}

static agent_u64 tasks_off(const struct agent_header *hdr)
{
	return sites_off(hdr) + (agent_u64)hdr->site_slots * sizeof(struct agent_site);
}

static agent_u64 scratch_off(const struct agent_header *hdr)
{
	return tasks_off(hdr) + (agent_u64)hdr->task_slots * sizeof(struct agent_task);
}

static agent_u64 steps_off(const struct agent_header *hdr)
{
	return scratch_off(hdr) + hdr->nr_cpus * sizeof(struct agent_scratch);
}

static agent_u64 followed_off(const struct agent_header *hdr)
{
	return steps_off(hdr) + AGENT_USER_STEPS * sizeof(struct agent_user_step);
}

int agent_layout(struct agent_header *hdr)
{
	if (check_sizes(hdr))
		return -EINVAL;
	hdr->magic = AGENT_MAGIC;
	hdr->abi_version = AGENT_ABI_VERSION;
	hdr->ring_off = ring_off(hdr);
	hdr->frames_off = frames_off(hdr);
	hdr->reclaim_off = reclaim_off(hdr);
	hdr->sites_off = sites_off(hdr);
	hdr->tasks_off = tasks_off(hdr);
	hdr->scratch_off = scratch_off(hdr);
	hdr->steps_off = steps_off(hdr);
	hdr->followed_off = followed_off(hdr);
	return 0;
}

agent_u64 agent_data_bytes(const struct agent_header *hdr)
{
	return page_up(hdr->followed_off + AGENT_FOLLOWED_WORDS * sizeof(agent_u64));
}

agent_u64 agent_text_bytes(const struct agent_header *hdr)
{
	return page_up(AGENT_TEXT_BYTES + (agent_u64)hdr->nr_frames * AGENT_TRAMP_BYTES);
}

/* CPU c's frames are those from here to where the next CPU's begin. */
static agent_u64 frames_before(const struct agent_header *hdr, agent_u32 cpu)
{
	return (agent_u64)hdr->nr_frames * cpu / hdr->nr_cpus;
}

agent_u64 agent_first_frame(const struct agent_header *hdr, agent_u32 cpu)
{
	agent_u64 first = frames_before(hdr, cpu);

	return first < frames_before(hdr, cpu + 1) ? first + 1 : 0;
}

void agent_init_frames(const struct agent_header *hdr, agent_u32 first, agent_u32 n,
		       struct agent_frame *frames)
{
	memset(frames, 0, n * sizeof(*frames));
	for (agent_u32 i = 0; i < n; i++) {
		agent_u64 next = (agent_u64)first + i + 1;
		/* the CPU whose list would go on with it; it starts a list when it is its first */
		agent_u32 cpu = (agent_u32)(next * hdr->nr_cpus / hdr->nr_frames);

		while (cpu < hdr->nr_cpus && frames_before(hdr, cpu) < next)
			cpu++;
		if (next < hdr->nr_frames && frames_before(hdr, cpu) != next)
			frames[i].next = (agent_u32)next + 1;
	}
}

agent_u32 agent_site_slot(const struct agent_header *hdr, agent_u32 ip)
{
	return (agent_u32)((agent_u64)(ip * AGENT_SITE_MUL) * hdr->site_slots >> 32);
}

/* Robin Hood: who is nearer to its own slot than the one that looks for a place gives way. */
int agent_put_site(const struct agent_header *hdr, struct agent_site *table, agent_u32 ip,
		   agent_u32 what)
{
	const agent_u32 mask = hdr->site_slots - 1;
	struct agent_site e = { ip, what };
	agent_u32 far = 0, i = agent_site_slot(hdr, ip);

	if (!ip || !hdr->site_slots)
		return -EINVAL;
	for (; far < AGENT_SITE_PROBES; far++, i = (i + 1) & mask) {
		struct agent_site was = table[i];
		agent_u32 was_far = (i - agent_site_slot(hdr, was.ip)) & mask;

		if (was.ip == e.ip) {
			table[i].what |= e.what;
			return 0;
		}
		if (was.ip && was_far >= far)
			continue;
		table[i] = e;
		if (!was.ip)
			return 0;
		e = was;
		far = was_far;
	}
	return -ENOSPC;
}

agent_u64 agent_duration(agent_u32 coded)
{
	agent_u64 mantissa = coded & ((1u << AGENT_DURATION_BITS) - 1);

	return mantissa << (coded >> AGENT_DURATION_BITS);
}

static void put_trampolines(const struct agent_blob *blob, const struct agent_header *hdr,
			    agent_u8 *text)
{
	agent_u64 end = agent_text_bytes(hdr);

	memset(text + AGENT_TEXT_BYTES, 0xcc, end - AGENT_TEXT_BYTES);
	for (agent_u32 i = 0; i < hdr->nr_frames; i++) {
		agent_u32 off = AGENT_TEXT_BYTES + i * AGENT_TRAMP_BYTES;
		int rel = (int)blob->return_to_handler - (int)(off + 5);

		text[off] = 0xe8; /* call return_to_handler */
		memcpy(text + off + 1, &rel, sizeof(rel));
	}
}

static int put_s32(agent_u8 *field, agent_s64 value)
{
	static const agent_u32 hole = AGENT_HOLE;
	int v = (int)value;

	if (memcmp(field, &hole, sizeof(hole)) != 0)
		return -EINVAL;
	if (value < INT_MIN || value > INT_MAX)
		return -ERANGE;
	memcpy(field, &v, sizeof(v));
	return 0;
}

static int put_u8(agent_u8 *field, int value)
{
	if (*field != AGENT_HOLE8)
		return -EINVAL;
	*field = (agent_u8)value;
	return 0;
}

/* `ret; int3 x 4` into `jmp rel32`, where the guest returns through a thunk. */
static int put_return(agent_u8 *field, agent_u64 field_va, agent_u64 thunk)
{
	static const agent_u8 plain[] = { 0xc3, 0xcc, 0xcc, 0xcc, 0xcc };
	agent_s64 rel = (agent_s64)(thunk - (field_va + 4));
	int v = (int)rel;

	if (memcmp(field - 1, plain, sizeof(plain)) != 0)
		return -EINVAL;
	if (thunk == 0)
		return 0;
	if (rel < INT_MIN || rel > INT_MAX)
		return -ERANGE;
	field[-1] = 0xe9;
	memcpy(field, &v, sizeof(v));
	return 0;
}

/* The field of `call rel32`; where the guest has no such function, it gives -1. */
static int put_call(agent_u8 *field, agent_u64 next_va, agent_u64 function)
{
	static const agent_u8 none[] = { 0x48, 0x83, 0xc8, 0xff, 0x90 }; /* orq $-1, %rax; nop */

	if (function)
		return put_s32(field, (agent_s64)(function - next_va));
	memcpy(field - 1, none, sizeof(none));
	return 0;
}

static int put_task(const struct agent_fixup *f, agent_s64 value, agent_u8 *field)
{
	if (value < 0 || value > TASK_STRUCT_MAX)
		return -EINVAL;
	return put_s32(field, value + (int)f->addend);
}

static int link_one(const struct agent_fixup *f, const struct agent_header *hdr,
		    const agent_s64 *values, agent_u8 *field)
{
	agent_u64 next_va = hdr->text + f->off + 4 + f->tail;

	switch (f->kind) {
	case AGENT_FIX_DATA:
		return put_s32(field, (agent_s64)(hdr->data + f->addend - next_va));
	case AGENT_FIX_RING:
		return put_s32(field, (agent_s64)(hdr->data + hdr->ring_off - next_va));
	case AGENT_FIX_GS_CURRENT:
	case AGENT_FIX_GS_CPU:
	case AGENT_FIX_GS_PREEMPT:
		return put_s32(field, values[f->kind]);
	case AGENT_FIX_TASK_PID:
	case AGENT_FIX_TASK_TGID:
	case AGENT_FIX_TASK_COMM:
	case AGENT_FIX_TASK_START:
		return put_task(f, values[f->kind], field);
	case AGENT_FIX_FRAMES:
		return put_s32(field,
			       (agent_s64)(hdr->data + hdr->frames_off - next_va) + (int)f->addend);
	case AGENT_FIX_RECLAIM:
		return put_s32(field, (agent_s64)(hdr->data + hdr->reclaim_off - next_va));
	case AGENT_FIX_FRAME_MASK:
		return put_s32(field, (agent_s64)hdr->nr_frames - 1);
	case AGENT_FIX_TRAMP_BYTES:
		return put_s32(field, (agent_s64)hdr->nr_frames * AGENT_TRAMP_BYTES);
	case AGENT_FIX_TASK_MIGRATE:
		/* Looked at as one byte; where there is none, comm's last, always 0. */
		if (values[f->kind] < 0)
			return put_task(f, values[AGENT_FIX_TASK_COMM] + COMM_LAST_BYTE, field);
		return put_task(f, values[f->kind], field);
	case AGENT_FIX_RETURN:
		return put_return(field, hdr->text + f->off, (agent_u64)values[f->kind]);
	case AGENT_FIX_RING_BYTES:
		return put_s32(field, (agent_s64)hdr->ring_slots * AGENT_RECORD_BYTES);
	case AGENT_FIX_RING_MASK:
		return put_s32(field, (agent_s64)hdr->ring_slots - 1);
	case AGENT_FIX_RING_SLOTS:
		return put_s32(field, (agent_s64)hdr->ring_slots + (int)f->addend);
	case AGENT_FIX_RING_SHIFT:
		return put_u8(field, __builtin_ctz(hdr->ring_slots));
	case AGENT_FIX_NR_CPUS:
		return put_s32(field, hdr->nr_cpus);
	case AGENT_FIX_CALL_STACK:
	case AGENT_FIX_CALL_COPY:
	case AGENT_FIX_CALL_STRNCPY:
		return put_call(field, next_va, (agent_u64)values[f->kind]);
	default:
		return -EINVAL;
	}
}

int agent_link(const struct agent_blob *blob, const struct agent_header *hdr,
	       const agent_s64 values[AGENT_FIX_MAX], agent_u8 *text)
{
	agent_u32 i;
	int r;

	if (hdr->magic != AGENT_MAGIC || hdr->abi_version != AGENT_ABI_VERSION ||
	    check_sizes(hdr) || hdr->ring_off != ring_off(hdr) ||
	    hdr->frames_off != frames_off(hdr) || hdr->reclaim_off != reclaim_off(hdr) ||
	    hdr->sites_off != sites_off(hdr) || hdr->tasks_off != tasks_off(hdr) ||
	    hdr->scratch_off != scratch_off(hdr) || hdr->steps_off != steps_off(hdr) ||
	    hdr->followed_off != followed_off(hdr))
		return -EINVAL;
	for (i = 0; i < blob->n_fixups; i++) {
		const struct agent_fixup *f = &blob->fixups[i];

		if (f->off == 0 || f->off + 4 > blob->text_bytes)
			return -EINVAL;
		r = link_one(f, hdr, values, text + f->off);
		if (r)
			return r;
	}
	put_trampolines(blob, hdr, text);
	return 0;
}
