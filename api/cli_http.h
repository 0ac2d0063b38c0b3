/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files of the command that know libcurl. */
#ifndef API_CLI_HTTP_H
#define API_CLI_HTTP_H

#include "api/cli.h"

#include <curl/curl.h>

struct buf;

/** cli_http_prepare - make @h a request for @path of the daemon; NULL without memory */
CURL *cli_http_prepare(const struct cli *c, CURL *h, const char *method, const char *path);

/** cli_http_collect - a write callback into a struct buf */
size_t cli_http_collect(char *data, size_t size, size_t n, void *arg);

/** cli_http_no_answer - report why there was no answer; Return: CLI_FAILED */
int cli_http_no_answer(const struct cli *c, CURL *h, CURLcode why);

/** cli_http_refused - say what @body, which came instead of what was asked for, gives as reason. Return: exit status. */
int cli_http_refused(long http_status, const struct buf *body);

#endif
