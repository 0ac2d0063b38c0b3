// SPDX-License-Identifier: Apache-2.0
/* The command's side of HTTP, on libcurl. See cli.h. */
#include "api/cli_http.h"
#include "api/cli.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_SEC 10L
#define KEEP_IDLE_SEC       60L /* a NAT may forget a stream that is quiet for longer */
#define KEEP_INTERVAL_SEC   15L
#define ANSWER_TIMEOUT_MS   5000L /* while somebody sits at a terminal that nothing else leaves */

size_t cli_http_collect(char *data, size_t size, size_t n, void *arg)
{
	buf_add(arg, data, size * n);
	return buf_failed(arg) ? 0 : size * n;
}

/* $NAME, if it is set and not empty, for @opt. */
static void from_env(CURL *h, CURLoption opt, const char *name)
{
	const char *value = getenv(name);

	if (value && *value)
		curl_easy_setopt(h, opt, value);
}

/* Who we are, for a daemon on TCP; a unix socket says so by itself. */
static void prepare_identity(const struct cli *c, CURL *h)
{
	const char *token = getenv("HVFTRACE_TOKEN");

	if (c->socket)
		return;
	if (token && *token) {
		curl_easy_setopt(h, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		from_env(h, CURLOPT_XOAUTH2_BEARER, "HVFTRACE_TOKEN");
	}
	from_env(h, CURLOPT_CAINFO, "HVFTRACE_CA");
	from_env(h, CURLOPT_SSLCERT, "HVFTRACE_CERT");
	from_env(h, CURLOPT_SSLKEY, "HVFTRACE_KEY");
}

CURL *cli_http_prepare(const struct cli *c, CURL *h, const char *method, const char *path)
{
	_cleanup_buf_ struct buf url = { 0 };

	if (!h)
		return NULL;
	curl_easy_reset(h);
	buf_addf(&url, "%s%s", c->url ? c->url : "http://localhost", path);
	if (buf_failed(&url))
		return NULL;
	curl_easy_setopt(h, CURLOPT_URL, url.data);
	if (c->socket)
		curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	prepare_identity(c, h);
	curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_SEC);
	curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, KEEP_IDLE_SEC);
	curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, KEEP_INTERVAL_SEC);
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h, CURLOPT_USERAGENT, "hvftrace/" HVF_VERSION);
	return h;
}

static int look_for_signal(void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
			   curl_off_t ulnow)
{
	const struct cli *c = arg;

	(void)dltotal, (void)dlnow, (void)ultotal, (void)ulnow;
	return *c->interrupted;
}

/* The terminal may be raw: a daemon that is not heard of any more is not to be waited for. */
static void limit_waiting(struct cli *c, CURL *h)
{
	if (!c->interrupted)
		return;
	curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, ANSWER_TIMEOUT_MS);
	curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look_for_signal);
	curl_easy_setopt(h, CURLOPT_XFERINFODATA, c);
	curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
}

int cli_http_no_answer(const struct cli *c, CURL *h, CURLcode why)
{
	long os = 0;

	if (c->quiet || why == CURLE_ABORTED_BY_CALLBACK)
		return CLI_FAILED;
	curl_easy_getinfo(h, CURLINFO_OS_ERRNO, &os);
	if (why == CURLE_COULDNT_CONNECT && c->socket && (os == EACCES || os == EPERM))
		return cli_fail("%s: permission denied (daemon.permission): use sudo, or let your "
				"group use the socket",
				c->socket);
	if (why == CURLE_COULDNT_CONNECT)
		return cli_fail(
			"no daemon answers at %s (daemon.unreachable): start it as root: "
			"hvftraced%s%s",
			c->socket ? c->socket : c->url,
			c->socket && strcmp(c->socket, CLI_DEFAULT_SOCKET) != 0 ? " --listen unix:"
										: "",
			c->socket && strcmp(c->socket, CLI_DEFAULT_SOCKET) != 0 ? c->socket : "");
	return cli_fail("the daemon at %s: %s (daemon.protocol)", c->socket ? c->socket : c->url,
			curl_easy_strerror(why));
}

/* What goes with a request: bytes and what they are; @type NULL: nothing. */
struct sent {
	const char *data, *type;
	size_t len;
};

