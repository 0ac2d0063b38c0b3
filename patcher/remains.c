// SPDX-License-Identifier: Apache-2.0
/* An agent that came with the guest's memory. See remains.h. */
#define LOG_PREFIX "guest"
#include "patcher/remains.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/agent.h"
#include "patcher/callers.h"
#include "patcher/frames.h"
#include "patcher/gate.h"
#include "patcher/interlock.h"
#include "patcher/spare.h"
#include "patcher/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLED_MAX \
	64u /* addresses that are looked at once: a guest has few trampolines of its own */

/* A piece of memory that call sites lead to. */
struct found {
	u64 text, data;
	u64 text_bytes; /* with the interlock's page */
	u64 data_bytes;
};

bool remains_agent_stays(struct guest *g)
{
	const struct agent_header *ours = &g->agent.header;
	struct agent_header h;

	if (!g->agent.loaded)
		return true;
	if (guest_read(g, g->agent.data, &h, offsetof(struct agent_header, pids), NULL))
		return false;
	return h.magic == AGENT_MAGIC && h.session == ours->session && h.epoch == ours->epoch;
}

/* Is there a header that says that it, and the text if that is still lent, lie where the journal has them? */
static bool header_names(struct guest *g, const struct journal_state *s)
{
	u64 text = s->alloc[JOURNAL_AGENT_TEXT], data = s->alloc[JOURNAL_AGENT_DATA], text_bytes;
	struct agent_header h;
	struct vm_mapping m;

	if (!data || s->alloc_bytes[JOURNAL_AGENT_DATA] < sizeof(h) ||
	    guest_read(g, data, &h, sizeof(h), NULL) || h.magic != AGENT_MAGIC || h.data != data)
		return false;
	if (text && (h.text != text || vm_walk(g->vm, gva(text), &m, NULL)))
		return false;
	if (h.abi_version < FRAMES_FIRST_ABI) /* of a daemon before this one: it begins the same */
		return true;
	text_bytes = text ? s->alloc_bytes[JOURNAL_AGENT_TEXT] - AGENT_INTERLOCK_BYTES
			  : agent_text_bytes(&h);
	return frames_header_ok(&h, h.text, text_bytes, data, s->alloc_bytes[JOURNAL_AGENT_DATA]);
}

bool remains_journalled_stays(struct guest *g)
{
	const struct journal_state *s = journal_state(g->journal);
	u64 text = s->alloc[JOURNAL_AGENT_TEXT], data = s->alloc[JOURNAL_AGENT_DATA];

	if (!text && !data && !s->pending)
		return true;
	/* entries of the page table that do not lead to the VMM's memory are left alone: spare_give_back() */
	if (spare_owns(text) || spare_owns(data))
		return true;
	return header_names(g, s) || gate_is_journalled(g);
}

bool agent_is_in_view(const struct guest *g)
{
	struct agent_header h;

	return g->agent.view &&
	       !vm_view_read(g->agent.view, 0, &h, offsetof(struct agent_header, enabled)) &&
	       h.magic == AGENT_MAGIC && h.session == g->agent.header.session;
}

void agent_next_epoch(struct guest *g)
{
	struct agent_header *h = &g->agent.header;
	u32 next = h->epoch + 1;

	/* what cannot be written is found out by the next look, as the memory is not ours then */
	if (g->agent.loaded &&
	    !agent_write_header(g, offsetof(struct agent_header, epoch), &next, sizeof(next), NULL))
		h->epoch = next;
}

static bool in_image(struct guest *g, u64 addr)
{
	struct kernel_sym sym;

	return kernel_sym_at(g->k, addr, &sym) && !sym.module;
}

bool remains_hooked(struct guest *g)
{
	u8 call[MCOUNT_INSN_SIZE];
	u64 site, target;

	return !interlock_look(g, &site, call, NULL) && insn_call_target(site, call, &target) &&
	       !in_image(g, target);
}

/* How many bytes agent_link() may have changed, from where on. */
static size_t linked_bytes(const struct agent_fixup *f, size_t *from_ret)
{
	*from_ret = f->off;
	switch (f->kind) {
	case AGENT_FIX_RING_SHIFT:
		return 1;
	case AGENT_FIX_RETURN: /* the instruction, too */
	case AGENT_FIX_CALL_STACK:
	case AGENT_FIX_CALL_COPY:
	case AGENT_FIX_CALL_STRNCPY:
		*from_ret = f->off - 1;
		return 5;
	default:
		return 4;
	}
}

static void leave_out(u8 *mask, size_t n, size_t from, size_t bytes)
{
	for (size_t i = from; i < from + bytes && i < n; i++)
		mask[i] = 0;
}

