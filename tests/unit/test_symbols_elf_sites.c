// SPDX-License-Identifier: Apache-2.0
/*
 * Call sites of files that the compiler makes here, one for each way in which kernels were and are built; and of
 * files that are damaged.
 */
#include "symbols/elf_sites.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_NAMES 8

static char dir[] = "/tmp/hvf-elf-sites-XXXXXX";

static const char source[] =
	"int data;\n"
	"static int __attribute__((noinline, noclone)) local_one(int a) { data += a; return data * 3; }\n"
	"int __attribute__((weak, noinline)) soft(int a) { data ^= a; return local_one(a) + 1; }\n"
	"int global(int a) { return local_one(a) + soft(a); }\n"
	"int __attribute__((no_instrument_function)) hidden(int a) { return a + 1; }\n";
/* overrides the weak one, as an architecture's does a generic one */
static const char strong[] = "int data2; int soft(int a) { data2 += a; return a; }\n";
static const char stubs[] = ".globl mcount, __fentry__, _start\n.type mcount, @function\n"
			    ".type __fentry__, @function\n_start:\nmcount: ret\n__fentry__: ret\n"
			    ".size mcount, 1\n.size __fentry__, 1\n"
			    ".section .note.GNU-stack,\"\",@progbits\n";

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void run(const char *fmt, ...)
{
	char command[600], args[500];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	snprintf(command, sizeof(command), "cd %s && gcc -O1 -fno-pic -fno-stack-protector %s", dir,
		 args);
	/* NOLINTNEXTLINE(cert-env33-c): in our own mkdtemp() folder */
	assert_int_equal(system(command), 0);
}

static void *read_file(const char *name, size_t *len_ret)
{
	char path[128];
	struct stat st = { 0 };
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	p = malloc((size_t)st.st_size + 1);
	assert_non_null(p);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	close(fd);
	*len_ret = (size_t)st.st_size;
	return p;
}

static int set_up(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(dir));
	write_file("a.c", source);
	write_file("b.c", strong);
	write_file("stubs.s", stubs);
	return 0;
}

static int tear_down(void **state)
{
	char command[100];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command); /* NOLINT(cert-env33-c): as above */
}

struct want {
	const char *flags;
	enum elf_site_source source;
	enum elf_site_kind kind;
	bool prologue;
	const char *names; /* with spaces between, in any order */
};

static void check(const char *file, const struct want *w, const char *names, size_t n_weak)
{
	struct elf_sites s;
	struct err err = { 0 };
	size_t len, n_found = 0, n_names = 0, weak = 0;
	void *data = read_file(file, &len);

	assert_int_equal(elf_sites_read(data, len, &s, &err), 0);
	for (const char *p = names; *p; p += strcspn(p, " "), p += *p == ' ')
		n_names++;
	for (size_t i = 0; i < s.n; i++) {
		weak += s.site[i].kind == ELF_SITE_WEAK;
		if (s.site[i].kind == ELF_SITE_WEAK)
			continue;
		assert_int_equal(s.site[i].kind, w->kind);
		assert_non_null(strstr(names, s.site[i].name));
		n_found++;
	}
	assert_int_equal(s.source, w->source);
	assert_int_equal(s.prologue, w->prologue && s.source == ELF_SITES_RECORDED);
	assert_int_equal(n_found, n_names);
	assert_int_equal(weak, n_weak);
	elf_sites_deinit(&s);
	free(data);
}

#define TRACED "local_one soft global"

