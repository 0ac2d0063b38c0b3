/* SPDX-License-Identifier: Apache-2.0 */
/* The web page's files as web/dist has them, put into the daemon by page.S. */
#ifndef API_PAGE_H
#define API_PAGE_H

#include "base/types.h"

/* One declaration a file; those that shrink have a compressed copy. */
#define PAGE_BYTES(name) extern const char name[], name##_end[]

PAGE_BYTES(page_index);
PAGE_BYTES(page_index_gz);
PAGE_BYTES(page_js);
PAGE_BYTES(page_js_gz);
PAGE_BYTES(page_css);
PAGE_BYTES(page_css_gz);
PAGE_BYTES(page_icon);
PAGE_BYTES(page_licences);
PAGE_BYTES(page_licences_gz);
PAGE_BYTES(page_sans);
PAGE_BYTES(page_sans_bold);
PAGE_BYTES(page_mono);
PAGE_BYTES(page_mono_bold);

/**
 * page_takes_gzip - does this Accept-Encoding allow gzip?
 * @header: what a client sent; NULL when it sent none
 */
bool page_takes_gzip(const char *header);

/**
 * page_etag_matches - does this If-None-Match have @etag?
 * @header: what a client sent: "*", or tags with commas between, each maybe weak; NULL for none
 * @etag:   with its quotes
 */
bool page_etag_matches(const char *header, const char *etag);

#endif
