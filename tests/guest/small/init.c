// SPDX-License-Identifier: Apache-2.0
/*
 * Init of the small Linux: no libc and no vector registers, as user code may run on a CPU whose kernel
 * does not save them. A child keeps the kernel lightly busy; commands come by the console, a line each:
 *
 *   open N      open and close /init so many times; answers "HVF-DONE open N pid P"
 *   read PATH   print the first 4 KiB of a file, then "HVF-DONE read"
 *   write PATH TEXT
 *   echo PORT   from now on send back what comes by TCP to PORT
 *   vecho PORT  the same, by a vsock
 *   vsay PORT TEXT  to the host's PORT by a vsock; prints what comes back
 *   button      from now on switch off when the power button is pressed
 *   reset, off  end the machine
 */
#include <stddef.h>

enum {
	NR_READ = 0,
	NR_WRITE = 1,
	NR_OPEN = 2,
	NR_CLOSE = 3,
	NR_DUP2 = 33,
	NR_NANOSLEEP = 35,
	NR_GETPID = 39,
	NR_SOCKET = 41,
	NR_CONNECT = 42,
	NR_ACCEPT = 43,
	NR_SHUTDOWN = 48,
	NR_BIND = 49,
	NR_LISTEN = 50,
	NR_FORK = 57,
	NR_EXIT = 60,
	NR_MKDIR = 83,
	NR_SYNC = 162,
	NR_MOUNT = 165,
	NR_REBOOT = 169,
};

#define O_RDWR   2
#define O_WRONLY 1
#define O_RDONLY 0

static long call(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
}

