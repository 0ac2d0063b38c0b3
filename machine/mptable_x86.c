// SPDX-License-Identifier: Apache-2.0
/* The MP table. See mptable_x86.h for the source of its layout. */
#include "machine/mptable_x86.h"

#include <errno.h>
#include <string.h>

#define MP_VERSION     4
#define LAPIC_VERSION  0x14
#define IOAPIC_VERSION 0x11
#define ISA_IRQS       16

enum entry_type {
	MP_PROCESSOR,
	MP_BUS,
	MP_IOAPIC,
	MP_INTERRUPT,
	MP_LOCAL_INTERRUPT
};
enum interrupt_type {
	MP_INT,
	MP_NMI,
	MP_SMI,
	MP_EXTINT
};

struct mp_floating {
	char signature[4];
	u32 table;
	u8 length, version, checksum, features[5];
};

struct mp_table {
	char signature[4];
	u16 length;
	u8 version, checksum;
	char oem[8], product[12];
	u32 oem_table;
	u16 oem_bytes, entries;
	u32 lapic;
	u16 extended_bytes;
	u8 extended_checksum, reserved;
};

struct mp_processor {
	u8 type, apic_id, apic_version, flags;
	u32 signature, features, reserved[2];
};

struct mp_bus {
	u8 type, id;
	char name[6];
};

struct mp_ioapic {
	u8 type, id, version, flags;
	u32 addr;
};

struct mp_interrupt {
	u8 type, kind;
	u16 flags;
	u8 bus, bus_irq, apic, pin;
};

_Static_assert(sizeof(struct mp_floating) == 16 && sizeof(struct mp_table) == 44 &&
		       sizeof(struct mp_processor) == 20 && sizeof(struct mp_bus) == 8 &&
		       sizeof(struct mp_ioapic) == 8 && sizeof(struct mp_interrupt) == 8,
	       "as the specification has them");

struct writer {
	u8 *at, *end;
	u16 entries;
	bool full;
};

static void put(struct writer *w, const void *entry, size_t n)
{
	if ((size_t)(w->end - w->at) < n) {
		w->full = true;
		return;
	}
	memcpy(w->at, entry, n);
	w->at += n;
	w->entries++;
}

/* All bytes of a structure, this one among them, add up to zero. */
static u8 checksum(const void *p, size_t n)
{
	u8 sum = 0;

	for (size_t i = 0; i < n; i++)
		sum = (u8)(sum + ((const u8 *)p)[i]);
	return (u8)-sum;
}

static void put_processors(struct writer *w, u32 cpus)
{
	for (u32 i = 0; i < cpus; i++) {
		struct mp_processor p = {
			.type = MP_PROCESSOR,
			.apic_id = (u8)i,
			.apic_version = LAPIC_VERSION,
			.flags = i ? 1 : 3, /* usable; the first one boots */
			.signature = 0x600,
			.features = 0x201, /* APIC, FPU */
		};

		put(w, &p, sizeof(p));
	}
}

static void put_interrupts(struct writer *w, u8 ioapic)
{
	static const struct mp_bus isa = { .type = MP_BUS,
					   .name = { 'I', 'S', 'A', ' ', ' ', ' ' } };
	struct mp_ioapic chip = { MP_IOAPIC, ioapic, IOAPIC_VERSION, 1, IOAPIC_ADDR };
	struct mp_interrupt extint = { .type = MP_LOCAL_INTERRUPT, .kind = MP_EXTINT };
	struct mp_interrupt nmi = { MP_LOCAL_INTERRUPT, MP_NMI, 0, 0, 0, 0xff, 1 };

	put(w, &isa, sizeof(isa));
	put(w, &chip, sizeof(chip));
	for (u8 irq = 0; irq < ISA_IRQS; irq++) {
		struct mp_interrupt e = { MP_INTERRUPT, MP_INT, 0, 0, irq, ioapic, irq };

		if (irq == 2) /* the second PIC's line */
			continue;
		if (irq == 0)
			e.pin = 2;
		put(w, &e, sizeof(e));
	}
	put(w, &extint, sizeof(extint));
	put(w, &nmi, sizeof(nmi));
}

int mptable_write(const struct guest_mem *m, gpa_t at, u64 len, u32 cpus, struct err *err)
{
	struct mp_floating floating = { .signature = { '_', 'M', 'P', '_' },
					.table = (u32)(at.v + sizeof(floating)),
					.length = 1,
					.version = MP_VERSION };
	struct mp_table table = { .signature = { 'P', 'C', 'M', 'P' },
				  .version = MP_VERSION,
				  .oem = { 'H', 'V', 'F', 'T', 'R', 'A', 'C', 'E' },
				  .product = "hvftrace-vm",
				  .lapic = LAPIC_ADDR };
	u8 *start = mem_at(m, at, len);
	struct writer w;

	if (cpus < 1 || cpus > MPTABLE_MAX_CPUS)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "a guest has 1 to %d vCPUs, not %u", MPTABLE_MAX_CPUS, cpus);
	if (!start || len < sizeof(floating) + sizeof(table))
		return err_set(err, -ENOSPC, ERR_NONE, at.v, "no room for the MP table");
	table.product[11] = ' ';
	w = (struct writer){ .at = start + sizeof(floating) + sizeof(table), .end = start + len };
	put_processors(&w, cpus);
	put_interrupts(&w, (u8)cpus);
	if (w.full)
		return err_set(err, -ENOSPC, ERR_NONE, at.v, "no room for the MP table");
	table.length = (u16)(w.at - start - (ptrdiff_t)sizeof(floating));
	table.entries = w.entries;
	memcpy(start + sizeof(floating), &table, sizeof(table));
	table.checksum = checksum(start + sizeof(floating), table.length);
	memcpy(start + sizeof(floating), &table, sizeof(table));
	floating.checksum = checksum(&floating, sizeof(floating));
	memcpy(start, &floating, sizeof(floating));
	return 0;
}
