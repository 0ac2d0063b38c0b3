// SPDX-License-Identifier: Apache-2.0
/* A domain of libvirt. See libvirt_link.h. */
#define LOG_PREFIX "libvirt"
#include "vmm/libvirt_link.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* libvirtd that does not answer for 15 s counts as gone */
#define KEEP_ALIVE_S 5
#define KEEP_ALIVE_N 3
#define CLOSE_NS     (2 * NSEC_PER_SEC) /* an orderly goodbye is waited for */
#define N_EVENTS     2
#define LEFT_MAX     16u

enum job {
	JOB_NONE,
	JOB_WAITING, /* for the thread */
	JOB_WORKING,
	JOB_ABANDONED, /* the thread is at it, nobody waits any more */
	JOB_DONE
};

struct lv_link {
	const struct lv_lib *lib;
	struct lv_target target;

	pthread_mutex_t lock; /* all up to @answer */
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	unsigned refs; /* the owner, the thread, each callback that is registered */
	bool quit;
	bool thread_ended;
	bool left; /* closed, and the thread still waits for libvirt: in n_left */
	enum job job;
	char *command; /* NULL: only connect */
	char *answer;
	int rc;
	struct err err;

	/* written by the thread only */
	struct lv_conn *conn;
	struct lv_dom *dom;
	int event[N_EVENTS]; /* callback numbers; -1 */
	bool close_added;
	u32 id; /* changes when the domain is started again */
	char uuid[LV_UUID_BYTES];
	bool was_lost; /* said once */

	/* atomic: by events too */
	int run; /* enum lv_run */
	bool was_running;
	int stopped; /* detail of the event of its end, + 1 */
	u32 serial;
};

static unsigned n_left; /* atomic */

/* A reference less; the lock is held, and is not after. */
static void unref_unlock(struct lv_link *l)
{
	bool last = --l->refs == 0;

	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (!last)
		return;
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l->command);
	free(l->answer);
	free(l);
}

/* A domain of this name that is started after ours has ended is another one: an end is for good. */
static void set_run(struct lv_link *l, enum lv_run run)
{
	int was = __atomic_load_n(&l->run, __ATOMIC_ACQUIRE);

	while (was != LV_RUN_ENDED &&
	       !__atomic_compare_exchange_n(&l->run, &was, run, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE))
		;
}

/* Events: called in the loop's thread, or by a call of ours into the library. */

static void say_event(const struct lv_link *l, int event, int detail)
{
	/* virDomainEventStoppedDetailType */
	static const char *const stopped[] = { "it was shut down",     "it was destroyed",
					       "it crashed",           "it was migrated away",
					       "it was saved",         "QEMU failed",
					       "a snapshot was loaded" };

	if (event == LV_EVENT_STOPPED)
		log_info("domain %s ended: %s", l->target.domain,
			 (unsigned)detail < ARRAY_SIZE(stopped) ? stopped[detail]
								: "why, libvirt "
								  "does not say");
	else if (event == LV_EVENT_CRASHED)
		log_warn("domain %s: its guest crashed", l->target.domain);
	else if (event == LV_EVENT_SHUTDOWN)
		log_info("domain %s shuts down", l->target.domain);
}

static int on_lifecycle(struct lv_conn *c, struct lv_dom *d, int event, int detail, void *arg)
{
	struct lv_link *l = arg;
	enum lv_run run;

	(void)c;
	(void)d;
	say_event(l, event, detail);
	switch (event) {
	case LV_EVENT_STARTED: /* also out of the guest's own sleep */
	case LV_EVENT_RESUMED:
		run = LV_RUN_RUNNING;
		break;
	case LV_EVENT_SUSPENDED:
	case LV_EVENT_PMSUSPENDED:
	case LV_EVENT_CRASHED:
	case LV_EVENT_SHUTDOWN:
		run = LV_RUN_STOPPED;
		break;
	case LV_EVENT_STOPPED:
		__atomic_store_n(&l->stopped, detail + 1, __ATOMIC_RELEASE);
		run = LV_RUN_ENDED;
		break;
	default:
		return 0;
	}
	__atomic_store_n(&l->was_running, run == LV_RUN_RUNNING, __ATOMIC_RELEASE);
	__atomic_add_fetch(&l->serial, 1, __ATOMIC_ACQ_REL);
	set_run(l, run);
	return 0;
}

static void on_reboot(struct lv_conn *c, struct lv_dom *d, void *arg)
{
	struct lv_link *l = arg;

	(void)c;
	(void)d;
	log_info("domain %s: its guest reboots", l->target.domain);
}

