// SPDX-License-Identifier: Apache-2.0
/*
 * System calls of the 32-bit ABI, for a tracer of them: by int 0x80, as where there is no vDSO. Needs no library
 * and no header, as a 64-bit machine may have none for it.
 */
static int call(int nr, long a, long b, long c)
{
	int ret;

	/* rt_sigaction's fourth argument, which the others do not have */
	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(8)
			 : "memory");
	return ret;
}

static char *const argv[] = { "prog32", "with one", 0 };
static char buf[64], st[96];

/* As only programs of this ABI have them. */
static struct {
	int sec, nsec;
} brief = { 0, 1000 }, now;
static const struct {
	const char *base;
	int len;
} parts[] = { { "one", 3 }, { "and two", 7 } };
static const struct {
	short family, port;
	int addr, zero[2];
} to = { 2, 0x0900, 0x0100007f, { 0, 0 } };
static const struct {
	const void *name;
	int namelen;
	const void *iov;
	int iovlen, control, controllen, flags;
} message = { &to, sizeof(to), parts, 2, 0, 0, 0 };
static const struct {
	int handler, flags, restorer, mask[2];
} ignore = { 1, 0x10000000, 0, { 2, 0 } };

void _start(void);
void _start(void)
{
	int fd;

	call(20, 0, 0, 0); /* getpid */
	call(64, 0, 0, 0); /* getppid */
	call(199, 0, 0, 0); /* getuid32 */
	call(39, (long)"/tmp/dir32", 0711, 0); /* mkdir */
	fd = call(5, (long)"/tmp/file32", 0102, 0640); /* open: O_RDWR|O_CREAT */
	call(4, fd, (long)"of thirty-two bits", 18); /* write */
	call(19, fd, 3, 0); /* lseek */
	call(3, fd, (long)buf, sizeof(buf)); /* read */
	call(146, fd, (long)parts, 2); /* writev */
	call(197, fd, (long)st, 0); /* fstat64 */
	call(6, fd, 0, 0); /* close */
	call(162, (long)&brief, 0, 0); /* nanosleep */
	call(265, 1, (long)&now, 0); /* clock_gettime */
	call(370, -1, (long)&message, 0); /* sendmsg */
	call(174, 10, (long)&ignore, 0); /* rt_sigaction */
	call(5, (long)"/no/such/file32", 0, 0);
	call(183, (long)buf, sizeof(buf), 0); /* getcwd */
	call(10, (long)"/tmp/file32", 0, 0); /* unlink */
	call(40, (long)"/tmp/dir32", 0, 0); /* rmdir */
	call(11, (long)"/no/such/prog32", (long)argv, 0); /* execve */
	call(158, 0, 0, 0); /* sched_yield */
	call(252, 3, 0, 0); /* exit_group */
}
