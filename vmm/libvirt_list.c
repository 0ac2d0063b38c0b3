// SPDX-License-Identifier: Apache-2.0
/* The domains of a libvirt connection. See libvirt_list.h. */
#define LOG_PREFIX "libvirt"
#include "vmm/libvirt_list.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "vmm/libvirt_lib.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What the thread and whoever waits for it share; the last of them frees it. */
struct list {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	unsigned refs;
	bool done;
	const struct lv_lib *lib;
	char uri[128];
	struct lv_domain *domain;
	size_t n;
	int rc;
	struct err err;
};

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

static void unref_unlock(struct list *l)
{
	bool last = --l->refs == 0;

	pthread_mutex_unlock(&l->lock);
	if (!last)
		return;
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
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
	struct lv_conn *c = l->lib->open_read_only(l->uri);
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

	pthread_mutex_lock(&l->lock);
	l->rc = rc;
	l->err = err;
	l->done = true;
	pthread_cond_broadcast(&l->changed);
	unref_unlock(l);
	return NULL;
}

static struct list *list_create(const char *uri, const struct lv_lib *lib)
{
	struct list *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	l->refs = 2; /* the thread, and who waits */
	l->lib = lib;
	snprintf(l->uri, sizeof(l->uri), "%s", uri);
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	return l;
}

int lv_list(const char *uri, u64 timeout_ns, struct lv_domain **ret, size_t *n_ret, struct err *err)
{
	u64 end = monotonic_ns() + timeout_ns;
	struct timespec deadline = { (time_t)(end / NSEC_PER_SEC), (long)(end % NSEC_PER_SEC) };
	const struct lv_lib *lib;
	pthread_t thread;
	struct list *l;
	int rc = lv_lib_load(&lib, err);

	if (rc < 0)
		return rc;
	l = list_create(uri, lib);
	if (!l || pthread_create(&thread, NULL, run_thread, l) != 0) {
		free(l);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a list of domains");
	}
	pthread_detach(thread);
	pthread_mutex_lock(&l->lock);
	while (rc == 0 && !l->done)
		rc = pthread_cond_timedwait(&l->changed, &l->lock, &deadline);
	if (!l->done) {
		rc = err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
			     "libvirt did not list its domains in time");
	} else if (l->rc < 0) {
		rc = l->rc;
		if (err)
			*err = l->err;
	} else {
		rc = 0;
		*n_ret = l->n;
		*ret = no_cleanup_ptr(l->domain);
	}
	unref_unlock(l);
	return rc;
}
