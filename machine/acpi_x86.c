// SPDX-License-Identifier: Apache-2.0
/* ACPI tables. See acpi_x86.h for the source of their layout. */
#include "machine/acpi_x86.h"

#include "machine/legacy_x86.h"
#include "machine/mptable_x86.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES 36
#define FADT_BYTES   244
#define FACS_BYTES   64
#define RSDP_BYTES   36
#define ALIGN        64

static const u8 oem_id[6] = { 'H', 'V', 'F', 'T', 'R', 'C' };

/* FADT: offsets of the fields that are not zero */
#define FADT_FACS       36
#define FADT_DSDT       40
#define FADT_SCI        46
#define FADT_PM1_EVT    56
#define FADT_PM1_CNT    64
#define FADT_EVT_LEN    88
#define FADT_CNT_LEN    89
#define FADT_C2_LATENCY 96
#define FADT_C3_LATENCY 98
#define FADT_CENTURY    108
#define FADT_BOOT_ARCH  109
#define FADT_FLAGS      112
#define FADT_RESET_REG  116
#define FADT_RESET      128
#define FADT_X_DSDT     140
#define FADT_X_PM1_EVT  148
#define FADT_X_PM1_CNT  172

#define NO_LATENCY    0xffff /* beyond what is taken for support */
#define BOOT_LEGACY   0x01 /* there are ISA devices; no keyboard to look for, no VGA */
#define BOOT_NO_VGA   0x04
#define FLAG_WBINVD   (1u << 0)
#define FLAG_C1       (1u << 2)
#define FLAG_NO_SLEEP (1u << 5) /* no such button among the fixed events; the power button is */
#define FLAG_NO_RTC   (1u << 6)
#define FLAG_RESET    (1u << 10)

#define AML_NAME    0x08
#define AML_BYTE    0x0a
#define AML_STRING  0x0d
#define AML_SCOPE   0x10
#define AML_BUFFER  0x11
#define AML_PACKAGE 0x12
#define AML_EXT     0x5b
#define AML_DEVICE  0x82

/* Bytes that are written one after another; what does not fit is noted, not written. */
struct out {
	u8 *at, *end;
	bool full;
};

static void put(struct out *o, const void *p, size_t n)
{
	if ((size_t)(o->end - o->at) < n) {
		o->full = true;
		return;
	}
	memcpy(o->at, p, n);
	o->at += n;
}

static void put8(struct out *o, u8 v)
{
	put(o, &v, 1);
}

static void put16(struct out *o, u16 v)
{
	put(o, &v, 2);
}

static void put32(struct out *o, u32 v)
{
	put(o, &v, 4);
}

static void put64(struct out *o, u64 v)
{
	put(o, &v, 8);
}

static void set(u8 *table, u32 off, u64 v, u32 n)
{
	memcpy(table + off, &v, n);
}

static u8 checksum(const u8 *p, size_t n)
{
	u8 sum = 0;

	for (size_t i = 0; i < n; i++)
		sum = (u8)(sum + p[i]);
	return (u8)-sum;
}

static void align(struct out *o)
{
	while ((uintptr_t)o->at % ALIGN && !o->full)
		put8(o, 0);
}

/* Begin a table; table_end() fills in its length and checksum. */
static u8 *table_begin(struct out *o, const char *signature, u8 revision)
{
	u8 *start;

	align(o);
	start = o->at;
	put(o, signature, 4);
	put32(o, 0);
	put8(o, revision);
	put8(o, 0);
	put(o, oem_id, sizeof(oem_id));
	put(o, "HVFTRACE", 8);
	put32(o, 1);
	put(o, "HVFT", 4);
	put32(o, 1);
	return start;
}

static void table_end(struct out *o, u8 *start)
{
	if (o->full)
		return;
	set(start, 4, (u64)(o->at - start), 4);
	start[9] = checksum(start, (size_t)(o->at - start));
}

/* A generic address: a port of so many bits. */
static void set_port(u8 *table, u32 off, u8 bits, u64 port)
{
	table[off] = 1; /* system I/O */
	table[off + 1] = bits;
	table[off + 3] = bits == 8 ? 1 : bits == 16 ? 2 : 3;
	set(table, off + 4, port, 8);
}