static size_t length(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

static void say(const char *s)
{
	call(NR_WRITE, 1, (long)s, (long)length(s), 0);
}

static void say_number(unsigned long v)
{
	char text[24];
	int i = sizeof(text) - 1;

	text[i] = 0;
	do {
		text[--i] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	say(text + i);
}

static unsigned long number(const char *s)
{
	unsigned long v = 0;

	while (*s >= '0' && *s <= '9')
		v = v * 10 + (unsigned long)(*s++ - '0');
	return v;
}

/* What follows @word and a space in @line; NULL when it is another word. */
static char *after(char *line, const char *word)
{
	while (*word && *line == *word) {
		line++;
		word++;
	}
	if (*word || (*line && *line != ' '))
		return NULL;
	return *line ? line + 1 : line;
}

static void sleep_ms(long ms)
{
	long ts[2] = { ms / 1000, ms % 1000 * 1000000 };

	call(NR_NANOSLEEP, (long)ts, 0, 0, 0);
}

static void open_close(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		long fd = call(NR_OPEN, (long)"/init", O_RDONLY, 0, 0);

		if (fd >= 0)
			call(NR_CLOSE, fd, 0, 0, 0);
	}
}

static void print_file(const char *path)
{
	static char buf[4096];
	long fd = call(NR_OPEN, (long)path, O_RDONLY, 0, 0);
	long n = fd < 0 ? fd : call(NR_READ, fd, (long)buf, sizeof(buf), 0);

	if (n < 0) {
		say("error ");
		say_number((unsigned long)-n);
		say("\n");
	} else {
		call(NR_WRITE, 1, (long)buf, n, 0);
	}
	if (fd >= 0)
		call(NR_CLOSE, fd, 0, 0, 0);
	say("\nHVF-DONE read\n");
}

static void write_file(char *path)
{
	char *text = path;
	long fd, n = -1;

	while (*text && *text != ' ')
		text++;
	if (*text)
		*text++ = 0;
	fd = call(NR_OPEN, (long)path, O_WRONLY, 0, 0);
	if (fd >= 0) {
		n = call(NR_WRITE, fd, (long)text, (long)length(text), 0);
		call(NR_CLOSE, fd, 0, 0, 0);
		call(NR_SYNC, 0, 0, 0, 0);
	}
	say(n == (long)length(text) ? "HVF-DONE write\n" : "HVF-DONE write failed\n");
}

#define AF_INET     2
#define AF_VSOCK    40
#define SOCK_STREAM 1
#define HOST        2
#define ANY         0xffffffffu

struct address {
	unsigned short family;
	unsigned short in_port; /* TCP's, big endian */
	unsigned int in_addr_or_port; /* TCP's address, any; a vsock's port */
	unsigned int cid; /* a vsock's */
	unsigned int zero;
};

static struct address address(int family, unsigned long port, unsigned int cid)
{
	if (family == AF_VSOCK)
		return (struct address){ AF_VSOCK, 0, (unsigned int)port, cid, 0 };
	return (struct address){ AF_INET, (unsigned short)(port << 8 | port >> 8), 0, 0, 0 };
}

/* Until the other side has no more to say. */
static void copy(long from, long to)
{
	static char buf[4096];
	long n;

	while ((n = call(NR_READ, from, (long)buf, sizeof(buf), 0)) > 0) {
		for (long done = 0, did; done < n; done += did) {
			did = call(NR_WRITE, to, (long)(buf + done), n - done, 0);
			if (did <= 0)
				return;
		}
	}
}

static void echo(int family, unsigned long port)
{
	struct address a = address(family, port, ANY);
	long fd = call(NR_SOCKET, family, SOCK_STREAM, 0, 0);
	long rc = call(NR_BIND, fd, (long)&a, sizeof(a), 0);

	if (rc == 0)
		rc = call(NR_LISTEN, fd, 4, 0, 0);
	if (rc == 0 && call(NR_FORK, 0, 0, 0, 0) == 0) {
		for (;;) {
			long client = call(NR_ACCEPT, fd, 0, 0, 0);

			copy(client, client);
			call(NR_CLOSE, client, 0, 0, 0);
		}
	}
	say(rc == 0 ? "HVF-DONE echo\n" : "HVF-DONE echo failed\n");
}

static void vsay(char *text)
{
	struct address a = address(AF_VSOCK, number(text), HOST);
	long fd = call(NR_SOCKET, AF_VSOCK, SOCK_STREAM, 0, 0);

	while (*text && *text++ != ' ')
		;
	if (call(NR_CONNECT, fd, (long)&a, sizeof(a), 0) != 0) {
		say("HVF-DONE vsay failed\n");
	} else {
		call(NR_WRITE, fd, (long)text, (long)length(text), 0);
		call(NR_SHUTDOWN, fd, 1, 0, 0);
		copy(fd, 1);
		say("\nHVF-DONE vsay\n");
	}
	call(NR_CLOSE, fd, 0, 0, 0);
}

static void off(void)
{
	call(NR_SYNC, 0, 0, 0, 0);
	call(NR_REBOOT, 0xfee1dead, 672274793, 0x4321fedc, 0);
}

/* As a session manager does: the button is a key. */
static void button(void)
{
	struct {
		long time[2];
		unsigned short type, code;
		int value;
	} e;
	long fd = call(NR_OPEN, (long)"/dev/input/event0", O_RDONLY, 0, 0);

	if (fd >= 0 && call(NR_FORK, 0, 0, 0, 0) == 0) {
		while (call(NR_READ, fd, (long)&e, sizeof(e), 0) == sizeof(e)) {
			if (e.type == 1 && e.code == 116 && e.value == 1) {
				say("HVF-BUTTON\n");
				off();
			}
		}
		call(NR_EXIT, 1, 0, 0, 0);
	}
	say(fd >= 0 ? "HVF-DONE button\n" : "HVF-DONE button failed\n");
}

static void obey(char *line)
{
	char *arg;

	if ((arg = after(line, "open"))) {
		unsigned long n = number(arg);

		open_close(n);
		say("HVF-DONE open ");
		say_number(n);
		say(" pid ");
		say_number((unsigned long)call(NR_GETPID, 0, 0, 0, 0));
		say("\n");
	} else if ((arg = after(line, "read"))) {
		print_file(arg);
	} else if ((arg = after(line, "write"))) {
		write_file(arg);
	} else if ((arg = after(line, "echo"))) {
		echo(AF_INET, number(arg));
	} else if ((arg = after(line, "vecho"))) {
		echo(AF_VSOCK, number(arg));
	} else if ((arg = after(line, "vsay"))) {
		vsay(arg);
	} else if (after(line, "button")) {
		button();
	} else if (after(line, "reset")) {
		call(NR_REBOOT, 0xfee1dead, 672274793, 0x01234567, 0);
	} else if (after(line, "off")) {
		off();
	} else {
		say("HVF-DONE what?\n");
	}
}

static void serve(void)
{
	static char line[512];
	size_t n = 0;

	for (;;) {
		char c;

		if (call(NR_READ, 0, (long)&c, 1, 0) != 1) {
			sleep_ms(100);
			continue;
		}
		if (c != '\n' && c != '\r') {
			if (n < sizeof(line) - 1)
				line[n++] = c;
			continue;
		}
		line[n] = 0;
		if (n)
			obey(line);
		n = 0;
	}
}

static void mount_at(const char *type, const char *at)
{
	call(NR_MKDIR, (long)at, 0755, 0, 0);
	call(NR_MOUNT, (long)type, (long)at, (long)type, 0);
}

__attribute__((used, noreturn)) static void run(void)
{
	long fd;

	mount_at("devtmpfs", "/dev");
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	fd = call(NR_OPEN, (long)"/dev/console", O_RDWR, 0, 0);
	for (int i = 0; fd >= 0 && i < 3; i++)
		call(NR_DUP2, fd, i, 0, 0);
	if (call(NR_FORK, 0, 0, 0, 0) == 0) {
		for (;;) {
			open_close(2);
			sleep_ms(200);
		}
	}
	say("HVF-READY\n");
	serve();
	__builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n\tand $-16, %rsp\n\tcall run\n");
