// SPDX-License-Identifier: Apache-2.0
/*
 * Files, descriptors, file systems. Values are those of the x86-64 user space ABI (Linux v6.12 include/uapi), in
 * the order in which strace names them.
 */
#include "tracers/syscalls/xlat.h"

static const struct xlat x_accmode[] = {
	{ 0x0, "O_RDONLY" },
	{ 0x1, "O_WRONLY" },
	{ 0x2, "O_RDWR" },
	{ 0x3, "O_ACCMODE" },
};
const struct xlat_table xlat_accmode = XLAT(x_accmode, "O_???");

static const struct xlat x_open[] = {
	{ 0x40, "O_CREAT" },        { 0x80, "O_EXCL" },        { 0x100, "O_NOCTTY" },
	{ 0x200, "O_TRUNC" },       { 0x400, "O_APPEND" },     { 0x800, "O_NONBLOCK" },
	{ 0x101000, "O_SYNC" },     { 0x1000, "O_DSYNC" },     { 0x4000, "O_DIRECT" },
	{ 0x8000, "O_LARGEFILE" },  { 0x20000, "O_NOFOLLOW" }, { 0x40000, "O_NOATIME" },
	{ 0x80000, "O_CLOEXEC" },   { 0x200000, "O_PATH" },    { 0x410000, "O_TMPFILE" },
	{ 0x10000, "O_DIRECTORY" }, { 0x2000, "FASYNC" },
};
const struct xlat_table xlat_open = XLAT(x_open, "O_???");

static const struct xlat x_pipe[] = {
	{ 0x80, "O_EXCL" },
	{ 0x800, "O_NONBLOCK" },
	{ 0x4000, "O_DIRECT" },
	{ 0x80000, "O_CLOEXEC" },
};
const struct xlat_table xlat_pipe = XLAT(x_pipe, "O_???");

static const struct xlat x_access[] = {
	{ 0x0, "F_OK" },
	{ 0x4, "R_OK" },
	{ 0x2, "W_OK" },
	{ 0x1, "X_OK" },
};
const struct xlat_table xlat_access = XLAT(x_access, "?_OK");

static const struct xlat x_at[] = {
	{ 0x100, "AT_SYMLINK_NOFOLLOW" }, { 0x200, "AT_REMOVEDIR" },
	{ 0x400, "AT_SYMLINK_FOLLOW" },   { 0x800, "AT_NO_AUTOMOUNT" },
	{ 0x1000, "AT_EMPTY_PATH" },      { 0x8000, "AT_RECURSIVE" },
};
const struct xlat_table xlat_at = XLAT(x_at, "AT_???");

static const struct xlat x_at_access[] = {
	{ 0x100, "AT_SYMLINK_NOFOLLOW" },
	{ 0x200, "AT_EACCESS" },
	{ 0x1000, "AT_EMPTY_PATH" },
};
const struct xlat_table xlat_at_access = XLAT(x_at_access, "AT_???");

static const struct xlat x_at_statx[] = {
	{ 0x2000, "AT_STATX_FORCE_SYNC" }, { 0x4000, "AT_STATX_DONT_SYNC" },
	{ 0x100, "AT_SYMLINK_NOFOLLOW" },  { 0x200, "AT_REMOVEDIR" },
	{ 0x400, "AT_SYMLINK_FOLLOW" },    { 0x800, "AT_NO_AUTOMOUNT" },
	{ 0x1000, "AT_EMPTY_PATH" },       { 0x8000, "AT_RECURSIVE" },
};
const struct xlat_table xlat_at_statx = XLAT(x_at_statx, "AT_???");

