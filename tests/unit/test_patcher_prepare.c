// SPDX-License-Identifier: Apache-2.0
/*
 * patcher/tracing.c: a writer of the trace before must not write into the next one's ring; no call site is left armed
 * in a guest that began to leave since the first look.
 */
#include "patcher/tracing.h"

#include "patcher/agent.h"
#include "patcher/ftrace.h"
#include "patcher/graph.h"
#include "patcher/options.h"
#include "patcher/quiesce.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TEXT 0xffffffffc0400000ull

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_check_alive(struct guest *g, struct err *err);
int __wrap_guest_check_stays(struct guest *g, struct err *err);
const struct kernel_module *__wrap_kernel_modules(const struct kernel *k);
size_t __wrap_kernel_module_count(const struct kernel *k);
int __wrap_agent_load(struct guest *g, struct err *err);
int __wrap_agent_write_header(struct guest *g, size_t off, const void *v, size_t n,
			      struct err *err);
int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len);
int __wrap_graph_settle(struct guest *g, struct err *err);
int __wrap_options_write(struct guest *g, const struct tracing_opts *opts, struct err *err);
int __wrap_rewrite_returns(struct guest *g, struct err *err);
int __wrap_graph_prepare(struct guest *g, struct err *err);
int __wrap_ftrace_enable_ftrace_graph_caller(struct guest *g, u32 offset, struct err *err);
int __wrap_ftrace_update_ftrace_func(struct guest *g, u32 offset, struct err *err);
int __wrap_options_arm_list(struct guest *g, const u32 *site, size_t n, u32 **ret, size_t *n_ret,
			    struct err *err);
int __wrap_ftrace_make_call(struct guest *g, const u32 *site, size_t n,
			    struct ftrace_counts *counts_ret, struct err *err);
int __wrap_ftrace_make_nop(struct guest *g, struct guest_restore *ret, struct err *err);
int __wrap_helpers_armed(struct guest *g, struct err *err);
int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err);

static struct {
	struct guest g;
	char done
		[32]; /* in this order: o the agent is off, q looked who is inside, r a ring begins, a armed,
			 n put back, e the agent is on, c cells are written by way of the followed pids, f those are */
	int inside;
	int looks,
		leaves_at; /* how often it was asked, and since which time it leaves; 0: it stays */
} vm;

static void did(char what)
{
	size_t n = strlen(vm.done);

	assert_true(n < sizeof(vm.done) - 1);
	vm.done[n] = what;
}

