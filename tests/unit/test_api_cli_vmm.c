// SPDX-License-Identifier: Apache-2.0
/* api/cli_vmm.c: a guest's folder is locked for a moment by whoever looks whether the guest runs. */
#include "api/cli.h"
#include "api/cli_vmm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

/* The linker has this called instead: see CMakeLists.txt. */
int __wrap_flock(int fd, int how);
int __real_flock(int fd, int how);

static unsigned n_taken; /* so often somebody else has it */
static char said[1000];

int __wrap_flock(int fd, int how)
{
	assert_true(how & LOCK_NB);
	if (!n_taken)
		return __real_flock(fd, how);
	n_taken--;
	errno = EWOULDBLOCK;
	return -1;
}

/* What cli_vmm.c needs of the rest of the command. */
int(cli_fail)(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	return CLI_FAILED;
}

int console_drain(const char *path, int *ret, int *offered_ret)
{
	(void)path;
	(void)offered_ret;
	*ret = -1;
	return CLI_FAILED;
}

static void args(struct vmm_args *a, const struct run_opts *o, const struct guest_vmm *vm)
{
	(void)o;
	vmm_arg(a, "sh");
	vmm_arg(a, "-c");
	vmm_arg(a, "echo 12345 >%s", vm->pidfile);
}

const struct vmm_kind vmm_own = {
	.name = "sh", .args = args, .socket = "s", .missing = "m", .remedy = "r", .failed = "f"
};

static char dir[32];

static int start(unsigned taken)
{
	const struct run_opts o = { .name = "g" };
	const volatile sig_atomic_t interrupted = 0;
	struct guest_vmm vm;
	int status;

	said[0] = '\0';
	n_taken = taken;
	status = vmm_start(&vmm_own, &o, &interrupted, &vm);
	assert_int_equal(vm.pid, status == CLI_OK ? 12345 : 0);
	return status;
}

static void somebody_looks(void **state)
{
	(void)state;
	assert_int_equal(start(0), CLI_OK);
	assert_int_equal(start(3), CLI_OK);
}

static void it_runs_already(void **state)
{
	(void)state;
	assert_int_equal(start(~0u), CLI_FAILED);
	assert_non_null(strstr(said, "run.name_taken"));
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/hvf-run-XXXXXX");
	return !mkdtemp(dir) || setenv("XDG_RUNTIME_DIR", dir, 1);
}

static int teardown(void **state)
{
	static const char *const all[] = { "guests/g/lock", "guests/g/pid", "guests/g/vmm.log",
					   "guests/g",      "guests",       "." };
	char path[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		snprintf(path, sizeof(path), "%s/hvftrace/%s", dir,
			 strcmp(all[i], ".") ? all[i] : "");
		if (remove(path))
			return -1;
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(somebody_looks),
		cmocka_unit_test(it_runs_already),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