static int call(struct cli *c, const char *method, const char *path, const struct sent *sent,
		struct cli_reply *ret)
{
	_cleanup_buf_ struct buf answer = { 0 };
	struct curl_slist *headers = NULL;
	int status = CLI_OK;
	CURLcode r;
	CURL *h;

	if (!c->curl)
		c->curl = curl_easy_init();
	h = cli_http_prepare(c, c->curl, method, path);
	if (sent->type)
		headers = curl_slist_append(NULL, sent->type);
	if (!h || (sent->type && !headers)) {
		curl_slist_free_all(headers);
		return cli_fail("out of memory");
	}
	if (headers)
		curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	if (headers || strcmp(method, "POST") == 0) {
		curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE, (long)sent->len);
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, sent->data ? sent->data : "");
	}
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, cli_http_collect);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, &answer);
	limit_waiting(c, h);
	r = curl_easy_perform(h);
	if (r != CURLE_OK)
		status = cli_http_no_answer(c, h, r);
	curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &ret->status);
	curl_slist_free_all(headers);
	if (status == CLI_OK && answer.len)
		ret->doc = json_loadb(answer.data, answer.len, 0, NULL);
	return status;
}

int cli_call(struct cli *c, const char *method, const char *path, json_t *body,
	     struct cli_reply *ret)
{
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct sent sent = { 0 };

	*ret = (struct cli_reply){ 0 };
	if (body) {
		json_decref(body);
		if (!text)
			return cli_fail("out of memory");
		sent = (struct sent){ text, "Content-Type: application/json", strlen(text) };
	}
	return call(c, method, path, &sent, ret);
}

int cli_send_bytes(struct cli *c, const char *path, const void *data, size_t n,
		   struct cli_reply *ret)
{
	const struct sent sent = { data, "Content-Type: application/octet-stream", n };

	*ret = (struct cli_reply){ 0 };
	return call(c, "POST", path, &sent, ret);
}

void cli_reply_deinit(struct cli_reply *r)
{
	json_decref(r->doc);
	*r = (struct cli_reply){ 0 };
}

const char *cli_reply_code(const struct cli_reply *r)
{
	const char *code = json_string_value(json_object_get(r->doc, "code"));

	return code ? code : "";
}

int cli_refused(const struct cli_reply *r)
{
	const char *detail = json_string_value(json_object_get(r->doc, "detail"));
	const char *hint = json_string_value(json_object_get(r->doc, "hint"));
	json_t *first = json_array_get(json_object_get(r->doc, "errors"), 0);
	const char *where = json_string_value(json_object_get(first, "pointer"));
	const char *what = json_string_value(json_object_get(first, "detail"));

	if (!detail)
		return cli_fail("the daemon answered with status %ld and no reason", r->status);
	return cli_fail("%s%s%s%s%s (%s): %s", detail, where ? ": " : "", where ? where : "",
			where ? " " : "", where && what ? what : "", cli_reply_code(r),
			hint ? hint : "");
}

int cli_request(struct cli *c, const char *method, const char *path, json_t *body, json_t **doc_ret)
{
	struct cli_reply r;
	int status;

	*doc_ret = NULL;
	status = cli_call(c, method, path, body, &r);
	if (status == CLI_OK && (r.status < 200 || r.status > 299))
		status = cli_refused(&r);
	else if (status == CLI_OK && !r.doc)
		status = cli_fail("the daemon's answer to %s %s is no JSON (daemon.protocol)",
				  method, path);
	if (status == CLI_OK) {
		*doc_ret = r.doc;
		return CLI_OK;
	}
	cli_reply_deinit(&r);
	return status;
}

char *cli_escape(const char *s)
{
	char *text = curl_easy_escape(NULL, s, 0), *copy = text ? strdup(text) : NULL;

	curl_free(text);
	return copy;
}

char *cli_guest_path(const char *guest, const char *rest)
{
	_cleanup_free_ char *g = cli_escape(guest);
	char *path;

	if (!g || asprintf(&path, "/v1/guests/%s%s", g, rest) < 0)
		return NULL;
	return path;
}

int cli_http_refused(long http_status, const struct buf *body)
{
	struct cli_reply reply = { .status = http_status };
	int status;

	if (body->len)
		reply.doc = json_loadb(body->data, body->len, 0, NULL);
	status = cli_refused(&reply);
	cli_reply_deinit(&reply);
	return status;
}