/* A package length of two bytes counts itself. */
static void put_block(struct out *o, const struct out *body, const u8 *start)
{
	u32 n = (u32)(body->at - start) + 2;

	put8(o, (u8)(0x40 | (n & 15)));
	put8(o, (u8)(n >> 4));
	put(o, start, (size_t)(body->at - start));
	o->full = o->full || body->full;
}

static void put_virtio(struct out *o, const struct virtio_place *p, u8 index)
{
	static const char digits[] = "0123456789ABCDEF";
	u8 body[128], crs[32];
	struct out b = { body, body + sizeof(body), false };
	struct out r = { crs, crs + sizeof(crs), false };
	char name[4] = { 'V', 'I', '0', digits[index & 15] };

	put8(&r, AML_BYTE);
	put8(&r, 12 + 9 + 2);
	put(&r, "\x86\x09\x00\x01", 4); /* 32-bit fixed memory, writable */
	put32(&r, p->base);
	put32(&r, (u32)PAGE_SIZE);
	put(&r, "\x89\x06\x00\x03\x01", 5); /* one interrupt, edge, active high, not shared */
	put32(&r, p->gsi);
	put(&r, "\x79\x00", 2); /* end */

	put(&b, name, 4);
	put8(&b, AML_NAME);
	put(&b, "_HID\x0dLNRO0005", 14); /* with its zero */
	put8(&b, AML_NAME);
	put(&b, "_UID\x0a", 5);
	put8(&b, index);
	put8(&b, AML_NAME);
	put(&b, "_CRS", 4);
	put8(&b, AML_BUFFER);
	put_block(&b, &r, crs);

	put8(o, AML_EXT);
	put8(o, AML_DEVICE);
	put_block(o, &b, body);
}

/* By its port a kernel says that it panics. */
static void put_pvpanic(struct out *o)
{
	u8 body[64], crs[16];
	struct out b = { body, body + sizeof(body), false };
	struct out r = { crs, crs + sizeof(crs), false };

	put8(&r, AML_BYTE);
	put8(&r, 8 + 2);
	put(&r, "\x47\x01", 2); /* ports, 16 bits decoded */
	put16(&r, PVPANIC);
	put16(&r, PVPANIC);
	put(&r, "\x01\x01\x79\x00", 4); /* aligned to one, one of them; end */

	put(&b, "PEVT", 4);
	put8(&b, AML_NAME);
	put(&b, "_HID\x0dQEMU0001", 14); /* with its zero */
	put8(&b, AML_NAME);
	put(&b, "_CRS", 4);
	put8(&b, AML_BUFFER);
	put_block(&b, &r, crs);

	put8(o, AML_EXT);
	put8(o, AML_DEVICE);
	put_block(o, &b, body);
}

static u8 *put_dsdt(struct out *o, const struct acpi_config *c)
{
	static const u8 s5[] = { AML_NAME,    '_',         'S', '5',      '_',
				 AML_PACKAGE, 8,           4,   AML_BYTE, ACPI_SLP_S5,
				 AML_BYTE,    ACPI_SLP_S5, 0,   0 };
	u8 body[2048];
	struct out b = { body, body + sizeof(body), false };
	u8 *start = table_begin(o, "DSDT", 2);

	put(o, s5, sizeof(s5));
	put(&b, "\\_SB_", 5);
	for (u32 i = 0; i < c->n_virtio; i++)
		put_virtio(&b, &c->virtio[i], (u8)i);
	put_pvpanic(&b);
	put8(o, AML_SCOPE);
	put_block(o, &b, body);
	table_end(o, start);
	return start;
}

static u8 *put_facs(struct out *o)
{
	u8 facs[FACS_BYTES] = { 'F', 'A', 'C', 'S', FACS_BYTES };
	u8 *start;

	align(o);
	start = o->at;
	facs[32] = 1; /* version */
	put(o, facs, sizeof(facs));
	return start;
}