static const struct xlat x_statx_mask[] = {
	{ 0xfff, "STATX_ALL" },       { 0x7ff, "STATX_BASIC_STATS" }, { 0x1, "STATX_TYPE" },
	{ 0x2, "STATX_MODE" },        { 0x4, "STATX_NLINK" },         { 0x8, "STATX_UID" },
	{ 0x10, "STATX_GID" },        { 0x20, "STATX_ATIME" },        { 0x40, "STATX_MTIME" },
	{ 0x80, "STATX_CTIME" },      { 0x100, "STATX_INO" },         { 0x200, "STATX_SIZE" },
	{ 0x400, "STATX_BLOCKS" },    { 0x800, "STATX_BTIME" },       { 0x1000, "STATX_MNT_ID" },
	{ 0x2000, "STATX_DIOALIGN" },
};
const struct xlat_table xlat_statx_mask = XLAT(x_statx_mask, "STATX_???");

static const struct xlat x_file_type[] = {
	{ 0x8000, "S_IFREG" }, { 0x4000, "S_IFDIR" }, { 0xa000, "S_IFLNK" },  { 0x2000, "S_IFCHR" },
	{ 0x6000, "S_IFBLK" }, { 0x1000, "S_IFIFO" }, { 0xc000, "S_IFSOCK" },
};
const struct xlat_table xlat_file_type = XLAT(x_file_type, "S_IF???");

static const struct xlat x_whence[] = {
	{ 0x0, "SEEK_SET" },  { 0x1, "SEEK_CUR" },  { 0x2, "SEEK_END" },
	{ 0x3, "SEEK_DATA" }, { 0x4, "SEEK_HOLE" },
};
const struct xlat_table xlat_whence = XLAT(x_whence, "SEEK_???");

static const struct xlat x_fcntl_cmd[] = {
	{ 0x0, "F_DUPFD" },
	{ 0x1, "F_GETFD" },
	{ 0x2, "F_SETFD" },
	{ 0x3, "F_GETFL" },
	{ 0x4, "F_SETFL" },
	{ 0x5, "F_GETLK" },
	{ 0x6, "F_SETLK" },
	{ 0x7, "F_SETLKW" },
	{ 0x8, "F_SETOWN" },
	{ 0x9, "F_GETOWN" },
	{ 0xa, "F_SETSIG" },
	{ 0xb, "F_GETSIG" },
	{ 0xf, "F_SETOWN_EX" },
	{ 0x10, "F_GETOWN_EX" },
	{ 0x24, "F_OFD_GETLK" },
	{ 0x25, "F_OFD_SETLK" },
	{ 0x26, "F_OFD_SETLKW" },
	{ 0x400, "F_SETLEASE" },
	{ 0x401, "F_GETLEASE" },
	{ 0x402, "F_NOTIFY" },
	{ 0x406, "F_DUPFD_CLOEXEC" },
	{ 0x407, "F_SETPIPE_SZ" },
	{ 0x408, "F_GETPIPE_SZ" },
	{ 0x409, "F_ADD_SEALS" },
	{ 0x40a, "F_GET_SEALS" },
	{ 0x40b, "F_GET_RW_HINT" },
	{ 0x40c, "F_SET_RW_HINT" },
	{ 0x40d, "F_GET_FILE_RW_HINT" },
	{ 0x40e, "F_SET_FILE_RW_HINT" },
};
const struct xlat_table xlat_fcntl_cmd = XLAT(x_fcntl_cmd, "F_???");

static const struct xlat x_fd_flags[] = {
	{ 0x1, "FD_CLOEXEC" },
};
const struct xlat_table xlat_fd_flags = XLAT(x_fd_flags, "FD_???");

static const struct xlat x_seals[] = {
	{ 0x1, "F_SEAL_SEAL" },  { 0x2, "F_SEAL_SHRINK" },        { 0x4, "F_SEAL_GROW" },
	{ 0x8, "F_SEAL_WRITE" }, { 0x10, "F_SEAL_FUTURE_WRITE" },
};
const struct xlat_table xlat_seals = XLAT(x_seals, "F_SEAL_???");

static const struct xlat x_lock_type[] = {
	{ 0x0, "F_RDLCK" },
	{ 0x1, "F_WRLCK" },
	{ 0x2, "F_UNLCK" },
};
const struct xlat_table xlat_lock_type = XLAT(x_lock_type, "F_???");