int __wrap_guest_check_alive(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_guest_check_stays(struct guest *g, struct err *err)
{
	(void)g;
	vm.looks++;
	return vm.leaves_at && vm.looks >= vm.leaves_at
		       ? err_set(err, -EBUSY, ERR_GUEST_LEAVES, 0, "it leaves")
		       : 0;
}

int __wrap_options_arm_list(struct guest *g, const u32 *site, size_t n, u32 **ret, size_t *n_ret,
			    struct err *err)
{
	(void)g;
	(void)site;
	(void)err;
	*ret = NULL;
	*n_ret = n;
	return 0;
}

int __wrap_ftrace_make_call(struct guest *g, const u32 *site, size_t n,
			    struct ftrace_counts *counts_ret, struct err *err)
{
	(void)g;
	(void)site;
	(void)err;
	did('a');
	*counts_ret = (struct ftrace_counts){ .n_armed = n };
	return 0;
}

int __wrap_ftrace_make_nop(struct guest *g, struct guest_restore *ret, struct err *err)
{
	(void)g;
	(void)ret;
	(void)err;
	did('n');
	return 0;
}

int __wrap_helpers_armed(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

const struct kernel_module *__wrap_kernel_modules(const struct kernel *k)
{
	(void)k;
	return NULL;
}

size_t __wrap_kernel_module_count(const struct kernel *k)
{
	(void)k;
	return 0;
}

int __wrap_agent_load(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_agent_write_header(struct guest *g, size_t off, const void *v, size_t n, struct err *err)
{
	u32 word;

	(void)g;
	(void)err;
	memcpy(&word, v, MIN(n, sizeof(word)));
	if (off == offsetof(struct agent_header, enabled))
		did(word ? 'e' : 'o');
	if (off == AGENT_CPU_OFF + offsetof(struct agent_cpu, tail))
		did('r');
	return 0;
}

int __wrap_vm_view_read(struct vm_view *view, u64 off, void *buf, size_t len)
{
	(void)view;
	(void)off;
	memset(buf, 0, len);
	return 0;
}

int __wrap_graph_settle(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_options_write(struct guest *g, const struct tracing_opts *opts, struct err *err)
{
	(void)g;
	(void)err;
	if (opts->graph)
		did('f');
	return 0;
}

int __wrap_rewrite_returns(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	did('c');
	return 0;
}

int __wrap_graph_prepare(struct guest *g, struct err *err)
{
	(void)g;
	(void)err;
	return 0;
}

int __wrap_ftrace_enable_ftrace_graph_caller(struct guest *g, u32 offset, struct err *err)
{
	(void)g;
	(void)offset;
	(void)err;
	return 0;
}

int __wrap_ftrace_update_ftrace_func(struct guest *g, u32 offset, struct err *err)
{
	(void)g;
	(void)offset;
	(void)err;
	return 0;
}

int __wrap_quiesce_range(struct guest *g, u64 lo, u64 hi, u64 timeout_ns, struct err *err)
{
	(void)g;
	(void)timeout_ns;
	assert_int_equal(lo, TEXT);
	assert_int_equal(hi, TEXT + 2 * PAGE_SIZE);
	did('q');
	return vm.inside ? err_set(err, vm.inside, ERR_GUEST_BUSY, lo, "inside") : 0;
}

static int setup(void **state)
{
	(void)state;
	memset(&vm, 0, sizeof(vm));
	vm.g.agent.loaded = true;
	vm.g.agent.text = TEXT;
	vm.g.agent.text_bytes = 2 * PAGE_SIZE;
	vm.g.agent.header.nr_cpus = 1;
	return 0;
}

static int prepare(void)
{
	const struct tracing_opts opts = { 0 };
	struct err err = { 0 };

	memset(vm.done, 0, sizeof(vm.done));
	return tracing_prepare(&vm.g, &opts, &err);
}

static void all_was_written(void **state)
{
	(void)state;
	assert_int_equal(prepare(), 0);
	assert_string_equal(vm.done, "or");
}

static void what_is_followed_is_told_last(void **state)
{
	const struct tracing_opts opts = { .graph = true };
	struct err err = { 0 };

	(void)state;
	assert_int_equal(tracing_prepare(&vm.g, &opts, &err), 0);
	assert_string_equal(vm.done, "orcf");
}

static void a_writer_is_waited_for(void **state)
{
	(void)state;
	tracing_unsettled(&vm.g);
	assert_int_equal(prepare(), 0);
	assert_string_equal(vm.done, "oqr");
	assert_int_equal(prepare(), 0); /* once */
	assert_string_equal(vm.done, "or");
}

static void as_long_as_it_is_inside_there_is_no_other_trace(void **state)
{
	(void)state;
	tracing_unsettled(&vm.g);
	vm.inside = -EBUSY;
	assert_int_equal(prepare(), -EBUSY);
	assert_string_equal(vm.done, "oq");
	vm.inside = 0;
	assert_int_equal(prepare(), 0);
	assert_string_equal(vm.done, "oqr");
}

static void an_agent_that_is_gone_has_no_writers(void **state)
{
	(void)state;
	vm.g.agent.loaded = false;
	tracing_unsettled(&vm.g);
	assert_int_equal(prepare(), 0);
	assert_string_equal(vm.done, "or");
}

static int arm(int leaves_at)
{
	const u32 site[] = { 1, 2 };
	struct tracing_counts counts;
	struct err err = { 0 };
	int rc;

	memset(vm.done, 0, sizeof(vm.done));
	vm.looks = 0;
	vm.leaves_at = leaves_at;
	rc = tracing_arm(&vm.g, site, ARRAY_SIZE(site), &counts, &err);
	if (rc)
		assert_int_equal(err.code, ERR_GUEST_LEAVES);
	return rc;
}

static void one_that_leaves_is_not_armed(void **state)
{
	(void)state;
	assert_int_equal(arm(1), -EBUSY);
	assert_string_equal(vm.done, "");
	/* between that look and the last site */
	assert_int_equal(arm(2), -EBUSY);
	assert_string_equal(vm.done, "an");
	assert_int_equal(arm(0), 0);
	assert_string_equal(vm.done, "ae");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(all_was_written, setup),
		cmocka_unit_test_setup(what_is_followed_is_told_last, setup),
		cmocka_unit_test_setup(a_writer_is_waited_for, setup),
		cmocka_unit_test_setup(as_long_as_it_is_inside_there_is_no_other_trace, setup),
		cmocka_unit_test_setup(an_agent_that_is_gone_has_no_writers, setup),
		cmocka_unit_test_setup(one_that_leaves_is_not_armed, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
