/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of the routes, one file a resource. Each answers its request exactly once. */
#ifndef API_RESOURCES_H
#define API_RESOURCES_H

#include "base/err.h"
#include "base/types.h"

struct request;

/* res_health.c */
void res_healthz(struct request *rq);
void res_version(struct request *rq);
void res_openapi(struct request *rq);
void res_metrics(struct request *rq);

/* res_page.c */
void res_page(struct request *rq);
void res_assets(struct request *rq);

/* res_machines.c */
void res_machines_list(struct request *rq);

/* res_guests.c */
void res_guests_list(struct request *rq);
void res_guests_create(struct request *rq);
void res_guests_get(struct request *rq);
void res_guests_delete(struct request *rq);
void res_guests_facts(struct request *rq);
void res_guests_release(struct request *rq);

/* res_console.c */
void res_console_read(struct request *rq);
void res_console_type(struct request *rq);

/* res_functions.c */
void res_functions_list(struct request *rq);
void res_modules_list(struct request *rq);
/** res_glob_matches - by the query's "glob" parameters, as a trace's filter; @cost as filter_match_cost() */
bool res_glob_matches(const struct request *rq, const char *name, const char *module, u64 *cost);
/** res_too_costly - was it more than FILTER_MAX_COST? Then @err says so (filter.too_costly) */
bool res_too_costly(u64 cost, struct err *err);

/* res_symbols.c */
void res_symbols_list(struct request *rq);

/* res_profile.c */
void res_traces_profile(struct request *rq);

/* res_traces.c */
void res_traces_list(struct request *rq);
void res_guest_traces_list(struct request *rq);
void res_traces_create(struct request *rq);
void res_traces_get(struct request *rq);
void res_traces_change(struct request *rq);
void res_traces_mark(struct request *rq);
void res_traces_snapshot(struct request *rq);
void res_traces_stop(struct request *rq);
void res_traces_delete(struct request *rq);
void res_traces_records(struct request *rq);

/* res_events.c */
void res_events_list(struct request *rq);
void res_events_stream(struct request *rq);

/* res_stream.c */
void res_traces_stream(struct request *rq);

/* res_export.c */
void res_traces_export(struct request *rq);

#endif
