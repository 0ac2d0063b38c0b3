// SPDX-License-Identifier: Apache-2.0
/* A gate that came with the guest's memory, and what of one the journal does not have. See gate.h, gate_priv.h. */
#define LOG_PREFIX "gate"
#include "patcher/gate_priv.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "patcher/callers.h"
#include "patcher/remains.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX      64u /* of one gate; there are ten at most */
#define LENT_MAX_BYTES (1ull << 30) /* all that there is for modules */

bool gate_is_journalled(struct guest *g)
{
	const struct journal_state *s = journal_state(g->journal);
	struct gate gate = { .g = g, .mailbox = s->mailbox };
	u64 least = s->pending_seq - (s->pending ? 1 : 0); /* noted, and then not come to */
	struct mailbox box;

	if (!s->mailbox || !s->pending_seq || gate_box_read(&gate, &box, NULL) ||
	    box.seq - least >= CALLS_MAX)
		return false;
	/* the one before had ended when this one was noted */
	return box.seq >= s->pending_seq ||
	       (box.state != MAILBOX_ARMED && box.state != MAILBOX_RUNNING);
}

static bool is_one_of(struct guest *g, u64 fn, const char *const *names, size_t n)
{
	u64 addr;

	for (size_t i = 0; i < n; i++) {
		if (!kernel_sym(g->k, names[i], &addr) && addr == fn)
			return true;
	}
	return false;
}

/* Into the journal what the last call is about. One that gives memory back is let end, and that was it. */
static int note_lent(struct gate *gate, struct err *err)
{
	static const char *const protect[] = { "set_memory_rox", "set_memory_ro", "set_memory_x",
					       "set_memory_nx", "set_memory_rw" };
	static const char *const fill[] = { "memcpy", "memset" };
	static const char *const alloc[] = { "module_alloc" };
	static const char *const execmem[] = { "execmem_alloc" };
	struct guest *g = gate->g;
	struct mailbox box;
	u64 bytes = 0;
	int rc = gate_box_read(gate, &box, err);

	if (rc)
		return rc;
	if (is_one_of(g, box.fn, protect, ARRAY_SIZE(protect)))
		return remains_note(g, box.args[0], err);
	if ((box.fn >= gate->cave && box.fn - gate->cave < gate->code_bytes) ||
	    is_one_of(g, box.fn, fill, ARRAY_SIZE(fill)))
		return box.args[3] ? remains_note(g, box.args[3], err) : 0;
	if (is_one_of(g, box.fn, alloc, 1))
		bytes = box.args[0];
	else if (is_one_of(g, box.fn, execmem, 1))
		bytes = box.args[1];
	if (!bytes || bytes & ~PAGE_MASK || bytes > LENT_MAX_BYTES || box.state == MAILBOX_IDLE)
		return 0;
	/* which of the two it is does not matter: it is not executable yet */
	return journal_pending(g->journal, JOURNAL_AGENT_DATA, bytes, box.seq, err);
}

int gate_came(struct guest *g, bool *found_ret, struct err *err)
{
	struct gate gate = { .g = g };
	int rc;

	*found_ret = gate_mailbox_place(&gate) && gate_find_code(&gate);
	if (!*found_ret)
		return 0;
	log_warn("%s: a gate came with its memory, which was saved while one was open: at 0x%llx",
		 g->target, (unsigned long long)gate.cave);
	rc = note_lent(&gate, err);
	return rc ? rc : journal_mailbox(g->journal, gate.mailbox, err);
}

/* Code that is in the guest and not in the journal. */
static int adopt_code(struct gate *gate, struct err *err)
{
	u8 code[GATE_MAX_BYTES], old[GATE_MAX_BYTES];
	int rc;

	if (!gate_find_code(gate))
		return 0;
	free(gate->code);
	gate->code = NULL;
	memset(old, gate->padding, sizeof(old));
	rc = guest_read(gate->g, gate->cave, code, gate->code_bytes, err);
	return rc ? rc : gate_plan_code(gate, old, code, err);
}

/* Call sites that lead to the code and that the journal does not have, after those that it has. */
static int adopt_sites(struct gate *gate, struct err *err)
{
	_cleanup_free_ struct text_change *c = NULL;
	struct text_change *all;
	size_t n, more = 0;
	int rc;

	rc = callers_find(gate->g, gate->cave, gate->cave + gate->code_bytes, &c, &n, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < gate->n_sites && gate->sites[k].addr != c[i].addr)
			k++;
		if (k == gate->n_sites)
			c[more++] = c[i];
	}
	if (!more)
		return 0;
	all = reallocarray(gate->sites, gate->n_sites + more, sizeof(*all));
	if (!all)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for the gate");
	gate->sites = all;
	memcpy(all + gate->n_sites, c, more * sizeof(*c));
	gate->n_sites += more;
	text_sort(all, gate->n_sites);
	return text_journal(gate->g, c, more, JOURNAL_GATE_SITE, err);
}

int gate_adopt(struct gate *gate, struct err *err)
{
	int rc = 0;

	if (!gate->n_code)
		rc = adopt_code(gate, err);
	if (rc || !gate->n_code)
		return rc;
	gate->cave = gate->code[0].addr;
	gate->code_bytes = (u32)gate->n_code * JOURNAL_TEXT_MAX;
	rc = adopt_sites(gate, err);
	if (!rc && !gate->g->hook)
		rc = callers_find_hook(gate->g, gate->cave, gate->cave + gate->code_bytes, err);
	return rc;
}
