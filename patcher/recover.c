// SPDX-License-Identifier: Apache-2.0
/* What a daemon that died left behind, at the start of the next one. See guest.h guest_recover(). */
#define LOG_PREFIX "recover"
#include "base/log.h"
#include "patcher/guest.h"
#include "patcher/journal.h"
#include "patcher/left.h"
#include "vmm/proc.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 16u
#define DOMAIN  "libvirt:"

/* One journal. */
struct journal_file {
	pid_t pid;
	u64 start_time;
	char path[256];
};

struct recovery {
	const char *state_dir;
	struct journal_file *file;
	size_t n_files, cap;
	bool no_memory;
	/* over all below: */
	pthread_mutex_t lock;
	size_t next; /* the file that nobody has begun with */
	u32 n;
	u32 n_failed;
	struct err *err;
};

static void failed(struct recovery *r, const struct err *err)
{
	pthread_mutex_lock(&r->lock);
	r->n_failed++;
	if (r->err)
		*r->err = *err;
	pthread_mutex_unlock(&r->lock);
}

/*
 * Its VMM has ended. That of a domain may have been saved first, by whoever did not know of us, with all that is
 * outstanding in it: why it ended nobody can be asked any more.
 */
static void let_rest(struct recovery *r, struct journal *j, const char *path)
{
	const char *target = journal_state(j)->ident.target;
	struct err err = { 0 };

	if (journal_outstanding(j) && strncmp(target, DOMAIN, strlen(DOMAIN)) == 0 &&
	    !left_note_target(r->state_dir, target)) {
		err_set(&err, -EIO, ERR_JOURNAL, 0, "no note could be made of %s", target);
		journal_close(j); /* and stays */
		failed(r, &err);
		return;
	}
	log_info("%s: its VMM ended, nothing is left to put back", path);
	journal_discard(j);
}

static void recover_one(struct recovery *r, const struct journal_file *f)
{
	struct guest_opts opts = { .state_dir = r->state_dir };
	struct journal_ident ident;
	struct err err = { 0 };
	struct journal *j;
	struct guest *g;
	bool outstanding, ended;
	char state;
	u64 start;
	int rc;

	rc = proc_stat(f->pid, 0, &state, &start);
	ended = rc == -ESRCH || rc == -ENOENT ||
		(!rc &&
		 (start != f->start_time || state == 'Z')); /* Z: its parent has not heard yet */
	if (rc && !ended) { /* cannot look: nothing is known */
		log_warn("cannot look at process %d: %s", (int)f->pid, strerror(-rc));
		err_set(&err, rc, ERR_IO, 0, "cannot look at process %d", (int)f->pid);
		failed(r, &err);
		return;
	}
	if (journal_open(r->state_dir, f->pid, f->start_time, &j, &err)) {
		if (err.code ==
		    ERR_GUEST_ATTACHED) /* by ourselves, or by another daemon: not dead */
			return;
		log_warn("%s", err.msg);
		failed(r, &err);
		return;
	}
	if (ended) {
		let_rest(r, j, f->path);
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
		failed(r, &err);
		return;
	}
	pthread_mutex_lock(&r->lock);
	r->n++;
	pthread_mutex_unlock(&r->lock);
}

static void *worker(void *arg)
{
	struct recovery *r = arg;
	size_t i;

	for (;;) {
		pthread_mutex_lock(&r->lock);
		i = r->next++;
		pthread_mutex_unlock(&r->lock);
		if (i >= r->n_files)
			return NULL;
		recover_one(r, &r->file[i]);
	}
}

static void note(void *arg, pid_t pid, u64 start_time, const char *path)
{
	struct recovery *r = arg;
	struct journal_file *more;
	size_t cap = MAX(r->cap * 2, (size_t)16);

	if (r->n_files == r->cap) {
		more = reallocarray(r->file, cap, sizeof(*more));
		r->no_memory |= !more;
		if (!more)
			return;
		r->file = more;
		r->cap = cap;
	}
	more = &r->file[r->n_files++];
	*more = (struct journal_file){ .pid = pid, .start_time = start_time };
	snprintf(more->path, sizeof(more->path), "%s", path);
}

/* A guest that hangs must hold up no other: each has a thread, as far as there are enough. */
static void recover_all(struct recovery *r)
{
	pthread_t thread[AT_ONCE];
	size_t n = 0;

	while (n < AT_ONCE && n + 1 < r->n_files && !pthread_create(&thread[n], NULL, worker, r))
		n++;
	worker(r);
	while (n)
		pthread_join(thread[--n], NULL);
}

bool guest_any_saved(const char *state_dir)
{
	return left_any(state_dir);
}

int guest_recover(const char *state_dir, u32 *n_ret, struct err *err)
{
	struct recovery r = { .state_dir = state_dir, .err = err };
	int rc = journal_list(state_dir, note, &r, err);

	pthread_mutex_init(&r.lock, NULL);
	if (!rc)
		recover_all(&r);
	pthread_mutex_destroy(&r.lock);
	free(r.file);
	*n_ret = r.n;
	left_look(state_dir);
	if (!rc && r.no_memory)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a list of journals");
	if (rc)
		return rc;
	return r.n_failed ? -EIO : 0;
}
