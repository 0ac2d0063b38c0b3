// SPDX-License-Identifier: Apache-2.0
/*
 * machine/life.c: a guest's next life, and the one that does not come about. vCPUs are threads of the test's own; the
 * linker puts what makes the VM anew in the place of what asks KVM.
 */
#include "machine/machine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define VCPUS 2

static struct {
	int create_vm; /* what kvm_create_vm() returns */
	_Atomic int made; /* times that it was called */
	_Atomic int ended; /* times that machine_end() was */
	int status;
	char why[128];
	_Atomic int inside; /* vCPUs that are in the guest */
	_Atomic int left; /* those that have left it for good */
	_Atomic bool held; /* by a tracer: they do not leave */
	int looks;
} did;

static struct machine m;

void __wrap_devices_reset(struct machine *machine);
void __wrap_devices_reset(struct machine *machine)
{
	(void)machine;
	assert_int_equal(did.inside, 0); /* nobody is in the guest while it is made anew */
}

int __wrap_mem_restore(struct guest_mem *mem, const struct mem_copy *copy, struct err *err);
int __wrap_mem_restore(struct guest_mem *mem, const struct mem_copy *copy, struct err *err)
{
	(void)mem;
	(void)copy;
	(void)err;
	return 0;
}

int __wrap_spare_clear(struct guest_spare *spare, struct err *err);
int __wrap_spare_clear(struct guest_spare *spare, struct err *err)
{
	(void)spare;
	(void)err;
	return 0;
}

int __wrap_kvm_create_vm(struct machine *machine, struct err *err);
int __wrap_kvm_create_vm(struct machine *machine, struct err *err)
{
	(void)machine;
	did.made++;
	return did.create_vm ? err_set(err, did.create_vm, ERR_IO, 0, "no file is left") : 0;
}

int __wrap_machine_add_vcpus(struct machine *machine, struct err *err);
int __wrap_machine_add_vcpus(struct machine *machine, struct err *err)
{
	(void)machine;
	(void)err;
	return 0;
}

void __wrap_vcpu_close(struct vcpu *v);
void __wrap_vcpu_close(struct vcpu *v)
{
	(void)v;
}

void __wrap_machine_tell(struct machine *machine, const char *fmt, ...);
void __wrap_machine_tell(struct machine *machine, const char *fmt, ...)
{
	(void)machine;
	(void)fmt;
}

void __wrap_machine_end(struct machine *machine, int status, const char *fmt, ...);
void __wrap_machine_end(struct machine *machine, int status, const char *fmt, ...)
{
	va_list ap;

	(void)machine;
	va_start(ap, fmt);
	vsnprintf(did.why, sizeof(did.why), fmt, ap);
	va_end(ap);
	did.status = status;
	did.ended++;
}

static void *vcpu(void *arg)
{
	while (life_wait(arg)) {
		did.inside++;
		while (did.held || !__atomic_load_n(&m.leave, __ATOMIC_SEQ_CST))
			usleep(200);
		did.inside--;
	}
	did.left++;
	return NULL;
}

static void wait_until(const _Atomic int *what, int n)
{
	for (int i = 0; *what != n; i++) {
		assert_true(i < 20000);
		usleep(500);
	}
}

static void go(struct vcpu *v)
{
	memset(&m, 0, sizeof(m));
	memset(&did, 0, sizeof(did));
	pthread_mutex_init(&m.go_lock, NULL);
	pthread_cond_init(&m.go, NULL);
	pthread_cond_init(&m.all_out, NULL);
	m.vm = -1;
	m.life = 1;
	m.vcpu = v;
	m.n_vcpus = VCPUS;
	m.going = true;
	for (u32 i = 0; i < VCPUS; i++) {
		v[i] = (struct vcpu){ .m = &m, .id = i, .fd = -1, .started = true };
		assert_int_equal(pthread_create(&v[i].thread, NULL, vcpu, &v[i]), 0);
	}
	wait_until(&did.inside, VCPUS);
}

static void a_reset_brings_it_back(void **state)
{
	struct vcpu v[VCPUS];

	(void)state;
	go(v);
	machine_reset(&m, "was reset");
	wait_until(&did.made, 1);
	wait_until(&did.inside, VCPUS);
	assert_int_equal(machine_life(&m), 2);
	life_stop(&m);
	assert_int_equal(did.left, VCPUS);
	assert_int_equal(did.ended, 0);
}

/* It is the guest's end, said once; nobody enters what is half made, nor tries again, and all can be stopped. */
static void a_reset_that_fails(void **state)
{
	struct vcpu v[VCPUS];

	(void)state;
	go(v);
	did.create_vm = -EMFILE;
	machine_reset(&m, "was reset");
	wait_until(&did.ended, 1);
	assert_int_equal(did.status, EXIT_GUEST_FAILED);
	assert_string_equal(did.why, "the guest was reset and cannot come back: no file is left");
	machine_reset(&m, "was reset again");
	usleep(20000);
	assert_int_equal(did.inside, 0);
	assert_int_equal(did.made, 1);
	assert_int_equal(did.ended, 1);
	assert_int_equal(machine_life(&m), 1);
	assert_int_equal(did.left, 0);
	life_stop(&m);
	assert_int_equal(did.left, VCPUS);
}

static void look(void *arg)
{
	assert_ptr_equal(arg, &did);
	assert_int_equal(did.inside, 0);
	did.looks++;
}

static void a_look_in_between(void **state)
{
	struct vcpu v[VCPUS];
	struct err err = { 0 };
	u64 window_ns = 0;

	(void)state;
	go(v);
	for (int i = 1; i <= 100; i++) {
		assert_int_equal(life_look(&m, 10 * NSEC_PER_SEC, look, &did, &window_ns, &err), 0);
		assert_int_equal(did.looks, i);
		assert_true(window_ns > 0);
	}
	wait_until(&did.inside, VCPUS);
	/* one that does not leave in time: nobody looks, all go on */
	did.held = true;
	assert_int_equal(life_look(&m, 20 * NSEC_PER_MSEC, look, &did, &window_ns, &err),
			 -ETIMEDOUT);
	assert_int_equal(err.code, ERR_PAUSE_TIMEOUT);
	assert_true(window_ns >= 20 * NSEC_PER_MSEC);
	assert_int_equal(did.looks, 100);
	assert_false(m.leave);
	did.held = false;
	/* a reset goes on as if nobody had looked, and the other way round */
	machine_reset(&m, "was reset");
	assert_int_equal(life_look(&m, 10 * NSEC_PER_SEC, look, &did, &window_ns, &err), 0);
	wait_until(&did.made, 1);
	wait_until(&did.inside, VCPUS);
	assert_int_equal(machine_life(&m), 2);
	life_stop(&m);
	assert_int_equal(did.left, VCPUS);
	assert_int_equal(life_look(&m, 10 * NSEC_PER_SEC, look, &did, &window_ns, &err),
			 -ESHUTDOWN);
	assert_int_equal(did.looks, 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reset_brings_it_back),
		cmocka_unit_test(a_look_in_between),
		cmocka_unit_test(a_reset_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
