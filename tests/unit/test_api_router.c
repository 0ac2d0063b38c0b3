// SPDX-License-Identifier: Apache-2.0
/* api/router.c: paths, parameters, methods. The handlers are not called, so they are only names here. */
#include "api/router.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define HANDLER(name)                 \
	void name(struct request *rq) \
	{                             \
		(void)rq;             \
	}
HANDLER(res_healthz)
HANDLER(res_version)
HANDLER(res_openapi)
HANDLER(res_metrics)
HANDLER(res_page)
HANDLER(res_assets)
HANDLER(res_machines_list)
HANDLER(res_guests_list)
HANDLER(res_guests_create)
HANDLER(res_guests_get)
HANDLER(res_guests_delete)
HANDLER(res_guests_facts)
HANDLER(res_guests_release)
HANDLER(res_console_read)
HANDLER(res_console_type)
HANDLER(res_functions_list)
HANDLER(res_modules_list)
HANDLER(res_symbols_list)
HANDLER(res_traces_list)
HANDLER(res_guest_traces_list)
HANDLER(res_traces_create)
HANDLER(res_traces_get)
HANDLER(res_traces_change)
HANDLER(res_traces_mark)
HANDLER(res_traces_snapshot)
HANDLER(res_traces_stop)
HANDLER(res_traces_delete)
HANDLER(res_traces_profile)
HANDLER(res_traces_records)
HANDLER(res_events_list)
HANDLER(res_events_stream)
HANDLER(res_traces_stream)
HANDLER(res_traces_export)

struct found {
	enum router_result result;
	const struct route *route;
	char *params[REQUEST_MAX_PARAMS];
	char allow[64];
};

static struct found find(const char *method, const char *path)
{
	struct found f = { 0 };

	f.result = router_find(method, path, &f.route, f.params, f.allow);
	return f;
}

static void done(struct found *f)
{
	for (size_t i = 0; i < REQUEST_MAX_PARAMS; i++)
		free(f->params[i]);
}

static void parameters_are_taken(void **state)
{
	struct found f = find("GET", "/v1/guests/web1/functions");

	(void)state;
	assert_int_equal(f.result, ROUTER_FOUND);
	assert_ptr_equal(f.route->handler, res_functions_list);
	assert_string_equal(f.params[0], "web1");
	assert_null(f.params[1]);
	done(&f);
	f = find("GET", "/");
	assert_ptr_equal(f.route->handler, res_page);
	done(&f);
	f = find("POST", "/v1/traces/t7/stop");
	assert_ptr_equal(f.route->handler, res_traces_stop);
	assert_string_equal(f.params[0], "t7");
	done(&f);
}

static void head_is_get(void **state)
{
	struct found f = find("HEAD", "/v1/guests");

	(void)state;
	assert_int_equal(f.result, ROUTER_FOUND);
	assert_ptr_equal(f.route->handler, res_guests_list);
	done(&f);
}

static void methods_are_told(void **state)
{
	struct found f = find("PUT", "/v1/guests/x");

	(void)state;
	assert_int_equal(f.result, ROUTER_NO_METHOD);
	assert_string_equal(f.allow, "GET, HEAD, DELETE");
	f = find("get", "/v1/guests");
	assert_int_equal(f.result, ROUTER_NO_METHOD);
	assert_string_equal(f.allow, "GET, HEAD, POST");
}

static void other_paths_are_not_found(void **state)
{
	static const char *const paths[] = { "",
					     "//",
					     "v1/guests",
					     "/v1/guests/",
					     "/v1//guests",
					     "/v1/guests/a/",
					     "/v1/guests/a/b",
					     "/V1/guests",
					     "/v1/guest",
					     "/v1/guestss" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_int_equal(find("GET", paths[i]).result, ROUTER_NO_PATH);
}

static void a_parameter_has_its_limit(void **state)
{
	char path[128] = "/v1/guests/";
	struct found f;

	(void)state;
	memset(path + strlen("/v1/guests/"), 'x', ROUTE_MAX_PARAM);
	f = find("GET", path);
	assert_int_equal(f.result, ROUTER_FOUND);
	done(&f);
	path[strlen(path)] = 'x';
	assert_int_equal(find("GET", path).result, ROUTER_NO_PATH);
}

static void every_allow_header_fits(void **state)
{
	(void)state;
	for (size_t i = 0; i < router_count(); i++) {
		struct found f = find("BREW", router_get(i)->path);

		assert_int_equal(f.result, ROUTER_NO_METHOD);
		assert_non_null(strstr(f.allow, router_get(i)->method));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_taken),
		cmocka_unit_test(head_is_get),
		cmocka_unit_test(methods_are_told),
		cmocka_unit_test(other_paths_are_not_found),
		cmocka_unit_test(a_parameter_has_its_limit),
		cmocka_unit_test(every_allow_header_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
