// SPDX-License-Identifier: Apache-2.0
/* tracers/choose.c: options into sites and words. */
#include "tracers/choose.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct ftrace_site sites[] = {
	{ .name = "vfs_read" },
	{ .name = "vfs_write" },
	{ .name = "vfs_open", .state = SITE_IN_USE },
	{ .name = "vfs_read", .module = "overlay" }, /* another function */
	{ .name = "do_exit" },
	{ .name = "schedule.isra.0" },
};

enum {
	READ,
	WRITE,
	OPEN,
	OVERLAY,
	EXIT,
	ISRA
};

static int func(void *arg, const struct ftrace_site *site, struct kernel_func *ret)
{
	const char *name = site->name;

	(void)arg;
	if (site->module)
		return -ENOENT;
	*ret = (struct kernel_func){ .ret = { .kind = KERNEL_VAL_SIGNED }, .n_regs = 4 };
	if (!strcmp(name, "do_exit"))
		*ret = (struct kernel_func){ .n_regs = 1 };
	return strncmp(name, "vfs_", 4) != 0 && strcmp(name, "do_exit") != 0 ? -ENOENT : 0;
}

static const struct choose_input input = {
	.sites = { sites, ARRAY_SIZE(sites), 6 << 16 | 1 << 8 },
	.func = func,
};

static struct choice choice;
static struct err err;

static int choose(const struct trace_opts *opts)
{
	err = (struct err){ 0 };
	return choose_sites(&input, opts, &choice, &err);
}

static u32 what(u32 site)
{
	for (size_t i = 0; i < choice.n_what; i++) {
		if (choice.what[i].site == site)
			return choice.what[i].what;
	}
	return 0;
}

static void armed(u32 bits)
{
	u32 got = 0;

	for (size_t i = 0; i < choice.n; i++)
		got |= 1u << choice.site[i];
	assert_int_equal(got, bits);
	assert_int_equal(choice.n, __builtin_popcount(bits));
}

/* Callers of chosen functions that are traced anyway; with neither tracer of everything. */
static void stacks_of_the_chosen(void **state)
{
	static const char *const reads[] = { "vfs_read" }, *const none[] = { "vfs_open" };
	static struct ftrace_site many[TRACE_MAX_STACK_SITES + 1];
	struct choose_input all = { .sites = { many, ARRAY_SIZE(many), 6 << 16 }, .func = func };
	struct trace_opts o = { .tracer = "function", .stack = reads, .n_stack = 1 };

	(void)state;
	assert_int_equal(choose(&o), 0);
	assert_int_equal(what(READ), AGENT_SITE_STACK);
	assert_int_equal(what(OVERLAY), AGENT_SITE_STACK);
	assert_int_equal(what(WRITE), 0);
	choice_deinit(&choice);
	o.stack = none; /* in use by the guest */
	assert_int_equal(choose(&o), -ENOENT);
	assert_int_equal(err.code, ERR_FILTER_EMPTY);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i].name = "vfs_read";
	o.stack = reads;
	assert_int_equal(choose_sites(&all, &o, &choice, &err), -EINVAL);
	assert_int_equal(err.code, ERR_STACK_FILTER);
	all.sites.n = TRACE_MAX_STACK_SITES;
	assert_int_equal(choose_sites(&all, &o, &choice, &err), 0);
	choice_deinit(&choice);
	o.stack_depth = AGENT_MAX_STACK + 1;
	assert_int_equal(choose_check(&o, &err), -EINVAL);
	o.stack_depth = 3;
	assert_int_equal(choose_check(&o, &err), 0);
	o.n_stack = 0;
	assert_int_equal(choose_check(&o, &err), -EINVAL);
	o = (struct trace_opts){ .tracer = "syscalls", .stack = reads, .n_stack = 1 };
	assert_int_equal(choose_check(&o, &err), -EINVAL);
}

/* Modules went, others came: what each glob means now, be it nothing. */
static void later_a_glob_may_match_nothing(void **state)
{
	static const char *const filter[] = { "gone_*", "vfs_write" }, *const gone[] = { "gone_*" };
	static const char *const graph[] = { "gone_*", "do_exit" }, *const stack[] = { "vfs_read" };
	static struct ftrace_site many[TRACE_MAX_STACK_SITES + 1];
	struct choose_input later = input, all = { .func = func };
	struct trace_opts o = { .tracer = "function_graph",
				.filter = filter,
				.n_filter = 2,
				.graph = graph,
				.n_graph = 2,
				.retval = true };

	(void)state;
	later.sites.later = true;
	assert_int_equal(choose(&o), -ENOENT);
	assert_int_equal(choose_sites(&later, &o, &choice, &err), 0);
	armed(1u << WRITE | 1u << EXIT);
	assert_int_equal(what(EXIT), AGENT_SITE_ROOT); /* which returns nothing */
	assert_int_equal(what(WRITE), AGENT_SITE_RETVAL);
	choice_deinit(&choice);
	o = (struct trace_opts){ .tracer = "function", .filter = gone, .n_filter = 1 };
	assert_int_equal(choose_sites(&later, &o, &choice, &err), 0);
	assert_int_equal(choice.n, 0);
	choice_deinit(&choice);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i].name = "vfs_read";
	all.sites = (struct filter_input){ many, ARRAY_SIZE(many), 6 << 16, true };
	o = (struct trace_opts){ .tracer = "function", .stack = stack, .n_stack = 1 };
	assert_int_equal(choose_sites(&all, &o, &choice, &err), 0);
	assert_int_equal(choice.n, ARRAY_SIZE(many));
	assert_int_equal(choice.n_what,
			 ARRAY_SIZE(many)); /* tracing_arm_more() knows who was first */
	choice_deinit(&choice);
}

