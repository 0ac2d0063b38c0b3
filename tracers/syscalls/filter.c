// SPDX-License-Identifier: Apache-2.0
/* A list of patterns in the order given; the last that fits decides. */
#include "tracers/syscalls/filter.h"

#include "tracers/filter.h"
#include "tracers/syscalls/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
	char *glob; /* NULL: classes */
	u32 classes;
	bool not ;
};

struct syscall_filter {
	struct pattern *patterns;
	size_t n;
	bool all_but; /* no pattern is without "!" */
	bool failed_only;
	u32 *pids;
	size_t n_pids;
	char *comm, *path;
	bool by_uid, by_cgroup;
	u32 uid, cgroup;
};

static int pattern_init(struct pattern *p, const char *s, struct err *err)
{
	*p = (struct pattern){ .not = *s == '!' };
	s += p->not ;
	if (*s != '%') {
		p->glob = strdup(s);
		return p->glob ? 0 : err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory");
	}
	p->classes = decode_class(s);
	if (!p->classes)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "no class of system calls is called \"%.40s\"", s);
	return 0;
}

static int strings_copy(struct syscall_filter *f, const struct syscall_filter_opts *o)
{
	f->comm = o->comm ? strdup(o->comm) : NULL;
	f->path = o->path ? strdup(o->path) : NULL;
	f->pids = calloc(o->n_pids + 1, sizeof(*f->pids));
	if ((o->comm && !f->comm) || (o->path && !f->path) || !f->pids)
		return -ENOMEM;
	if (o->n_pids)
		memcpy(f->pids, o->pids, o->n_pids * sizeof(*f->pids));
	f->n_pids = o->n_pids;
	return 0;
}

int syscall_filter_create(const struct syscall_filter_opts *o, struct syscall_filter **ret,
			  struct err *err)
{
	struct syscall_filter *f = calloc(1, sizeof(*f));
	int rc = 0;

	if (f)
		f->patterns = calloc(o->n_calls + 1, sizeof(*f->patterns));
	if (!f || !f->patterns || strings_copy(f, o)) {
		syscall_filter_destroy(f);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a filter");
	}
	f->failed_only = o->failed_only;
	f->by_uid = o->by_uid;
	f->uid = o->uid;
	f->by_cgroup = o->by_cgroup;
	f->cgroup = o->cgroup;
	f->all_but = true;
	for (; !rc && f->n < o->n_calls; f->n++) {
		rc = pattern_init(&f->patterns[f->n], o->calls[f->n], err);
		f->all_but &= f->patterns[f->n].not ;
	}
	if (rc)
		syscall_filter_destroy(f);
	else
		*ret = f;
	return rc;
}

void syscall_filter_destroy(struct syscall_filter *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->patterns[i].glob);
	free(f->patterns);
	free(f->pids);
	free(f->comm);
	free(f->path);
	free(f);
}

bool syscall_filter_name(const struct syscall_filter *f, const char *name)
{
	u32 classes = decode_classes(name);
	bool wanted = f->all_but;

	for (size_t i = 0; i < f->n; i++) {
		const struct pattern *p = &f->patterns[i];

		if (p->glob ? glob_match(p->glob, name) : (classes & p->classes) != 0)
			wanted = !p->not ;
	}
	return wanted;
}

static bool pid_wanted(const struct syscall_filter *f, const struct syscall_event *e)
{
	for (size_t i = 0; i < f->n_pids; i++)
		if (f->pids[i] == e->pid || (e->tgid && f->pids[i] == e->tgid))
			return true;
	return !f->n_pids;
}

static bool path_wanted(const struct syscall_filter *f, const struct syscall_event *e)
{
	size_t n = strlen(f->path);

	for (u8 a = 0; a < SYSCALL_ARGS; a++) {
		const u8 *p;
		const struct syscall_capture *c = syscall_capture_find(e, a, CAPTURE_STRING, &p);

		if (c && c->len >= n && !memcmp(p, f->path, n))
			return true;
	}
	return false;
}

/* The agent records nobody else's calls: one whose word was lost is of this user, too. */
static bool uid_wanted(const struct syscall_filter *f, const struct syscall_event *e)
{
	return !f->by_uid || f->uid == e->uid || e->uid == SYSCALL_NO_UID;
}

bool syscall_filter_match(const struct syscall_filter *f, const struct syscall_event *e)
{
	return (!f->failed_only || syscall_failed(e)) && pid_wanted(f, e) && uid_wanted(f, e) &&
	       (!f->by_cgroup || f->cgroup == e->cgroup) &&
	       (!f->comm || glob_match(f->comm, e->comm)) && (!f->path || path_wanted(f, e)) &&
	       syscall_filter_name(f, e->entry->name);
}
