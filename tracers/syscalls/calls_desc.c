// SPDX-License-Identifier: Apache-2.0
/* Calls that take or make a descriptor. A line a call, sorted by name. */
#include "tracers/syscalls/calls.h"

/* clang-format off: a table */
static const struct variant v_fcntl[] = {
	{ 0, R_FD, { FD } }, /* F_DUPFD */
	{ 1030, R_FD, { FD } }, /* F_DUPFD_CLOEXEC */
	{ 1, R_GETFD, { { .kind = K_NONE } } }, /* F_GETFD */
	{ 2, R_D, { FLAGS(fd_flags) } }, /* F_SETFD */
	{ 3, R_GETFL, { { .kind = K_NONE } } }, /* F_GETFL */
	{ 4, R_D, { OPEN } }, /* F_SETFL */
	{ 5, R_D, { IN(flock) } }, /* F_GETLK */
	{ 6, R_D, { IN(flock) } }, /* F_SETLK */
	{ 7, R_D, { IN(flock) } }, /* F_SETLKW */
	{ 8, R_D, { D } }, /* F_SETOWN */
	{ 9, R_D, { { .kind = K_NONE } } }, /* F_GETOWN */
	{ 10, R_D, { SIG } }, /* F_SETSIG */
	{ 11, R_D, { { .kind = K_NONE } } }, /* F_GETSIG */
	{ 36, R_D, { IN(flock) } }, /* F_OFD_GETLK */
	{ 37, R_D, { IN(flock) } }, /* F_OFD_SETLK */
	{ 38, R_D, { IN(flock) } }, /* F_OFD_SETLKW */
	{ 1024, R_D, { ENUM(lock_type) } }, /* F_SETLEASE */
	{ 1025, R_D, { { .kind = K_NONE } } }, /* F_GETLEASE */
	{ 1026, R_D, { FLAGS(dnotify) } }, /* F_NOTIFY */
	{ 1031, R_D, { D } }, /* F_SETPIPE_SZ */
	{ 1032, R_D, { { .kind = K_NONE } } }, /* F_GETPIPE_SZ */
	{ 1033, R_D, { FLAGS(seals) } }, /* F_ADD_SEALS */
	{ 1034, R_X, { { .kind = K_NONE } } }, /* F_GET_SEALS */
};

static const struct variant v_ioctl[] = {
	{ 0x5409, R_D, { D } }, /* TCSBRK */
	{ 0x540a, R_D, { D } }, /* TCXONC */
	{ 0x540b, R_D, { D } }, /* TCFLSH */
	{ 0x540c, R_D, { { .kind = K_NONE } } }, /* TIOCEXCL */
	{ 0x540d, R_D, { { .kind = K_NONE } } }, /* TIOCNXCL */
	{ 0x540e, R_D, { D } }, /* TIOCSCTTY */
	{ 0x540f, R_D, { OUT(INT) } }, /* TIOCGPGRP */
	{ 0x5410, R_D, { ARG(INT) } }, /* TIOCSPGRP */
	{ 0x5411, R_D, { OUT(INT) } }, /* TIOCOUTQ */
	{ 0x5413, R_D, { OUTS(winsize) } }, /* TIOCGWINSZ */
	{ 0x5414, R_D, { IN(winsize) } }, /* TIOCSWINSZ */
	{ 0x541b, R_D, { OUT(INT) } }, /* FIONREAD */
	{ 0x5421, R_D, { ARG(INT) } }, /* FIONBIO */
	{ 0x5422, R_D, { { .kind = K_NONE } } }, /* TIOCNOTTY */
	{ 0x5429, R_D, { OUT(INT) } }, /* TIOCGSID */
	{ 0x80045430, R_D, { OUT(INT) } }, /* TIOCGPTN */
	{ 0x40045431, R_D, { ARG(INT) } }, /* TIOCSPTLCK */
	{ 0x5450, R_D, { { .kind = K_NONE } } }, /* FIONCLEX */
	{ 0x5451, R_D, { { .kind = K_NONE } } }, /* FIOCLEX */
	{ 0x5452, R_D, { ARG(INT) } }, /* FIOASYNC */
	{ 0x40049409, R_D, { FD } }, /* FICLONE */
};

