/* SPDX-License-Identifier: Apache-2.0 */
/* Files of names, for -l @FILE and the like. */
#ifndef API_CLI_NAMES_H
#define API_CLI_NAMES_H

#include <jansson.h>
#include <stdio.h>

/**
 * cli_names_glob - the glob in one line of a file of names
 * @line: NUL-terminated; is written to
 *
 * A line is a glob, or NAME [MODULE] (STATE) as `hvftrace functions` and the guest's own
 * available_filter_functions have it; from a '#' that begins a word on it is a comment.
 * Return: to be freed; "" when the line has none; NULL with *@why_ret when it is something else.
 */
char *cli_names_glob(char *line, const char **why_ret);

/**
 * cli_names_read - add the globs of a file to a list
 * @name:    of the file, for messages
 * @globs:   an array that they are added to
 * @origins: an object: where each glob was, "FILE:LINE", unless it was somewhere before
 *
 * Return: CLI_OK, at least one was added; CLI_FAILED, reported.
 */
int cli_names_read(FILE *f, const char *name, json_t *globs, json_t *origins);

/** cli_names_file - the same for the file @path; "-" is standard input, once */
int cli_names_file(const char *path, json_t *globs, json_t *origins);

#endif
