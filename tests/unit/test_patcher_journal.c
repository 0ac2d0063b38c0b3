// SPDX-License-Identifier: Apache-2.0
/* patcher/journal.c: what is outstanding survives a stop at any byte. */
#include "patcher/journal.h"

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

static char dir[] = "/tmp/hvf-journal-XXXXXX";

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when a test left a file */
}

static void path_of(char *path, size_t n, pid_t pid)
{
	snprintf(path, n, "%s/guest-%d-7.journal", dir, (int)pid);
}

static struct journal *opened(pid_t pid)
{
	struct journal_ident id = { .target = "pid:1", .kaslr_offset = 0x1000, .levels = 5 };
	struct journal *j;

	assert_int_equal(journal_open(dir, pid, 7, &j, NULL), 0);
	if (!journal_outstanding(j))
		assert_int_equal(journal_set_ident(j, &id, NULL), 0);
	return j;
}

static void add_texts(struct journal *j, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct journal_text t = { .addr = 0xffffffff81000000 + i * 64,
					  .kind = JOURNAL_SITE,
					  .len = 5,
					  .old = { 0x0f, 0x1f },
					  .new = { 0xe8 } };

		assert_int_equal(journal_add_text(j, &t, NULL), 0);
	}
	assert_int_equal(journal_flush(j, NULL), 0);
}

static void nothing_outstanding_leaves_no_file(void **state)
{
	struct journal *j = opened(10);
	char path[600];

	(void)state;
	path_of(path, sizeof(path), 10);
	assert_int_equal(access(path, F_OK), 0);
	assert_false(journal_outstanding(j));
	journal_close(j);
	assert_int_equal(access(path, F_OK), -1);
}

static void outstanding_is_read_back(void **state)
{
	struct journal *j = opened(11);
	const struct journal_state *s;

	(void)state;
	assert_int_equal(journal_mailbox(j, 0xffff888000001f80, NULL), 0);
	add_texts(j, 100);
	assert_int_equal(journal_pending(j, JOURNAL_AGENT_DATA, 8192, 3, NULL), 0);
	journal_close(j);

	j = opened(11);
	s = journal_state(j);
	assert_string_equal(s->ident.target, "pid:1");
	assert_int_equal(s->n_text, 100);
	assert_int_equal(s->text[99].addr, 0xffffffff81000000 + 99 * 64);
	assert_int_equal(s->mailbox, 0xffff888000001f80);
	assert_int_equal(s->pending, JOURNAL_AGENT_DATA);
	assert_false(s->pending_free);
	assert_int_equal(s->pending_seq, 3);
	assert_int_equal(journal_alloc(j, JOURNAL_AGENT_DATA, 0xffffffffc0000000, 8192, NULL), 0);
	assert_int_equal(journal_state(j)->pending, 0);
	assert_int_equal(journal_undone(j, JOURNAL_SITE, NULL), 0);
	assert_int_equal(journal_state(j)->n_text, 0);
	assert_int_equal(journal_pending_free(j, JOURNAL_AGENT_DATA, 9, NULL), 0);
	assert_true(journal_state(j)->pending_free);
	assert_int_equal(journal_freed(j, JOURNAL_AGENT_DATA, NULL), 0);
	assert_true(journal_outstanding(j));
	assert_int_equal(journal_mailbox(j, 0, NULL), 0);
	assert_false(journal_outstanding(j));
	journal_close(j);
}

/* The last to go: by then the agent is out of it, and it alone is what a dead daemon left. */
static void a_loan_is_outstanding(void **state)
{
	struct journal *j = opened(12);

	(void)state;
	assert_int_equal(journal_alloc(j, JOURNAL_LENT, 0x140000000, 4096, NULL), 0);
	assert_int_equal(journal_alloc(j, JOURNAL_AGENT_TEXT, 0xffffffff9fe00000, 8192, NULL), 0);
	assert_int_equal(journal_freed(j, JOURNAL_AGENT_TEXT, NULL), 0);
	journal_close(j);

	j = opened(12);
	assert_true(journal_outstanding(j));
	assert_int_equal(journal_state(j)->alloc[JOURNAL_LENT], 0x140000000);
	assert_int_equal(journal_state(j)->alloc[JOURNAL_AGENT_TEXT], 0);
	assert_int_equal(journal_freed(j, JOURNAL_LENT, NULL), 0);
	assert_false(journal_outstanding(j));
	journal_close(j);
}

static void file_starts_over_when_all_is_undone(void **state)
{
	struct journal *j = opened(12);
	struct stat before, after;
	char path[600];

	(void)state;
	path_of(path, sizeof(path), 12);
	assert_int_equal(stat(path, &before), 0);
	for (int i = 0; i < 50; i++) {
		add_texts(j, 20);
		assert_int_equal(journal_undone(j, JOURNAL_SITE, NULL), 0);
	}
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	journal_close(j);
}

static void second_opener_is_refused(void **state)
{
	struct journal *j = opened(13), *k;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(journal_open(dir, 13, 7, &k, &err), -EBUSY);
	assert_int_equal(err.code, ERR_GUEST_ATTACHED);
	journal_close(j);
}

