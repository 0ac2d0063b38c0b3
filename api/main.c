// SPDX-License-Identifier: Apache-2.0
/* hvftraced: options, signals, the order of starting and stopping. */
#include "api/events.h"
#include "api/options.h"
#include "api/registry.h"
#include "api/server.h"
#include "api/systemd.h"
#include "api/tls.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "patcher/guest.h"
#define LOG_PREFIX "hvftraced"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RECOVER_AGAIN_S 10 /* a multiple of the next */
#define RECOVER_STOP_NS (20 * NSEC_PER_SEC)
#define LOOK_S          1
#define HELD_AT_MOST_NS (60 * NSEC_PER_SEC)
#define MMAP_BYTES      (128 << 10)

/* Block the signals that stop us, before there are threads, so that only wait_for_stop() gets them. */
static void block_signals(sigset_t *set)
{
	struct sigaction hup;

	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	/* the terminal is gone: no reason to leave guests changed; but nohup(1) means to go on */
	if (sigaction(SIGHUP, NULL, &hup) < 0 || hup.sa_handler != SIG_IGN)
		sigaddset(set, SIGHUP);
	sigprocmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN); /* a client that left is an error of its connection */
}

/* What the service manager hands over is served beside what --listen asks for. */
static int open_all(const struct daemon_options *o, struct listen_socket *sockets, size_t *n_ret,
		    struct err *err)
{
	int r;

	if (*n_ret + o->n_listen > SERVER_MAX_LISTEN)
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0, "at most %d sockets are served",
			       SERVER_MAX_LISTEN);
	for (size_t i = 0; i < o->n_listen; i++) {
		r = listen_open(o->listen[i], &sockets[*n_ret], err);
		if (r < 0)
			return r;
		++*n_ret;
	}
	if (*n_ret)
		return 0;
	r = listen_open(LISTEN_DEFAULT, &sockets[0], err);
	*n_ret = r == 0;
	return r;
}

static int serve(struct listen_socket *sockets, size_t n, struct server *srv, struct err *err)
{
	struct identity anybody;
	int r;

	auth_loopback(server_auth(srv), &anybody);
	for (size_t i = 0; i < n; i++) {
		if (sockets[i].is_tcp && !sockets[i].is_tls &&
		    !auth_opens_loopback(server_auth(srv)))
			return err_set(
				err, -EACCES, ERR_BAD_REQUEST, 0,
				"%s asks nobody who they are: say what every user of this host "
				"may with --allow ROLE=loopback, or give --tokens",
				sockets[i].name);
		r = server_listen(srv, &sockets[i], err);
		sockets[i].fd = -1;
		if (r < 0)
			return r;
		log_info("listening on %s", sockets[i].name);
		if (sockets[i].is_tcp && !sockets[i].is_tls && anybody.role > ROLE_ANYBODY)
			log_warn("%s asks nobody who they are: every user of this host is %s there",
				 sockets[i].name, role_name(anybody.role));
	}
	return 0;
}

/*
 * What a daemon that died left in guests, or we ourselves in one that could not be put back when it was
 * let go; false when some could not be put back yet.
 */
static bool recover(const char *state_dir, u32 *n_ret)
{
	struct err err = { 0 };
	u32 n = 0;
	int r = guest_recover(state_dir, &n, &err);

	*n_ret += n;
	if (n)
		log_info("%u guests put back that had been left changed", n);
	if (r < 0)
		log_error("%s (%s); trying again every %d s, the journal stays", err.msg,
			  err_code_name(err.code), RECOVER_AGAIN_S);
	return r == 0;
}

static void tell_restored(struct server *srv, u32 n)
{
	if (n)
		events_add(server_events(srv), "guests_restored",
			   json_pack("{s:I}", "count", (json_int_t)n));
}

/*
 * Putting guests back, in a thread of its own: a signal, and traces that go on, do not wait for a guest that
 * hangs. Left to itself when we end meanwhile, which is for guests as if we had been killed: its journal stays.
 */
struct recovering {
	pthread_t thread;
	char state_dir[PATH_MAX];
	atomic_bool ended;
	bool runs;
	bool all; /* once it has ended: nothing is left */
	u32 n;
};

static void *recover_thread(void *arg)
{
	struct recovering *r = arg;

	r->all = recover(r->state_dir, &r->n);
	atomic_store(&r->ended, true);
	return NULL;
}

static void recover_begin(struct recovering *r)
{
	r->n = 0;
	r->all = false;
	atomic_store(&r->ended, false);
	r->runs = pthread_create(&r->thread, NULL, recover_thread, r) == 0;
	if (!r->runs) /* tried again later */
		log_error("no thread to put guests back");
}

/* true: it runs no more. @srv: who tells of it; NULL for nobody any more */
static bool recover_ended(struct recovering *r, struct server *srv)
{
	if (!r->runs)
		return true;
	if (!atomic_load(&r->ended))
		return false;
	pthread_join(r->thread, NULL);
	r->runs = false;
	if (srv)
		tell_restored(srv, r->n);
	return true;
}

