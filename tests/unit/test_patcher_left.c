// SPDX-License-Identifier: Apache-2.0
/* patcher/recover.c and left.c: domains whose VMM ended while no daemon was there, and may have been saved. */
#include "patcher/guest.h"
#include "patcher/journal.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DOMAIN "libvirt:qemu:///system/vm"

static char dir[] = "/tmp/hvf-left-XXXXXX";

/* The linker has these called instead: see CMakeLists.txt. */
int __wrap_guest_attach(const char *target, const struct guest_opts *opts, struct guest **ret,
			struct err *err);
int __wrap_guest_detach(struct guest *g, struct guest_restore *ret, struct err *err);

static enum err_code attach_fails; /* ERR_NONE: it does not */
static char attached[128]; /* to what, last */
static unsigned n_attached, n_detached;

int __wrap_guest_attach(const char *target, const struct guest_opts *opts, struct guest **ret,
			struct err *err)
{
	assert_string_equal(opts->state_dir, dir);
	snprintf(attached, sizeof(attached), "%s", target);
	n_attached++;
	*ret = (struct guest *)&attached;
	return attach_fails ? err_set(err, -EBUSY, attach_fails, 0, "as the test wants it") : 0;
}

int __wrap_guest_detach(struct guest *g, struct guest_restore *ret, struct err *err)
{
	(void)g;
	(void)ret;
	(void)err;
	n_detached++;
	return 0;
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	attach_fails = ERR_NONE;
	attached[0] = '\0';
	n_attached = n_detached = 0;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when something stayed */
}

static unsigned n_files(const char *end)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);

		n += len > strlen(end) && strcmp(e->d_name + len - strlen(end), end) == 0;
	}
	closedir(d);
	return n;
}

/* A daemon died that had traced @target, with its VMM after it: its journal, with @n sites outstanding. */
static void left_by_a_daemon(const char *target, size_t n)
{
	struct journal_ident id = { .levels = 4 };
	struct journal_text t = { .addr = 0xffffffff81000000, .kind = JOURNAL_SITE, .len = 5 };
	struct journal *j;
	pid_t pid = fork();

	if (!pid) {
		snprintf(id.target, sizeof(id.target), "%s", target);
		if (journal_open(dir, getpid(), 7, &j, NULL) || journal_set_ident(j, &id, NULL))
			_exit(1);
		for (size_t i = 0; i < n; i++, t.addr += 64) {
			if (journal_add_text(j, &t, NULL))
				_exit(1);
		}
		_exit(journal_flush(j, NULL) < 0);
	}
	assert_int_equal(waitpid(pid, &(int){ 0 }, 0), pid);
	assert_int_equal(n_files(".journal"), 1);
}

static u32 recover(void)
{
	struct err err = { 0 };
	u32 n = 0;

	if (guest_recover(dir, &n, &err) < 0)
		fail_msg("%s", err.msg);
	return n;
}

static void a_domain_is_looked_at_until_it_runs(void **state)
{
	(void)state;
	left_by_a_daemon(DOMAIN, 3);
	attach_fails = ERR_TARGET_OFF; /* saved, as far as anybody knows */
	assert_int_equal(recover(), 0);
	assert_int_equal(n_files(".journal"), 0);
	assert_true(guest_any_saved(dir));
	assert_string_equal(attached, DOMAIN);
	attach_fails = ERR_LIBVIRT;
	recover();
	assert_true(guest_any_saved(dir));
	assert_int_equal(n_attached, 2);
	attach_fails = ERR_NONE; /* it was restored */
	recover();
	assert_int_equal(n_attached, 3);
	assert_int_equal(n_detached, 1);
	assert_false(guest_any_saved(dir));
}

static void a_domain_that_is_no_more(void **state)
{
	(void)state;
	left_by_a_daemon(DOMAIN, 3);
	attach_fails = ERR_TARGET_NO_DOMAIN;
	recover();
	assert_int_equal(n_attached, 1);
	assert_false(guest_any_saved(dir));
}

/* Nothing was outstanding, or what ended cannot come back under that name. */
static void what_has_nothing_to_come_back(void **state)
{
	static const struct {
		const char *target;
		size_t n;
	} t[] = { { DOMAIN, 0 }, { "qemu:/run/vm.sock", 3 }, { "pid:17", 3 } };

	(void)state;
	attach_fails = ERR_TARGET_OFF;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		left_by_a_daemon(t[i].target, t[i].n);
		recover();
		assert_int_equal(n_files(".journal"), 0);
		assert_false(guest_any_saved(dir));
		assert_int_equal(n_attached, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_domain_is_looked_at_until_it_runs, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_domain_that_is_no_more, setup, teardown),
		cmocka_unit_test_setup_teardown(what_has_nothing_to_come_back, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