static const struct call_desc all[] = {
	{ "bpf", TD, R_D, { ENUM(bpf_cmd), ADDR, U }, 0, 0, 0, NULL },
	{ "close", TD, R_D, { FD }, 0, 0, 0, NULL },
	{ "close_range", 0, R_D, { U, U, FLAGS(close_range) }, 0, 0, 0, NULL },
	{ "copy_file_range", TD, R_D, { FD, LONGP, FD, LONGP, LU, U }, 0, 0, 0, NULL },
	{ "dup", TD, R_FD, { FD }, 0, 0, 0, NULL },
	{ "dup2", TD, R_FD, { FD, FD }, 0, 0, 0, NULL },
	{ "dup3", TD, R_FD, { FD, FD, FLAGS(open) }, 0, 0, 0, NULL },
	{ "epoll_create", TD, R_FD, { D }, 0, 0, 0, NULL },
	{ "epoll_create1", TD, R_FD, { FLAGS(epoll_create) }, 0, 0, 0, NULL },
	{ "epoll_ctl", TD, R_D, { FD, ENUM(epoll_op), FD, IN(epoll) }, 0, 0, 0, NULL },
	{ "epoll_pwait", TD, R_D, { FD, OUTV(epoll), D, D, SIGSET, LU }, 0, 0, 0, NULL },
	{ "epoll_pwait2",
	  TD,
	  R_D,
	  { FD, OUTV(epoll), D, IN(timespec), SIGSET, LU },
	  0,
	  0,
	  0,
	  NULL },
	{ "epoll_wait", TD, R_D, { FD, OUTV(epoll), D, D }, 0, 0, 0, NULL },
	{ "eventfd", TD, R_FD, { U }, 0, 0, 0, NULL },
	{ "eventfd2", TD, R_FD, { U, FLAGS(eventfd) }, 0, 0, 0, NULL },
	{ "fadvise64", TD, R_D, { FD, LD, LU, ENUM(fadvise) }, 0, 0, 0, NULL },
	{ "fallocate", TD, R_D, { FD, FLAGS(falloc), LD, LD }, 0, 0, 0, NULL },
	{ "fanotify_init", TD, R_FD, { X, OPEN }, 0, 0, 0, NULL },
	{ "fchdir", TD, R_D, { FD }, 0, 0, 0, NULL },
	{ "fchmod", TD, R_D, { FD, O }, 0, 0, 0, NULL },
	{ "fchown", TD, R_D, { FD, UID, UID }, 0, 0, 0, NULL },
	{ "fcntl", TD, R_D, { FD, ENUM(fcntl_cmd), LX }, 1, ARRAY_SIZE(v_fcntl), 0, v_fcntl },
	{ "fdatasync", TD, R_D, { FD }, 0, 0, 0, NULL },
	{ "fgetxattr", TD, R_D, { FD, STR, BUFOUT, LU }, 0, 0, 0, NULL },
	{ "flistxattr", TD, R_D, { FD, BUFOUT, LU }, 0, 0, 0, NULL },
	{ "flock", TD, R_D, { FD, FLAGS(flock) }, 0, 0, 0, NULL },
	{ "fremovexattr", TD, R_D, { FD, STR }, 0, 0, 0, NULL },
	{ "fsconfig", TD, R_D, { FD, U, STR, ADDR, D }, 0, 0, 0, NULL },
	{ "fsetxattr", TD, R_D, { FD, STR, BUF, LU, FLAGS(xattr) }, 0, 0, 0, NULL },
	{ "fsmount", TD, R_FD, { FD, FLAGS(fsmount), X }, 0, 0, 0, NULL },
	{ "fsopen", TD, R_FD, { STR, FLAGS(fsopen) }, 0, 0, 0, NULL },
	{ "fstat", TD, R_D, { FD, OUTS(stat) }, 0, 0, 0, NULL },
	{ "fstatfs", TD, R_D, { FD, OUTS(statfs) }, 0, 0, 0, NULL },
	{ "fsync", TD, R_D, { FD }, 0, 0, 0, NULL },
	{ "ftruncate", TD, R_D, { FD, LD }, 0, 0, 0, NULL },
	{ "getdents", TD, R_D, { FD, ADDR, LU }, 0, 0, 0, NULL },
	{ "getdents64", TD, R_D, { FD, OUT(DENTS), LU }, 0, 0, 0, NULL },
	{ "inotify_init", TD, R_FD, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "inotify_init1", TD, R_FD, { FLAGS(inotify_init) }, 0, 0, 0, NULL },
	{ "inotify_rm_watch", TD, R_D, { FD, D }, 0, 0, 0, NULL },
	{ "io_uring_enter",
	  TD | TS,
	  R_D,
	  { FD, U, U, FLAGS(uring_enter), SIGSET, LU },
	  0,
	  0,
	  0,
	  NULL },
	{ "io_uring_register", TD | TM, R_D, { FD, X, ADDR, U }, 0, 0, 0, NULL },
	{ "io_uring_setup", TD, R_FD, { U, ADDR }, 0, 0, 0, NULL },
	{ "ioctl", TD, R_D, { FD, ARG(IOCTL), LX }, 1, ARRAY_SIZE(v_ioctl), 0, v_ioctl },
	{ "landlock_add_rule", TD, R_D, { FD, U, ADDR, X }, 0, 0, 0, NULL },
	{ "landlock_create_ruleset", TD, R_FD, { ADDR, LU, X }, 0, 0, 0, NULL },
	{ "landlock_restrict_self", TD, R_D, { FD, X }, 0, 0, 0, NULL },
	{ "lseek", TD, R_D, { FD, LD, ENUM(whence) }, 0, 0, 0, NULL },
	{ "memfd_create", TD, R_FD, { STR, FLAGS(memfd) }, 0, 0, 0, NULL },
	{ "memfd_secret", TD, R_FD, { X }, 0, 0, 0, NULL },
	{ "mq_open", TD, R_FD, { STR, OPEN, MODE_IF(1), IF(ADDR, 1, 0x40) }, 0, 0, 0, NULL },
	{ "mq_timedreceive", TD, R_D, { FD, BUFOUT, LU, ADDR, IN(timespec) }, 0, 0, 0, NULL },
	{ "mq_timedsend", TD, R_D, { FD, BUF, LU, U, IN(timespec) }, 0, 0, 0, NULL },
	{ "perf_event_open", TD, R_FD, { ADDR, D, D, FD, FLAGS(perf_flags) }, 0, 0, 0, NULL },
	{ "pidfd_getfd", TD, R_FD, { FD, D, X }, 0, 0, 0, NULL },
	{ "pidfd_open", TD, R_FD, { D, FLAGS(pidfd) }, 0, 0, 0, NULL },
	{ "pipe", TD, R_D, { OUT(INTS) }, 0, 0, 0, NULL },
	{ "pipe2", TD, R_D, { OUT(INTS), FLAGS(open) }, 0, 0, 0, NULL },
	{ "poll", TD, R_POLL, { INV(pollfd), U, D }, 0, 0, 0, NULL },
	{ "ppoll", TD, R_POLL, { INV(pollfd), U, IN(timespec), SIGSET, LU }, 0, 0, 0, NULL },
	{ "pread64", TD, R_D, { FD, BUFOUT, LU, LD }, 0, 0, 0, NULL },
	{ "preadv", TD, R_D, { FD, IOVOUT, LU, LD }, 0, 0, 0, NULL },
	{ "preadv2", TD, R_D, { FD, IOVOUT, LU, LD, AS(5, NULL, FLAGS_RWF) }, 0, 0, 0, NULL },
	{ "pselect6",
	  TD,
	  R_TIMEOUT,
	  { D, ARG(FDSET), ARG(FDSET), ARG(FDSET), IN(timespec), ADDR },
	  0,
	  0,
	  0,
	  NULL },
	{ "pwrite64", TD, R_D, { FD, BUF, LU, LD }, 0, 0, 0, NULL },
	{ "pwritev", TD, R_D, { FD, IOV, LU, LD }, 0, 0, 0, NULL },
	{ "pwritev2", TD, R_D, { FD, IOV, LU, LD, AS(5, NULL, FLAGS_RWF) }, 0, 0, 0, NULL },
	{ "read", TD, R_D, { FD, BUFOUT, LU }, 0, 0, 0, NULL },
	{ "readahead", TD, R_D, { FD, LD, LU }, 0, 0, 0, NULL },
	{ "readv", TD, R_D, { FD, IOVOUT, LU }, 0, 0, 0, NULL },
	{ "select",
	  TD,
	  R_TIMEOUT,
	  { D, ARG(FDSET), ARG(FDSET), ARG(FDSET), IN(timeval) },
	  0,
	  0,
	  0,
	  NULL },
	{ "signalfd", TD | TS, R_FD, { FD, SIGSET, LU }, 0, 0, 0, NULL },
	{ "signalfd4", TD | TS, R_FD, { FD, SIGSET, LU, FLAGS(signalfd) }, 0, 0, 0, NULL },
	{ "splice", TD, R_D, { FD, LONGP, FD, LONGP, LU, FLAGS(splice) }, 0, 0, 0, NULL },
	{ "sync", 0, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "sync_file_range", TD, R_D, { FD, LD, LD, FLAGS(sync_range) }, 0, 0, 0, NULL },
	{ "syncfs", TD, R_D, { FD }, 0, 0, 0, NULL },
	{ "tee", TD, R_D, { FD, FD, LU, FLAGS(splice) }, 0, 0, 0, NULL },
	{ "timerfd_create", TD, R_FD, { ENUM(clock), FLAGS(timerfd) }, 0, 0, 0, NULL },
	{ "timerfd_gettime", TD, R_D, { FD, OUTS(itimerspec) }, 0, 0, 0, NULL },
	{ "timerfd_settime",
	  TD,
	  R_D,
	  { FD, FLAGS(timerfd), IN(itimerspec), OUTS(itimerspec) },
	  0,
	  0,
	  0,
	  NULL },
	{ "userfaultfd", TD, R_FD, { FLAGS(uffd) }, 0, 0, 0, NULL },
	{ "vmsplice", TD, R_D, { FD, IOV, LU, FLAGS(splice) }, 0, 0, 0, NULL },
	{ "write", TD, R_D, { FD, BUF, LU }, 0, 0, 0, NULL },
	{ "writev", TD, R_D, { FD, IOV, LU }, 0, 0, 0, NULL },
};
CALLS(calls_desc, all);
/* clang-format on */
