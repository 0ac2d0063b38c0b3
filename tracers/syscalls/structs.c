// SPDX-License-Identifier: Apache-2.0
/* Members of structs as the x86-64 kernel lays them out (Linux v6.12 include/uapi), in strace's order. */
#include "tracers/syscalls/desc.h"

/* clang-format off: tables, a line a member */
#define F(name, off, size, kind)                      \
	{                                             \
		name, off, size, K_##kind, NULL, 0, 0 \
	}
#define FT(name, off, size, kind, tab)                  \
	{                                               \
		name, off, size, K_##kind, &(tab), 0, 0 \
	}
#define FIF(name, off, size, kind, if_off, mask)              \
	{                                                     \
		name, off, size, K_##kind, NULL, if_off, mask \
	}
#define STRUCT(name, size, more) \
	const struct struct_desc sd_##name = { size, more, ARRAY_SIZE(f_##name), f_##name }

static const struct field_desc f_timespec[] = {
	F("tv_sec", 0, 8, LD),
	F("tv_nsec", 8, 8, LD),
};
STRUCT(timespec, 16, false);

static const struct field_desc f_timeval[] = {
	F("tv_sec", 0, 8, LD),
	F("tv_usec", 8, 8, LD),
};
STRUCT(timeval, 16, false);

static const struct field_desc f_itimerval[] = {
	FT("it_interval", 0, 16, STRUCT, sd_timeval),
	FT("it_value", 16, 16, STRUCT, sd_timeval),
};
STRUCT(itimerval, 32, false);

static const struct field_desc f_itimerspec[] = {
	FT("it_interval", 0, 16, STRUCT, sd_timespec),
	FT("it_value", 16, 16, STRUCT, sd_timespec),
};
STRUCT(itimerspec, 32, false);

static const struct field_desc f_timezone[] = {
	F("tz_minuteswest", 0, 4, D),
	F("tz_dsttime", 4, 4, D),
};
STRUCT(timezone, 8, false);

static const struct field_desc f_tms[] = {
	F("tms_utime", 0, 8, LD),
	F("tms_stime", 8, 8, LD),
	F("tms_cutime", 16, 8, LD),
	F("tms_cstime", 24, 8, LD),
};
STRUCT(tms, 32, false);

static const struct field_desc f_rlimit[] = {
	F("rlim_cur", 0, 8, RLIM),
	F("rlim_max", 8, 8, RLIM),
};
STRUCT(rlimit, 16, false);

static const struct field_desc f_rusage[] = {
	FT("ru_utime", 0, 16, STRUCT, sd_timeval),
	FT("ru_stime", 16, 16, STRUCT, sd_timeval),
};
STRUCT(rusage, 32, true);

static const struct field_desc f_stat[] = {
	F("st_mode", 24, 4, TYPEMODE),
	F("", 24, 32, STATSIZE), /* st_size, or st_rdev of a device */
};
STRUCT(stat, 144, true);

static const struct field_desc f_statx[] = {
	FT("stx_mask", 0, 4, FLAGS, xlat_statx_mask),
	F("stx_attributes", 8, 8, LXZ),
	F("stx_mode", 28, 2, TYPEMODE),
	F("stx_size", 40, 8, LU),
};
STRUCT(statx, 256, true);

static const struct field_desc f_statfs[] = {
	FT("f_type", 0, 8, ENUM, xlat_fs_magic),
	F("f_bsize", 8, 8, LU),
	F("f_blocks", 16, 8, LU),
	F("f_bfree", 24, 8, LU),
	F("f_bavail", 32, 8, LU),
	F("f_files", 40, 8, LU),
	F("f_ffree", 48, 8, LU),
	F("f_fsid", 56, 8, FSID),
	F("f_namelen", 64, 8, LU),
	F("f_frsize", 72, 8, LU),
	FT("f_flags", 80, 8, FLAGS, xlat_st_flags),
};
STRUCT(statfs, 120, false);

