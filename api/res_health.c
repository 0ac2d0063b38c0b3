// SPDX-License-Identifier: Apache-2.0
/* /healthz, /version, /openapi.yaml and /metrics. */
#include "api/audit.h"
#include "api/openapi.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#define METRICS_MEDIA_TYPE "text/plain; version=0.0.4; charset=utf-8"

void res_healthz(struct request *rq)
{
	request_json(rq, 200, json_pack("{s:s}", "status", "ok"));
}

void res_version(struct request *rq)
{
	request_json(rq, 200,
		     json_pack("{s:s, s:s, s:o}", "name", "hvftraced", "version", HVF_VERSION,
			       "started", json_time(server_started_ns(rq->srv))));
}

void res_openapi(struct request *rq)
{
	struct buf body = { 0 };

	buf_add(&body, api_openapi, (size_t)(api_openapi_end - api_openapi));
	if (buf_failed(&body)) {
		request_json(rq, 503, NULL);
		return;
	}
	rq->reply.immutable = true;
	request_text(rq, 200, "application/yaml", &body);
}

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void number(struct buf *b, const char *name, const char *type, const char *help, u64 value)
{
	head(b, name, type, help);
	buf_addf(b, "%s %llu\n", name, (unsigned long long)value);
}

/* What is told of each guest. */
struct guest_numbers {
	char name[NAME_MAX_BYTES + 1];
	size_t n_armed;
	struct vm_windows windows;
};

/* An array to free; NULL without memory. */
static struct guest_numbers *count_guests(struct registry *reg, size_t *n_ret)
{
	struct guest_numbers *all = calloc(1, sizeof(*all)), *more;
	struct guest_entry *g = NULL;
	struct guest_info info;
	size_t n = 0;

	while ((g = registry_guest_next(reg, g))) {
		guest_glance(g->guest, &info);
		more = all ? reallocarray(all, n + 1, sizeof(*all)) : NULL;
		if (!more) {
			free(all);
			all = NULL;
			continue;
		}
		all = more;
		all[n] = (struct guest_numbers){ .n_armed = info.n_armed, .windows = info.windows };
		memcpy(all[n++].name, g->name, sizeof(g->name));
	}
	*n_ret = n;
	return all;
}

static void guest_metrics(struct buf *b, struct registry *reg)
{
	struct guest_numbers *all;
	size_t n;

	all = count_guests(reg, &n);
	b->failed |= !all;
	if (!all)
		return;
	number(b, "hvftrace_guests", "gauge", "Guests attached now.", n);
	head(b, "hvftrace_armed_functions", "gauge", "Call sites that call the agent now.");
	for (size_t i = 0; i < n; i++)
		buf_addf(b, "hvftrace_armed_functions{guest=\"%s\"} %zu\n", all[i].name,
			 all[i].n_armed);
	head(b, "hvftrace_stop_windows_total", "counter",
	     "Times all vCPUs of a guest were stopped.");
	for (size_t i = 0; i < n; i++)
		buf_addf(b, "hvftrace_stop_windows_total{guest=\"%s\"} %llu\n", all[i].name,
			 (unsigned long long)all[i].windows.count);
	head(b, "hvftrace_stop_window_seconds_total", "counter",
	     "Time for which all vCPUs of a guest were stopped.");
	for (size_t i = 0; i < n; i++)
		buf_addf(b, "hvftrace_stop_window_seconds_total{guest=\"%s\"} %.9f\n", all[i].name,
			 (double)all[i].windows.total_ns / 1e9);
	head(b, "hvftrace_stop_window_max_seconds", "gauge",
	     "The longest time for which all vCPUs of a guest were stopped at once.");
	for (size_t i = 0; i < n; i++)
		buf_addf(b, "hvftrace_stop_window_max_seconds{guest=\"%s\"} %.9f\n", all[i].name,
			 (double)all[i].windows.max_ns / 1e9);
	free(all);
}

static void trace_metrics(struct buf *b, struct registry *reg)
{
	struct registry_totals totals;
	u64 by_state[3] = { 0 };
	struct trace_entry **all;
	struct trace_info info;
	size_t n;

	/* before the list: a trace that goes in between is missed once, never counted twice */
	registry_totals(reg, &totals);
	all = registry_traces(reg, NULL, &n);
	b->failed |= !all;
	for (size_t i = 0; all && i < n; i++) {
		trace_get_info(all[i]->trace, &info);
		totals.records += info.n_records;
		totals.lost += info.n_lost;
		totals.lost_captures += info.lost_captures;
		by_state[info.state]++;
		registry_trace_put(all[i]);
	}
	free(all);
	head(b, "hvftrace_traces", "gauge", "Traces that there are, by state.");
	buf_addf(b, "hvftrace_traces{state=\"running\"} %llu\n",
		 (unsigned long long)by_state[TRACE_RUNNING]);
	buf_addf(b, "hvftrace_traces{state=\"stopped\"} %llu\n",
		 (unsigned long long)by_state[TRACE_STOPPED]);
	buf_addf(b, "hvftrace_traces{state=\"failed\"} %llu\n",
		 (unsigned long long)by_state[TRACE_FAILED]);
	number(b, "hvftrace_traces_started_total", "counter", "Traces started.",
	       totals.traces_started);
	number(b, "hvftrace_guests_attached_total", "counter", "Guests attached.",
	       totals.guests_attached);
	number(b, "hvftrace_records_total", "counter", "Records drained from guests.",
	       totals.records);
	number(b, "hvftrace_lost_records_total", "counter",
	       "Records lost before they could be drained.", totals.lost);
	number(b, "hvftrace_lost_captures_total", "counter",
	       "Pieces of what arguments of system calls point to that there was no room for.",
	       totals.lost_captures);
}

void res_metrics(struct request *rq)
{
	struct registry *reg = server_registry(rq->srv);
	struct buf b = { 0 };

	head(&b, "hvftrace_build_info", "gauge", "The daemon's version.");
	buf_addf(&b, "hvftrace_build_info{version=\"%s\"} 1\n", HVF_VERSION);
	head(&b, "process_start_time_seconds", "gauge", "When the daemon started, in Unix time.");
	buf_addf(&b, "process_start_time_seconds %.3f\n", (double)server_started_ns(rq->srv) / 1e9);
	guest_metrics(&b, reg);
	trace_metrics(&b, reg);
	number(&b, "hvftrace_http_requests_total", "counter", "HTTP requests.",
	       server_requests(rq->srv));
	number(&b, "hvftrace_http_connections", "gauge", "HTTP connections open now.",
	       server_connections(rq->srv));
	number(&b, "hvftrace_streams", "gauge", "Streams open now.", server_streams(rq->srv));
	number(&b, "hvftrace_audit_failures_total", "counter",
	       "Lines of the audit log that could not be written.",
	       audit_failures(server_audit(rq->srv)));
	if (buf_failed(&b)) {
		buf_deinit(&b);
		request_json(rq, 503, NULL);
		return;
	}
	request_text(rq, 200, METRICS_MEDIA_TYPE, &b);
}
