// SPDX-License-Identifier: Apache-2.0
/*
 * The small old devices of a PC. See legacy_x86.h.
 * Source: Motorola MC146818A (clock registers); ACPI 6.4, 4.8.3 (PM1 registers); Intel 8042; QEMU
 * docs/specs/pvpanic.rst.
 */
#include "machine/legacy_x86.h"

#include <string.h>
#include <time.h>

#define I8042_PULSE_RESET 0xfe

#define PVPANIC_PANICKED     1
#define PVPANIC_CRASH_LOADED 2

#define RTC_REG_A     0x0a
#define RTC_REG_B     0x0b
#define RTC_REG_D     0x0d
#define RTC_CENTURY   0x32
#define RTC_A_DIVIDER 0x26 /* 32,768 Hz, no update in progress */
#define RTC_B_24H     0x02
#define RTC_D_VALID   0x80

#define PM1_EVT_STATUS 0
#define PM1_EVT_ENABLE 2
#define PM1_CNT_OFF    (ACPI_PM1_CNT - ACPI_PM1)
#define PM1_PWRBTN     0x0100 /* in status and enable */
#define PM1_SCI_EN     0x0001
#define PM1_SLP_EN     0x2000
#define PM1_SLP_SHIFT  10

static u8 bcd(int v)
{
	return (u8)(v / 10 % 10 << 4 | v % 10);
}

/* The clock shows the host's time in UTC; what the guest writes to it is not kept. */
static bool rtc_read(u8 reg, u8 *ret)
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	switch (reg) {
	case 0x00:
		*ret = bcd(tm.tm_sec);
		return true;
	case 0x02:
		*ret = bcd(tm.tm_min);
		return true;
	case 0x04:
		*ret = bcd(tm.tm_hour);
		return true;
	case 0x06:
		*ret = bcd(tm.tm_wday + 1);
		return true;
	case 0x07:
		*ret = bcd(tm.tm_mday);
		return true;
	case 0x08:
		*ret = bcd(tm.tm_mon + 1);
		return true;
	case 0x09:
		*ret = bcd(tm.tm_year % 100);
		return true;
	case RTC_CENTURY:
		*ret = bcd((tm.tm_year + 1900) / 100);
		return true;
	case RTC_REG_A:
		*ret = RTC_A_DIVIDER;
		return true;
	case RTC_REG_D:
		*ret = RTC_D_VALID;
		return true;
	default:
		return false;
	}
}

/* Two ports: the index (its highest bit masks NMIs, which we send none of) and the register. */
static void cmos_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct legacy *l = dev;

	pthread_mutex_lock(&l->lock);
	for (u32 i = 0; i < len; i++) {
		u8 reg = l->cmos_index;

		if (off + i == 0) {
			if (is_write)
				l->cmos_index = data[i] & 0x7f;
		} else if (is_write) {
			l->cmos[reg] = data[i];
		} else if (!rtc_read(reg, &data[i])) {
			data[i] = l->cmos[reg];
		}
	}
	pthread_mutex_unlock(&l->lock);
}

/* No keyboard: its buffers are empty at all times. */
static void i8042_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct legacy *l = dev;

	(void)off;
	(void)len;
	if (!is_write)
		data[0] = 0;
	else if (data[0] == I8042_PULSE_RESET)
		l->tell(l->arg, GUEST_RESET, 0);
}

static void i8042_data_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	(void)dev;
	(void)off;
	if (!is_write)
		memset(data, 0, len);
}

static void debug_exit_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct legacy *l = dev;
	u32 value = 0;

	(void)off;
	if (!is_write)
		return;
	memcpy(&value, data, len);
	l->tell(l->arg, GUEST_DEBUG_EXIT, value);
}

/* With the lock. */
static void update_sci(struct legacy *l)
{
	bool level = l->pm1_status & l->pm1_enable & PM1_PWRBTN;

	if (level == l->sci_level)
		return;
	l->sci_level = level;
	irq_set(&l->sci, level);
}

