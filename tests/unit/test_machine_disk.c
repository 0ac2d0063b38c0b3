// SPDX-License-Identifier: Apache-2.0
/* machine/: what a disk is made of: overlays against a model in memory, damage, locks as QEMU's. */
#include "machine/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (5 * DISK_CLUSTER + 3 * DISK_SECTOR) /* the last cluster is a short one */

static char dir[] = "/tmp/hvf-disk-XXXXXX", base[64], overlay[64];
static u8 model[BYTES];

static unsigned n_names_synced;

int __wrap_fsync(int fd); /* what the linker makes of fsync() */
int __wrap_fsync(int fd)
{
	struct stat want, st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(stat(dir, &want), 0);
	n_names_synced += st.st_dev == want.st_dev && st.st_ino == want.st_ino;
	return 0;
}

static int set_up(void **state)
{
	FILE *f;

	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(base, sizeof(base), "%s/base", dir);
	snprintf(overlay, sizeof(overlay), "%s/overlay", dir);
	for (u32 i = 0; i < BYTES; i++)
		model[i] = (u8)(i * 7 + i / DISK_SECTOR);
	f = fopen(base, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(model, 1, BYTES, f), BYTES);
	fclose(f);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(base);
	unlink(overlay);
	rmdir(dir);
	return 0;
}

static bool transfer(struct disk *d, u8 *p, u64 off, u64 len, bool is_write)
{
	/* in pieces of odd lengths */
	struct iovec v[3] = { { p, len / 3 }, { p + len / 3, 1 }, { p + len / 3 + 1, 0 } };

	v[2].iov_len = len - len / 3 - 1;
	return disk_transfer(d, v, 3, off, is_write);
}

static void check_all(struct disk *d)
{
	static u8 seen[BYTES];

	memset(seen, 0xee, sizeof(seen));
	assert_true(transfer(d, seen, 0, BYTES, false));
	assert_memory_equal(seen, model, BYTES);
}

static void write_at_random(struct disk *d, u32 times)
{
	static u8 data[BYTES];

	for (u32 i = 0; i < times; i++) {
		u64 sectors = BYTES / DISK_SECTOR, first = (u64)rand() % sectors;
		u64 n = 1 + (u64)rand() % MIN(sectors - first, 300ul);

		memset(data, rand(), n * DISK_SECTOR);
		assert_true(transfer(d, data, first * DISK_SECTOR, n * DISK_SECTOR, true));
		memcpy(model + first * DISK_SECTOR, data, n * DISK_SECTOR);
		check_all(d);
	}
}

static void assert_base_untouched(void)
{
	static u8 now[BYTES];
	int fd = open(base, O_RDONLY | O_CLOEXEC);

	assert_int_equal(read(fd, now, BYTES), BYTES);
	for (u32 i = 0; i < BYTES; i++)
		assert_int_equal(now[i], (u8)(i * 7 + i / DISK_SECTOR));
	close(fd);
}

static void test_forgotten(void **state)
{
	const struct disk_source s = { .path = base, .cow = true };
	struct disk d;

	(void)state;
	srand(1);
	assert_int_equal(disk_open(&d, &s, NULL), 0);
	assert_int_equal(d.bytes, BYTES);
	check_all(&d);
	write_at_random(&d, 40);
	assert_true(disk_flush(&d));
	/* outside */
	assert_false(transfer(&d, model, BYTES - DISK_SECTOR, 2 * DISK_SECTOR, false));
	assert_false(transfer(&d, model, UINT64_MAX - 511, 2 * DISK_SECTOR, true));
	disk_close(&d);
	assert_base_untouched();
}

