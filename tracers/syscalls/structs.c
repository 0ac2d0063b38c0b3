// SPDX-License-Identifier: Apache-2.0
/*
 * Members of structs as the x86-64 kernel lays them out (Linux v6.12 include/uapi), in strace's order; and as
 * programs of the 32-bit ABI have them (include/linux/compat.h, arch/x86/include/asm/compat.h, ia32.h).
 */
#include "tracers/syscalls/desc.h"

#include <string.h>

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
#define STRUCT_AS(name, size, more, how32, other32)                                   \
	const struct struct_desc sd_##name = { size,     more,  ARRAY_SIZE(f_##name), \
					       f_##name, how32, other32 }
#define STRUCT(name, size, more)      STRUCT_AS(name, size, more, L32_NONE, NULL)
#define STRUCT_SAME(name, size, more) STRUCT_AS(name, size, more, L32_SAME, NULL)
#define STRUCT32(name, size, more)                                                              \
	static const struct struct_desc sd_##name = { size,     more,     ARRAY_SIZE(f_##name), \
						      f_##name, L32_NONE, NULL }

static const struct field_desc f_timespec32[] = {
	F("tv_sec", 0, 4, LD),
	F("tv_nsec", 4, 4, LD),
};
STRUCT32(timespec32, 8, false);

static const struct field_desc f_timespec[] = {
	F("tv_sec", 0, 8, LD),
	F("tv_nsec", 8, 8, LD),
};
STRUCT_AS(timespec, 16, false, L32_TIME, &sd_timespec32);

static const struct field_desc f_timeval32[] = {
	F("tv_sec", 0, 4, LD),
	F("tv_usec", 4, 4, LD),
};
STRUCT32(timeval32, 8, false);

static const struct field_desc f_timeval[] = {
	F("tv_sec", 0, 8, LD),
	F("tv_usec", 8, 8, LD),
};
STRUCT_AS(timeval, 16, false, L32_OTHER, &sd_timeval32);

static const struct field_desc f_itimerval32[] = {
	FT("it_interval", 0, 8, STRUCT, sd_timeval32),
	FT("it_value", 8, 8, STRUCT, sd_timeval32),
};
STRUCT32(itimerval32, 16, false);

static const struct field_desc f_itimerval[] = {
	FT("it_interval", 0, 16, STRUCT, sd_timeval),
	FT("it_value", 16, 16, STRUCT, sd_timeval),
};
STRUCT_AS(itimerval, 32, false, L32_OTHER, &sd_itimerval32);

static const struct field_desc f_itimerspec32[] = {
	FT("it_interval", 0, 8, STRUCT, sd_timespec32),
	FT("it_value", 8, 8, STRUCT, sd_timespec32),
};
STRUCT32(itimerspec32, 16, false);

static const struct field_desc f_itimerspec[] = {
	FT("it_interval", 0, 16, STRUCT, sd_timespec),
	FT("it_value", 16, 16, STRUCT, sd_timespec),
};
STRUCT_AS(itimerspec, 32, false, L32_TIME, &sd_itimerspec32);

static const struct field_desc f_timezone[] = {
	F("tz_minuteswest", 0, 4, D),
	F("tz_dsttime", 4, 4, D),
};
STRUCT_SAME(timezone, 8, false);

static const struct field_desc f_tms32[] = {
	F("tms_utime", 0, 4, LD),
	F("tms_stime", 4, 4, LD),
	F("tms_cutime", 8, 4, LD),
	F("tms_cstime", 12, 4, LD),
};
STRUCT32(tms32, 16, false);

static const struct field_desc f_tms[] = {
	F("tms_utime", 0, 8, LD),
	F("tms_stime", 8, 8, LD),
	F("tms_cutime", 16, 8, LD),
	F("tms_cstime", 24, 8, LD),
};
STRUCT_AS(tms, 32, false, L32_OTHER, &sd_tms32);

static const struct field_desc f_rlimit32[] = {
	F("rlim_cur", 0, 4, RLIM),
	F("rlim_max", 4, 4, RLIM),
};
STRUCT32(rlimit32, 8, false);

static const struct field_desc f_rlimit[] = {
	F("rlim_cur", 0, 8, RLIM),
	F("rlim_max", 8, 8, RLIM),
};
STRUCT_AS(rlimit, 16, false, L32_UNLESS_64, &sd_rlimit32);

static const struct field_desc f_rusage32[] = {
	FT("ru_utime", 0, 8, STRUCT, sd_timeval32),
	FT("ru_stime", 8, 8, STRUCT, sd_timeval32),
};
STRUCT32(rusage32, 16, true);

static const struct field_desc f_rusage[] = {
	FT("ru_utime", 0, 16, STRUCT, sd_timeval),
	FT("ru_stime", 16, 16, STRUCT, sd_timeval),
};
STRUCT_AS(rusage, 32, true, L32_OTHER, &sd_rusage32);

