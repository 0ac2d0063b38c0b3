// SPDX-License-Identifier: Apache-2.0
/*
 * Processes, memory, time, signals, ipc. Values are those of the x86-64 user space ABI (Linux v6.12 include/uapi), in
 * the order in which strace names them.
 */
#include "tracers/syscalls/xlat.h"

static const struct xlat x_shm_at[] = {
	{ 0x1000, "SHM_RDONLY" },
	{ 0x2000, "SHM_RND" },
	{ 0x4000, "SHM_REMAP" },
	{ 0x8000, "SHM_EXEC" },
};
const struct xlat_table xlat_shm_at = XLAT(x_shm_at, "SHM_???");

static const struct xlat x_msg_flags[] = {
	{ 0x1000, "MSG_NOERROR" },
	{ 0x2000, "MSG_EXCEPT" },
	{ 0x4000, "MSG_COPY" },
	{ 0x800, "IPC_NOWAIT" },
};
const struct xlat_table xlat_msg_flags = XLAT(x_msg_flags, "MSG_???");

static const struct xlat x_keyctl[] = {
	{ 0x0, "KEYCTL_GET_KEYRING_ID" },
	{ 0x1, "KEYCTL_JOIN_SESSION_KEYRING" },
	{ 0x2, "KEYCTL_UPDATE" },
	{ 0x3, "KEYCTL_REVOKE" },
	{ 0x4, "KEYCTL_CHOWN" },
	{ 0x5, "KEYCTL_SETPERM" },
	{ 0x6, "KEYCTL_DESCRIBE" },
	{ 0x7, "KEYCTL_CLEAR" },
	{ 0x8, "KEYCTL_LINK" },
	{ 0x9, "KEYCTL_UNLINK" },
	{ 0xa, "KEYCTL_SEARCH" },
	{ 0xb, "KEYCTL_READ" },
	{ 0xc, "KEYCTL_INSTANTIATE" },
	{ 0xd, "KEYCTL_NEGATE" },
	{ 0xe, "KEYCTL_SET_REQKEY_KEYRING" },
	{ 0xf, "KEYCTL_SET_TIMEOUT" },
	{ 0x10, "KEYCTL_ASSUME_AUTHORITY" },
	{ 0x11, "KEYCTL_GET_SECURITY" },
	{ 0x12, "KEYCTL_SESSION_TO_PARENT" },
};
const struct xlat_table xlat_keyctl = XLAT(x_keyctl, "KEYCTL_???");

static const struct xlat x_personality[] = {
	{ 0x0, "PER_LINUX" },
	{ 0x20000, "UNAME26" },
	{ 0x40000, "ADDR_NO_RANDOMIZE" },
	{ 0x80000, "FDPIC_FUNCPTRS" },
	{ 0x100000, "MMAP_PAGE_ZERO" },
	{ 0x200000, "ADDR_COMPAT_LAYOUT" },
	{ 0x400000, "READ_IMPLIES_EXEC" },
	{ 0x800000, "ADDR_LIMIT_32BIT" },
	{ 0x1000000, "SHORT_INODE" },
	{ 0x2000000, "WHOLE_SECONDS" },
	{ 0x4000000, "STICKY_TIMEOUTS" },
	{ 0x8000000, "ADDR_LIMIT_3GB" },
};
const struct xlat_table xlat_personality = XLAT(x_personality, "PER_???");

static const struct xlat x_uffd[] = {
	{ 0x1, "UFFD_USER_MODE_ONLY" },
	{ 0x800, "O_NONBLOCK" },
	{ 0x80000, "O_CLOEXEC" },
};
const struct xlat_table xlat_uffd = XLAT(x_uffd, "UFFD_???");
