/* SPDX-License-Identifier: Apache-2.0 */
/* The verb export in parts: cli_export.c from a recording, cli_export_out.c where to, and from the daemon. */
#ifndef API_CLI_EXPORT_H
#define API_CLI_EXPORT_H

#include "api/cli.h"
#include "tracers/formats/export.h"
#include "tracers/formats/tar.h"

/* A file, standard output, or the directory that a tar archive unpacks to. Failures are reported at once. */
struct cli_export_out {
	const char *path; /* "-": standard output */
	bool failed;
	int fd; /* the file; of a directory, its file under way */
	int dir_fd; /* -1: not a directory */
	struct tar_reader tar;
};

/**
 * cli_export_open - @path, to be made; a directory if @is_tar and it does not end with ".tar"
 *
 * Return: CLI_OK; CLI_FAILED, reported.
 */
int cli_export_open(struct cli_export_out *o, const char *path, bool is_tar);
bool cli_export_put(struct cli_export_out *o, const void *data, size_t len);
/** cli_export_close - Return: @status, or CLI_FAILED, reported, if it was CLI_OK */
int cli_export_close(struct cli_export_out *o, int status);

/** cli_export_trace - what the daemon has of trace @id */
int cli_export_trace(struct cli *c, const char *id, const struct export_format *format,
		     const struct export_opts *opts, const char *out);

#endif