static u8 *put_fadt(struct out *o, u64 dsdt, u64 facs)
{
	static const u8 zeros[FADT_BYTES - HEADER_BYTES];
	u8 *t = table_begin(o, "FACP", 4);

	put(o, zeros, sizeof(zeros));
	if (o->full)
		return t;
	set(t, FADT_FACS, facs, 4);
	set(t, FADT_DSDT, dsdt, 4);
	set(t, FADT_X_DSDT, dsdt, 8);
	set(t, FADT_SCI, ACPI_SCI, 2);
	set(t, FADT_PM1_EVT, ACPI_PM1, 4);
	set(t, FADT_PM1_CNT, ACPI_PM1_CNT, 4);
	t[FADT_EVT_LEN] = 4;
	t[FADT_CNT_LEN] = 2;
	set_port(t, FADT_X_PM1_EVT, 32, ACPI_PM1);
	set_port(t, FADT_X_PM1_CNT, 16, ACPI_PM1_CNT);
	set(t, FADT_C2_LATENCY, NO_LATENCY, 2);
	set(t, FADT_C3_LATENCY, NO_LATENCY, 2);
	t[FADT_CENTURY] = 0x32;
	set(t, FADT_BOOT_ARCH, BOOT_LEGACY | BOOT_NO_VGA, 2);
	set(t, FADT_FLAGS, FLAG_WBINVD | FLAG_C1 | FLAG_NO_SLEEP | FLAG_NO_RTC | FLAG_RESET, 4);
	set_port(t, FADT_RESET_REG, 8, I8042_COMMAND);
	t[FADT_RESET] = 0xfe;
	table_end(o, t);
	return t;
}

static void put_override(struct out *o, u8 irq, u32 gsi, u16 flags)
{
	put8(o, 2);
	put8(o, 10);
	put8(o, 0);
	put8(o, irq);
	put32(o, gsi);
	put16(o, flags);
}

static u8 *put_madt(struct out *o, u32 cpus)
{
	u8 *start = table_begin(o, "APIC", 3);

	put32(o, LAPIC_ADDR);
	put32(o, 1); /* the two old controllers are there, too */
	for (u32 i = 0; i < cpus; i++) {
		put16(o, 0x0800); /* a processor; 8 bytes */
		put8(o, (u8)i);
		put8(o, (u8)i);
		put32(o, 1);
	}
	put16(o, 0x0c01); /* an IO-APIC; 12 bytes */
	put8(o, (u8)cpus);
	put8(o, 0);
	put32(o, IOAPIC_ADDR);
	put32(o, 0);
	put_override(o, 0, 2, 0); /* the timer */
	put_override(o, ACPI_SCI, ACPI_SCI, 0xd); /* level, active high */
	put(o, "\x04\x06\xff\x00\x00\x01", 6); /* NMIs at pin 1 of all */
	table_end(o, start);
	return start;
}

int acpi_write(const struct guest_mem *m, gpa_t at, u64 len, const struct acpi_config *c,
	       struct err *err)
{
	u8 *base = mem_at(m, at, len);
	struct out o = { base, base ? base + len : NULL, false };
	u8 rsdp[RSDP_BYTES] = "RSD PTR ";
	u8 *xsdt, *dsdt, *facs, *fadt, *madt;

	if (!c->cpus || c->cpus > MPTABLE_MAX_CPUS || c->n_virtio > ACPI_MAX_VIRTIO)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "ACPI tables for %u vCPUs and %u virtio devices", c->cpus,
			       c->n_virtio);
	if (!base || len < sizeof(rsdp))
		return err_set(err, -ENOSPC, ERR_NONE, at.v, "no room for ACPI tables");
	o.at += sizeof(rsdp);
#define GPA(p) (at.v + (u64)((p)-base))
	dsdt = put_dsdt(&o, c);
	facs = put_facs(&o);
	fadt = put_fadt(&o, GPA(dsdt), GPA(facs));
	madt = put_madt(&o, c->cpus);
	xsdt = table_begin(&o, "XSDT", 1);
	put64(&o, GPA(fadt));
	put64(&o, GPA(madt));
	table_end(&o, xsdt);
	if (o.full)
		return err_set(err, -ENOSPC, ERR_NONE, at.v, "no room for ACPI tables");
	memcpy(rsdp + 9, oem_id, sizeof(oem_id));
	rsdp[15] = 2; /* revision */
	set(rsdp, 20, RSDP_BYTES, 4);
	set(rsdp, 24, GPA(xsdt), 8);
#undef GPA
	rsdp[8] = checksum(rsdp, 20);
	rsdp[32] = checksum(rsdp, RSDP_BYTES);
	memcpy(base, rsdp, sizeof(rsdp));
	return 0;
}
