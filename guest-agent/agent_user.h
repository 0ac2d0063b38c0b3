/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent reads of a program's own memory when it is in a system call: a part of agent_abi.h, which
 * includes it.
 *
 * A handler's site names the first of a run of steps. Those without AT_EXIT are taken with the entry, the
 * others, and those that failed at the entry, just before the return's record. All of it in process
 * context, by the guest's own copy_from_user_nofault(): it neither sleeps nor faults pages in, and what is
 * not mapped is told as that. Another thread of the program may change what is read, before and after.
 *
 * Each read is a record as that of struct agent_capture, but the first of an entry, which are DATA of the entry's
 * own record, behind the others:
 *   CAPTURE | AGENT_CAPTURE_USER   31..0 the step's tag   47..32 number: of the string, or of the piece, as
 *                                  what is longer than AGENT_CAPTURE_MAX or lies in several pages is
 *                                  several reads, in IOVEC numbered through   48.. AGENT_USER_*
 *                                  63..52 elements counted, AGENT_USER_COUNTED at most
 *   BYTES | 0, 1 ...
 */
#ifndef GUEST_AGENT_AGENT_USER_H
#define GUEST_AGENT_AGENT_USER_H

#define AGENT_CAPTURE_USER 0xff /* instead of a program's number */

/* the word of CAPTURE */
#define AGENT_USER_NUMBER_SHIFT 32
#define AGENT_USER_EXIT         (1ull << 48) /* read at the call's end */
#define AGENT_USER_FAILED       (1ull << 49) /* not mapped; no bytes */
#define AGENT_USER_MM           (1ull << 50) /* where the kernel put it: the new program's own stack */
#define AGENT_USER_COUNT_SHIFT  52
#define AGENT_USER_COUNTED      0xfff

/* agent_user_step.op */
#define AGENT_USER_BYTES  0
#define AGENT_USER_STRING 1 /* without its NUL */
#define AGENT_USER_STRINGS \
	2 /* an array of pointers to strings, up to NULL: a record each, and 0xffff, which counts them */
#define AGENT_USER_COUNT 3 /* how many pointers there are up to NULL; no bytes */
#define AGENT_USER_IOVEC \
	4 /* what struct iovec[] points to, up to what is not there: of each at most each bytes */
#define AGENT_USER_ARGS 5 /* argv of the program that an execve() has just begun; with ENV: envp */
#define AGENT_USER_FD \
	6 /* what descriptor base is of: inode number, file system's magic number, path; counted 1: deleted */

/* agent_user_step.flags */
#define AGENT_USER_AT_EXIT 0x01 /* only when it succeeded */
#define AGENT_USER_LAST    0x02
#define AGENT_USER_ERROR   0x20 /* with AT_EXIT: only when it failed */
#define AGENT_USER_RET     0x04 /* at most as many as it returned, times each */
#define AGENT_USER_LEN_PTR 0x08 /* len is of a pointer to the length, 32 bits */
#define AGENT_USER_ENV     0x40 /* of ARGS */
#define AGENT_USER_SP      0x10 /* at the program's stack pointer + ptr_at, whatever base is */

#define AGENT_USER_RESULT   0xfe /* base: what the call returned */
#define AGENT_USER_PATH_OFF 16 /* of the path in FD's bytes */
#define AGENT_AT_FDCWD      (-100)
#define AGENT_USER_NONE     0xff /* base, len, if_arg: there is none */
#define AGENT_USER_STEPS    1024 /* room for, in data */
#define AGENT_USER_RUN      24 /* steps of one site, at most */
#define AGENT_USER_MAX      4096 /* bytes of one step, at most */
#define AGENT_USER_ELEMENTS 32 /* strings and iovecs, at most */

#ifndef __ASSEMBLER__
struct agent_user_step {
	agent_u8 op; /* AGENT_USER_BYTES ... */
	agent_u8 base; /* argument word: the address */
	agent_u8 len; /* argument word: how many, times each; or NONE */
	agent_u8 if_arg; /* only if this argument word, masked, is if_value; or NONE */
	agent_u16 flags; /* AGENT_USER_* */
	agent_u16 each;
	agent_s16
		ptr_at; /* offset from base of the pointer to the bytes; negative: they are at base */
	/* offset from base of how many there are, a word of the program's if each > 1, else 32 bits; negative: none */
	agent_s16 len_at;
	agent_u32 max; /* bytes, at most */
	agent_u32 tag;
	agent_u32 if_mask, if_value;
	agent_u32 pad;
};

/* Where things are in the guest's structures; 0 where they are not known: then nothing is told of them. */
struct agent_where {
	agent_u32 task_mm, mm_arg_start, mm_arg_end, mm_env_start, mm_env_end;
	agent_u32 task_status; /* thread_info.status */
	agent_u32 task_cred, cred_uid;
	agent_u32 task_cgroups, css_set_cgroup, cgroup_node, node_id;
	agent_u32 regs_sp; /* in struct pt_regs */
	agent_u32 task_files; /* 0: none of these */
	agent_u32 files_fdt, fdt_max, fdt_fd, file_dentry, file_mnt;
	agent_u32 task_fs, fs_pwd_dentry, fs_pwd_mnt;
	agent_u32 dentry_parent, dentry_name, dentry_len, dentry_pprev, dentry_sb, dentry_inode;
	agent_u32 sb_magic, inode_ino;
	agent_u32 mount_mnt, mount_parent, mount_point, mnt_root;
	agent_u32 files_count, file_inode, inode_sb, sb_flags;
};

_Static_assert(sizeof(struct agent_user_step) == 32, "agent_user_step");
#endif

/* thread_info.status: a system call of the 32-bit ABI. Linux v6.1 and v6.12 arch/x86/include/asm/thread_info.h */
#define AGENT_TS_COMPAT 0x2

#endif
