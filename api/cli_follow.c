// SPDX-License-Identifier: Apache-2.0
/*
 * Following a trace: its stream goes to a file or the terminal until it ends, a signal comes or time is
 * up; then the trace is stopped, and what it still had is read to the end.
 */
#include "api/cli.h"
#include "api/cli_http.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "tracers/rec_store.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#define STREAM_BUFFER (256L * 1024) /* bytes read at once */

/* Two transfers at once: the stream, and in the end the request that stops the trace. */
struct follow {
	struct cli *c;
	struct cli_follow *f;
	CURLM *multi;
	CURL *stream, *stop;
	struct curl_slist *headers;
	struct buf pending; /* came, and is not written from @written on; the stream is paused */
	size_t written;
	struct buf refusal; /* what came instead of a stream */
	struct buf stopped; /* the answer to stopping */
	int write_errno;
	bool regular; /* the output is a file: writing does not wait for anybody */
	bool paused;
	bool stopping;
	bool ended; /* the stream is, with @ended_status */
	int ended_status;
};

/* Would a write wait for the reader? An error counts as "no": the write will tell it. */
static bool is_writable(const struct follow *w)
{
	struct pollfd p = { .fd = w->f->out_fd, .events = POLLOUT };

	return w->regular || poll(&p, 1, 0) > 0;
}

/*
 * Write what is pending, as far as the reader takes it. A reader that does not (a pager) must not
 * keep us from signals and the timer. The descriptor is shared with others, so that it cannot be
 * made non-blocking; but after POLLOUT a pipe takes PIPE_BUF bytes (pipe(7)).
 */
static void flush(struct follow *w)
{
	size_t left;
	ssize_t n;
	int r;

	if (w->f->store && !w->write_errno) {
		r = rec_store_add(w->f->store, w->pending.data, w->pending.len);
		w->written = w->pending.len;
		w->write_errno = -r;
	}
	while (w->written < w->pending.len && !w->write_errno && is_writable(w)) {
		left = w->pending.len - w->written;
		n = write(w->f->out_fd, w->pending.data + w->written,
			  w->regular ? left : MIN(left, (size_t)PIPE_BUF));
		if (n >= 0)
			w->written += (size_t)n;
		else if (errno != EINTR && errno != EAGAIN)
			w->write_errno = errno;
	}
	/* once writing has failed the rest is read all the same, up to the end that tells the totals */
	if (w->written < w->pending.len && !w->write_errno)
		return;
	buf_reset(&w->pending);
	w->written = 0;
}

static size_t pass_on(char *data, size_t size, size_t n, void *arg)
{
	struct follow *w = arg;
	long status = 0;

	curl_easy_getinfo(w->stream, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return cli_http_collect(data, size, n, &w->refusal);
	if (w->pending.len) {
		w->paused = true;
		return CURL_WRITEFUNC_PAUSE; /* curl keeps it for the next time */
	}
	if (w->write_errno)
		return size * n;
	buf_add(&w->pending, data, size * n);
	if (buf_failed(&w->pending))
		return 0;
	flush(w);
	return size * n;
}

static int start_stop(struct follow *w)
{
	char path[64];

	if (w->stopping)
		return CLI_OK;
	w->stopping = true;
	snprintf(path, sizeof(path), "/v1/traces/%s/stop", w->f->trace);
	w->stop = cli_http_prepare(w->c, curl_easy_init(), "POST", path);
	if (!w->stop)
		return cli_fail("out of memory");
	curl_easy_setopt(w->stop, CURLOPT_POSTFIELDS, "");
	curl_easy_setopt(w->stop, CURLOPT_WRITEFUNCTION, cli_http_collect);
	curl_easy_setopt(w->stop, CURLOPT_WRITEDATA, &w->stopped);
	curl_multi_add_handle(w->multi, w->stop);
	return CLI_OK;
}

static int start_stream(struct follow *w)
{
	_cleanup_buf_ struct buf path = { 0 };
	char accept[96];

	buf_addf(&path, "/v1/traces/%s/stream?on_close=delete", w->f->trace);
	if (w->f->layout)
		buf_addf(&path, "&layout=%s", w->f->layout);
	snprintf(accept, sizeof(accept), "Accept: %s", w->f->accept);
	w->multi = curl_multi_init();
	w->headers = curl_slist_append(NULL, accept);
	w->stream = buf_failed(&path) ? NULL
				      : cli_http_prepare(w->c, curl_easy_init(), "GET", path.data);
	if (!w->multi || !w->headers || !w->stream)
		return cli_fail("out of memory");
	curl_easy_setopt(w->stream, CURLOPT_HTTPHEADER, w->headers);
	curl_easy_setopt(w->stream, CURLOPT_BUFFERSIZE, STREAM_BUFFER);
	curl_easy_setopt(w->stream, CURLOPT_WRITEFUNCTION, pass_on);
	curl_easy_setopt(w->stream, CURLOPT_WRITEDATA, w);
	curl_multi_add_handle(w->multi, w->stream);
	return CLI_OK;
}

/* How the stream's transfer ended. */
static int judge(struct follow *w, CURLcode r)
{
	long http_status = 0;

	curl_easy_getinfo(w->stream, CURLINFO_RESPONSE_CODE, &http_status);
	if (w->write_errno && w->write_errno != EPIPE) /* EPIPE: the reader has seen enough */
		return cli_fail("cannot write the output: %s", strerrordesc_np(w->write_errno));
	if (r != CURLE_OK)
		return cli_http_no_answer(w->c, w->stream, r);
	return http_status == 200 ? CLI_OK : cli_http_refused(http_status, &w->refusal);
}

/* How the request to stop ended. When it failed the stream would go on for ever. */
static int judge_stop(struct follow *w, CURLcode r)
{
	long http_status = 0;

	curl_easy_getinfo(w->stop, CURLINFO_RESPONSE_CODE, &http_status);
	if (r != CURLE_OK)
		return cli_http_no_answer(w->c, w->stop, r);
	return http_status == 200 ? CLI_OK : cli_http_refused(http_status, &w->stopped);
}

/* Is it all over? *status_ret says how. */
static bool is_over(struct follow *w, int *status_ret)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(w->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		if (m->easy_handle == w->stream) {
			w->ended = true;
			w->ended_status = judge(w, m->data.result);
			continue;
		}
		*status_ret = judge_stop(w, m->data.result);
		if (*status_ret != CLI_OK)
			return true;
	}
	*status_ret = w->ended_status;
	return w->ended && (!w->pending.len || w->ended_status != CLI_OK);
}

