/* SPDX-License-Identifier: Apache-2.0 */
/* The web page's files as web/dist has them, put into the daemon by page.S. */
#ifndef API_PAGE_H
#define API_PAGE_H

#include "base/types.h"

/* A line each; those that shrink have a compressed copy. */
extern const char page_index[], page_index_end[];
extern const char page_index_gz[], page_index_gz_end[];
extern const char page_js[], page_js_end[];
extern const char page_js_gz[], page_js_gz_end[];
extern const char page_css[], page_css_end[];
extern const char page_css_gz[], page_css_gz_end[];
extern const char page_icon[], page_icon_end[];
extern const char page_licences[], page_licences_end[];
extern const char page_licences_gz[], page_licences_gz_end[];
extern const char page_sans[], page_sans_end[];
extern const char page_sans_bold[], page_sans_bold_end[];
extern const char page_mono[], page_mono_end[];
extern const char page_mono_bold[], page_mono_bold_end[];

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
