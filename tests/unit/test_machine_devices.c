// SPDX-License-Identifier: Apache-2.0
/* machine/: RAM, buses and the devices of a PC, without KVM. */
#include "machine/bus.h"
#include "machine/legacy_x86.h"
#include "machine/mem.h"
#include "machine/output.h"
#include "machine/serial.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/serial_reg.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (1ull << 30)

static void test_ram_has_a_hole(void **state)
{
	struct guest_mem m;
	u32 word = 0x12345678, back = 0;

	(void)state;
	assert_int_equal(mem_init(&m, 4 * GIB, NULL), 0);
	assert_int_equal(mem_low_bytes(&m), 3 * GIB);
	assert_int_equal(mem_high_bytes(&m), GIB);
	/* the host's side is contiguous */
	assert_ptr_equal(mem_at(&m, gpa(0), 3 * GIB), m.base);
	assert_ptr_equal(mem_at(&m, gpa(MEM_HOLE_END), GIB), m.base + 3 * GIB);
	/* into the hole, out of it, over an end, around */
	assert_null(mem_at(&m, gpa(MEM_HOLE_START), 1));
	assert_null(mem_at(&m, gpa(MEM_HOLE_START - 1), 2));
	assert_null(mem_at(&m, gpa(MEM_HOLE_END - 1), 2));
	assert_null(mem_at(&m, gpa(5 * GIB), 1));
	assert_null(mem_at(&m, gpa(5 * GIB - 1), 2));
	assert_null(mem_at(&m, gpa(UINT64_MAX), 2));
	assert_null(mem_at(&m, gpa(0), UINT64_MAX));
	assert_null(mem_at(&m, gpa(0), 0));
	assert_true(mem_write(&m, gpa(5 * GIB - 4), &word, 4));
	assert_true(mem_read(&m, gpa(5 * GIB - 4), &back, 4));
	assert_int_equal(back, word);
	assert_false(mem_write(&m, gpa(5 * GIB - 3), &word, 4));
	mem_deinit(&m);
	mem_deinit(&m);
}

/* A guest that writes without end fills nothing. */
static void test_output_has_a_limit(void **state)
{
	char path[] = "/tmp/hvf-output-XXXXXX";
	u8 many[1000] = { 0 };
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	output_limit(1500);
	output_write(-1, many, sizeof(many), -1);
	for (int i = 0; i < 4; i++)
		output_write(fd, many, sizeof(many), -1);
	assert_int_equal(lseek(fd, 0, SEEK_END), 1500);
	assert_int_equal(output_lost(), 2500);
	output_limit(UINT64_MAX);
	output_write(fd, many, sizeof(many), -1);
	assert_int_equal(lseek(fd, 0, SEEK_END), 2500);
	close(fd);
}

struct blocked {
	int fd, cancel_fd;
	_Atomic bool done;
};

static void *write_much(void *arg)
{
	static const u8 much[256 << 10];
	struct blocked *b = arg;

	output_write(b->fd, much, sizeof(much), b->cancel_fd);
	b->done = true;
	return NULL;
}