/* Go on where the reader had stopped us. */
static bool resume(struct follow *w)
{
	if (w->pending.len)
		flush(w);
	if (w->pending.len || !w->paused)
		return true;
	w->paused = false; /* before: it may call pass_on() */
	return curl_easy_pause(w->stream, CURLPAUSE_CONT) == CURLE_OK;
}

/* Wait until something can be done. */
static void wait_for_more(struct follow *w, int signal_fd, int timer_fd)
{
	struct curl_waitfd extra[] = { { signal_fd, CURL_WAIT_POLLIN, 0 },
				       { timer_fd, CURL_WAIT_POLLIN, 0 },
				       { w->f->out_fd, CURL_WAIT_POLLOUT, 0 } };

	curl_multi_poll(w->multi, extra, ARRAY_SIZE(extra) - !w->pending.len, 1000, NULL);
}

static int transfer(struct follow *w, int signal_fd, int timer_fd)
{
	struct signalfd_siginfo info;
	int running, status = CLI_OK;
	u64 ticks;

	for (;;) {
		if (!resume(w) || curl_multi_perform(w->multi, &running) != CURLM_OK)
			return cli_fail("the stream broke (daemon.protocol)");
		if (is_over(w, &status))
			return status;
		if (w->write_errno && !w->stopping) {
			status = start_stop(w);
			if (status != CLI_OK)
				return status;
			continue;
		}
		wait_for_more(w, signal_fd, timer_fd);
		if (w->f->store && !w->write_errno)
			w->write_errno = -rec_store_tick(w->f->store);
		if (read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
			if (w->stopping) /* asked a second time: do not wait; the daemon stops it */
				return cli_fail("not waited for the end");
			status = start_stop(w);
		} else if (read(timer_fd, &ticks, sizeof(ticks)) == (ssize_t)sizeof(ticks)) {
			status = start_stop(w);
		}
		if (status != CLI_OK)
			return status;
	}
}

static int make_timer(u64 ns)
{
	struct itimerspec when = {
		.it_value = { (time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC) },
	};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	if (fd >= 0 && ns)
		timerfd_settime(fd, 0, &when, NULL);
	return fd;
}

void cli_follow_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGHUP);
}

int cli_follow(struct cli *c, struct cli_follow *f)
{
	_cleanup_close_ int signal_fd = -1, timer_fd = -1;
	struct follow w = { .c = c, .f = f };
	struct stat st;
	sigset_t set;
	int status, r;

	w.regular = fstat(f->out_fd, &st) == 0 && S_ISREG(st.st_mode);
	/* the caller has blocked them: one that came while the trace started is seen here */
	cli_follow_signals(&set);
	signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	timer_fd = make_timer(f->duration_ns);
	if (signal_fd < 0 || timer_fd < 0)
		status = cli_fail("signalfd, timerfd: %s", strerrordesc_np(errno));
	else
		status = start_stream(&w);
	if (status == CLI_OK)
		status = transfer(&w, signal_fd, timer_fd);
	/* also of a stream that broke: what came is kept */
	r = f->store ? rec_store_finish(f->store) : 0;
	if (status == CLI_OK && r < 0)
		status = cli_fail("cannot write the output: %s", strerrordesc_np(-r));
	if (w.multi && w.stop)
		curl_multi_remove_handle(w.multi, w.stop);
	if (w.multi && w.stream)
		curl_multi_remove_handle(w.multi, w.stream);
	curl_easy_cleanup(w.stop);
	curl_easy_cleanup(w.stream);
	if (w.multi)
		curl_multi_cleanup(w.multi);
	curl_slist_free_all(w.headers);
	buf_deinit(&w.pending);
	buf_deinit(&w.refusal);
	buf_deinit(&w.stopped);
	return status;
}