static const struct xlat x_flock[] = {
	{ 0x1, "LOCK_SH" }, { 0x2, "LOCK_EX" },    { 0x4, "LOCK_NB" },
	{ 0x8, "LOCK_UN" }, { 0x20, "LOCK_MAND" }, { 0xc0, "LOCK_RW" },
};
const struct xlat_table xlat_flock = XLAT(x_flock, "LOCK_???");

static const struct xlat x_dnotify[] = {
	{ 0x1, "DN_ACCESS" },           { 0x2, "DN_MODIFY" },  { 0x4, "DN_CREATE" },
	{ 0x8, "DN_DELETE" },           { 0x10, "DN_RENAME" }, { 0x20, "DN_ATTRIB" },
	{ 0x80000000, "DN_MULTISHOT" },
};
const struct xlat_table xlat_dnotify = XLAT(x_dnotify, "DN_???");

static const struct xlat x_falloc[] = {
	{ 0x1, "FALLOC_FL_KEEP_SIZE" },      { 0x2, "FALLOC_FL_PUNCH_HOLE" },
	{ 0x4, "FALLOC_FL_NO_HIDE_STALE" },  { 0x8, "FALLOC_FL_COLLAPSE_RANGE" },
	{ 0x10, "FALLOC_FL_ZERO_RANGE" },    { 0x20, "FALLOC_FL_INSERT_RANGE" },
	{ 0x40, "FALLOC_FL_UNSHARE_RANGE" },
};
const struct xlat_table xlat_falloc = XLAT(x_falloc, "FALLOC_FL_???");

static const struct xlat x_splice[] = {
	{ 0x1, "SPLICE_F_MOVE" },
	{ 0x2, "SPLICE_F_NONBLOCK" },
	{ 0x4, "SPLICE_F_MORE" },
	{ 0x8, "SPLICE_F_GIFT" },
};
const struct xlat_table xlat_splice = XLAT(x_splice, "SPLICE_F_???");

static const struct xlat x_sync_range[] = {
	{ 0x1, "SYNC_FILE_RANGE_WAIT_BEFORE" },
	{ 0x2, "SYNC_FILE_RANGE_WRITE" },
	{ 0x4, "SYNC_FILE_RANGE_WAIT_AFTER" },
};
const struct xlat_table xlat_sync_range = XLAT(x_sync_range, "SYNC_FILE_RANGE_???");

static const struct xlat x_rwf[] = {
	{ 0x1, "RWF_HIPRI" },  { 0x2, "RWF_DSYNC" },   { 0x4, "RWF_SYNC" },
	{ 0x8, "RWF_NOWAIT" }, { 0x10, "RWF_APPEND" },
};
const struct xlat_table xlat_rwf = XLAT(x_rwf, "RWF_???");

static const struct xlat x_fadvise[] = {
	{ 0x0, "POSIX_FADV_NORMAL" },     { 0x1, "POSIX_FADV_RANDOM" },
	{ 0x2, "POSIX_FADV_SEQUENTIAL" }, { 0x3, "POSIX_FADV_WILLNEED" },
	{ 0x4, "POSIX_FADV_DONTNEED" },   { 0x5, "POSIX_FADV_NOREUSE" },
};
const struct xlat_table xlat_fadvise = XLAT(x_fadvise, "POSIX_FADV_???");

static const struct xlat x_xattr[] = {
	{ 0x1, "XATTR_CREATE" },
	{ 0x2, "XATTR_REPLACE" },
};
const struct xlat_table xlat_xattr = XLAT(x_xattr, "XATTR_???");

static const struct xlat x_rename[] = {
	{ 0x1, "RENAME_NOREPLACE" },
	{ 0x2, "RENAME_EXCHANGE" },
	{ 0x4, "RENAME_WHITEOUT" },
};
const struct xlat_table xlat_rename = XLAT(x_rename, "RENAME_???");

