// SPDX-License-Identifier: Apache-2.0
/* Where exports go, and those that the daemon makes. See cli_export.h. */
#include "api/cli_export.h"
#include "api/cli_http.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static bool failed(struct cli_export_out *o, const char *what)
{
	int no = errno;

	if (!o->failed)
		cli_fail("cannot write %s%s%s: %s", o->path, what ? "/" : "", what ? what : "",
			 strerrordesc_np(no));
	o->failed = true;
	return false;
}

static bool write_all(struct cli_export_out *o, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(o->fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed(o, NULL);
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* The next file of the directory, or the end of the one under way. */
static bool next_file(void *arg, const char *name)
{
	struct cli_export_out *o = arg;
	int r = o->fd >= 0 ? close(o->fd) : 0;

	o->fd = -1;
	if (r < 0)
		return failed(o, NULL);
	if (!name)
		return true;
	o->fd = openat(o->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	return o->fd >= 0 || failed(o, name);
}

static bool file_data(void *arg, const void *data, size_t len)
{
	return write_all(arg, data, len);
}

int cli_export_open(struct cli_export_out *o, const char *path, bool is_tar)
{
	size_t len = strlen(path);
	bool is_dir = is_tar && strcmp(path, "-") != 0 &&
		      (len < 4 || strcmp(path + len - 4, ".tar") != 0);

	*o = (struct cli_export_out){ .path = path, .fd = -1, .dir_fd = -1 };
	if (is_dir) {
		if (mkdir(path, 0777) == 0)
			o->dir_fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
		if (o->dir_fd < 0)
			return cli_fail("cannot make the directory %s: %s", path,
					strerrordesc_np(errno));
		return CLI_OK;
	}
	if (strcmp(path, "-") == 0 && isatty(STDOUT_FILENO))
		return cli_fail("this is not for a terminal: name a file with -o");
	o->fd = strcmp(path, "-") == 0 ? STDOUT_FILENO
				       : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return cli_fail("cannot write %s: %s", path, strerrordesc_np(errno));
	return CLI_OK;
}

bool cli_export_put(struct cli_export_out *o, const void *data, size_t len)
{
	const struct tar_sink sink = { next_file, file_data, o };
	int r;

	if (o->failed)
		return false;
	if (o->dir_fd < 0)
		return write_all(o, data, len);
	r = tar_read(&o->tar, &sink, data, len);
	if (r == -EBADMSG) {
		cli_fail("what the daemon sent is no archive of plain files (daemon.protocol)");
		o->failed = true;
	}
	return r == 0;
}

int cli_export_close(struct cli_export_out *o, int status)
{
	if (status == CLI_OK && !o->failed && o->dir_fd >= 0 && !tar_complete(&o->tar))
		status = cli_fail("%s is not complete: the export ended early", o->path);
	if (o->fd > STDERR_FILENO && close(o->fd) < 0)
		failed(o, NULL);
	if (o->dir_fd >= 0)
		close(o->dir_fd);
	return o->failed ? CLI_FAILED : status;
}

/* An answer of the daemon under way. */
struct transfer {
	CURL *h;
	struct cli_export_out sink;
	const char *out;
	bool is_tar, opened;
	int status;
	struct buf refusal;
};

static size_t take(char *data, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	long status = 0;

	curl_easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return cli_http_collect(data, size, n, &t->refusal);
	if (!t->opened) {
		t->status = cli_export_open(&t->sink, t->out, t->is_tar);
		t->opened = t->status == CLI_OK;
	}
	return t->opened && cli_export_put(&t->sink, data, size * n) ? size * n : 0;
}

int cli_export_trace(struct cli *c, const char *id, const struct export_format *format,
		     const struct export_opts *opts, const char *out)
{
	_cleanup_buf_ struct buf path = { 0 };
	_cleanup_free_ char *escaped = cli_escape(id);
	struct transfer t = { .out = out, .is_tar = format->flags & EXPORT_TAR };
	long http_status = 0;
	CURLcode r;
	int status;

	buf_addf(&path, "/v1/traces/%s/export?format=%s", escaped ? escaped : "", format->name);
	if (opts->host_trace_id)
		buf_addf(&path, "&host_trace_id=%016llx", (unsigned long long)opts->host_trace_id);
	t.h = buf_failed(&path) || !escaped
		      ? NULL
		      : cli_http_prepare(c, curl_easy_init(), "GET", path.data);
	if (!t.h)
		return cli_fail("out of memory");
	curl_easy_setopt(t.h, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(t.h, CURLOPT_WRITEDATA, &t);
	r = curl_easy_perform(t.h);
	curl_easy_getinfo(t.h, CURLINFO_RESPONSE_CODE, &http_status);
	if (t.status != CLI_OK || t.sink.failed)
		status = CLI_FAILED; /* it has been said */
	else if (r != CURLE_OK)
		status = cli_http_no_answer(c, t.h, r);
	else
		status = http_status == 200 ? CLI_OK : cli_http_refused(http_status, &t.refusal);
	if (t.opened)
		status = cli_export_close(&t.sink, status);
	curl_easy_cleanup(t.h);
	buf_deinit(&t.refusal);
	return status;
}