/* Return: true when it switches itself off. With the lock. */
static bool pm1_write(struct legacy *l, u64 off, u16 v)
{
	switch (off) {
	case PM1_EVT_STATUS:
		l->pm1_status &= (u16)~v;
		break;
	case PM1_EVT_ENABLE:
		l->pm1_enable = v;
		break;
	case PM1_CNT_OFF:
		l->pm1_control = v & (u16)~PM1_SLP_EN;
		return (v & PM1_SLP_EN) && (v >> PM1_SLP_SHIFT & 7) == ACPI_SLP_S5;
	default:
		break;
	}
	update_sci(l);
	return false;
}

static u16 pm1_read(const struct legacy *l, u64 off)
{
	switch (off) {
	case PM1_EVT_STATUS:
		return l->pm1_status;
	case PM1_EVT_ENABLE:
		return l->pm1_enable;
	case PM1_CNT_OFF:
		return l->pm1_control | PM1_SCI_EN;
	default:
		return 0;
	}
}

/* Status, enable, control, 16 bits each. ACPI mode is always on. */
static void pm1_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct legacy *l = dev;
	bool is_off = false;
	u16 v = 0;

	pthread_mutex_lock(&l->lock);
	if (is_write && len == sizeof(v)) {
		memcpy(&v, data, sizeof(v));
		is_off = pm1_write(l, off, v);
	} else if (!is_write) {
		v = pm1_read(l, off);
		memset(data, 0, len);
		memcpy(data, &v, MIN(len, sizeof(v)));
	}
	pthread_mutex_unlock(&l->lock);
	if (is_off)
		l->tell(l->arg, GUEST_POWER_OFF, 0);
}

/* Read: what it can be told. Written: what happened. */
static void pvpanic_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct legacy *l = dev;

	(void)off;
	(void)len;
	if (!is_write)
		data[0] = PVPANIC_PANICKED | PVPANIC_CRASH_LOADED;
	else if (data[0] & PVPANIC_PANICKED)
		l->tell(l->arg, GUEST_PANIC, 0);
	else if (data[0] & PVPANIC_CRASH_LOADED)
		l->tell(l->arg, GUEST_CRASH_LOADED, 0);
}

bool legacy_press_power(struct legacy *l)
{
	bool listens;

	pthread_mutex_lock(&l->lock);
	listens = l->pm1_enable & PM1_PWRBTN;
	if (listens) {
		l->pm1_status |= PM1_PWRBTN;
		update_sci(l);
	}
	pthread_mutex_unlock(&l->lock);
	return listens;
}

void legacy_reset(struct legacy *l)
{
	pthread_mutex_lock(&l->lock);
	l->pm1_status = l->pm1_enable = l->pm1_control = 0;
	l->cmos_index = 0;
	memset(l->cmos, 0, sizeof(l->cmos));
	l->cmos[RTC_REG_B] = RTC_B_24H;
	update_sci(l);
	pthread_mutex_unlock(&l->lock);
}

void legacy_init(struct legacy *l, struct irq_line sci, void (*tell)(void *, enum guest_event, u32),
		 void *arg)
{
	u8 unused;

	*l = (struct legacy){ .tell = tell, .arg = arg, .sci = sci };
	/* the C library opens a file the first time, which it may not do any more once the guest runs */
	(void)rtc_read(RTC_REG_A, &unused);
	l->cmos[RTC_REG_B] = RTC_B_24H;
	pthread_mutex_init(&l->lock, NULL);
}

void legacy_deinit(struct legacy *l)
{
	pthread_mutex_destroy(&l->lock);
}

int legacy_add(struct legacy *l, struct bus *pio, struct err *err)
{
	static const struct {
		u64 base, len;
		bus_fn *fn;
	} range[] = {
		{ I8042_DATA, 1, i8042_data_io }, { I8042_COMMAND, 1, i8042_io },
		{ CMOS_INDEX, 2, cmos_io },       { DEBUG_EXIT, 4, debug_exit_io },
		{ ACPI_PM1, 6, pm1_io },          { PVPANIC, 1, pvpanic_io },
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < ARRAY_SIZE(range); i++)
		rc = bus_add(pio, range[i].base, range[i].len, range[i].fn, l, err);
	return rc;
}
