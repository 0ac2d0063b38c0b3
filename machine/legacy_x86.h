/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small old devices of a PC that a kernel asks for: keyboard controller (reset only), CMOS with its
 * clock, ACPI's power button registers, and a port that ends the machine with a status.
 */
#ifndef MACHINE_LEGACY_X86_H
#define MACHINE_LEGACY_X86_H

#include "machine/bus.h"

#include <pthread.h>

#define I8042_DATA    0x60
#define I8042_COMMAND 0x64
#define CMOS_INDEX    0x70
#define DEBUG_EXIT    0xf4 /* as QEMU's isa-debug-exit */
#define ACPI_PM1      0x600 /* event block, 4 bytes; control register, 2 */
#define ACPI_PM1_CNT  (ACPI_PM1 + 4)
#define ACPI_SLP_S5   5 /* SLP_TYP that means off; the DSDT says so, too */

/* How a guest ended itself. */
enum guest_end {
	GUEST_RESET, /* by the keyboard controller */
	GUEST_POWER_OFF, /* by ACPI */
	GUEST_DEBUG_EXIT /* by the port, with a value */
};

struct legacy {
	void (*end)(void *arg, enum guest_end how,
		    u32 value); /* told once or more; any vCPU's thread */
	void *arg;
	pthread_mutex_t lock;
	u8 cmos_index;
	u8 cmos[128];
	u16 pm1_enable, pm1_control;
};

/** legacy_init - @end is called when the guest ends itself */
void legacy_init(struct legacy *l, void (*end)(void *, enum guest_end, u32), void *arg);
void legacy_deinit(struct legacy *l);

/** legacy_add - put all of them on the port bus; errors as bus_add() */
must_check int legacy_add(struct legacy *l, struct bus *pio, struct err *err);

#endif
