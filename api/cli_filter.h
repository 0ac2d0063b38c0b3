/* SPDX-License-Identifier: Apache-2.0 */
/* What of a recording is shown: -l, -n and -P of the verbs that read one, as of those that make one. */
#ifndef API_CLI_FILTER_H
#define API_CLI_FILTER_H

#include "tracers/output.h"

#include <jansson.h>

#define REC_FILTER_SHORT "l:n:P:" /* for getopt(3); trace_args_take() takes them */
#define REC_FILTER_CACHE 4096u /* a power of two */

struct rec_filter {
	const json_t *filter, *notrace, *pids; /* NULL: all */
	u64 n_taken;
	/* by address, as globs take their time */
	struct {
		u64 ip; /* 0: empty */
		u32 when;
		bool takes;
	} cache[REC_FILTER_CACHE];
};

/** rec_filter_init - as @body, a request's, says; valid as long as it */
void rec_filter_init(struct rec_filter *f, const json_t *body);
/** rec_filter_on - is anything left out? */
bool rec_filter_on(const struct rec_filter *f);
/** rec_filter_names - by functions? */
bool rec_filter_names(const struct rec_filter *f);
/** rec_filter_chooses - a function by its name */
bool rec_filter_chooses(const struct rec_filter *f, const char *name, const char *module);
/** rec_filter_takes - a record; task switches, markers and turns of the tracer always, as they are recorded */
bool rec_filter_takes(struct rec_filter *f, const struct trace_record *rec,
		      const struct output_names *names);

#endif
