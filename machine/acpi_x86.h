/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI tables: processors and interrupt lines (MADT), switching off and reset (FADT, \_S5), and where
 * virtio devices are (DSDT), for kernels that look for these nowhere else.
 */
#ifndef MACHINE_ACPI_X86_H
#define MACHINE_ACPI_X86_H

#include "machine/mem.h"

/* A virtio device on MMIO; a page each. */
struct virtio_place {
	u32 base, gsi;
};

struct acpi_config {
	u32 cpus; /* up to MPTABLE_MAX_CPUS */
	const struct virtio_place *virtio;
	u32 n_virtio; /* up to ACPI_MAX_VIRTIO */
};

#define ACPI_MAX_VIRTIO 16

/**
 * acpi_write - put all tables at @at, the root pointer (RSDP) first
 * @at:  64-byte aligned, below 4 GiB
 * @len: room there
 *
 * Return: 0; -ENOSPC; -EINVAL @c has more than it may.
 * Source: ACPI specification 6.4, 5.2 (tables), 6.4.3 (resources), 20.2 (AML).
 */
must_check int acpi_write(const struct guest_mem *m, gpa_t at, u64 len, const struct acpi_config *c,
			  struct err *err);

#endif