static const struct want wants[] = {
	{ "-pg", ELF_SITES_RECORDED, ELF_SITE_CALL, true, TRACED },
	{ "-pg -mfentry", ELF_SITES_RECORDED, ELF_SITE_CALL, false, TRACED },
	{ "-pg -mfentry -fcf-protection", ELF_SITES_RECORDED, ELF_SITE_CALL, false, TRACED },
	{ "-pg -mfentry -ffunction-sections", ELF_SITES_RECORDED, ELF_SITE_CALL, false, TRACED },
	{ "-pg -mfentry -mnop-mcount", ELF_SITES_RECORDED, ELF_SITE_NOP, false, TRACED },
	{ "-pg -mfentry -mrecord-mcount", ELF_SITES_MCOUNT_LOC, ELF_SITE_CALL, false, TRACED },
	{ "-pg -mfentry -mrecord-mcount -mnop-mcount", ELF_SITES_MCOUNT_LOC, ELF_SITE_NOP, false,
	  TRACED },
	{ "-pg -mfentry -mrecord-mcount -mnop-mcount -fcf-protection", ELF_SITES_MCOUNT_LOC,
	  ELF_SITE_NOP, false, TRACED },
	/* five nops of one byte; and it has no exceptions */
	{ "-fpatchable-function-entry=5", ELF_SITES_PATCHABLE, ELF_SITE_NOPS, false,
	  TRACED " hidden" },
	{ "-fpatchable-function-entry=7,2", ELF_SITES_PATCHABLE, ELF_SITE_NOPS, false,
	  TRACED " hidden" },
	{ "", ELF_SITES_RECORDED, ELF_SITE_NOP, false, "" },
};

static void test_objects(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wants); i++) {
		print_message("%s\n", wants[i].flags);
		run("%s -c a.c -o a.o", wants[i].flags);
		check("a.o", &wants[i], wants[i].names, 0);
	}
}

/* Linked with a strong soft(): the weak one's code stays, and its site, but no name. */
static void test_linked(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wants); i++) {
		bool recorded = wants[i].source == ELF_SITES_RECORDED;
		size_t weak = recorded ? 0 : 1;

		print_message("%s\n", wants[i].flags);
		run("%s -nostdlib -static -no-pie -Wl,--build-id=none -o a.elf a.c b.c stubs.s",
		    wants[i].flags);
		check("a.elf", &wants[i], wants[i].names, weak);
	}
}

/* Whatever a file says, nothing outside of it is read, and it ends. */
static void test_damaged(void **state)
{
	static const char *const files[] = { "a.o", "a.elf" };
	struct elf_sites s;
	struct err err = { 0 };

	(void)state;
	run("-pg -mfentry -mrecord-mcount -c a.c -o a.o");
	run("-pg -mfentry -mrecord-mcount -nostdlib -static -no-pie -o a.elf a.c b.c stubs.s");
	srandom(1);
	for (size_t f = 0; f < ARRAY_SIZE(files); f++) {
		size_t len;
		u8 *data = read_file(files[f], &len), *copy = malloc(len);

		assert_non_null(copy);
		for (size_t n = 0; n < len; n += n < 256 ? 1 : 61) {
			u8 *cut = malloc(n ? n : 1); /* of this size, for a sanitizer to see */

			memcpy(cut, data, n);
			if (elf_sites_read(cut, n, &s, &err) == 0)
				elf_sites_deinit(&s);
			free(cut);
		}
		for (int i = 0; i < 3000; i++) {
			memcpy(copy, data, len);
			for (int k = 0; k < 4; k++)
				copy[(size_t)random() % (i % 2 ? len : MIN(len, (size_t)64))] =
					(u8)random();
			if (elf_sites_read(copy, len, &s, &err) == 0)
				elf_sites_deinit(&s);
		}
		free(copy);
		free(data);
	}
	assert_int_equal(elf_sites_read("\177ELF", 4, &s, &err), -ENOEXEC);
	assert_int_equal(err.code, ERR_FILE_FORMAT);
}

/* A table that lies in no section, and a header of no section that says it covers part of it. */
static void test_table_nowhere(void **state)
{
	struct err err = { 0 };
	struct elf_sites s;
	Elf64_Ehdr head;
	Elf64_Shdr none = { .sh_type = SHT_PROGBITS, .sh_addr = 0x1100, .sh_size = 0x1000 };
	size_t len;
	u8 *data;

	(void)state;
	run("-pg -mfentry -nostdlib -static -no-pie -Wl,--defsym,__start_mcount_loc=0x100 "
	    "-Wl,--defsym,__stop_mcount_loc=0x1200 -o nowhere.elf a.c b.c stubs.s");
	data = read_file("nowhere.elf", &len);
	memcpy(&head, data, sizeof(head));
	memcpy(data + head.e_shoff, &none, sizeof(none));
	assert_int_equal(elf_sites_read(data, len, &s, &err), 0);
	assert_int_equal(s.source, ELF_SITES_RECORDED); /* by the text alone */
	assert_true(s.n > 0);
	elf_sites_deinit(&s);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_linked),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_table_nowhere),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