static const struct xlat x_mount[] = {
	{ 0x1, "MS_RDONLY" },         { 0x2, "MS_NOSUID" },         { 0x4, "MS_NODEV" },
	{ 0x8, "MS_NOEXEC" },         { 0x10, "MS_SYNCHRONOUS" },   { 0x20, "MS_REMOUNT" },
	{ 0x40, "MS_MANDLOCK" },      { 0x80, "MS_DIRSYNC" },       { 0x100, "MS_NOSYMFOLLOW" },
	{ 0x400, "MS_NOATIME" },      { 0x800, "MS_NODIRATIME" },   { 0x1000, "MS_BIND" },
	{ 0x2000, "MS_MOVE" },        { 0x4000, "MS_REC" },         { 0x8000, "MS_SILENT" },
	{ 0x10000, "MS_POSIXACL" },   { 0x20000, "MS_UNBINDABLE" }, { 0x40000, "MS_PRIVATE" },
	{ 0x80000, "MS_SLAVE" },      { 0x100000, "MS_SHARED" },    { 0x200000, "MS_RELATIME" },
	{ 0x400000, "MS_KERNMOUNT" }, { 0x800000, "MS_I_VERSION" }, { 0x1000000, "MS_STRICTATIME" },
	{ 0x2000000, "MS_LAZYTIME" },
};
const struct xlat_table xlat_mount = XLAT(x_mount, "MS_???");

static const struct xlat x_umount[] = {
	{ 0x1, "MNT_FORCE" },
	{ 0x2, "MNT_DETACH" },
	{ 0x4, "MNT_EXPIRE" },
	{ 0x8, "UMOUNT_NOFOLLOW" },
};
const struct xlat_table xlat_umount = XLAT(x_umount, "MNT_???");

static const struct xlat x_open_tree[] = {
	{ 0x1, "OPEN_TREE_CLONE" },       { 0x80000, "OPEN_TREE_CLOEXEC" },
	{ 0x100, "AT_SYMLINK_NOFOLLOW" }, { 0x800, "AT_NO_AUTOMOUNT" },
	{ 0x1000, "AT_EMPTY_PATH" },      { 0x8000, "AT_RECURSIVE" },
};
const struct xlat_table xlat_open_tree = XLAT(x_open_tree, "OPEN_TREE_???");

static const struct xlat x_move_mount[] = {
	{ 0x1, "MOVE_MOUNT_F_SYMLINKS" },    { 0x2, "MOVE_MOUNT_F_AUTOMOUNTS" },
	{ 0x4, "MOVE_MOUNT_F_EMPTY_PATH" },  { 0x10, "MOVE_MOUNT_T_SYMLINKS" },
	{ 0x20, "MOVE_MOUNT_T_AUTOMOUNTS" }, { 0x40, "MOVE_MOUNT_T_EMPTY_PATH" },
	{ 0x100, "MOVE_MOUNT_SET_GROUP" },
};
const struct xlat_table xlat_move_mount = XLAT(x_move_mount, "MOVE_MOUNT_???");

static const struct xlat x_fsopen[] = {
	{ 0x1, "FSOPEN_CLOEXEC" },
};
const struct xlat_table xlat_fsopen = XLAT(x_fsopen, "FSOPEN_???");

static const struct xlat x_fsmount[] = {
	{ 0x1, "FSMOUNT_CLOEXEC" },
};
const struct xlat_table xlat_fsmount = XLAT(x_fsmount, "FSMOUNT_???");

