// SPDX-License-Identifier: Apache-2.0
/*
 * The web page: / and /assets/{file}. Files of this program alone; nothing of a guest is in them. What
 * the page may do is said to the browser by a policy that lets it load nothing from elsewhere, run no
 * inline script, and turn no text into markup (Trusted Types), whatever a guest's names contain.
 */
#include "api/page.h"
#include "api/problem.h"
#include "api/request.h"
#include "api/resources.h"

#include <stdio.h>
#include <string.h>

#define PAGE_POLICY                                                                  \
	"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; " \
	"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "  \
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

static const struct asset {
	const char *name; /* in /assets/; "" for the page itself */
	const char *type;
	const char *data, *end;
	const char *gz, *gz_end; /* NULL: does not shrink */
} assets[] = {
	{ "", "text/html; charset=utf-8", page_index, page_index_end, page_index_gz,
	  page_index_gz_end },
	{ "page.js", "text/javascript; charset=utf-8", page_js, page_js_end, page_js_gz,
	  page_js_gz_end },
	{ "page.css", "text/css; charset=utf-8", page_css, page_css_end, page_css_gz,
	  page_css_gz_end },
	{ "licences.txt", "text/plain; charset=utf-8", page_licences, page_licences_end,
	  page_licences_gz, page_licences_gz_end },
	{ "icon.svg", "image/svg+xml", page_icon, page_icon_end, NULL, NULL },
	{ "sans-400.woff2", "font/woff2", page_sans, page_sans_end, NULL, NULL },
	{ "sans-600.woff2", "font/woff2", page_sans_bold, page_sans_bold_end, NULL, NULL },
	{ "mono-400.woff2", "font/woff2", page_mono, page_mono_end, NULL, NULL },
	{ "mono-600.woff2", "font/woff2", page_mono_bold, page_mono_bold_end, NULL, NULL },
};

/* FNV-1a of 64 bits over what is sent: tells two builds' files apart, no more is asked of it. */
static void make_etag(char ret[REPLY_ETAG_SIZE], const char *data, const char *end)
{
	u64 h = 0xcbf29ce484222325ull;

	for (; data < end; data++)
		h = (h ^ (u8)*data) * 0x100000001b3ull;
	snprintf(ret, REPLY_ETAG_SIZE, "\"%016llx\"", (unsigned long long)h);
}

static void send_asset(struct request *rq, const struct asset *a)
{
	bool gz = a->gz && page_takes_gzip(rq->accept_encoding);
	const char *data = gz ? a->gz : a->data, *end = gz ? a->gz_end : a->end;
	struct reply *rp = &rq->reply;
	struct buf body = { 0 };

	rp->immutable = true;
	rp->policy = PAGE_POLICY;
	rp->varies = a->gz;
	make_etag(rp->etag, data, end);
	if (page_etag_matches(rq->if_none_match, rp->etag)) {
		request_text(rq, 304, NULL, &body);
		return;
	}
	buf_add(&body, data, (size_t)(end - data));
	if (buf_failed(&body)) {
		rp->etag[0] = 0;
		request_json(rq, 503, NULL);
		return;
	}
	rp->encoding = gz ? "gzip" : NULL;
	request_text(rq, 200, a->type, &body);
}

void res_page(struct request *rq)
{
	send_asset(rq, &assets[0]);
}

void res_assets(struct request *rq)
{
	struct problem p;

	for (size_t i = 1; i < ARRAY_SIZE(assets); i++) {
		if (strcmp(assets[i].name, rq->params[0]) == 0) {
			send_asset(rq, &assets[i]);
			return;
		}
	}
	problem_from_code(&p, PROBLEM_NO_ROUTE, "the page has no file %.64s", rq->params[0]);
	request_problem(rq, &p);
}