static bool recover_wait(struct recovering *r)
{
	const struct timespec step = { .tv_nsec = 20 * 1000 * 1000 };
	u64 until = monotonic_ns() + RECOVER_STOP_NS;

	while (!recover_ended(r, NULL)) {
		if (monotonic_ns() > until) {
			log_error("a guest does not let itself be put back; the journal stays");
			return false;
		}
		nanosleep(&step, NULL);
	}
	return true;
}

static void wait_for_signal(struct recovering *r, struct server *srv, const sigset_t *signals)
{
	const struct timespec again = { .tv_sec = LOOK_S };
	unsigned looked = 0;
	int sig;

	/* what a daemon that died left in guests; who asks for one of these meanwhile does it himself */
	recover_begin(r);
	do {
		sig = sigtimedwait(signals, NULL, &again);
		if (sig >= 0 || errno != EAGAIN)
			continue;
		registry_continue(server_registry(srv), server_work(srv));
		registry_release_held(server_registry(srv), HELD_AT_MOST_NS);
		looked += LOOK_S;
		if (recover_ended(r, srv) && looked % RECOVER_AGAIN_S == 0 &&
		    (registry_left_behind(server_registry(srv)) || !r->all ||
		     guest_any_saved(r->state_dir)))
			recover_begin(r);
	} while (sig < 0);
	log_info("SIG%s: putting everything back", sigabbrev_np(sig));
}

/*
 * What dead daemons left, once our own guests are back, which that must not hold up. @again: we left something
 * ourselves. Return: is everything put back by now?
 */
static bool recover_rest(struct recovering *r, bool again)
{
	if (!recover_wait(r))
		return false;
	if (r->all && !again)
		return true;
	recover_begin(r);
	return recover_wait(r) && r->all;
}

/*
 * From the lock to the last guest put back; @unended_ret: but one, and a thread that uses @o is left behind.
 * Return: 0, or negative with @err.
 */
static int run(const struct daemon_options *o, const sigset_t *signals, bool *unended_ret,
	       struct err *err)
{
	struct server_opts opts = { .state_dir = o->state_dir,
				    .audit_log = o->audit_log,
				    .heartbeat_ns = (u64)(o->heartbeat_sec * 1e9),
				    .auth = o->auth };
	_cleanup_(tls_unload) struct tls_files tls = { 0 };
	struct listen_socket sockets[SERVER_MAX_LISTEN] = { 0 };
	_cleanup_close_ int lock = -1;
	static struct recovering rec; /* its thread may still be there when we are not */
	struct server *srv = NULL;
	unsigned n_failed;
	bool recovered = true, left;
	size_t n = 0;
	int r;

	r = systemd_sockets(sockets, SERVER_MAX_LISTEN, &n, err);
	if (r == 0 && o->tls_cert)
		r = tls_load(o->tls_cert, o->tls_key, o->tls_client_ca, &tls, err);
	if (r == 0)
		r = state_dir_lock(o->state_dir, &lock, err);
	if (r < 0)
		return r;
	opts.tls = o->tls_cert ? &tls : NULL;
	r = open_all(o, sockets, &n, err);
	if (r == 0)
		r = server_create(&opts, &srv, err);
	if (r == 0)
		r = serve(sockets, n, srv, err);
	if (r == 0) {
		snprintf(rec.state_dir, sizeof(rec.state_dir), "%s", o->state_dir);
		systemd_notify("READY=1");
		wait_for_signal(&rec, srv, signals);
	}
	systemd_notify("STOPPING=1");
	left = r == 0 && registry_left_behind(server_registry(srv));
	n_failed = server_destroy(srv, unended_ret);
	if (r == 0)
		recovered = recover_rest(&rec, left);
	for (size_t i = 0; i < n; i++)
		listen_close(&sockets[i]);
	if (r == 0 && n_failed)
		r = err_set(err, -EIO, ERR_JOURNAL, 0,
			    "%u guests could not be put back; the next start tries again",
			    n_failed);
	if (r == 0 && !recovered)
		r = err_set(
			err, -EIO, ERR_JOURNAL, 0,
			"what an earlier daemon left could not be put back; the next start tries again");
	return r;
}

/* Each guest takes some descriptors; one that cannot be opened must not look like a guest that is gone. */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l))
		log_warn("cannot raise the limit of open files: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	static struct daemon_options o; /* a thread may still be there when main() is not */
	struct err err = { 0 };
	bool unended = false;
	sigset_t signals;
	int r;

	r = options_parse(argc, argv, &o);
	if (r >= 0) {
		options_deinit(&o);
		return r;
	}
	block_signals(&signals);
	raise_file_limit();
	/* What a kernel's tables take is megabytes, and goes back to the host with the guest. Without this the C
	 * library raises the threshold itself, and keeps them in the arenas of threads: 100 MiB after 4 guests. */
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	r = run(&o, &signals, &unended, &err);
	if (!unended)
		options_deinit(&o);
	if (r < 0) {
		fprintf(stderr, "hvftraced: %s (%s)\n", err.msg, err_code_name(err.code));
		return EXIT_FAILURE;
	}
	log_info("stopped");
	return EXIT_SUCCESS;
}