static void end_blocked(struct blocked *b, bool by_stop)
{
	const u64 one = 1;
	pthread_t t;

	b->done = false;
	assert_int_equal(pthread_create(&t, NULL, write_much, b), 0);
	usleep(20000);
	assert_false(b->done);
	if (by_stop)
		output_stop();
	else
		assert_int_equal(write(b->cancel_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(t, NULL);
	output_resume();
}

/* Nobody reads: who waits is told to give up, and whoever shares the pipe or the socket's other end is not affected. */
static void test_output_that_nobody_reads(void **state)
{
	struct blocked b = { .cancel_fd = eventfd(0, EFD_CLOEXEC) };
	u64 lost = output_lost(), before;
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(output_open(fds[1], &b.fd, NULL), 0);
	assert_int_not_equal(b.fd, fds[1]);
	assert_false(fcntl(fds[1], F_GETFL) & O_NONBLOCK);
	end_blocked(&b, true);
	before = output_lost();
	assert_true(before - lost >= 128 << 10);
	end_blocked(&b, false);
	assert_int_equal(output_lost() - before, 256 << 10);
	close(b.fd);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(output_open(fds[1], &b.fd, NULL), 0);
	close(b.cancel_fd);
	b.cancel_fd = -1;
	end_blocked(&b, true);
	assert_false(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
	close(fds[0]);
	close(fds[1]);
}

/* With no description of its own to be had, and nobody who reads: whoever sends is not held up for a moment. */
static void test_output_that_cannot_be_opened_anew(void **state)
{
	static u8 much[256 << 10], back[256 << 10];
	struct rlimit limit, none;
	u64 lost, before = output_lost();
	size_t n = 0;
	int fds[2], fd;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(output_open(fds[1], &fd, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(fd, fds[1]);
	assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
	for (size_t i = 0; i < sizeof(much); i++)
		much[i] = (u8)(i * 7 + (i >> 8));
	for (size_t at = 0; at < sizeof(much); at += 4096)
		output_write(fd, much + at, 4096, -1);
	lost = output_lost() - before;
	assert_in_range(lost, 1, sizeof(much) - (64 << 10));
	/* what was taken comes, in its order */
	while (n < sizeof(much) - lost) {
		ssize_t did = read(fds[0], back + n, sizeof(back) - n);

		assert_true(did > 0);
		n += (size_t)did;
	}
	assert_memory_equal(back, much, 64 << 10);
	output_write(fd, "last", 4, -1);
	output_flush();
	assert_int_equal(read(fds[0], back, sizeof(back)), 4);
	assert_int_equal(output_lost() - before, lost);
	/* at the end, with a full pipe, it is waited for no longer than a moment, and counted */
	for (int i = 0; poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 0); i++) {
		assert_true(i < 5000);
		output_write(fd, much, 4096, -1);
		usleep(2000);
	}
	output_write(fd, much, 64 << 10, -1);
	lost = output_lost();
	output_flush();
	assert_int_equal(output_lost() - lost, 64 << 10);
	close(fds[0]);
}

static void test_ram_sizes(void **state)
{
	struct err err = { 0 };
	struct guest_mem m;

	(void)state;
	assert_int_equal(mem_init(&m, MEM_MIN_BYTES - PAGE_SIZE, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "16 MiB"));
	assert_int_equal(mem_init(&m, MEM_MIN_BYTES + 1, &err), -EINVAL);
	assert_int_equal(mem_init(&m, MEM_MAX_BYTES + PAGE_SIZE, &err), -EINVAL);
	assert_int_equal(mem_init(&m, MEM_MIN_BYTES, &err), 0);
	assert_int_equal(mem_high_bytes(&m), 0);
	assert_null(mem_at(&m, gpa(MEM_HOLE_END), 1));
	mem_deinit(&m);
}

struct seen {
	u64 off;
	u32 len;
	int calls;
};

static void note(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct seen *s = dev;

	s->off = off;
	s->len = len;
	s->calls++;
	if (!is_write)
		memset(data, 0x5a, len);
}

static void test_bus(void **state)
{
	struct bus b = { .n = 0 };
	struct seen a = { 0 };
	struct err err = { 0 };
	u8 data[8] = { 0 };

	(void)state;
	assert_int_equal(bus_add(&b, 0x100, 8, note, &a, &err), 0);
	assert_int_equal(bus_add(&b, 0x107, 1, note, &a, &err), -EEXIST);
	assert_int_equal(bus_add(&b, 0xf0, 0x11, note, &a, &err), -EEXIST);
	assert_int_equal(bus_add(&b, 0x108, 0, note, &a, &err), -EINVAL);
	assert_int_equal(bus_add(&b, UINT64_MAX, 2, note, &a, &err), -EINVAL);
	assert_int_equal(bus_add(&b, 0x108, 1, note, &a, &err), 0);
	bus_access(&b, 0x104, data, 4, false);
	assert_int_equal(a.off, 4);
	assert_int_equal(data[3], 0x5a);
	/* nobody's as a whole: ones, and nobody is asked */
	a.calls = 0;
	bus_access(&b, 0x106, data, 4, false);
	assert_int_equal(data[0], 0xff);
	bus_access(&b, 0xff, data, 2, true);
	bus_access(&b, UINT64_MAX, data, 8, false);
	assert_int_equal(a.calls, 0);
	while (b.n < BUS_MAX_RANGES)
		assert_int_equal(bus_add(&b, 0x1000 + b.n, 1, note, &a, &err), 0);
	assert_int_equal(bus_add(&b, 0x10, 1, note, &a, &err), -E2BIG);
}

static bool line;

static void set_line(void *arg, u32 gsi, bool level)
{
	(void)arg;
	assert_int_equal(gsi, SERIAL_COM1_IRQ);
	line = level;
}

static u8 in(struct serial *s, u64 reg)
{
	u8 v = 0xff;

	serial_io(s, reg, &v, 1, false);
	return v;
}

static void out(struct serial *s, u64 reg, u8 v)
{
	serial_io(s, reg, &v, 1, true);
}

static void test_serial_transmits(void **state)
{
	const struct irq_line irq = { set_line, NULL, SERIAL_COM1_IRQ };
	struct serial s;
	char text[3] = "";
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	serial_init(&s, irq, fds[1]);
	line = false;
	out(&s, UART_TX, 'h');
	out(&s, UART_TX, 'i');
	assert_int_equal(read(fds[0], text, 3), 2);
	assert_string_equal(text, "hi");
	/* asked for while the transmitter is empty: one interrupt, taken back by a look at IIR */
	out(&s, UART_IER, UART_IER_THRI);
	assert_false(line); /* not let through */
	out(&s, UART_MCR, UART_MCR_OUT2);
	assert_true(line);
	assert_int_equal(in(&s, UART_IIR), UART_IIR_THRI);
	assert_false(line);
	assert_int_equal(in(&s, UART_IIR), UART_IIR_NO_INT);
	out(&s, UART_TX, '!');
	assert_true(line);
	out(&s, UART_IER, 0);
	assert_false(line);
	/* the divisor is no byte to send */
	out(&s, UART_LCR, UART_LCR_DLAB);
	out(&s, UART_DLL, 12);
	out(&s, UART_DLM, 1);
	assert_int_equal(in(&s, UART_DLL), 12);
	assert_int_equal(in(&s, UART_DLM), 1);
	out(&s, UART_LCR, UART_LCR_WLEN8);
	assert_int_equal(read(fds[0], text, 3), 1);
	/* nobody reads any more: the guest goes on */
	signal(SIGPIPE, SIG_IGN);
	close(fds[0]);
	out(&s, UART_TX, 'x');
	close(fds[1]);
	serial_deinit(&s);
}

static void test_serial_receives(void **state)
{
	const struct irq_line irq = { set_line, NULL, SERIAL_COM1_IRQ };
	struct serial s;

	(void)state;
	serial_init(&s, irq, -1);
	line = false;
	out(&s, UART_MCR, UART_MCR_OUT2);
	out(&s, UART_IER, UART_IER_RDI | UART_IER_THRI);
	(void)in(&s, UART_IIR);
	assert_false(line);
	assert_true(serial_receive(&s, (const u8 *)"ab", 2));
	assert_true(line);
	assert_int_equal(in(&s, UART_IIR), UART_IIR_RDI);
	assert_true(in(&s, UART_LSR) & UART_LSR_DR);
	assert_int_equal(in(&s, UART_RX), 'a');
	assert_true(line);
	assert_int_equal(in(&s, UART_RX), 'b');
	assert_false(line);
	assert_false(in(&s, UART_LSR) & UART_LSR_DR);
	assert_int_equal(in(&s, UART_RX), 0);
	/* clearing the FIFO; its bits show that it is on */
	assert_true(serial_receive(&s, (const u8 *)"c", 1));
	out(&s, UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR);
	assert_false(line);
	assert_int_equal(in(&s, UART_IIR) & 0xc0, 0xc0);
	serial_close(&s);
	assert_false(serial_receive(&s, (const u8 *)"d", 1));
	serial_deinit(&s);
}

/* As Linux's 8250 driver looks for a port: scratch register, then modem lines in loopback. */
static void test_serial_is_found(void **state)
{
	const struct irq_line irq = { set_line, NULL, SERIAL_COM1_IRQ };
	struct serial s;

	(void)state;
	serial_init(&s, irq, -1);
	out(&s, UART_SCR, 0xae);
	assert_int_equal(in(&s, UART_SCR), 0xae);
	out(&s, UART_IER, 0xff);
	assert_int_equal(in(&s, UART_IER), 0x0f);
	out(&s, UART_MCR, UART_MCR_LOOP | UART_MCR_OUT2 | UART_MCR_RTS);
	assert_int_equal(in(&s, UART_MSR) & 0xf0, UART_MSR_DCD | UART_MSR_CTS);
	out(&s, UART_TX, 'l');
	assert_int_equal(in(&s, UART_RX), 'l');
	serial_deinit(&s);
}

static bool sci_line;

static void set_sci(void *arg, u32 gsi, bool level)
{
	(void)arg;
	assert_int_equal(gsi, ACPI_SCI);
	sci_line = level;
}

static const struct irq_line sci = { set_sci, NULL, ACPI_SCI };

struct end {
	int calls;
	enum guest_event how;
	u32 value;
};

static void note_end(void *arg, enum guest_event how, u32 value)
{
	struct end *e = arg;

	*e = (struct end){ e->calls + 1, how, value };
}

static u8 port_in(struct bus *b, u64 port)
{
	u8 v = 0;

	bus_access(b, port, &v, 1, false);
	return v;
}

static void port_out(struct bus *b, u64 port, u32 v, u32 len)
{
	bus_access(b, port, (u8 *)&v, len, true);
}

static void test_legacy(void **state)
{
	struct bus b = { .n = 0 };
	struct end end = { 0 };
	struct legacy l;
	time_t before;
	u8 sec;

	(void)state;
	legacy_init(&l, sci, note_end, &end);
	assert_int_equal(legacy_add(&l, &b, NULL), 0);
	assert_int_equal(port_in(&b, I8042_COMMAND), 0);
	port_out(&b, I8042_COMMAND, 0xd1, 1);
	assert_int_equal(end.calls, 0);
	port_out(&b, I8042_COMMAND, 0xfe, 1);
	assert_int_equal(end.how, GUEST_RESET);
	port_out(&b, DEBUG_EXIT, 0x1234, 4);
	assert_int_equal(end.how, GUEST_DEBUG_EXIT);
	assert_int_equal(end.value, 0x1234);
	assert_int_equal(end.calls, 2);
	/* the clock: 24 hours, BCD, the host's time */
	port_out(&b, CMOS_INDEX, 0x0b, 1);
	assert_int_equal(port_in(&b, CMOS_INDEX + 1), 0x02);
	do {
		before = time(NULL);
		port_out(&b, CMOS_INDEX, 0x80, 1);
		sec = port_in(&b, CMOS_INDEX + 1);
	} while (time(NULL) != before);
	assert_int_equal((sec >> 4) * 10 + (sec & 15), before % 60);
	/* storage */
	port_out(&b, CMOS_INDEX, 0x7f, 1);
	port_out(&b, CMOS_INDEX + 1, 0x42, 1);
	assert_int_equal(port_in(&b, CMOS_INDEX + 1), 0x42);
	legacy_deinit(&l);
}

static void test_power_off(void **state)
{
	struct bus b = { .n = 0 };
	struct end end = { 0 };
	struct legacy l;

	(void)state;
	legacy_init(&l, sci, note_end, &end);
	assert_int_equal(legacy_add(&l, &b, NULL), 0);
	assert_int_equal(port_in(&b, ACPI_PM1_CNT), 1);
	port_out(&b, ACPI_PM1_CNT, ACPI_SLP_S5 << 10, 2);
	port_out(&b, ACPI_PM1_CNT, 0x2000, 2); /* another sleep state */
	port_out(&b, ACPI_PM1_CNT, 0x2000 | ACPI_SLP_S5 << 10, 1); /* half a register */
	assert_int_equal(end.calls, 0);
	port_out(&b, ACPI_PM1_CNT, 0x2000 | ACPI_SLP_S5 << 10, 2);
	assert_int_equal(end.how, GUEST_POWER_OFF);
	legacy_deinit(&l);
}

static void test_power_button(void **state)
{
	struct bus b = { .n = 0 };
	struct end end = { 0 };
	struct legacy l;

	(void)state;
	sci_line = false;
	legacy_init(&l, sci, note_end, &end);
	assert_int_equal(legacy_add(&l, &b, NULL), 0);
	assert_false(legacy_press_power(&l)); /* nobody listens yet */
	assert_int_equal(port_in(&b, ACPI_PM1 + 1), 0);
	port_out(&b, ACPI_PM1 + 2, 0x0100, 2);
	assert_false(sci_line);
	assert_true(legacy_press_power(&l));
	assert_true(sci_line);
	port_out(&b, ACPI_PM1, 0x0020, 2); /* another bit */
	assert_true(sci_line);
	port_out(&b, ACPI_PM1, 0x0100, 2); /* cleared by writing it */
	assert_false(sci_line);
	assert_true(legacy_press_power(&l));
	port_out(&b, ACPI_PM1 + 2, 0, 2);
	assert_false(sci_line);
	port_out(&b, ACPI_PM1 + 2, 0x0100, 2);
	assert_true(sci_line);
	legacy_reset(&l);
	assert_false(sci_line);
	assert_false(legacy_press_power(&l));
	assert_int_equal(end.calls, 0);
	legacy_deinit(&l);
}

static void test_panic(void **state)
{
	struct bus b = { .n = 0 };
	struct end end = { 0 };
	struct legacy l;

	(void)state;
	legacy_init(&l, sci, note_end, &end);
	assert_int_equal(legacy_add(&l, &b, NULL), 0);
	assert_int_equal(port_in(&b, PVPANIC), 3);
	port_out(&b, PVPANIC, 0xfc, 1); /* nothing that we said we know */
	assert_int_equal(end.calls, 0);
	port_out(&b, PVPANIC, 1, 1);
	assert_int_equal(end.how, GUEST_PANIC);
	port_out(&b, PVPANIC, 2, 1);
	assert_int_equal(end.how, GUEST_CRASH_LOADED);
	legacy_deinit(&l);
}

static void test_ram_comes_back(void **state)
{
	u64 places[] = { 0, 5 * PAGE_SIZE + 100, 6 * PAGE_SIZE, 3 * GIB - 1, 4 * GIB, 5 * GIB - 1 };
	struct mem_copy copy;
	struct guest_mem m;
	u8 byte;

	(void)state;
	assert_int_equal(mem_init(&m, 4 * GIB, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		byte = (u8)(i + 1);
		assert_true(mem_write(&m, gpa(places[i]), &byte, 1));
	}
	assert_int_equal(mem_save(&m, &copy, NULL), 0);
	assert_int_equal(copy.len, 6 * PAGE_SIZE);
	assert_true(copy.n_runs >= 4 && copy.n_runs <= 5); /* neighbours are one run */
	for (u64 at = 0; at < 64 * PAGE_SIZE; at += 99)
		assert_true(mem_write(&m, gpa(4 * GIB + at), "overwritten", 11));
	assert_true(mem_write(&m, gpa(7 * PAGE_SIZE), "x", 1));
	for (int i = 0; i < 2; i++) {
		struct stat st;

		assert_int_equal(mem_restore(&m, &copy, NULL), 0);
		for (size_t k = 0; k < ARRAY_SIZE(places); k++) {
			assert_true(mem_read(&m, gpa(places[k]), &byte, 1));
			assert_int_equal(byte, k + 1);
		}
		assert_true(mem_read(&m, gpa(7 * PAGE_SIZE), &byte, 1));
		assert_int_equal(byte, 0);
		assert_true(mem_read(&m, gpa(4 * GIB + 99), &byte, 1));
		assert_int_equal(byte, 0);
		assert_int_equal(fstat(m.fd, &st), 0);
		/* larger pages, where the host gives them */
		assert_true(st.st_blocks * 512 <= 6 * (2 << 20));
	}
	mem_copy_deinit(&copy);
	mem_deinit(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ram_has_a_hole),
		cmocka_unit_test(test_ram_sizes),
		cmocka_unit_test(test_output_has_a_limit),
		cmocka_unit_test(test_bus),
		cmocka_unit_test(test_output_that_nobody_reads),
		cmocka_unit_test(test_serial_transmits),
		cmocka_unit_test(test_serial_receives),
		cmocka_unit_test(test_serial_is_found),
		cmocka_unit_test(test_legacy),
		cmocka_unit_test(test_power_off),
		cmocka_unit_test(test_power_button),
		cmocka_unit_test(test_panic),
		cmocka_unit_test(test_ram_comes_back),
		cmocka_unit_test(
			test_output_that_cannot_be_opened_anew), /* last: its thread stays */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