static void cut_at_any_byte_is_read_up_to_there(void **state)
{
	struct journal *j = opened(14);
	_Alignas(8) static u8 data[65536];
	char path[600];
	size_t len, last = 0;
	int fd;

	(void)state;
	path_of(path, sizeof(path), 14);
	add_texts(j, 5);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = (size_t)read(fd, data, sizeof(data));
	close(fd);
	for (size_t cut = 8; cut <= len; cut++) {
		struct journal_state s;
		size_t used;

		assert_int_equal(journal_parse(data, cut, &s, &used, NULL), 0);
		assert_true(used <= cut);
		assert_true(s.n_text >= last && s.n_text <= last + 1);
		last = s.n_text;
		journal_state_deinit(&s);
	}
	assert_int_equal(last, 5);
	for (size_t i = 0; i < len; i++) { /* a damaged record ends the journal there */
		struct journal_state s;
		size_t used;

		data[i] ^= 0x40;
		if (!journal_parse(data, len, &s, &used, NULL)) {
			assert_true(used <= i);
			journal_state_deinit(&s);
		} else {
			assert_true(i < 8);
		}
		data[i] ^= 0x40;
	}
	assert_int_equal(journal_undone(j, JOURNAL_SITE, NULL), 0);
	journal_close(j);
}

static off_t size_of(pid_t pid)
{
	struct stat st;
	char path[600];

	path_of(path, sizeof(path), pid);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* Modules come and go without end: what went with them is dropped, the rest is as before, on disk too. */
static void what_went_away_is_dropped(void **state)
{
	struct journal_text kept = {
		.addr = 0xffffffffc0100000, .kind = JOURNAL_SITE, .len = 5, .new = { 0xe8 }
	};
	struct journal_text hook = { .addr = 0xffffffff81500000,
				     .kind = JOURNAL_INTERLOCK,
				     .len = 5 };
	struct journal *j = opened(14), *other;
	const struct journal_state *s;
	off_t first = 0;

	(void)state;
	assert_int_equal(
		journal_agent_came(j, 0xffffffffc0000000, 4096, 0xffffffffc0200000, 8192, NULL), 0);
	assert_int_equal(journal_alloc(j, JOURNAL_LENT, 0x100000000, 4096, NULL), 0);
	assert_int_equal(journal_mailbox(j, 0xffff888000001f80, NULL), 0);
	assert_int_equal(journal_pending_free(j, JOURNAL_AGENT_DATA, 9, NULL), 0);
	assert_int_equal(journal_add_text(j, &hook, NULL), 0);
	for (int round = 0; round < 20; round++) {
		add_texts(j, 100);
		assert_int_equal(journal_keep(j, JOURNAL_SITE, &kept, 1, NULL), 0);
		assert_int_equal(journal_state(j)->n_text, 2);
		if (!round)
			first = size_of(14);
		assert_int_equal(size_of(14), first);
	}
	/* still ours alone, and it goes on */
	assert_int_equal(journal_open(dir, 14, 7, &other, NULL), -EBUSY);
	add_texts(j, 3);
	journal_close(j);

	j = opened(14);
	s = journal_state(j);
	assert_true(s->alloc[JOURNAL_LENT] == 0x100000000);
	assert_int_equal(s->n_text, 5);
	assert_int_equal(s->text[0].kind, JOURNAL_INTERLOCK);
	assert_memory_equal(&s->text[1], &kept, sizeof(kept));
	assert_string_equal(s->ident.target, "pid:1");
	assert_int_equal(s->alloc[JOURNAL_AGENT_TEXT], 0xffffffffc0000000);
	assert_int_equal(s->alloc_bytes[JOURNAL_AGENT_DATA], 8192);
	assert_int_equal(s->mailbox, 0xffff888000001f80);
	assert_true(s->pending == JOURNAL_AGENT_DATA && s->pending_free && s->pending_seq == 9);
	journal_discard(j);
}

static void none(void *arg, pid_t pid, u64 start_time, const char *path)
{
	(void)pid;
	(void)start_time;
	(void)path;
	++*(int *)arg;
}

/* A daemon that died while it wrote one anew: the old one counts, the other goes. */
static void half_written_is_no_journal(void **state)
{
	struct journal *j = opened(15);
	char path[620];
	int n = 0, fd;

	(void)state;
	add_texts(j, 1);
	path_of(path, sizeof(path) - 8, 15);
	strcat(path, ".new");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "HVF", 3), 3);
	close(fd);
	assert_int_equal(journal_list(dir, none, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(journal_state(j)->n_text, 1);
	journal_discard(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_outstanding_leaves_no_file),
		cmocka_unit_test(outstanding_is_read_back),
		cmocka_unit_test(a_loan_is_outstanding),
		cmocka_unit_test(file_starts_over_when_all_is_undone),
		cmocka_unit_test(second_opener_is_refused),
		cmocka_unit_test(cut_at_any_byte_is_read_up_to_there),
		cmocka_unit_test(what_went_away_is_dropped),
		cmocka_unit_test(half_written_is_no_journal),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
