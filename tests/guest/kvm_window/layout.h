/* SPDX-License-Identifier: Apache-2.0 */
/* Guest memory of the small VMM, known to it, to its guest and to the test. */
#ifndef TESTS_KVM_WINDOW_LAYOUT_H
#define TESTS_KVM_WINDOW_LAYOUT_H

#define GUEST_RAM_BYTES (32 << 20)
#define GUEST_PML4      0x1000
#define GUEST_PDPT_LOW  0x2000
#define GUEST_PDPT_HIGH 0x3000
#define GUEST_PD        0x4000
#define GUEST_INFO      0x8000 /* struct guest_info */
#define GUEST_COUNTERS  0x10000 /* struct guest_counters, one page a vCPU */
#define GUEST_STACK     0x20000 /* tops, one page a vCPU, growing down */
#define GUEST_CODE      0x200000
#define GUEST_HIGH      0xffffffff80000000 /* physical 0, as a kernel maps itself */
#define GUEST_VCPUS     2

/* offsets in struct guest_counters, for guest.S */
#define COUNT_LOOPS  0
#define COUNT_CALLS  8
#define COUNT_HITS   16
#define COUNT_ERRORS 24

#define GUEST_MAGIC 0x776f646e69777676

#ifndef __ASSEMBLER__
#include <stdint.h>

struct guest_counters {
	uint64_t loops; /* iterations begun and ended */
	uint64_t calls; /* of the function that holds the site */
	uint64_t hits; /* of what the site calls while armed */
	uint64_t errors; /* iterations in which hits grew by more than one */
};

struct guest_info {
	uint64_t magic; /* written last */
	uint64_t site, target; /* guest virtual */
	uint64_t signals; /* SIGUSR1s that the VMM's handler has seen */
};
#endif

#endif
