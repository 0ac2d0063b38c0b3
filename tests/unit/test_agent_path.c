// SPDX-License-Identifier: Apache-2.0
/*
 * guest-agent/full_path.h while another thread closes the descriptor: at each word that it reads, in turn. Memory of
 * a dentry that was freed must not be read.
 */
/* The agent's own reads words of the guest's kernel; here each comes by the test. */
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-function"
/* NOLINTNEXTLINE(readability-identifier-naming): a function's */
#define peek agent_peek
#include "guest-agent/full_64.h"
#undef peek
static agent_u64 peek(agent_u64 va);
#include "guest-agent/full_path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FD 3u

struct sb {
	agent_u64 magic, flags;
};

struct inode {
	agent_u64 sb, ino;
};

struct dentry {
	agent_u64 parent, name, len, pprev, sb, inode;
};

struct mount {
	agent_u64 parent, point, root; /* root begins its struct vfsmount */
};

struct file {
	agent_u64 dentry, mnt, inode;
};

/* The kernel. A pipe, and a file in the root directory. */
static struct {
	agent_u64 task_files, files_count, files_fdt, fdt_max, fdt_fd;
	agent_u64 fd[8];
	struct file file[2];
	struct dentry pipe, regular, root;
	struct inode pipe_inode, inode;
	struct sb pipe_sb, sb;
	struct mount mount, pipe_mount;
	char name[16];
} k;

static struct agent_header hdr;
static struct call call;
static agent_u8 text[AGENT_CAPTURE_MAX];
static unsigned int n_read, close_at;
static bool freed; /* the pipe's dentry */
static void (*on_close)(void);

static agent_u64 addr(const void *p)
{
	return (agent_u64)(uintptr_t)p;
}

static agent_u64 peek(agent_u64 va)
{
	agent_u64 v;

	if (++n_read == close_at)
		on_close();
	assert_in_range(va, addr(&k), addr(&k) + sizeof(k) - 1);
	assert_false(freed && va >= addr(&k.pipe) && va < addr(&k.pipe + 1));
	memcpy(&v, (const void *)(uintptr_t)va, sizeof(v));
	return v;
}

static struct path_walk begin(agent_u64 count)
{
	memset(&k, 0, sizeof(k));
	strcpy(k.name, "file");
	k.task_files = addr(&k);
	k.files_count = count;
	k.files_fdt = addr(&k);
	k.fdt_max = 8;
	k.fdt_fd = addr(k.fd);
	k.fd[FD] = addr(&k.file[0]);
	k.file[0] = (struct file){ addr(&k.pipe), addr(&k.pipe_mount.root), addr(&k.pipe_inode) };
	k.file[1] = (struct file){ addr(&k.regular), addr(&k.mount.root), addr(&k.inode) };
	k.pipe = (struct dentry){ addr(&k.pipe),    addr(k.name),       0, 1,
				  addr(&k.pipe_sb), addr(&k.pipe_inode) };
	k.regular =
		(struct dentry){ addr(&k.root), addr(k.name), 4, 1, addr(&k.sb), addr(&k.inode) };
	k.root = (struct dentry){ addr(&k.root), addr(k.name), 1, 1, addr(&k.sb), addr(&k.inode) };
	k.pipe_inode = (struct inode){ addr(&k.pipe_sb), 77 };
	k.inode = (struct inode){ addr(&k.sb), 78 };
	k.pipe_sb = (struct sb){ 0x50495045, 1ull << SB_NOUSER };
	k.sb = (struct sb){ 0xef53, 0 };
	k.mount = (struct mount){ addr(&k.mount), 0, addr(&k.root) };
	k.pipe_mount = (struct mount){ addr(&k.pipe_mount), 0, addr(&k.pipe) };
	n_read = 0;
	freed = false;
	return (struct path_walk){ .at = AGENT_CAPTURE_MAX };
}

static int setup(void **state)
{
	struct agent_where *w = &hdr.where;

	(void)state;
#define AT(m) (agent_u32) offsetof(typeof(k), m)
	w->task_files = AT(task_files);
	w->files_count = AT(files_count);
	w->files_fdt = AT(files_fdt);
	w->fdt_max = AT(fdt_max);
	w->fdt_fd = AT(fdt_fd);
	w->file_dentry = offsetof(struct file, dentry);
	w->file_mnt = offsetof(struct file, mnt);
	w->file_inode = offsetof(struct file, inode);
	w->dentry_parent = offsetof(struct dentry, parent);
	w->dentry_name = offsetof(struct dentry, name);
	w->dentry_len = offsetof(struct dentry, len);
	w->dentry_pprev = offsetof(struct dentry, pprev);
	w->dentry_sb = offsetof(struct dentry, sb);
	w->dentry_inode = offsetof(struct dentry, inode);
	w->inode_sb = offsetof(struct inode, sb);
	w->inode_ino = offsetof(struct inode, ino);
	w->sb_magic = offsetof(struct sb, magic);
	w->sb_flags = offsetof(struct sb, flags);
	w->mount_mnt = offsetof(struct mount, root);
	w->mount_parent = offsetof(struct mount, parent);
	w->mount_point = offsetof(struct mount, point);
	hdr.kernel_half = 0x10000;
	call.h = &hdr;
	call.task = addr(&k);
	close_at = 0;
	return 0;
}

/* The same struct file is that of another open() at once, of whatever descriptor. */
static void close_and_reuse(void)
{
	freed = true;
	k.file[0] = k.file[1];
	k.fd[FD] = 0;
}

static void close_and_open_again(void)
{
	freed = true;
	k.file[0] = k.file[1];
}

static void close_and_open_another(void)
{
	freed = true;
	k.fd[FD] = addr(&k.file[1]);
}

static void at_each_word(void (*fn)(void))
{
	unsigned int words;
	struct path_walk w = begin(2);

	close_at = 0;
	assert_true(walk(&call, FD, &w, text));
	words = n_read;
	on_close = fn;
	for (unsigned int i = 1; i <= words; i++) {
		close_at = i;
		w = begin(2);
		if (!walk(&call, FD, &w, text))
			continue;
		/* of one of the two, whole */
		assert_int_equal(w.ino, w.magic == 0xef53 ? 78 : 77);
		assert_int_equal(w.at, AGENT_CAPTURE_MAX - (w.magic == 0xef53 ? 5 : 0));
	}
}

static void closed_by_another_thread(void **state)
{
	(void)state;
	at_each_word(close_and_reuse);
}

static void closed_and_opened_as_the_same_descriptor(void **state)
{
	(void)state;
	at_each_word(close_and_open_again);
	at_each_word(close_and_open_another);
}

static void nobody_else_can_close_it(void **state)
{
	struct path_walk w = begin(1);

	(void)state;
	assert_true(walk(&call, FD, &w, text));
	assert_int_equal(w.ino, 77);
	k.fd[FD] = addr(&k.file[1]);
	w = (struct path_walk){ .at = AGENT_CAPTURE_MAX };
	assert_true(walk(&call, FD, &w, text));
	assert_int_equal(w.ino, 78);
	assert_memory_equal(text + w.at, "/file", 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(closed_by_another_thread, setup),
		cmocka_unit_test_setup(closed_and_opened_as_the_same_descriptor, setup),
		cmocka_unit_test_setup(nobody_else_can_close_it, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