bool remains_is_agent(const u8 *text, size_t n)
{
	const struct agent_blob *blob = agent_blob_get();
	_cleanup_free_ u8 *mask = malloc(blob->text_bytes);

	if (!mask || n < blob->text_bytes)
		return false;
	memset(mask, 1, blob->text_bytes);
	for (u32 i = 0; i < blob->n_fixups; i++) {
		size_t from, bytes = linked_bytes(&blob->fixups[i], &from);

		leave_out(mask, blob->text_bytes, from, bytes);
	}
	leave_out(mask, blob->text_bytes, blob->ftrace_call, MCOUNT_INSN_SIZE);
	leave_out(mask, blob->text_bytes, blob->ftrace_graph_call, MCOUNT_INSN_SIZE);
	for (size_t i = 0; i < blob->text_bytes; i++) {
		if (mask[i] && text[i] != blob->text[i])
			return false;
	}
	return true;
}

/* Where its data is, by the first instruction that refers to it. */
static bool data_of(const u8 *text, u64 base, u64 *ret)
{
	const struct agent_blob *blob = agent_blob_get();

	for (u32 i = 0; i < blob->n_fixups; i++) {
		const struct agent_fixup *f = &blob->fixups[i];
		s32 rel;

		if (f->kind != AGENT_FIX_DATA)
			continue;
		memcpy(&rel, text + f->off, sizeof(rel));
		*ret = base + f->off + 4 + f->tail + (u64)(s64)rel - f->addend;
		return !(*ret & ~PAGE_MASK);
	}
	return false;
}

static bool is_agent_at(struct guest *g, u64 base, struct found *ret)
{
	const struct agent_blob *blob = agent_blob_get();
	_cleanup_free_ u8 *text = malloc(blob->text_bytes);
	struct agent_header h;

	*ret = (struct found){ .text = base };
	if (!text || (base & ~PAGE_MASK) || guest_read(g, base, text, blob->text_bytes, NULL) ||
	    !remains_is_agent(text, blob->text_bytes) || !data_of(text, base, &ret->data) ||
	    guest_read(g, ret->data, &h, sizeof(h), NULL))
		return false;
	ret->text_bytes = agent_text_bytes(&h);
	ret->data_bytes = agent_data_bytes(&h);
	if (!frames_header_ok(&h, base, ret->text_bytes, ret->data, ret->data_bytes))
		return false;
	ret->text_bytes += AGENT_INTERLOCK_BYTES;
	return true;
}

static const u8 *bytes_at(const struct guest *g, size_t i)
{
	return g->baseline + i * MCOUNT_INSN_SIZE;
}

/* The first agent that a call site leads to. */
static bool find_agent(struct guest *g, struct found *ret)
{
	u64 called[CALLED_MAX], target;
	size_t n = 0, k;

	for (size_t i = 0; i < g->n_baseline; i++) {
		if (!insn_call_target(g->baseline_ip[i], bytes_at(g, i), &target))
			continue;
		for (k = 0; k < n && called[k] != target; k++)
			;
		if (k < n || in_image(g, target))
			continue;
		if (n < CALLED_MAX)
			called[n++] = target;
		if (is_agent_at(g, target - agent_blob_get()->ftrace_caller, ret))
			return true;
	}
	return false;
}

/* Its call sites, as they were armed. */
static int note_sites(struct guest *g, const struct found *f, size_t *n_ret, struct err *err)
{
	_cleanup_free_ struct text_change *c = NULL;
	int rc = callers_find(g, f->text, f->text + f->text_bytes, &c, n_ret, err);

	return rc ? rc : text_journal(g, c, *n_ret, JOURNAL_SITE, err);
}

static int note_interlock(struct guest *g, const struct found *f, struct err *err)
{
	struct text_change c = { .len = MCOUNT_INSN_SIZE };
	u64 code = f->text + f->text_bytes - AGENT_INTERLOCK_BYTES;

	if (!interlock_was(g, code, &c))
		return 0;
	return text_journal(g, &c, 1, JOURNAL_INTERLOCK, err);
}

int remains_note(struct guest *g, u64 text, struct err *err)
{
	struct found f;

	if (!is_agent_at(g, text, &f))
		return 0;
	return journal_agent_came(g->journal, f.text, f.text_bytes, f.data, f.data_bytes, err);
}

int remains_find(struct guest *g, bool *found_ret, struct err *err)
{
	struct found f;
	size_t n = 0;
	int rc;

	*found_ret = false;
	if (!find_agent(g, &f))
		return 0;
	/* what leads to the memory first: if we die in between, it stays in the guest, and nothing calls it */
	rc = note_sites(g, &f, &n, err);
	if (!rc)
		rc = note_interlock(g, &f, err);
	if (!rc)
		rc = journal_agent_came(g->journal, f.text, f.text_bytes, f.data, f.data_bytes,
					err);
	if (rc)
		return rc;
	log_warn(
		"%s: an agent came with its memory, which was saved while it was traced: %zu call sites at 0x%llx",
		g->target, n, (unsigned long long)f.text);
	*found_ret = true;
	return 0;
}