/* What is heard no more is asked for again, which makes a new connection. */
static void on_close(struct lv_conn *c, int reason, void *arg)
{
	struct lv_link *l = arg;

	(void)c;
	(void)reason;
	__atomic_add_fetch(&l->serial, 1, __ATOMIC_ACQ_REL);
	set_run(l, LV_RUN_UNKNOWN);
}

static void on_free(void *arg)
{
	struct lv_link *l = arg;

	pthread_mutex_lock(&l->lock);
	unref_unlock(l);
}

static void ref(struct lv_link *l)
{
	pthread_mutex_lock(&l->lock);
	l->refs++;
	pthread_mutex_unlock(&l->lock);
}

static void watch(struct lv_link *l)
{
	static const struct {
		int id;
		lv_any_cb cb;
	} events[N_EVENTS] = { { LV_EVENT_ID_LIFECYCLE, (lv_any_cb)on_lifecycle },
			       { LV_EVENT_ID_REBOOT, (lv_any_cb)on_reboot } };

	ref(l);
	l->close_added = l->lib->close_add(l->conn, on_close, l, on_free) == 0;
	if (!l->close_added)
		on_free(l);
	for (size_t i = 0; i < N_EVENTS; i++) {
		ref(l);
		l->event[i] =
			l->lib->event_add(l->conn, l->dom, events[i].id, events[i].cb, l, on_free);
		if (l->event[i] >= 0)
			continue;
		log_warn("domain %s: no events: %.100s", l->target.domain, l->lib->error_text());
		on_free(l);
	}
}

/* The thread's part: calls into the library. */

static void disconnect(struct lv_link *l)
{
	if (!l->conn)
		return;
	for (size_t i = 0; i < N_EVENTS; i++) {
		if (l->event[i] >= 0)
			l->lib->event_remove(l->conn, l->event[i]);
		l->event[i] = -1;
	}
	if (l->close_added)
		l->lib->close_remove(l->conn, on_close);
	l->close_added = false;
	if (l->dom)
		l->lib->dom_free(l->dom);
	l->dom = NULL;
	l->lib->close(l->conn);
	l->conn = NULL;
	set_run(l, LV_RUN_UNKNOWN);
}

/* The library's last error as ours. */
static int lib_failed(struct lv_link *l, const char *what, struct err *err)
{
	static const struct {
		int lv;
		int no;
		enum err_code code;
	} map[] = { { LV_ERR_NO_DOMAIN, -ENOENT, ERR_TARGET_NO_DOMAIN },
		    { LV_ERR_OPERATION_INVALID, -EBUSY, ERR_TARGET_OFF },
		    { LV_ERR_OPERATION_TIMEOUT, -ETIMEDOUT, ERR_VMM_TIMEOUT },
		    { LV_ERR_AUTH_FAILED, -EACCES, ERR_TARGET_PERMISSION },
		    { LV_ERR_AUTH_CANCELLED, -EACCES, ERR_TARGET_PERMISSION },
		    { LV_ERR_AUTH_UNAVAILABLE, -EACCES, ERR_TARGET_PERMISSION },
		    { LV_ERR_ACCESS_DENIED, -EACCES, ERR_TARGET_PERMISSION } };
	int code = l->lib->error_code();
	const char *text = l->lib->error_text();

	text = text ? text : "no reason given";
	for (size_t i = 0; i < ARRAY_SIZE(map); i++) {
		if (map[i].lv == code)
			return err_set(err, map[i].no, map[i].code, 0, "libvirt, %s: %.120s", what,
				       text);
	}
	if (!l->conn || l->lib->is_alive(l->conn) != 1)
		return err_set(err, -ENOTCONN, ERR_LIBVIRT, 0, "libvirt, %s: %.120s", what, text);
	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0, "libvirt, %s: %.120s", what, text);
}

/* A name that looks like a UUID is one, unless there is none such. */
static struct lv_dom *look_up(struct lv_link *l)
{
	struct lv_dom *d = NULL;

	if (l->uuid[0])
		return l->lib->by_uuid(l->conn, l->uuid);
	if (lv_is_uuid(l->target.domain))
		d = l->lib->by_uuid(l->conn, l->target.domain);
	return d ? d : l->lib->by_name(l->conn, l->target.domain);
}

static int ended(struct lv_link *l, struct err *err)
{
	set_run(l, LV_RUN_ENDED);
	return err_set(err, -ESRCH, ERR_VMM_GONE, 0, "domain %.64s has ended", l->target.domain);
}

