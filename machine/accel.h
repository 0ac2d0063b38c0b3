/* SPDX-License-Identifier: Apache-2.0 */
/* Is KVM on this host fit for running kernels? The one header of this folder that others include. */
#ifndef MACHINE_ACCEL_H
#define MACHINE_ACCEL_H

#include "base/types.h"

struct accel_verdict {
	bool use_kvm;
	double insns_per_sec; /* of kernel-mode code; 0 when not measured */
	char why[160]; /* one line for the user */
};

/**
 * accel_probe - run a calibrated loop in kernel mode (CPL 0) on the KVM API
 *
 * Some hosts (nested, or without virtualisation of their own) offer a /dev/kvm that emulates
 * kernel-mode code instruction by instruction. Takes 50 ms at most. Context: uses SIGALRM and
 * ITIMER_REAL; the process has one thread.
 */
void accel_probe(struct accel_verdict *ret);

#endif