static const struct field_desc f_utsname[] = {
	F("sysname", 0, 65, STR),
	F("nodename", 65, 65, STR),
};
STRUCT(utsname, 390, true);

static const struct field_desc f_sysinfo[] = {
	F("uptime", 0, 8, LU),     F("loads", 8, 24, LONG),   F("totalram", 32, 8, LU),
	F("freeram", 40, 8, LU),   F("sharedram", 48, 8, LU), F("bufferram", 56, 8, LU),
	F("totalswap", 64, 8, LU), F("freeswap", 72, 8, LU),  F("procs", 80, 2, U),
	F("totalhigh", 88, 8, LU), F("freehigh", 96, 8, LU),  F("mem_unit", 104, 4, U),
};
STRUCT(sysinfo, 112, false);

static const struct field_desc f_flock[] = {
	FT("l_type", 0, 2, ENUM, xlat_lock_type),
	FT("l_whence", 2, 2, ENUM, xlat_whence),
	F("l_start", 8, 8, LD),
	F("l_len", 16, 8, LD),
};
STRUCT(flock, 32, false);

static const struct field_desc f_pollfd[] = {
	F("fd", 0, 4, FD),
	FT("", 4, 2, POLLEVENTS, xlat_poll_events), /* none of a descriptor that is not looked at */
};
STRUCT(pollfd, 8, false);

static const struct field_desc f_epoll[] = {
	FT("events", 0, 4, FLAGS, xlat_epoll_events),
	F("data", 4, 8, EPOLL_DATA),
};
STRUCT(epoll, 12, false); /* packed on x86-64 */

static const struct field_desc f_sigaction[] = {
	F("sa_handler", 0, 8, HANDLER),
	F("sa_mask", 24, 8, SIGSET),
	FT("sa_flags", 8, 8, FLAGS, xlat_sa_flags),
	FIF("sa_restorer", 16, 8, ADDR, 8, 0x04000000),
};
STRUCT(sigaction, 32, false);

static const struct field_desc f_stack[] = {
	F("ss_sp", 0, 8, ADDR),
	FT("ss_flags", 8, 4, FLAGS, xlat_ss_flags),
	F("ss_size", 16, 8, LU),
};
STRUCT(stack, 24, false);

static const struct field_desc f_winsize[] = {
	F("ws_row", 0, 2, U),
	F("ws_col", 2, 2, U),
	F("ws_xpixel", 4, 2, U),
	F("ws_ypixel", 6, 2, U),
};
STRUCT(winsize, 8, false);

static const struct field_desc f_clone3[] = {
	FT("flags", 0, 8, FLAGS, xlat_clone),
	FIF("pidfd", 8, 8, ADDR, 0, 0x1000),
	FIF("child_tid", 16, 8, ADDR, 0, 0x01200000), /* CLONE_CHILD_SETTID, _CLEARTID */
	FIF("parent_tid", 24, 8, ADDR, 0, 0x00100000), /* CLONE_PARENT_SETTID */
	F("exit_signal", 32, 8, SIG),
	F("stack", 40, 8, ADDR),
	F("stack_size", 48, 8, LXZ),
	FIF("tls", 56, 8, ADDR, 0, 0x00080000), /* CLONE_SETTLS */
};
STRUCT(clone3, 64, false);

static const struct field_desc f_open_how[] = {
	F("flags", 0, 8, OPEN),
	FIF("mode", 8, 8, O, 0, 0x400040), /* O_CREAT, O_TMPFILE */
	F("resolve", 16, 8, LXZ),
};
STRUCT(open_how, 24, false);

static const struct field_desc f_sched[] = {
	F("", 0, 4, D),
};
STRUCT(sched, 4, false);

static const struct field_desc f_linger[] = {
	F("l_onoff", 0, 4, D),
	F("l_linger", 4, 4, D),
};
STRUCT(linger, 8, false);

static const struct field_desc f_ucred[] = {
	F("pid", 0, 4, D),
	F("uid", 4, 4, UID),
	F("gid", 8, 4, UID),
};
STRUCT(ucred, 12, false);
/* clang-format on */
