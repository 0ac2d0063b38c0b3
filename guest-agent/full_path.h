/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a descriptor is of, out of the kernel's own tables: the names from its file's dentry up to the root of
 * all mounts. Only full.c includes it.
 *
 * Nothing of this is locked, another thread may close the descriptor and anybody may rename what leads to it.
 * Inodes, super blocks, dentries, their names, mounts and tables of descriptors are freed after a grace period, and
 * there is none while interrupts are off: v6.1 fs/file.c __fget_light(), fs/dcache.c dentry_free(),
 * fs/namespace.c cleanup_mnt(). So are files up to v6.6; since v6.7 (fs/file_table.c SLAB_TYPESAFE_BY_RCU) a file that
 * is closed may be another one at once, though still a file: so what was read of it is of one file only if its
 * descriptor, and all of it, are the same afterwards (fs/file.c __get_file_rcu() does likewise).
 * Dentries of pipes, sockets and the like are freed at once (DCACHE_NORCU, d_alloc_pseudo()); their super blocks have
 * SB_NOUSER. Those are looked at only where nobody else can close the descriptor. Each pointer must lie in the
 * kernel's half, each loop is short.
 */
#ifndef GUEST_AGENT_FULL_PATH_H
#define GUEST_AGENT_FULL_PATH_H

#include "guest-agent/full_user.h"

#define PATH_STEPS 64 /* directories and mounts */
#define SB_NOUSER  31 /* bit of s_flags: v6.1 include/linux/fs.h */
#define NAME_BYTES 255 /* v6.1 include/uapi/linux/limits.h NAME_MAX */

struct path_walk {
	agent_u64 dentry, mnt; /* struct dentry *, struct vfsmount * */
	agent_u64 inode, sb; /* the file's */
	agent_u64 ino, magic;
	bool shared; /* the table of descriptors: another thread may close it */
	agent_u32 at; /* where in the bytes what there is of it begins */
	bool deleted;
};

/* A pointer member; 0: it leads nowhere. */
static agent_u64 follow_pointer(const struct call *c, agent_u64 object, agent_u32 member)
{
	agent_u64 p = in_kernel(c, object) ? peek(object + member) : 0;

	return in_kernel(c, p) ? p : 0;
}

/* Bytes before those that there are. False: there is no room for all of it. */
static bool prepend(struct path_walk *w, agent_u8 *text, agent_u64 name, agent_u32 n)
{
	if (n > NAME_BYTES)
		n = NAME_BYTES;
	n = string_len(name, n);
	if (w->at < AGENT_USER_PATH_OFF + n + 1)
		return false;
	w->at -= n;
	for (agent_u32 i = 0; i < n; i++)
		WRITE_ONCE(text[w->at + i], byte_at(name + i));
	return true;
}

static bool prepend_name(const struct call *c, struct path_walk *w, agent_u8 *text)
{
	const struct agent_where *m = &c->h->where;
	agent_u64 name = follow_pointer(c, w->dentry, m->dentry_name);

	return name && prepend(w, text, name, (agent_u32)peek(w->dentry + m->dentry_len));
}

/* One step towards the root. False: that was it, or there is no room, or something is not what it should be. */
static bool walk_up(const struct call *c, struct path_walk *w, agent_u8 *text, bool first)
{
	const struct agent_where *m = &c->h->where;
	agent_u64 mount = w->mnt - m->mount_mnt, up;

	if (w->dentry == follow_pointer(c, w->mnt, m->mnt_root)) {
		up = follow_pointer(c, mount, m->mount_parent);
		w->dentry = follow_pointer(c, mount, m->mount_point);
		w->mnt = up + m->mount_mnt;
		return up && up != mount && w->dentry;
	}
	up = follow_pointer(c, w->dentry, m->dentry_parent);
	if (up == w->dentry) { /* it is in no directory: what it is called says what it is */
		if (first)
			(void)prepend_name(c, w, text);
		return false;
	}
	if (first)
		w->deleted = !peek(w->dentry + m->dentry_pprev);
	if (!up || !prepend_name(c, w, text))
		return false;
	w->at--;
	WRITE_ONCE(text[w->at], '/');
	w->dentry = up;
	return true;
}