/* The domain on a new connection; after the first time it must be the same run of it. */
static int find_domain(struct lv_link *l, struct err *err)
{
	bool again = l->uuid[0];
	u32 id;
	int rc;

	l->dom = look_up(l);
	if (!l->dom) {
		rc = lib_failed(l, "looking for the domain", err);
		return again && rc == -ENOENT ? ended(l, err) : rc;
	}
	if (!again && l->lib->dom_uuid(l->dom, l->uuid) < 0) {
		l->uuid[0] = '\0';
		return lib_failed(l, "asking for its UUID", err);
	}
	watch(l); /* before its number is asked: no end goes unseen */
	id = l->lib->dom_id(l->dom);
	if (again && id != l->id)
		return ended(l, err);
	if (id == LV_NO_ID)
		return err_set(err, -EBUSY, ERR_TARGET_OFF, 0, "domain %.64s is not running",
			       l->target.domain);
	l->id = id;
	return 0;
}

static int connect_now(struct lv_link *l, struct err *err)
{
	char uri[LV_URI_BYTES];
	const char *type;
	int rc = lv_target_uri(&l->target, uri, err);

	if (rc < 0)
		return rc;
	l->conn = l->lib->open(uri);
	if (!l->conn)
		return lib_failed(l, "connecting", err);
	type = l->lib->type(l->conn);
	if (!type || strcmp(type, "QEMU") != 0) {
		rc = err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0, "%.100s is no QEMU connection",
			     l->target.uri);
	} else {
		/* without it only a libvirtd that hangs is noticed later */
		if (l->lib->keep_alive(l->conn, KEEP_ALIVE_S, KEEP_ALIVE_N) < 0)
			log_debug("no keep-alive: %s", l->lib->error_text());
		rc = find_domain(l, err);
	}
	if (rc < 0)
		disconnect(l);
	return rc;
}

static int make_sure_connected(struct lv_link *l, struct err *err)
{
	int rc;

	if (l->conn && l->lib->is_alive(l->conn) == 1)
		return 0;
	if (l->conn && !l->was_lost) {
		l->was_lost = true;
		log_warn("domain %s: the connection to libvirt was lost", l->target.domain);
	}
	disconnect(l);
	rc = connect_now(l, err);
	if (rc == 0 && l->was_lost) {
		l->was_lost = false;
		log_info("domain %s: connected to libvirt again", l->target.domain);
	}
	return rc;
}

static int serve(struct lv_link *l, const char *command, char **answer_ret, struct err *err)
{
	int rc;

	if (lv_link_run(l) == LV_RUN_ENDED)
		return ended(l, err);
	rc = make_sure_connected(l, err);
	if (rc < 0 || !command)
		return rc;
	if (l->lib->monitor_command(l->dom, command, answer_ret, 0) == 0)
		return 0;
	*answer_ret = NULL;
	rc = lib_failed(l, "passing a command to QEMU", err);
	/* by its UUID it may be off, or gone: this run of it has ended either way */
	return rc == -ENOENT || err->code == ERR_TARGET_OFF ? ended(l, err) : rc;
}

static void *run_thread(void *arg)
{
	struct lv_link *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		struct err err = { 0 };
		char *command, *answer = NULL;
		int rc;

		while (!l->quit && l->job != JOB_WAITING)
			pthread_cond_wait(&l->changed, &l->lock);
		if (l->quit)
			break;
		command = l->command;
		l->command = NULL;
		l->job = JOB_WORKING;
		pthread_mutex_unlock(&l->lock);
		rc = serve(l, command, &answer, &err);
		free(command);
		pthread_mutex_lock(&l->lock);
		if (l->job == JOB_ABANDONED) {
			l->job = JOB_NONE;
			free(answer);
			continue;
		}
		l->job = JOB_DONE;
		l->answer = answer;
		l->rc = rc;
		l->err = err;
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	disconnect(l);
	lv_loop_put(l->lib);
	pthread_mutex_lock(&l->lock);
	l->thread_ended = true;
	if (l->left)
		__atomic_fetch_sub(&n_left, 1, __ATOMIC_ACQ_REL);
	unref_unlock(l);
	return NULL;
}

/* The owner's part. */

static int give_up(struct lv_link *l, struct err *err)
{
	if (l->job == JOB_WORKING) {
		l->job = JOB_ABANDONED;
	} else if (l->job == JOB_WAITING) {
		free(l->command);
		l->command = NULL;
		l->job = JOB_NONE;
	}
	return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
		       "libvirt did not answer in time about domain %.64s", l->target.domain);
}

/* One call by the thread; @command NULL: only connect. */
static int call(struct lv_link *l, const char *command, u64 timeout_ns, char **answer_ret,
		struct err *err)
{
	struct timespec deadline = timespec_of(monotonic_ns() + timeout_ns);
	char *copy = command ? strdup(command) : NULL;
	int rc = 0;

