// SPDX-License-Identifier: Apache-2.0
/* What we have written, written by the guest. See rewrite.h. */
#define LOG_PREFIX "rewrite"
#include "patcher/rewrite.h"

#include "base/log.h"
#include "guest-agent/agent_abi.h"
#include "patcher/agent.h"
#include "patcher/frames.h"
#include "patcher/graph.h"
#include "patcher/interlock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOP        0xffffffff80000000ull /* kernel text and modules */
#define BITS_BYTES ((0 - TOP) / PAGE_SIZE / 8)
/* in the words for followed pids, which nobody needs when an agent is let go: the code may look below the bits */
#define BITS_OFF  BITS_BYTES
#define CELLS_OFF (2 * BITS_BYTES)
#define CELLS_MAX ((AGENT_FOLLOWED_WORDS * sizeof(u64) - CELLS_OFF) / sizeof(struct frames_cell))

_Static_assert(AGENT_FOLLOWED_WORDS * sizeof(u64) > CELLS_OFF, "room for bits and cells");

static u8 *bits(struct guest *g)
{
	if (!g->put_back)
		g->put_back = calloc(1, BITS_BYTES);
	if (!g->put_back)
		g->any_put_back = true;
	return g->put_back;
}

static void set(u8 *b, u64 addr)
{
	u64 page = (addr - TOP) / PAGE_SIZE;

	b[page / 8] |= (u8)(1u << page % 8);
}

void rewrite_note(struct guest *g, u64 addr)
{
	u8 *b = g->rewrite && addr >= TOP ? bits(g) : NULL;

	if (!b)
		return;
	set(b, addr);
	set(b, addr + MCOUNT_INSN_SIZE - 1);
}

void rewrite_note_any(struct guest *g)
{
	g->any_put_back = g->rewrite;
}

void rewrite_forget(struct guest *g)
{
	free(g->put_back);
	g->put_back = NULL;
	g->any_put_back = false;
}

void rewrite_settled(struct guest *g)
{
	rewrite_forget(g);
	graph_forget_cells(g);
}

/* By the guest's own memcpy(), onto itself: nobody else writes there yet. */
static int copy_onto_itself(struct gate *gate, struct guest *g, u64 addr, u64 bytes,
			    struct err *err)
{
	const u64 args[4] = { addr, addr, bytes };
	u64 fn;

	if (kernel_sym(g->k, "memcpy", &fn))
		return err_set(err, -ENOTSUP, ERR_GUEST_UNSUPPORTED, 0,
			       "this kernel has no memcpy");
	return gate_call(gate, fn, args, NULL, err);
}

int rewrite_lent(struct gate *gate, struct guest *g, struct err *err)
{
	const struct guest_agent *a = &g->agent;
	u64 frames = a->header.frames_off;
	int rc = guest_check_stays(g, err);

	if (rc || !gate_again(gate) || vm_tells_leaving(g->vm))
		return rc;
	/* rings are not read before they were written */
	rc = copy_onto_itself(gate, g, a->data, a->header.ring_off, err);
	if (!rc)
		rc = copy_onto_itself(gate, g, a->data + frames, a->data_bytes - frames, err);
	return rc ? rc : copy_onto_itself(gate, g, a->text, a->text_bytes, err);
}

static int tell(struct guest *g, u64 off, const void *v, size_t n, struct err *err)
{
	int rc = agent_is_in_view(g) ? vm_view_write(g->agent.view, off, v, n) : -ESTALE;

	return rc ? err_set(err, rc, ERR_GUEST_MEMORY, g->agent.data + off,
			    "cannot write the agent's memory")
		  : 0;
}

static int text(struct gate *gate, struct guest *g, u64 off, struct err *err)
{
	const u64 args[4] = { g->agent.data + off + BITS_OFF };
	static const u8 none[BITS_BYTES];
	u8 *b;
	int rc;

	if (!g->put_back && !g->any_put_back)
		return 0;
	b = bits(g);
	if (!b)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a list of pages");
	if (g->any_put_back)
		memset(b, 0xff, BITS_BYTES);
	rc = tell(g, off, none, sizeof(none), err);
	if (!rc)
		rc = tell(g, off + BITS_OFF, b, BITS_BYTES, err);
	if (!rc)
		rc = gate_call(gate, gate_again(gate), args, NULL, err);
	if (!rc)
		rewrite_forget(g);
	return rc;
}

static int cells(struct gate *gate, struct guest *g, u64 off, struct err *err)
{
	const struct frames_cell *c;
	u32 n = graph_cells(g, &c);
	int rc = 0;

	for (u32 done = 0, some; !rc && done < n; done += some) {
		const u64 args[4] = { g->agent.data + off + CELLS_OFF,
				      some = MIN(n - done, (u32)CELLS_MAX) };

		rc = tell(g, off + CELLS_OFF, c + done, some * sizeof(*c), err);
		if (!rc)
			rc = gate_call(gate, gate_cells(gate), args, NULL, err);
	}
	if (!rc && n)
		graph_forget_cells(g);
	return rc;
}

/* Where in the agent's data there is room; false: of an agent that is laid out otherwise */
static bool room(struct guest *g, u64 *ret)
{
	struct agent_header h = g->agent.header;

	if (!g->agent.view || agent_layout(&h) || agent_data_bytes(&h) != g->agent.data_bytes)
		return false;
	*ret = h.followed_off;
	return true;
}

int rewrite_put_back(struct gate *gate, struct guest *g, struct err *err)
{
	u64 off;
	int rc;

	if (!gate_again(gate) || !room(g, &off))
		return 0;
	rc = text(gate, g, off, err);
	return rc ? rc : cells(gate, g, off, err);
}

int rewrite_returns(struct guest *g, struct err *err)
{
	const struct frames_cell *c;
	struct err first = { 0 };
	struct gate *gate;
	int rc, rc2;
	u64 off;

	if (!g->rewrite || !graph_cells(g, &c) || !room(g, &off))
		return 0;
	rc = gate_open(g, &gate, err);
	if (rc)
		return rc;
	rc = gate_cells(gate) ? cells(gate, g, off, &first) : 0;
	rc2 = gate_close(gate, err);
	return rc ? err_set(err, rc, first.code, first.addr, "%s", first.msg) : rc2;
}