/* Nobody closed it meanwhile. @at: of the descriptor's pointer to @file */
static bool is_one_file(const struct call *c, const struct path_walk *w, agent_u64 at,
			agent_u64 file)
{
	const struct agent_where *m = &c->h->where;

	return peek(file + m->file_dentry) == w->dentry && peek(file + m->file_mnt) == w->mnt &&
	       peek(file + m->file_inode) == w->inode && peek(at) == file;
}

static bool find_file(const struct call *c, agent_u32 fd, struct path_walk *w)
{
	const struct agent_where *m = &c->h->where;
	agent_u64 p, at;

	if ((agent_s32)fd == AGENT_AT_FDCWD) {
		p = follow_pointer(c, c->task, m->task_fs);
		w->dentry = p ? follow_pointer(c, p, m->fs_pwd_dentry) : 0;
		w->mnt = p ? follow_pointer(c, p, m->fs_pwd_mnt) : 0;
		return w->dentry && w->mnt;
	}
	p = follow_pointer(c, c->task, m->task_files);
	w->shared = !p || (agent_u32)peek(p + m->files_count) != 1;
	p = follow_pointer(c, p, m->files_fdt);
	if (!p || fd >= (agent_u32)peek(p + m->fdt_max))
		return false;
	p = follow_pointer(c, p, m->fdt_fd);
	at = p + 8 * fd;
	p = p ? follow_pointer(c, p, 8 * fd) : 0;
	w->dentry = p ? follow_pointer(c, p, m->file_dentry) : 0;
	w->mnt = p ? follow_pointer(c, p, m->file_mnt) : 0;
	w->inode = p ? follow_pointer(c, p, m->file_inode) : 0;
	w->sb = w->inode ? follow_pointer(c, w->inode, m->inode_sb) : 0;
	return w->dentry && w->mnt && w->sb && (!w->shared || is_one_file(c, w, at, p));
}

static bool walk(const struct call *c, agent_u32 fd, struct path_walk *w, agent_u8 *text)
{
	const struct agent_where *m = &c->h->where;

	if (!find_file(c, fd, w))
		return false;
	if (!w->sb) { /* a directory */
		w->sb = follow_pointer(c, w->dentry, m->dentry_sb);
		w->inode = follow_pointer(c, w->dentry, m->dentry_inode);
	}
	w->magic = w->sb ? peek(w->sb + m->sb_magic) : 0;
	w->ino = w->inode ? peek(w->inode + m->inode_ino) : 0;
	if (w->shared && w->sb && peek(w->sb + m->sb_flags) >> SB_NOUSER & 1)
		return true;
	for (agent_u32 i = 0; i < PATH_STEPS; i++) {
		if (!walk_up(c, w, text, !i))
			break;
	}
	return true;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="
/* The record's bytes: inode number, magic number of the file system, and the path without a NUL. */
__attribute__((noinline)) static void read_fd(struct user_read *u, agent_u32 fd)
{
	struct path_walk w;
	struct user_bytes b;
	agent_u8 *text = (agent_u8 *)&b;
	agent_u64 saved;
	agent_u32 n;
	bool found;

	if (!u->c->h->where.task_files)
		return;
	/* one by one: all at once would be a string instruction */
	w.at = AGENT_CAPTURE_MAX;
	w.sb = w.inode = 0;
	w.deleted = w.shared = false;
	saved = irq_save();
	found = walk(u->c, fd, &w, text);
	irq_restore(saved);
	if (!found)
		return;
	n = AGENT_CAPTURE_MAX - w.at;
	for (agent_u32 i = 0; i < n; i++)
		WRITE_ONCE(text[AGENT_USER_PATH_OFF + i], READ_ONCE(text[w.at + i]));
	b.word[0] = w.ino;
	b.word[1] = w.magic;
	n += AGENT_USER_PATH_OFF;
	record_user(u, 0, (agent_u64)w.deleted << AGENT_USER_COUNT_SHIFT, n, &b, n);
}
#pragma GCC diagnostic pop

#endif
