// SPDX-License-Identifier: Apache-2.0
/* Events as lines: what real strace 6.1 printed for the same calls, unless a comment says otherwise. */
#include "tracers/syscalls/output.h"

#include "tracers/syscalls/desc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct syscall_entry entry;
static u8 bytes[4096];
static struct syscall_event ev;
static struct decoded scratch;
static struct out_sys_opts opts;

/* A call that returned @ret. */
static void call_args(const char *name, s64 ret, const u64 args[SYSCALL_ARGS])
{
	entry = (struct syscall_entry){ .name = name, .kernel_name = name };
	ev = (struct syscall_event){
		.entry = &entry, .ret = ret, .pid = 9234, .n_args = 6, .data = bytes
	};
	memcpy(ev.args, args, sizeof(ev.args));
	if (syscall_restart(ret))
		ev.state = SYSCALL_RESTARTED;
}

#define CALL(name, ret, ...) call_args(name, ret, (const u64[SYSCALL_ARGS]){ __VA_ARGS__ })

static void cap(u8 arg, u8 what, const void *p, size_t n)
{
	struct syscall_capture *c = &ev.captures[ev.n_captures++];

	*c = (struct syscall_capture){
		.arg = arg, .what = what, .full_len = (u32)n, .off = ev.data_len, .len = (u32)n
	};
	memcpy(bytes + ev.data_len, p, n);
	ev.data_len += (u32)n;
}

static void str(u8 arg, const char *s)
{
	cap(arg, CAPTURE_STRING, s, strlen(s));
}

#define RAW(arg, literal) cap(arg, CAPTURE_BYTES, literal, sizeof(literal) - 1)

static void longs(u8 arg, size_t n, const u64 *v)
{
	cap(arg, CAPTURE_BYTES, v, n * 8);
}

static void expect(const char *want)
{
	struct buf b = { 0 };

	out_sys_text(&b, &ev, &scratch, &opts);
	assert_false(b.failed);
	b.data[b.len - 1] = 0;
	assert_string_equal(b.data, want);
	buf_deinit(&b);
}

#define P 0x7ffc00001000ull

static void files(void **state)
{
	u8 st[144] = { 0 };

	(void)state;
	CALL("openat", 3, -100, P, 02000000, 0, 0, 0);
	str(1, "/etc/ld.so.cache");
	expect("openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = 3");
	CALL("openat", -2, 0xffffff9c, P, 02000302, 0600, 0, 0);
	str(1, "/nonexist\1");
	expect("openat(AT_FDCWD, \"/nonexist\\1\", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = -1 "
	       "ENOENT (No such file or directory)");
	CALL("openat", 18, -100, P, 02204000, 0, 0, 0);
	str(1, "/tmp");
	expect("openat(AT_FDCWD, \"/tmp\", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 18");
	CALL("openat", -14, -100, 0, 0, 0, 0, 0);
	expect("openat(AT_FDCWD, NULL, O_RDONLY)        = -1 EFAULT (Bad address)");
	memcpy(st + 24, "\xa4\x81\0\0", 4);
	memcpy(st + 48, "\x11\x05", 2);
	CALL("newfstatat", 0, -100, P, P + 99, 0, 0, 0);
	str(1, "/etc/passwd");
	cap(2, CAPTURE_BYTES, st, sizeof(st));
	expect("newfstatat(AT_FDCWD, \"/etc/passwd\", {st_mode=S_IFREG|0644, st_size=1297, ...}, "
	       "0) = 0");
	memcpy(st + 24, "\xb6\x21\0\0", 4);
	memcpy(st + 40, "\x03\x01", 2);
	CALL("fstat", 0, 1, P, 0, 0, 0, 0);
	cap(1, CAPTURE_BYTES, st, sizeof(st));
	expect("fstat(1, {st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}) = 0");
	CALL("newfstatat", -2, -100, P, 0x7ffd965cc4a0, 0, 0, 0);
	str(1, "/sbin/ls");
	expect("newfstatat(AT_FDCWD, \"/sbin/ls\", 0x7ffd965cc4a0, 0) = -1 ENOENT (No such file or "
	       "directory)");
	CALL("access", 0, P, 5, 0, 0, 0, 0);
	str(0, "/etc");
	expect("access(\"/etc\", R_OK|X_OK)               = 0");
	CALL("mkdir", 0, P, 0755, 0, 0, 0, 0);
	str(0, "d");
	expect("mkdir(\"d\", 0755)                        = 0");
	CALL("umask", 022, 022, 0, 0, 0, 0, 0);
	expect("umask(022)                              = 022");
	CALL("mknod", -17, P, 020777, 0x103, 0, 0, 0);
	str(0, "");
	expect("mknod(\"\", S_IFCHR|0777, makedev(0x1, 0x3)) = -1 EEXIST (File exists)");
	CALL("getcwd", 14, P, 1024, 0, 0, 0, 0);
	str(0, "/tmp/sysdec_x");
	expect("getcwd(\"/tmp/sysdec_x\", 1024)           = 14");
	CALL("lseek", 10, 17, 10, 0, 0, 0, 0);
	expect("lseek(17, 10, SEEK_SET)                 = 10");
	CALL("chown", -2, P, 0xffffffff, 5, 0, 0, 0);
	str(0, "");
	expect("chown(\"\", -1, 5)                        = -1 ENOENT (No such file or directory)");
	CALL("flock", -9, 3, 6, 0, 0, 0, 0);
	expect("flock(3, LOCK_EX|LOCK_NB)               = -1 EBADF (Bad file descriptor)");
}

