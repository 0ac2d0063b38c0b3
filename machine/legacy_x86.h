/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small old devices of a PC that a kernel asks for: keyboard controller (reset only), CMOS with its
 * clock, ACPI's registers (power button, off), a port that ends the machine with a status, and one by which a
 * kernel says that it panics (pvpanic).
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
#define ACPI_SCI      9 /* its interrupt line */
#define PVPANIC       0x505

/* What a guest does with itself. */
enum guest_event {
	GUEST_RESET, /* by the keyboard controller */
	GUEST_POWER_OFF, /* by ACPI */
	GUEST_DEBUG_EXIT, /* by the port, with a value */
	GUEST_PANIC, /* its kernel panics; it goes on to do what it is told to do then */
	GUEST_CRASH_LOADED /* its kernel panics, and a crash kernel takes over */
};

struct legacy {
	void (*tell)(void *arg, enum guest_event what,
		     u32 value); /* once or more, by any vCPU's thread, no lock held */
	void *arg;
	struct irq_line sci;
	pthread_mutex_t lock;
	u8 cmos_index;
	u8 cmos[128];
	u16 pm1_status, pm1_enable, pm1_control;
	bool sci_level;
};

/** legacy_init - @tell is called when the guest does something with itself; @sci is line ACPI_SCI */
void legacy_init(struct legacy *l, struct irq_line sci, void (*tell)(void *, enum guest_event, u32),
		 void *arg);
void legacy_deinit(struct legacy *l);

/** legacy_reset - as after power on */
void legacy_reset(struct legacy *l);

/** legacy_press_power - the power button; false when the guest does not listen to it. Context: any thread. */
must_check bool legacy_press_power(struct legacy *l);

/** legacy_add - put all of them on the port bus; errors as bus_add() */
must_check int legacy_add(struct legacy *l, struct bus *pio, struct err *err);

#endif