static const struct xlat x_inotify[] = {
	{ 0x1, "IN_ACCESS" },
	{ 0x2, "IN_MODIFY" },
	{ 0x4, "IN_ATTRIB" },
	{ 0x8, "IN_CLOSE_WRITE" },
	{ 0x10, "IN_CLOSE_NOWRITE" },
	{ 0x20, "IN_OPEN" },
	{ 0x40, "IN_MOVED_FROM" },
	{ 0x80, "IN_MOVED_TO" },
	{ 0x100, "IN_CREATE" },
	{ 0x200, "IN_DELETE" },
	{ 0x400, "IN_DELETE_SELF" },
	{ 0x800, "IN_MOVE_SELF" },
	{ 0x2000, "IN_UNMOUNT" },
	{ 0x4000, "IN_Q_OVERFLOW" },
	{ 0x8000, "IN_IGNORED" },
	{ 0x1000000, "IN_ONLYDIR" },
	{ 0x2000000, "IN_DONT_FOLLOW" },
	{ 0x4000000, "IN_EXCL_UNLINK" },
	{ 0x10000000, "IN_MASK_CREATE" },
	{ 0x20000000, "IN_MASK_ADD" },
	{ 0x40000000, "IN_ISDIR" },
	{ 0x80000000, "IN_ONESHOT" },
};
const struct xlat_table xlat_inotify = XLAT(x_inotify, "IN_???");

static const struct xlat x_inotify_init[] = {
	{ 0x800, "IN_NONBLOCK" },
	{ 0x80000, "IN_CLOEXEC" },
};
const struct xlat_table xlat_inotify_init = XLAT(x_inotify_init, "IN_???");

static const struct xlat x_close_range[] = {
	{ 0x2, "CLOSE_RANGE_UNSHARE" },
	{ 0x4, "CLOSE_RANGE_CLOEXEC" },
};
const struct xlat_table xlat_close_range = XLAT(x_close_range, "CLOSE_RANGE_???");

static const struct xlat x_memfd[] = {
	{ 0x1, "MFD_CLOEXEC" },
	{ 0x2, "MFD_ALLOW_SEALING" },
	{ 0x4, "MFD_HUGETLB" },
};
const struct xlat_table xlat_memfd = XLAT(x_memfd, "MFD_???");

static const struct xlat x_epoll_create[] = {
	{ 0x80000, "EPOLL_CLOEXEC" },
};
const struct xlat_table xlat_epoll_create = XLAT(x_epoll_create, "EPOLL_???");

static const struct xlat x_epoll_op[] = {
	{ 0x1, "EPOLL_CTL_ADD" },
	{ 0x2, "EPOLL_CTL_DEL" },
	{ 0x3, "EPOLL_CTL_MOD" },
};
const struct xlat_table xlat_epoll_op = XLAT(x_epoll_op, "EPOLL_CTL_???");

static const struct xlat x_epoll_events[] = {
	{ 0x1, "EPOLLIN" },
	{ 0x2, "EPOLLPRI" },
	{ 0x4, "EPOLLOUT" },
	{ 0x8, "EPOLLERR" },
	{ 0x10, "EPOLLHUP" },
	{ 0x20, "EPOLLNVAL" },
	{ 0x40, "EPOLLRDNORM" },
	{ 0x80, "EPOLLRDBAND" },
	{ 0x100, "EPOLLWRNORM" },
	{ 0x200, "EPOLLWRBAND" },
	{ 0x400, "EPOLLMSG" },
	{ 0x2000, "EPOLLRDHUP" },
	{ 0x10000000, "EPOLLEXCLUSIVE" },
	{ 0x20000000, "EPOLLWAKEUP" },
	{ 0x40000000, "EPOLLONESHOT" },
	{ 0x80000000, "EPOLLET" },
};
const struct xlat_table xlat_epoll_events = XLAT(x_epoll_events, "EPOLL???");

static const struct xlat x_poll_events[] = {
	{ 0x1, "POLLIN" },       { 0x2, "POLLPRI" },      { 0x4, "POLLOUT" },
	{ 0x40, "POLLRDNORM" },  { 0x100, "POLLWRNORM" }, { 0x80, "POLLRDBAND" },
	{ 0x200, "POLLWRBAND" }, { 0x8, "POLLERR" },      { 0x10, "POLLHUP" },
	{ 0x20, "POLLNVAL" },    { 0x400, "POLLMSG" },    { 0x1000, "POLLREMOVE" },
	{ 0x2000, "POLLRDHUP" },
};
const struct xlat_table xlat_poll_events = XLAT(x_poll_events, "POLL???");