static void buffers_and_descriptors(void **state)
{
	(void)state;
	CALL("read", 832, 3, P, 832, 0, 0, 0);
	RAW(1, "\177ELF\2\1\1\3\0\0\0\0\0\0\0\0\3\0>\0\1\0\0\0\20t\2\0\0\0\0\0\0\0");
	expect("read(3, \"\\177ELF\\2\\1\\1\\3\\0\\0\\0\\0\\0\\0\\0\\0\\3\\0>"
	       "\\0\\1\\0\\0\\0\\20t\\2\\0\\0\\0\\0\\0\"..., 832) = 832");
	CALL("write", 6, 4, P, 6, 0, 0, 0);
	RAW(1, "hi\1\1"
	       "2\n");
	expect("write(4, \"hi\\1\\0012\\n\", 6)              = 6");
	CALL("read", 0, 3, P, 4096, 0, 0, 0);
	expect("read(3, \"\", 4096)                       = 0");
	CALL("read", -11, 3, P, 4096, 0, 0, 0);
	expect("read(3, 0x7ffc00001000, 4096)           = -1 EAGAIN (Resource temporarily "
	       "unavailable)");
	CALL("fcntl", 0x8000, 12, 3, 0, 0, 0, 0);
	expect("fcntl(12, F_GETFL)                      = 0x8000 (flags O_RDONLY|O_LARGEFILE)");
	CALL("fcntl", 0, 12, 4, 04000, 0, 0, 0);
	expect("fcntl(12, F_SETFL, O_RDONLY|O_NONBLOCK) = 0");
	CALL("fcntl", 1, 12, 1, 0, 0, 0, 0);
	expect("fcntl(12, F_GETFD)                      = 0x1 (flags FD_CLOEXEC)");
	CALL("pipe2", 0, P, 02000000, 0, 0, 0, 0);
	RAW(0, "\14\0\0\0\15\0\0\0");
	expect("pipe2([12, 13], O_CLOEXEC)              = 0");
	CALL("ioctl", -25, 1, 0x5401, P, 0, 0, 0);
	expect("ioctl(1, TCGETS, 0x7ffc00001000)        = -1 ENOTTY (Inappropriate ioctl for device)");
	CALL("ioctl", 0, 0, 0x5413, P, 0, 0, 0);
	RAW(2, "\30\0\120\0\0\0\0\0");
	expect("ioctl(0, TIOCGWINSZ, {ws_row=24, ws_col=80, ws_xpixel=0, ws_ypixel=0}) = 0");
	CALL("ioctl", -9, -1, 0xabcd1234, 1, 0, 0, 0);
	expect("ioctl(-1, _IOC(_IOC_READ, 0x12, 0x34, 0x2bcd), 0x1) = -1 EBADF (Bad file "
	       "descriptor)");
	CALL("poll", 0, P, 1, 5, 0, 0, 0);
	RAW(0, "\3\0\0\0\1\0\0\0");
	expect("poll([{fd=3, events=POLLIN}], 1, 5)     = 0 (Timeout)");
	ev.ret = 1;
	RAW(0, "\3\0\0\0\1\0\1\0");
	ev.captures[1].source = CAPTURE_USER_EXIT;
	expect("poll([{fd=3, events=POLLIN}], 1, 5)     = 1 ([{fd=3, revents=POLLIN}])");
	CALL("epoll_ctl", 0, 11, 1, 5, P, 0, 0);
	RAW(3, "\1\0\0\0\5\0\0\0\0\0\0\0");
	expect("epoll_ctl(11, EPOLL_CTL_ADD, 5, {events=EPOLLIN, data={u32=5, u64=5}}) = 0");
	CALL("pselect6", 0, 4, P, 0, 0, P + 8, 0);
	RAW(1, "\10\0\0\0\0\0\0\0");
	longs(4, 2, (const u64[]){ 0, 10000000 });
	expect("pselect6(4, [3], NULL, NULL, {tv_sec=0, tv_nsec=10000000}, NULL) = 0 (Timeout)");
	CALL("writev", 62, 13, P, 2, 0, 0, 0);
	cap(1, CAPTURE_IOVEC, (const u64[]){ P, 2, P + 2, 60 }, 32);
	cap(1, CAPTURE_DATA, "abcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd", 38);
	expect("writev(13, [{iov_base=\"ab\", iov_len=2}, {iov_base=\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
	       "cd\"..., iov_len=60}], 2) = 62");
	CALL("sendfile", 5, 13, 18, P, 5, 0, 0);
	longs(2, 1, (const u64[]){ 0 });
	longs(2, 1, (const u64[]){ 5 });
	expect("sendfile(13, 18, [0] => [5], 5)         = 5");
	CALL("getrandom", 8, P, 8, 1, 0, 0, 0);
	RAW(0, "\x67\x50\xa9\xb0\x22\xf9\x07\xdb");
	expect("getrandom(\"\\x67\\x50\\xa9\\xb0\\x22\\xf9\\x07\\xdb\", 8, GRND_NONBLOCK) = 8");
}

