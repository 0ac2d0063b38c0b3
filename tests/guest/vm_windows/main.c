// SPDX-License-Identifier: Apache-2.0
/*
 * Stop windows of any target, for test_libvirt.py: reads a number a line, opens and closes so many, says
 * how many there were, the guest's state, and the code of what failed:
 *
 *   vm_windows TARGET      20 -> "20 running -"      1 -> "0 stopped guest.stopped"
 */
#include "vmm/vm.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const states[] = {
	[VM_RUNNING] = "running", [VM_STOPPED] = "stopped", [VM_GONE] = "gone"
};

static int windows(struct vm *vm, long n, struct err *err)
{
	for (long i = 0; i < n; i++) {
		if (vm_pause(vm, NSEC_PER_SEC, err) < 0 || vm_resume(vm, err) < 0)
			return (int)i;
	}
	return (int)n;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	struct vm *vm = NULL;
	char line[32];

	if (argc != 2 || vm_attach(argv[1], &vm, &err) < 0) {
		fprintf(stderr, "%s (%s)\n", err.msg, err_code_name(err.code));
		return 1;
	}
	printf("%s %u\n", vm_accel(vm) == VM_ACCEL_KVM ? "kvm" : "tcg", vm_vcpu_count(vm));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		err = (struct err){ 0 };
		printf("%d", windows(vm, strtol(line, NULL, 10), &err));
		printf(" %s %s\n", states[vm_state(vm)], err.no ? err_code_name(err.code) : "-");
		fflush(stdout);
	}
	vm_detach(vm);
	return 0;
}
