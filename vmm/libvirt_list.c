// SPDX-License-Identifier: Apache-2.0
/* The domains of a libvirt connection. See libvirt_list.h. */
#define LOG_PREFIX "libvirt"
#include "vmm/libvirt_list.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "vmm/libvirt_lib.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What the thread and all who wait for it share; the last of them frees it. */
struct list {
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	unsigned refs;
	bool done;
	u64 since_ns; /* when it was asked for */
	const struct lv_lib *lib;
	struct lv_domain *domain;
	size_t n;
	int rc;
	struct err err;
};

/*
 * A libvirtd that hangs keeps the thread that asks it, and that thread's connection. There is one at a time,
 * however many want the list, and no other until it has ended.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all lists, too */
static struct list *asked; /* not done */

static bool listens(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	return fd >= 0 &&
	       (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EAGAIN);
}

bool lv_daemon_listens(void)
{
	static const char *const sockets[] = { "/run/libvirt/virtqemud-sock-ro",
					       "/run/libvirt/libvirt-sock-ro",
					       "/var/run/libvirt/libvirt-sock-ro" };

	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
		if (listens(sockets[i]))
			return true;
	}
	return false;
}

static void unref(struct list *l)
{
	if (--l->refs)
		return;
	pthread_cond_destroy(&l->changed);
	free(l->domain);
	free(l);
}

/* false: it went while we looked. */
static bool describe(const struct lv_lib *lib, struct lv_dom *d, struct lv_domain *ret)
{
	/* virDomainState */
	static const char *const words[] = { "no state",      "running",  "blocked", "paused",
					     "shutting down", "shut off", "crashed", "suspended" };
	const char *name = lib->dom_name(d);
	int state = 0, reason;

	*ret = (struct lv_domain){ .state = "unknown" };
	if (!name || strlen(name) >= sizeof(ret->name) || lib->dom_uuid(d, ret->uuid) < 0 ||
	    lib->dom_state(d, &state, &reason, 0) < 0)
		return false;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (state >= 0 && (size_t)state < ARRAY_SIZE(words))
		ret->state = words[state];
	ret->running = state == 1 || state == 2;
	ret->active = lib->dom_id(d) != LV_NO_ID;
	return true;
}

static int failed(const struct list *l, const char *what, struct err *err)
{
	return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "libvirt, %s: %.120s", what,
		       l->lib->error_text());
}

static int collect(struct list *l, struct err *err)
{
	struct lv_conn *c = l->lib->open_read_only(LV_SYSTEM_URI);
	struct lv_dom **doms = NULL;
	int n, rc = 0;

	if (!c)
		return failed(l, "connecting", err);
	n = l->lib->list(c, &doms, 0);
	if (n < 0)
		rc = failed(l, "listing the domains", err);
	else
		l->domain = calloc((size_t)n + 1, sizeof(*l->domain));
	for (int i = 0; i < n; i++) {
		if (l->domain && l->n < LV_MAX_DOMAINS &&
		    describe(l->lib, doms[i], &l->domain[l->n]))
			l->n++;
		l->lib->dom_free(doms[i]);
	}
	free(doms);
	l->lib->close(c);
	if (rc == 0 && !l->domain)
		rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %d domains", n);
	return rc;
}

static void *run_thread(void *arg)
{
	struct list *l = arg;
	struct err err = { 0 };
	int rc = collect(l, &err);

	pthread_mutex_lock(&lock);
	l->rc = rc;
	l->err = err;
	l->done = true;
	asked = NULL;
	pthread_cond_broadcast(&l->changed);
	unref(l);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* The daemon's signals are for its main thread. */
static int start_thread(struct list *l)
{
	sigset_t all, old;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, NULL, run_thread, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		pthread_detach(thread);
	return rc;
}

/* Have libvirt asked, or join those who wait for its answer. Lock held. NULL: no memory, no thread. */
static struct list *list_get(const struct lv_lib *lib)
{
	struct list *l = asked;
	pthread_condattr_t attr;

	if (l) {
		l->refs++;
		return l;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->refs = 2; /* the thread, and who waits */
	l->lib = lib;
	l->since_ns = monotonic_ns();
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (start_thread(l)) {
		l->refs = 1;
		unref(l);
		return NULL;
	}
	asked = l;
	return l;
}

/* Others may wait for the same list: each has a copy. Lock held. */
static int take(const struct list *l, struct lv_domain **ret, size_t *n_ret, struct err *err)
{
	if (l->rc < 0) {
		if (err)
			*err = l->err;
		return l->rc;
	}
	*ret = malloc((l->n + 1) * sizeof(**ret));
	if (!*ret)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for %zu domains", l->n);
	memcpy(*ret, l->domain, l->n * sizeof(**ret));
	*n_ret = l->n;
	return 0;
}

int lv_list(u64 timeout_ns, struct lv_domain **ret, size_t *n_ret, struct err *err)
{
	struct timespec deadline;
	const struct lv_lib *lib;
	struct list *l;
	int rc = lv_lib_load(&lib, err);
	u64 end;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&lock);
	l = list_get(lib);
	if (!l) {
		pthread_mutex_unlock(&lock);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a list of domains");
	}
	/* from when it was asked for: who comes when that has been too long does not wait at all */
	end = l->since_ns + timeout_ns;
	deadline = timespec_of(end);
	while (rc == 0 && !l->done)
		rc = pthread_cond_timedwait(&l->changed, &lock, &deadline);
	if (l->done)
		rc = take(l, ret, n_ret, err);
	else
		rc = err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
			     "libvirt has owed a list of its domains for %llu s; does it hang?",
			     (unsigned long long)((monotonic_ns() - l->since_ns) / NSEC_PER_SEC));
	unref(l);
	pthread_mutex_unlock(&lock);
	return rc;
}
