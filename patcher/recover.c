// SPDX-License-Identifier: Apache-2.0
/* What a daemon that died left behind, at the start of the next one. See guest.h guest_recover(). */
#define LOG_PREFIX "recover"
#include "base/log.h"
#include "patcher/guest.h"
#include "patcher/journal.h"
#include "vmm/proc.h"

#include <errno.h>
#include <string.h>

struct recovery {
	const char *state_dir;
	u32 n;
	u32 n_failed;
	struct err *err;
};

static void recover_one(void *arg, pid_t pid, u64 start_time, const char *path)
{
	struct recovery *r = arg;
	struct guest_opts opts = { .state_dir = r->state_dir };
	struct journal_ident ident;
	struct err err = { 0 };
	struct journal *j;
	struct guest *g;
	bool outstanding, ended;
	char state;
	u64 start;
	int rc;

	rc = proc_stat(pid, 0, &state, &start);
	ended = rc == -ESRCH || rc == -ENOENT || (!rc && start != start_time);
	if (rc && !ended) { /* cannot look: nothing is known */
		log_warn("cannot look at process %d: %s", (int)pid, strerror(-rc));
		r->n_failed++;
		if (r->err)
			err_set(r->err, rc, ERR_IO, 0, "cannot look at process %d", (int)pid);
		return;
	}
	if (journal_open(r->state_dir, pid, start_time, &j, &err)) {
		if (err.code ==
		    ERR_GUEST_ATTACHED) /* by ourselves, or by another daemon: not dead */
			return;
		log_warn("%s", err.msg);
		r->n_failed++;
		if (r->err)
			*r->err = err;
		return;
	}
	if (ended) {
		log_info("%s: its VMM ended, nothing is left to put back", path);
		journal_discard(j);
		return;
	}
	ident = journal_state(j)->ident;
	outstanding = journal_outstanding(j);
	journal_close(j); /* removes the file when nothing is outstanding */
	if (!outstanding)
		return;
	/* attaching replays the journal; there is nothing more to do than to let go again */
	if (guest_attach(ident.target, &opts, &g, &err) || guest_detach(g, NULL, &err)) {
		log_error("%s: %s", ident.target, err.msg);
		r->n_failed++;
		if (r->err)
			*r->err = err;
		return;
	}
	r->n++;
}

int guest_recover(const char *state_dir, u32 *n_ret, struct err *err)
{
	struct recovery r = { .state_dir = state_dir, .err = err };
	int rc = journal_list(state_dir, recover_one, &r, err);

	*n_ret = r.n;
	if (rc)
		return rc;
	return r.n_failed ? -EIO : 0;
}