static void processes(void **state)
{
	(void)state;
	CALL("execve", 0, P, P + 8, P + 16, 0, 0, 0);
	ev.state = SYSCALL_EXECVE;
	str(0, "/usr/bin/sh");
	cap(1, CAPTURE_STRINGS, "sh\0-c\0ls -l /etc/passwd | cat; sleep 0.01\0", 42);
	cap(2, CAPTURE_COUNT, "", 0);
	ev.captures[1].count = 3;
	ev.captures[2].count = 37;
	expect("execve(\"/usr/bin/sh\", [\"sh\", \"-c\", \"ls -l /etc/passwd | cat; sleep 0\"...], "
	       "0x7ffc00001010 /* 37 vars */) = 0");
	CALL("exit_group", 0, 3, 0, 0, 0, 0, 0);
	ev.state = SYSCALL_NEVER;
	expect("exit_group(3)                           = ?");
	CALL("clone", 1811, 0x01200011, 0, 0, 0x7f869f2a7e50, 0, 0);
	expect("clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, "
	       "child_tidptr=0x7f869f2a7e50) = 1811");
	CALL("wait4", 1811, 1811, P, 0, 0, 0, 0);
	RAW(1, "\0\3\0\0");
	expect("wait4(1811, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 1811");
	memcpy(bytes, "\211\0\0\0", 4);
	expect("wait4(1811, [{WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL && WCOREDUMP(s)}], 0, NULL) "
	       "= 1811");
	CALL("wait4", 0, -1, P, 3, 0, 0, 0);
	expect("wait4(-1, 0x7ffc00001000, WNOHANG|WSTOPPED, NULL) = 0");
	CALL("kill", 0, 1594, 10, 0, 0, 0, 0);
	expect("kill(1594, SIGUSR1)                     = 0");
	CALL("kill", -3, -1111111, 35, 0, 0, 0, 0);
	expect("kill(-1111111, SIGRT_3)                 = -1 ESRCH (No such process)");
	CALL("rt_sigaction", 0, 17, P, 0, 8, 0, 0);
	longs(1, 4,
	      (const u64[]){ 0x564b9856edc0, 0x04000000, 0x7f59654a5050,
			     ~3ull << 31 | 0x7fffffff });
	expect("rt_sigaction(SIGCHLD, {sa_handler=0x564b9856edc0, sa_mask=~[RTMIN RT_1], "
	       "sa_flags=SA_RESTORER, sa_restorer=0x7f59654a5050}, NULL, 8) = 0");
	CALL("rt_sigprocmask", 0, 0, P, P + 8, 8, 0, 0);
	longs(1, 1, (const u64[]){ ~0ull });
	longs(2, 1, (const u64[]){ 0 });
	expect("rt_sigprocmask(SIG_BLOCK, ~[], [], 8)   = 0");
	CALL("futex", -11, P, 128, 2, 0, 0, 0);
	expect("futex(0x7ffc00001000, FUTEX_WAIT_PRIVATE, 2, NULL) = -1 EAGAIN (Resource "
	       "temporarily unavailable)");
	CALL("futex", 0, P, 0x189, 0, 0, 0, 0xffffffff);
	expect("futex(0x7ffc00001000, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 0, NULL, "
	       "FUTEX_BITSET_MATCH_ANY) = 0");
	CALL("prlimit64", 0, 0, 3, 0, P, 0, 0);
	longs(3, 2, (const u64[]){ 8192 * 1024, ~0ull });
	expect("prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = "
	       "0");
	CALL("arch_prctl", 0, 0x1002, 0x7f5965466740, 0, 0, 0, 0);
	expect("arch_prctl(ARCH_SET_FS, 0x7f5965466740) = 0");
	CALL("rseq", 0, P, 0x20, 0, 0x53053053, 0, 0);
	expect("rseq(0x7ffc00001000, 0x20, 0, 0x53053053) = 0");
}

