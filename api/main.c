// SPDX-License-Identifier: Apache-2.0
/* hvftraced: options, signals, the order of starting and stopping. */
#include "api/listen.h"
#include "api/registry.h"
#include "api/server.h"
#include "api/systemd.h"
#include "base/cleanup.h"
#include "patcher/guest.h"
#define LOG_PREFIX "hvftraced"
#include "base/log.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define HEARTBEAT_SEC   15.0
#define RECOVER_AGAIN_S 10 /* a multiple of the next */
#define LOOK_S          1

struct options {
	const char *listen[SERVER_MAX_LISTEN];
	size_t n_listen;
	const char *state_dir;
	double heartbeat_sec;
};

static const char usage[] =
	"usage: hvftraced [--listen unix:PATH|tcp:127.0.0.1:PORT]... [--state-dir DIR]\n"
	"                 [--heartbeat SECONDS] [-v|--verbose] [--version] [-h|--help]\n"
	"\n"
	"Traces Linux guests from the host; `hvftrace` is the command that speaks to it.\n"
	"\n"
	"  --listen PLACE       serve the API there, may be given more than once;\n"
	"                       default " LISTEN_DEFAULT " (mode 0660)\n"
	"  --state-dir DIR      what was changed in guests is noted there, to be put back whatever\n"
	"                       happens; default " STATE_DIR_DEFAULT "\n"
	"  --heartbeat SECONDS  a quiet NDJSON stream says so this often; default 15\n"
	"\n"
	"SIGTERM, SIGINT or SIGHUP (unless nohup) stop it. Exit status: 0 every guest is as before, 1 failed, 2 usage.\n";

/* Return: -1 to go on, or the exit status. */
static int parse(int argc, char **argv, struct options *ret)
{
	static const struct option longs[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "state-dir", required_argument, NULL, 's' },
		{ "heartbeat", required_argument, NULL, 'b' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	char *end;
	int c;

	*ret = (struct options){ .state_dir = STATE_DIR_DEFAULT, .heartbeat_sec = HEARTBEAT_SEC };
	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1) {
		switch (c) {
		case 'l':
			if (ret->n_listen == SERVER_MAX_LISTEN) {
				fprintf(stderr, "hvftraced: --listen at most %d times\n",
					SERVER_MAX_LISTEN);
				return 2;
			}
			ret->listen[ret->n_listen++] = optarg;
			break;
		case 's':
			ret->state_dir = optarg;
			break;
		case 'b':
			ret->heartbeat_sec = strtod(optarg, &end);
			if (*end || !(ret->heartbeat_sec >= 0.01 && ret->heartbeat_sec <= 3600)) {
				fprintf(stderr,
					"hvftraced: --heartbeat takes 0.01 to 3600 seconds\n");
				return 2;
			}
			break;
		case 'v':
			log_set_level(LOG_LEVEL_DEBUG);
			break;
		case 'V':
			printf("hvftraced %s\n", HVF_VERSION);
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs("try hvftraced --help\n", stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "hvftraced: what is \"%s\"?\ntry hvftraced --help\n", argv[optind]);
		return 2;
	}
	return -1;
}

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
static int open_all(const struct options *o, struct listen_socket *sockets, size_t *n_ret,
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
	int r;

	for (size_t i = 0; i < n; i++) {
		r = server_listen(srv, no_cleanup_fd(sockets[i].fd), sockets[i].is_tcp, err);
		if (r < 0)
			return r;
		log_info("listening on %s", sockets[i].name);
		if (sockets[i].is_tcp)
			log_warn("%s asks nobody who they are: every user of this host can trace",
				 sockets[i].name);
	}
	return 0;
}

/*
 * What a daemon that died left in guests, or we ourselves in one that could not be put back when it was
 * let go; false when some could not be put back yet.
 */
static bool recover(const char *state_dir)
{
	struct err err = { 0 };
	u32 n = 0;
	int r = guest_recover(state_dir, &n, &err);

	if (n)
		log_info("%u guests put back that had been left changed", n);
	if (r < 0)
		log_error("%s (%s); trying again every %d s, the journal stays", err.msg,
			  err_code_name(err.code), RECOVER_AGAIN_S);
	return r == 0;
}

/* Return: is everything that dead daemons left put back by now? */
static bool wait_for_signal(const char *state_dir, struct server *srv, const sigset_t *signals,
			    bool recovered)
{
	const struct timespec again = { .tv_sec = LOOK_S };
	unsigned looked = 0;
	int sig;

	do {
		sig = sigtimedwait(signals, NULL, &again);
		if (sig >= 0 || errno != EAGAIN)
			continue;
		registry_continue(server_registry(srv), server_work(srv));
		looked += LOOK_S;
		if (looked % RECOVER_AGAIN_S == 0 &&
		    (registry_left_behind(server_registry(srv)) || !recovered))
			recovered = recover(state_dir);
	} while (sig < 0);
	log_info("SIG%s: putting everything back", sigabbrev_np(sig));
	recovered = recovered && !registry_left_behind(server_registry(srv));
	return recovered || recover(state_dir);
}

/* From the lock to the last guest put back. Return: 0, or negative with @err. */
static int run(const struct options *o, const sigset_t *signals, struct err *err)
{
	struct server_opts opts = { .state_dir = o->state_dir,
				    .heartbeat_ns = (u64)(o->heartbeat_sec * 1e9) };
	struct listen_socket sockets[SERVER_MAX_LISTEN] = { 0 };
	_cleanup_close_ int lock = -1;
	struct server *srv = NULL;
	unsigned n_failed;
	bool recovered = true;
	size_t n = 0;
	int r;

	r = systemd_sockets(sockets, SERVER_MAX_LISTEN, &n, err);
	if (r == 0)
		r = state_dir_lock(o->state_dir, &lock, err);
	if (r < 0)
		return r;
	r = open_all(o, sockets, &n, err);
	if (r == 0)
		r = server_create(&opts, &srv, err);
	if (r == 0)
		r = serve(sockets, n, srv, err);
	if (r == 0) {
		systemd_notify("READY=1");
		/* what a daemon that died left in guests; who asks for one of these meanwhile does it himself */
		recovered = recover(o->state_dir);
		recovered = wait_for_signal(o->state_dir, srv, signals, recovered);
	}
	systemd_notify("STOPPING=1");
	n_failed = server_destroy(srv);
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
	struct options o;
	struct err err = { 0 };
	sigset_t signals;
	int r;

	r = parse(argc, argv, &o);
	if (r >= 0)
		return r;
	block_signals(&signals);
	raise_file_limit();
	if (run(&o, &signals, &err) < 0) {
		fprintf(stderr, "hvftraced: %s (%s)\n", err.msg, err_code_name(err.code));
		return EXIT_FAILURE;
	}
	log_info("stopped");
	return EXIT_SUCCESS;
}