static void test_kept(void **state)
{
	const struct disk_source s = { .path = base, .cow = true, .overlay = overlay };
	struct stat st;
	struct disk d;

	(void)state;
	n_names_synced = 0;
	srand(2);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(disk_open(&d, &s, NULL), 0);
		check_all(&d);
		write_at_random(&d, i == 0 ? 1 : 10);
		/* what was flushed is there without an orderly end, too */
		assert_true(disk_flush(&d));
		d.keep = i % 2;
		disk_close(&d);
		assert_base_untouched();
	}
	assert_int_equal(n_names_synced, 1); /* when it was made */
	/* sparse: little was written to the first cluster alone */
	assert_int_equal(stat(overlay, &st), 0);
	assert_true(st.st_blocks * 512 <= (off_t)(BYTES + 2 * OVERLAY_HEADER + 2 * DISK_CLUSTER));
}

static void refuse(int no, const char *words)
{
	const struct disk_source s = { .path = base, .cow = true, .overlay = overlay };
	struct err err = { 0 };
	struct disk d;

	assert_int_equal(disk_open(&d, &s, &err), no);
	assert_non_null(strstr(err.msg, words));
	disk_close(&d);
}

static void test_wrong_overlays(void **state)
{
	const struct disk_source s = { .path = base, .cow = true, .overlay = overlay };
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000 } };
	struct disk d;
	int fd;

	(void)state;
	fd = open(overlay, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "some file of the user's", 23), 23);
	refuse(-EINVAL, "is not a file of this program's");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(disk_open(&d, &s, NULL), 0);
	disk_close(&d);
	assert_int_equal(utimensat(AT_FDCWD, base, times, 0), 0);
	refuse(-ESTALE, "the disk was changed since");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(disk_open(&d, &s, NULL), 0);
	disk_close(&d);
	assert_int_equal(ftruncate(fd, OVERLAY_HEADER + 100), 0);
	refuse(-EINVAL, "cut short");
	unlink(overlay);
	assert_int_equal(symlink("/etc/passwd", overlay), 0);
	refuse(-ELOOP, "symbolic links");
	close(fd);
}

/* What QEMU would find at a byte of its own, asked by another description of the file. */
static bool is_locked(off_t byte)
{
	struct flock l = { .l_type = F_WRLCK, .l_start = byte, .l_len = 1 };
	int fd = open(base, O_RDWR | O_CLOEXEC);

	assert_int_equal(fcntl(fd, F_OFD_GETLK, &l), 0);
	close(fd);
	return l.l_type != F_UNLCK;
}

static void test_locks(void **state)
{
	const struct disk_source writer = { .path = base },
				 reader = { .path = base, .read_only = true },
				 cow = { .path = base, .cow = true };
	struct flock l = { .l_type = F_RDLCK, .l_start = 201, .l_len = 1 };
	struct err err = { 0 };
	struct disk a, b;
	int fd;

	(void)state;
	assert_int_equal(disk_open(&a, &writer, NULL), 0);
	assert_true(is_locked(100) && is_locked(101) && is_locked(201));
	assert_false(is_locked(200) || is_locked(102) || is_locked(0));
	assert_int_equal(disk_open(&b, &writer, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "another guest has it"));
	disk_close(&b);
	assert_int_equal(disk_open(&b, &reader, NULL), -EBUSY);
	disk_close(&b);
	assert_int_equal(disk_open(&b, &cow, NULL), -EBUSY);
	disk_close(&b);
	disk_close(&a);
	assert_false(is_locked(100) || is_locked(101) || is_locked(201));
	/* readers and bases of overlays share, none may write beside them */
	assert_int_equal(disk_open(&a, &reader, NULL), 0);
	assert_true(is_locked(100) && is_locked(201) && !is_locked(101));
	assert_int_equal(disk_open(&b, &cow, NULL), 0);
	disk_close(&b);
	assert_int_equal(disk_open(&b, &writer, NULL), -EBUSY);
	disk_close(&b);
	disk_close(&a);
	/* somebody who lets nobody write */
	fd = open(base, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0);
	assert_int_equal(disk_open(&a, &writer, NULL), -EBUSY);
	disk_close(&a);
	assert_int_equal(disk_open(&a, &reader, NULL), 0);
	disk_close(&a);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_forgotten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_wrong_overlays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_locks, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