static void memory(void **state)
{
	(void)state;
	CALL("mmap", 0x7f5965657000, 0, 8192, 3, 0x22, 0xffffffff, 0);
	expect("mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = "
	       "0x7f5965657000");
	CALL("mmap", 0x7f596548f000, 0x7f596548f000, 1400832, 5, 0x812, 3, 0x26000);
	expect("mmap(0x7f596548f000, 1400832, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_FIXED|"
	       "MAP_DENYWRITE, 3, 0x26000) = 0x7f596548f000");
	CALL("brk", 0x564bd2e09000, 0, 0, 0, 0, 0, 0);
	expect("brk(NULL)                               = 0x564bd2e09000");
	CALL("mprotect", 0, P, 4096, 0, 0, 0, 0);
	expect("mprotect(0x7ffc00001000, 4096, PROT_NONE) = 0");
	CALL("mremap", -22, 1, 0, 0, 1, 5, 0);
	expect("mremap(0x1, 0, 0, MREMAP_MAYMOVE)       = -1 EINVAL (Invalid argument)");
	CALL("madvise", -22, 0, 0, 0xffffffff, 0, 0, 0);
	expect("madvise(NULL, 0, 0xffffffff /* MADV_??? */) = -1 EINVAL (Invalid argument)");
}

static void network(void **state)
{
	(void)state;
	CALL("socket", 3, 2, 02000001, 0, 0, 0, 0);
	expect("socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 3");
	CALL("socket", 3, 16, 3, 0, 0, 0, 0);
	expect("socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) = 3");
	CALL("bind", 0, 3, P, 16, 0, 0, 0);
	cap(1, CAPTURE_SOCKADDR, "\2\0\0\120\1\2\3\4\0\0\0\0\0\0\0\0", 16);
	expect("bind(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr(\"1.2.3.4\")}, "
	       "16) = 0");
	CALL("connect", -2, 6, P, 12, 0, 0, 0);
	cap(1, CAPTURE_SOCKADDR, "\1\0/nonexist", 12);
	expect("connect(6, {sa_family=AF_UNIX, sun_path=\"/nonexist\"}, 12) = -1 ENOENT (No such "
	       "file or directory)");
	CALL("bind", 0, 6, P, 6, 0, 0, 0);
	cap(1, CAPTURE_SOCKADDR, "\1\0\0abc", 6);
	expect("bind(6, {sa_family=AF_UNIX, sun_path=@\"abc\"}, 6) = 0");
	CALL("sendto", 1, 7, P, 1, 0, P + 8, 28);
	RAW(1, "x");
	cap(4, CAPTURE_SOCKADDR, "\12\0\0\11\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 28);
	expect("sendto(7, \"x\", 1, 0, {sa_family=AF_INET6, sin6_port=htons(9), "
	       "sin6_flowinfo=htonl(0), inet_pton(AF_INET6, \"::1\", &sin6_addr), "
	       "sin6_scope_id=0}, 28) = 1");
	CALL("getsockname", 0, 8, P, P + 8, 0, 0, 0);
	cap(1, CAPTURE_SOCKADDR, "\1\0", 2);
	RAW(2, "\200\0\0\0");
	RAW(2, "\2\0\0\0");
	expect("getsockname(8, {sa_family=AF_UNIX}, [128 => 2]) = 0");
	CALL("setsockopt", 0, 3, 1, 2, P, 4, 0);
	RAW(3, "\1\0\0\0");
	expect("setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0");
	CALL("sendmsg", 9, 8, P, 0, 0, 0, 0);
	longs(1, 7, (const u64[]){ 0, 0, P + 64, 2, 0, 0, 0 });
	cap(1, CAPTURE_IOVEC, (const u64[]){ P, 3, P + 3, 6 }, 32);
	cap(1, CAPTURE_DATA, "onetwotwo", 9);
	expect("sendmsg(8, {msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base=\"one\", iov_len=3}, "
	       "{iov_base=\"twotwo\", iov_len=6}], msg_iovlen=2, msg_controllen=0, msg_flags=0}, 0) "
	       "= 9");
}

static void restarts_and_prefixes(void **state)
{
	(void)state;
	CALL("rt_sigreturn", 0, 0, 0, 0, 0, 0, 0);
	ev.state = SYSCALL_SIGRETURN;
	expect("rt_sigreturn()                          = 0");
	longs(0, 1, (const u64[]){ 0 });
	expect("rt_sigreturn({mask=[]})                 = 0");
	CALL("getdents64", 48, 3, P, 32768, 0, 0, 0);
	RAW(1, "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\30\0\4.\0\0\0\0"
	       "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\30\0\4..\0\0\0");
	expect("getdents64(3, 0x7ffc00001000 /* 2 entries */, 32768) = 48");
	bytes[16] = 1; /* a length that cannot be */
	expect("getdents64(3, 0x7ffc00001000, 32768)    = 48");
	CALL("poll", -516, 0, 0, -1, 0, 0, 0);
	expect("poll(NULL, 0, -1)                       = ? ERESTART_RESTARTBLOCK (Interrupted by "
	       "signal)");
	CALL("read", -512, 0, P, 1, 0, 0, 0);
	expect("read(0, 0x7ffc00001000, 1)              = ? ERESTARTSYS (To be restarted if "
	       "SA_RESTART is set)");
	CALL("read", 0, 0, P, 1024, 0, 0, 0);
	ev.state = SYSCALL_UNFINISHED;
	expect("read(0, <unfinished ...>");
	CALL("frobnicate", -38, 1, 2, 0, 0, 0, 0); /* ours */
	expect("frobnicate(0x1, 0x2, 0, 0, 0, 0)        = -1 ENOSYS (Function not implemented)");
	entry.described = true;
	entry.n_args = ev.n_args = 1;
	entry.args[0] = (struct syscall_arg){ "int", "how" };
	expect("frobnicate(1)                           = -1 ENOSYS (Function not implemented)");
	opts = (struct out_sys_opts){ .pid = true, .time_of_day = true, .duration = true };
	CALL("close", 0, 3, 0, 0, 0, 0, 0);
	ev.ts_ns = 3723123456789;
	ev.duration_ns = 12999;
	expect("9234  01:02:03.123456 close(3)          = 0 <0.000012>");
	opts = (struct out_sys_opts){ 0 };
}

/* bsearch() needs them sorted, and a table that is wrong shows nothing. */
static void tables_are_sorted(void **state)
{
	const struct call_list *const lists[] = { &calls_desc,   &calls_file,    &calls_process,
						  &calls_memory, &calls_network, &calls_misc };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (size_t j = 1; j < lists[i]->n; j++)
			assert_true(strcmp(lists[i]->calls[j - 1].name, lists[i]->calls[j].name) <
				    0);
	assert_int_equal(decode_classes("openat"), SC_FILE | SC_DESC);
	assert_int_equal(decode_classes("frobnicate"), 0);
	assert_int_equal(decode_class("%file"), SC_FILE);
	assert_int_equal(decode_class("files"), 0);
}

/* strace's column for results is the 40th. */
static void told(const char *call, const char *result)
{
	char line[512];

	snprintf(line, sizeof(line), "%-39s = %s", call, result);
	expect(line);
}

static void of_fd(u8 arg, u64 ino, u64 magic, const char *path, u32 deleted)
{
	u8 b[16 + 64];
	size_t n = strlen(path);

	memcpy(b, &ino, 8);
	memcpy(b + 8, &magic, 8);
	memcpy(b + 16, path, n);
	cap(arg, CAPTURE_FD, b, 16 + n);
	ev.captures[ev.n_captures - 1].count = deleted;
}

/* strace -y */
static void descriptors(void **state)
{
	(void)state;
	CALL("openat", 3, -100, P, 0, 0, 0, 0);
	of_fd(0, 2, 0x858458f6, "", 0);
	str(1, "x>y");
	of_fd(CAPTURE_RETURN, 7, 0x858458f6, "/tmp/x>y", 0);
	told("openat(AT_FDCWD</>, \"x>y\", O_RDONLY)", "3</tmp/x\\76y>");
	CALL("close", 0, 4, 0, 0, 0, 0, 0);
	of_fd(0, 1234, 0x50495045, "", 0);
	told("close(4<pipe:[1234]>)", "0");
	CALL("close", 0, 4, 0, 0, 0, 0, 0);
	of_fd(0, 99, 0x534f434b, "", 0);
	told("close(4<socket:[99]>)", "0");
	CALL("close", 0, 4, 0, 0, 0, 0, 0);
	of_fd(0, 5, 0x09041934, "[eventpoll]", 0);
	told("close(4<anon_inode:[eventpoll]>)", "0");
	CALL("close", 0, 4, 0, 0, 0, 0, 0);
	of_fd(0, 5, 1, "/tmp/gone", 1);
	told("close(4</tmp/gone>(deleted))", "0");
	CALL("dup2", 5, 4, 5, 0, 0, 0, 0); /* each has its own */
	of_fd(1, 5, 1, "/b", 0);
	of_fd(0, 5, 1, "/a", 0);
	told("dup2(4</a>, 5</b>)", "5");
	CALL("close", 0, 4, 0, 0, 0, 0, 0); /* too short to be one */
	cap(0, CAPTURE_FD, "abc", 3);
	told("close(4)", "0");
}

/* What is written only when a signal comes; and the interrupted code's register. */
static void interrupted(void **state)
{
	const u64 second[2] = { 1, 0 }, left[2] = { 0, 943241630 };

	(void)state;
	CALL("nanosleep", -516, P, P + 16, 0, 0, 0, 0);
	longs(0, 2, second);
	longs(1, 2, left);
	told("nanosleep({tv_sec=1, tv_nsec=0}, {tv_sec=0, tv_nsec=943241630})",
	     "? ERESTART_RESTARTBLOCK (Interrupted by signal)");
	CALL("nanosleep", 0, P, P + 16, 0, 0, 0, 0);
	longs(0, 2, second);
	longs(1, 2, left);
	told("nanosleep({tv_sec=1, tv_nsec=0}, 0x7ffc00001010)", "0");
	CALL("rt_sigreturn", -4, 0, 0, 0, 0, 0, 0);
	ev.state = SYSCALL_SIGRETURN;
	ev.n_args = 0;
	told("rt_sigreturn()", "-1 EINTR (Interrupted system call)");
}

/* Names that the 64-bit ABI does not have, with the arguments of those that it has. */
static void names_of_32_bits(void **state)
{
	char plain[SYSCALL_PLAIN_MAX];

	(void)state;
	assert_string_equal(syscall_name32(199), "getuid32");
	assert_string_equal(syscall_name32(197), "fstat64");
	assert_null(syscall_name32(5));
	assert_null(syscall_name32(-1));
	CALL("clock_gettime64", 0, 1, P, 0, 0, 0, 0);
	ev.abi = SYSCALL_ABI_32;
	told("clock_gettime64(CLOCK_MONOTONIC, 0x7ffc00001000)", "0");
	CALL("fchown32", 0, 3, 0, 0xffffffff, 0, 0, 0);
	ev.abi = SYSCALL_ABI_32;
	told("fchown32(3, 0, -1)", "0");
	assert_string_equal(syscall_name32(162), "nanosleep");
	assert_string_equal(syscall_user_name("ia32_fstatat64"), "fstatat64");
	assert_string_equal(syscall_plain_name("fstatat64", plain), "newfstatat");
	assert_string_equal(syscall_plain_name("futex_time32", plain), "futex");
}

static void call32(const char *handler)
{
	entry.kernel_name = handler;
	ev.abi = SYSCALL_ABI_32;
}

static void cap_user(u8 arg, u8 what, const void *p, size_t n)
{
	cap(arg, what, p, n);
	ev.captures[ev.n_captures - 1].source = CAPTURE_USER_ENTER;
}

/* Structs as programs of the 32-bit ABI have them: by the handler, and some are the same for both. */
static void structs_of_32_bits(void **state)
{
	static const u8 action[20] = { 1, [7] = 0x10, [12] = 2 };
	const u32 narrow[2] = { 3, 4000 }, below[2] = { 0xfffffffe, 0x3fffffff };
	const u64 wide[2] = { 0x100000003, 4000 }, kernels[4] = { 1, 0x10000000, 0, 2 };
	const u32 limits[2] = { 4096, 0xffffffff };
	u8 st[96] = { [16] = 0xa4, 0x81, [44] = 0x11, 0x05 };

	(void)state;
	CALL("nanosleep", 0, P, 0, 0, 0, 0, 0);
	call32("nanosleep_time32");
	cap_user(0, CAPTURE_BYTES, narrow, sizeof(narrow));
	told("nanosleep({tv_sec=3, tv_nsec=4000}, NULL)", "0");
	CALL("clock_nanosleep_time64", 0, 1, 0, P, 0, 0, 0);
	call32("clock_nanosleep");
	cap_user(2, CAPTURE_BYTES, wide, sizeof(wide));
	told("clock_nanosleep_time64(CLOCK_MONOTONIC, 0, {tv_sec=4294967299, tv_nsec=4000}, NULL)",
	     "0");
	CALL("utimensat", 0, -100, 0, P, 0, 0, 0);
	call32("utimensat_time32");
	cap_user(2, CAPTURE_BYTES, below, sizeof(below));
	told("utimensat(AT_FDCWD, NULL, [UTIME_NOW], 0)", "0");
	CALL("fstat64", 0, 3, P, 0, 0, 0, 0);
	call32("ia32_fstat64");
	cap_user(1, CAPTURE_BYTES, st, sizeof(st));
	told("fstat64(3, {st_mode=S_IFREG|0644, st_size=1297, ...})", "0");
	CALL("fstat", 0, 3, P, 0, 0, 0, 0); /* struct compat_stat: not known */
	call32("newfstat");
	cap_user(1, CAPTURE_BYTES, st, sizeof(st));
	told("fstat(3, 0x7ffc00001000)", "0");
	CALL("ugetrlimit", 0, 7, P, 0, 0, 0, 0);
	call32("getrlimit");
	cap_user(1, CAPTURE_BYTES, limits, sizeof(limits));
	told("ugetrlimit(RLIMIT_NOFILE, {rlim_cur=4*1024, rlim_max=RLIM_INFINITY})", "0");
	CALL("rt_sigaction", 0, 2, P, 0, 8, 0, 0);
	call32("rt_sigaction");
	cap_user(1, CAPTURE_BYTES, action, sizeof(action));
	told("rt_sigaction(SIGINT, {sa_handler=SIG_IGN, sa_mask=[INT], sa_flags=SA_RESTART}, NULL, 8)",
	     "0");
	CALL("rt_sigaction", 0, 2, P, 0, 8, 0,
	     0); /* the kernel's copy is laid out for the kernel */
	call32("rt_sigaction");
	cap(1, CAPTURE_BYTES, kernels, sizeof(kernels));
	told("rt_sigaction(SIGINT, {sa_handler=SIG_IGN, sa_mask=[INT], sa_flags=SA_RESTART}, NULL, 8)",
	     "0");
	CALL("poll", 1, P, 1, 0, 0, 0, 0); /* the same in both */
	call32("poll");
	cap_user(0, CAPTURE_BYTES, "\3\0\0\0\1\0\0\0", 8);
	told("poll([{fd=3, events=POLLIN}], 1, 0)", "1");
}

static void messages_of_32_bits(void **state)
{
	static const u8 name[16] = { 2, 0, 0, 9, 127, 0, 0, 1 };
	const u32 iov[4] = { 0x1000, 3, 0x2000, 7 };
	const u32 message[7] = { 0x3000, 16, 0x4000, 2, 0, 0, 0x40 };

	(void)state;
	CALL("writev", 10, 3, P, 2, 0, 0, 0);
	call32("writev");
	cap_user(1, CAPTURE_IOVEC, iov, sizeof(iov));
	cap_user(1, CAPTURE_DATA, "oneand two", 10);
	told("writev(3, [{iov_base=\"one\", iov_len=3}, {iov_base=\"and two\", iov_len=7}], 2)",
	     "10");
	CALL("sendmsg", 10, 3, P, 0, 0, 0, 0);
	call32("sendmsg");
	cap_user(1, CAPTURE_BYTES, message, sizeof(message));
	cap_user(1, CAPTURE_IOVEC, iov, sizeof(iov));
	cap_user(1, CAPTURE_SOCKADDR, name, sizeof(name));
	told("sendmsg(3, {msg_name={sa_family=AF_INET, sin_port=htons(9), "
	     "sin_addr=inet_addr(\"127.0.0.1\")}, msg_namelen=16, msg_iov=[{iov_base=0x1000, iov_len=3}, "
	     "{iov_base=0x2000, iov_len=7}], msg_iovlen=2, msg_controllen=0, msg_flags=MSG_DONTWAIT}, 0)",
	     "10");
	CALL("writev", 10, 3, P, 2, 0, 0, 0); /* x32 has them otherwise */
	ev.abi = SYSCALL_ABI_X32;
	cap_user(1, CAPTURE_IOVEC, iov, sizeof(iov));
	told("writev(3, 0x7ffc00001000, 2)", "10");
}

/* How many, or which where that was asked for. */
static void environment(void **state)
{
	(void)state;
	CALL("execve", -2, P, 0, P + 64, 0, 0, 0);
	str(0, "/x");
	cap(2, CAPTURE_COUNT, "", 0);
	ev.captures[1].count = 5;
	told("execve(\"/x\", NULL, 0x7ffc00001040 /* 5 vars */)",
	     "-1 ENOENT (No such file or directory)");
	CALL("execve", -2, P, 0, P + 64, 0, 0, 0);
	str(0, "/x");
	cap(2, CAPTURE_STRINGS, "A=1\0B=", 7);
	ev.captures[1].count = 2;
	told("execve(\"/x\", NULL, [\"A=1\", \"B=\"])", "-1 ENOENT (No such file or directory)");
}

/* The kernel's own copy counts for more than what was read of the program, whichever came first. */
static void kernels_copy(void **state)
{
	(void)state;
	CALL("execve", 0, P, P, 0, 0, 0, 0);
	ev.state = SYSCALL_EXECVE;
	str(0, "/bin/true");
	cap(1, CAPTURE_STRINGS, "false\0", 6);
	ev.captures[1].source = CAPTURE_USER_ENTER;
	ev.captures[1].count = 1;
	cap(1, CAPTURE_STRINGS, "true\0", 5);
	ev.captures[2].count = 1;
	told("execve(\"/bin/true\", [\"true\"], NULL)", "0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files),
		cmocka_unit_test(buffers_and_descriptors),
		cmocka_unit_test(processes),
		cmocka_unit_test(memory),
		cmocka_unit_test(network),
		cmocka_unit_test(restarts_and_prefixes),
		cmocka_unit_test(tables_are_sorted),
		cmocka_unit_test(descriptors),
		cmocka_unit_test(interrupted),
		cmocka_unit_test(names_of_32_bits),
		cmocka_unit_test(structs_of_32_bits),
		cmocka_unit_test(messages_of_32_bits),
		cmocka_unit_test(environment),
		cmocka_unit_test(kernels_copy),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	decoded_deinit(&scratch);
	return rc;
}