static void roots_are_armed_too(void **state)
{
	static const char *const filter[] = { "vfs_write" }, *const graph[] = { "do_exit",
										"vfs_open" };
	static const char *const notrace[] = { "vfs_write", "vfs_read" };
	struct trace_opts o = { .tracer = "function_graph",
				.filter = filter,
				.n_filter = 1,
				.graph = graph,
				.n_graph = 2,
				.graph_notrace = notrace,
				.n_graph_notrace = 2 };

	(void)state;
	assert_int_equal(choose(&o), 0);
	armed(1u << WRITE | 1u << EXIT);
	assert_int_equal(choice.n_skipped, 1);
	assert_int_equal(what(WRITE), AGENT_SITE_NOTRACE);
	assert_int_equal(what(EXIT), AGENT_SITE_ROOT);
	assert_int_equal(choice.n_what, 2);
	choice_deinit(&choice);
	o.n_filter = 0; /* everything, then */
	assert_int_equal(choose(&o), 0);
	armed(0x3f & ~(1u << OPEN));
	assert_int_equal(what(OVERLAY), AGENT_SITE_NOTRACE);
	assert_int_equal(what(ISRA), 0);
	choice_deinit(&choice);
}

static void names_what_matches_nothing(void **state)
{
	static const char *const none[] = { "vfs_raed" }, *const in_use[] = { "vfs_open" };
	struct trace_opts o = { .tracer = "function_graph", .graph = none, .n_graph = 1 };

	(void)state;
	assert_int_equal(choose(&o), -ENOENT);
	assert_int_equal(err.code, ERR_FILTER_EMPTY);
	assert_string_equal(err.msg,
			    "graph function \"vfs_raed\" matches no function; did you mean "
			    "\"vfs_read\"?");
	o.n_graph = 0;
	o.graph_notrace = none;
	o.n_graph_notrace = 1;
	assert_int_equal(choose(&o), -ENOENT);
	assert_non_null(strstr(err.msg, "graph-notrace function \"vfs_raed\""));
	/* they would be followed if one could be armed: following everything is not what was asked for */
	o.n_graph_notrace = 0;
	o.graph = in_use;
	o.n_graph = 1;
	assert_int_equal(choose(&o), -ENOENT);
	assert_int_equal(err.code, ERR_FILTER_EMPTY);
	assert_non_null(strstr(err.msg, "none of the graph functions"));
	o.graph = o.notrace = &sites[EXIT].name;
	o.n_notrace = 1;
	assert_int_equal(choose(&o), -ENOENT);
}

static void values_follow_prototypes(void **state)
{
	struct trace_opts o = { .tracer = "function_graph", .args = true, .retval = true };
	const u32 four = 4 << AGENT_SITE_ARGS_SHIFT, one = 1 << AGENT_SITE_ARGS_SHIFT;

	(void)state;
	assert_int_equal(choose(&o), 0);
	assert_int_equal(what(READ), four | AGENT_SITE_RETVAL);
	assert_int_equal(what(EXIT), one); /* void */
	assert_int_equal(what(OVERLAY), AGENT_SITE_RETVAL); /* not the kernel's vfs_read() */
	assert_int_equal(what(ISRA), AGENT_SITE_RETVAL);
	choice_deinit(&choice);
	o.args = false;
	assert_int_equal(choose(&o), 0);
	assert_int_equal(what(READ), AGENT_SITE_RETVAL);
	assert_int_equal(what(EXIT), 0);
	choice_deinit(&choice);
	o.args = true;
	o.retval = false;
	assert_int_equal(choose(&o), 0);
	assert_int_equal(what(READ), four);
	assert_int_equal(what(OVERLAY), 0);
	choice_deinit(&choice);
}

static void options_of_the_other_tracer(void **state)
{
	static const char *const glob[] = { "vfs_read" };
	const struct trace_opts bad[] = {
		{ .graph = glob, .n_graph = 1 },
		{ .graph_notrace = glob, .n_graph_notrace = 1 },
		{ .max_depth = 1 },
		{ .threshold_ns = 1 },
		{ .no_irqs = true },
		{ .no_sleep_time = true },
		{ .retval = true },
	};
	struct trace_opts good = { .tracer = "function", .args = true, .switches = true };

	(void)state;
	assert_int_equal(choose_check(&good, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct trace_opts o = bad[i];

		o.tracer = "function";
		err = (struct err){ 0 };
		assert_int_equal(choose_check(&o, &err), -EINVAL);
		assert_int_equal(err.code, ERR_BAD_REQUEST);
		assert_non_null(strstr(err.msg, "for the tracer function_graph, not function"));
		o.tracer = "function_graph";
		assert_int_equal(choose_check(&o, NULL), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_of_the_chosen),
		cmocka_unit_test(later_a_glob_may_match_nothing),
		cmocka_unit_test(roots_are_armed_too),
		cmocka_unit_test(names_what_matches_nothing),
		cmocka_unit_test(values_follow_prototypes),
		cmocka_unit_test(options_of_the_other_tracer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