static const struct field_desc f_stat32[] = {
	/* struct stat64 */
	F("st_mode", 16, 4, TYPEMODE),
	F("", 16, 36, STATSIZE),
};
STRUCT32(stat32, 96, true);

static const struct field_desc f_stat[] = {
	F("st_mode", 24, 4, TYPEMODE),
	F("", 24, 32, STATSIZE), /* st_size, or st_rdev of a device */
};
STRUCT_AS(stat, 144, true, L32_IF_64, &sd_stat32);

static const struct field_desc f_statx[] = {
	FT("stx_mask", 0, 4, FLAGS, xlat_statx_mask),
	F("stx_attributes", 8, 8, LXZ),
	F("stx_mode", 28, 2, TYPEMODE),
	F("stx_size", 40, 8, LU),
};
STRUCT_SAME(statx, 256, true);

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
STRUCT_SAME(utsname, 390, true);

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
STRUCT_SAME(pollfd, 8, false);

static const struct field_desc f_epoll[] = {
	FT("events", 0, 4, FLAGS, xlat_epoll_events),
	F("data", 4, 8, EPOLL_DATA),
};
STRUCT_SAME(epoll, 12, false); /* packed on x86-64 */

static const struct field_desc f_sigaction32[] = {
	F("sa_handler", 0, 4, HANDLER),
	F("sa_mask", 12, 8, SIGSET),
	FT("sa_flags", 4, 4, FLAGS, xlat_sa_flags),
	FIF("sa_restorer", 8, 4, ADDR, 4, 0x04000000),
};
STRUCT32(sigaction32, 20, false);

static const struct field_desc f_sigaction[] = {
	F("sa_handler", 0, 8, HANDLER),
	F("sa_mask", 24, 8, SIGSET),
	FT("sa_flags", 8, 8, FLAGS, xlat_sa_flags),
	FIF("sa_restorer", 16, 8, ADDR, 8, 0x04000000),
};
STRUCT_AS(sigaction, 32, false, L32_OTHER, &sd_sigaction32);

static const struct field_desc f_stack32[] = {
	F("ss_sp", 0, 4, ADDR),
	FT("ss_flags", 4, 4, FLAGS, xlat_ss_flags),
	F("ss_size", 8, 4, LU),
};
STRUCT32(stack32, 12, false);

static const struct field_desc f_stack[] = {
	F("ss_sp", 0, 8, ADDR),
	FT("ss_flags", 8, 4, FLAGS, xlat_ss_flags),
	F("ss_size", 16, 8, LU),
};
STRUCT_AS(stack, 24, false, L32_OTHER, &sd_stack32);

static const struct field_desc f_winsize[] = {
	F("ws_row", 0, 2, U),
	F("ws_col", 2, 2, U),
	F("ws_xpixel", 4, 2, U),
	F("ws_ypixel", 6, 2, U),
};
STRUCT_SAME(winsize, 8, false);

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
STRUCT_SAME(clone3, 64, false);

static const struct field_desc f_open_how[] = {
	F("flags", 0, 8, OPEN),
	FIF("mode", 8, 8, O, 0, 0x400040), /* O_CREAT, O_TMPFILE */
	F("resolve", 16, 8, LXZ),
};
STRUCT_SAME(open_how, 24, false);

static const struct field_desc f_sched[] = {
	F("", 0, 4, D),
};
STRUCT_SAME(sched, 4, false);

static const struct field_desc f_linger[] = {
	F("l_onoff", 0, 4, D),
	F("l_linger", 4, 4, D),
};
STRUCT_SAME(linger, 8, false);

static const struct field_desc f_ucred[] = {
	F("pid", 0, 4, D),
	F("uid", 4, 4, UID),
	F("gid", 8, 4, UID),
};
STRUCT_SAME(ucred, 12, false);
/* clang-format on */

static bool ends_in(const char *name, const char *suffix)
{
	size_t n = strlen(name), len = strlen(suffix);

	return n >= len && !strcmp(name + n - len, suffix);
}

const struct struct_desc *struct_layout(const struct struct_desc *s, const struct syscall_entry *e,
					u8 abi)
{
	const char *handler = e->kernel_name ? e->kernel_name : e->name;

	if (abi != SYSCALL_ABI_32)
		return abi == SYSCALL_ABI_64 ? s : NULL;
	switch (s->how32) {
	case L32_SAME:
		return s;
	case L32_OTHER:
		return s->other32;
	case L32_TIME:
		return ends_in(handler, "32") ? s->other32 : s;
	case L32_UNLESS_64:
		return ends_in(handler, "64") ? s : s->other32;
	case L32_IF_64:
		return ends_in(handler, "64") ? s->other32 : NULL;
	default:
		return NULL;
	}
}