	if (command && !copy)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a command");
	pthread_mutex_lock(&l->lock);
	if (l->job != JOB_NONE) {
		pthread_mutex_unlock(&l->lock);
		free(copy);
		return err_set(err, -ETIMEDOUT, ERR_VMM_TIMEOUT, 0,
			       "libvirt still owes an answer about domain %.64s", l->target.domain);
	}
	l->command = copy;
	l->job = JOB_WAITING;
	pthread_cond_broadcast(&l->changed);
	while (rc == 0 && l->job != JOB_DONE)
		rc = pthread_cond_timedwait(&l->changed, &l->lock, &deadline);
	if (l->job != JOB_DONE) {
		rc = give_up(l, err);
	} else {
		rc = l->rc;
		if (rc < 0 && err)
			*err = l->err;
		if (answer_ret)
			*answer_ret = l->answer;
		l->answer = NULL;
		l->job = JOB_NONE;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int start(struct lv_link *l, struct err *err)
{
	sigset_t all, old;
	pthread_t thread;
	int rc = lv_loop_get(l->lib, err);

	if (rc < 0)
		return rc;
	l->refs++;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the daemon's signals are for its main thread */
	rc = pthread_create(&thread, NULL, run_thread, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0) {
		l->refs--;
		lv_loop_put(l->lib);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no thread for libvirt");
	}
	pthread_detach(thread);
	return 0;
}

int lv_link_open(const struct lv_target *target, u64 timeout_ns, struct lv_link **ret,
		 struct err *err)
{
	const struct lv_lib *lib;
	pthread_condattr_t attr;
	struct lv_link *l;
	int rc = lv_lib_load(&lib, err);

	if (rc < 0)
		return rc;
	if (__atomic_load_n(&n_left, __ATOMIC_ACQUIRE) >= LEFT_MAX)
		return err_set(
			err, -EAGAIN, ERR_LIBVIRT, 0,
			"libvirt owes answers to %u attempts that nobody waits for any more; "
			"until one comes no further one is made",
			LEFT_MAX);
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a connection");
	l->lib = lib;
	l->target = *target;
	l->refs = 1;
	l->was_running = true;
	for (size_t i = 0; i < N_EVENTS; i++)
		l->event[i] = -1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = start(l, err);
	if (rc == 0)
		rc = call(l, NULL, timeout_ns, NULL, err);
	if (rc < 0) {
		lv_link_close(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void lv_link_close(struct lv_link *l)
{
	struct timespec deadline = timespec_of(monotonic_ns() + CLOSE_NS);
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	l->quit = true;
	pthread_cond_broadcast(&l->changed);
	while (rc == 0 && l->refs > 1 && !l->thread_ended)
		rc = pthread_cond_timedwait(&l->changed, &l->lock, &deadline);
	if (l->refs > 1 && !l->thread_ended) {
		l->left = true;
		__atomic_fetch_add(&n_left, 1, __ATOMIC_ACQ_REL);
		log_warn("domain %s: libvirt still owes an answer; its connection closes then",
			 l->target.domain);
	}
	unref_unlock(l);
}

const char *lv_link_uuid(const struct lv_link *l)
{
	return l->uuid;
}

enum lv_run lv_link_run(const struct lv_link *l)
{
	return (enum lv_run)__atomic_load_n(&l->run, __ATOMIC_ACQUIRE);
}

bool lv_link_was_running(const struct lv_link *l)
{
	return __atomic_load_n(&l->was_running, __ATOMIC_ACQUIRE);
}

bool lv_link_stopped(const struct lv_link *l, int *detail_ret)
{
	int stopped = __atomic_load_n(&l->stopped, __ATOMIC_ACQUIRE);

	*detail_ret = stopped - 1;
	return stopped;
}

u32 lv_link_serial(const struct lv_link *l)
{
	return __atomic_load_n(&l->serial, __ATOMIC_ACQUIRE);
}

void lv_link_note_run(struct lv_link *l, bool running, u32 serial)
{
	int unknown = LV_RUN_UNKNOWN;

	if (serial == lv_link_serial(l))
		__atomic_compare_exchange_n(&l->run, &unknown,
					    running ? LV_RUN_RUNNING : LV_RUN_STOPPED, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static int transport_command(void *arg, const char *command, u64 timeout_ns, char **answer_ret,
			     struct err *err)
{
	return call(arg, command, timeout_ns, answer_ret, err);
}

static bool transport_owes(void *arg)
{
	struct lv_link *l = arg;
	enum job job;

	pthread_mutex_lock(&l->lock);
	job = l->job;
	pthread_mutex_unlock(&l->lock);
	return job != JOB_NONE;
}

static void transport_close(void *arg)
{
	lv_link_close(arg);
}

const struct qmp_transport lv_link_transport = {
	.command = transport_command,
	.owes = transport_owes,
	.close = transport_close,
};
