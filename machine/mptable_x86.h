/* SPDX-License-Identifier: Apache-2.0 */
/* The MP table: which processors and interrupt lines there are, for kernels without ACPI. */
#ifndef MACHINE_MPTABLE_X86_H
#define MACHINE_MPTABLE_X86_H

#include "machine/mem.h"

#define MPTABLE_MAX_CPUS 254 /* 8-bit APIC ids: one for the IO-APIC, 255 means all */

#define LAPIC_ADDR  0xfee00000u
#define IOAPIC_ADDR 0xfec00000u
#define IOAPIC_PINS 24

/**
 * mptable_write - put the table for @cpus processors at @at
 * @at:  16-byte aligned, where kernels look: 0xf0000 to 0xfffff
 * @len: room there
 *
 * The IO-APIC's id is @cpus. ISA interrupts are wired straight through, but for the timer's, which
 * arrives at pin 2, as KVM's in-kernel chips have it.
 * Return: 0; -EINVAL too many processors; -ENOSPC.
 * Source: Intel MultiProcessor Specification 1.4, chapter 4.
 */
must_check int mptable_write(const struct guest_mem *m, gpa_t at, u64 len, u32 cpus,
			     struct err *err);

#endif