static const struct xlat x_eventfd[] = {
	{ 0x1, "EFD_SEMAPHORE" },
	{ 0x80000, "EFD_CLOEXEC" },
	{ 0x800, "EFD_NONBLOCK" },
};
const struct xlat_table xlat_eventfd = XLAT(x_eventfd, "EFD_???");

static const struct xlat x_signalfd[] = {
	{ 0x80000, "SFD_CLOEXEC" },
	{ 0x800, "SFD_NONBLOCK" },
};
const struct xlat_table xlat_signalfd = XLAT(x_signalfd, "SFD_???");

static const struct xlat x_timerfd[] = {
	{ 0x1, "TFD_TIMER_ABSTIME" },
	{ 0x2, "TFD_TIMER_CANCEL_ON_SET" },
	{ 0x80000, "TFD_CLOEXEC" },
	{ 0x800, "TFD_NONBLOCK" },
};
const struct xlat_table xlat_timerfd = XLAT(x_timerfd, "TFD_???");

static const struct xlat x_uring_enter[] = {
	{ 0x1, "IORING_ENTER_GETEVENTS" },        { 0x2, "IORING_ENTER_SQ_WAKEUP" },
	{ 0x4, "IORING_ENTER_SQ_WAIT" },          { 0x8, "IORING_ENTER_EXT_ARG" },
	{ 0x10, "IORING_ENTER_REGISTERED_RING" },
};
const struct xlat_table xlat_uring_enter = XLAT(x_uring_enter, "IORING_ENTER_???");

static const struct xlat x_fs_magic[] = {
	{ 0xef53, "EXT2_SUPER_MAGIC" },          { 0x1021994, "TMPFS_MAGIC" },
	{ 0x9fa0, "PROC_SUPER_MAGIC" },          { 0x62656572, "SYSFS_MAGIC" },
	{ 0x794c7630, "OVERLAYFS_SUPER_MAGIC" }, { 0x58465342, "XFS_SUPER_MAGIC" },
	{ 0x9123683e, "BTRFS_SUPER_MAGIC" },     { 0x1cd1, "DEVPTS_SUPER_MAGIC" },
	{ 0x63677270, "CGROUP2_SUPER_MAGIC" },   { 0x27e0eb, "CGROUP_SUPER_MAGIC" },
	{ 0x858458f6, "RAMFS_MAGIC" },           { 0x73717368, "SQUASHFS_MAGIC" },
	{ 0x6969, "NFS_SUPER_MAGIC" },           { 0x1021997, "V9FS_MAGIC" },
	{ 0x65735546, "FUSE_SUPER_MAGIC" },      { 0x74726163, "TRACEFS_MAGIC" },
	{ 0x64626720, "DEBUGFS_MAGIC" },         { 0xf97cff8c, "SELINUX_MAGIC" },
	{ 0x73636673, "SECURITYFS_MAGIC" },      { 0x534f434b, "SOCKFS_MAGIC" },
	{ 0x50495045, "PIPEFS_MAGIC" },          { 0x9041934, "ANON_INODE_FS_MAGIC" },
	{ 0x4d44, "MSDOS_SUPER_MAGIC" },         { 0xcafe4a11, "BPF_FS_MAGIC" },
	{ 0x958458f6, "HUGETLBFS_MAGIC" },
};
const struct xlat_table xlat_fs_magic = XLAT(x_fs_magic, "");

static const struct xlat x_st_flags[] = {
	{ 0x20, "ST_VALID" },      { 0x1, "ST_RDONLY" },         { 0x2, "ST_NOSUID" },
	{ 0x4, "ST_NODEV" },       { 0x8, "ST_NOEXEC" },         { 0x10, "ST_SYNCHRONOUS" },
	{ 0x40, "ST_MANDLOCK" },   { 0x400, "ST_NOATIME" },      { 0x800, "ST_NODIRATIME" },
	{ 0x1000, "ST_RELATIME" }, { 0x2000, "ST_NOSYMFOLLOW" },
};
const struct xlat_table xlat_st_flags = XLAT(x_st_flags, "ST_???");
