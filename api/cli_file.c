// SPDX-License-Identifier: Apache-2.0
/* `hvftrace functions FILE`: call sites of a kernel or module that does not run. Needs no daemon. */
#include "api/cli.h"
#include "base/cleanup.h"
#include "symbols/elf_sites.h"
#include "tracers/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const notes[] = {
	[ELF_SITE_NOP] = "",
	[ELF_SITE_CALL] = "",
	[ELF_SITE_NOPS] = " (several nops: cannot be traced)",
	[ELF_SITE_WEAK] = " (of a weak function that was overridden)",
	[ELF_SITE_OTHER] = " (no call site that is known)",
};

static bool wanted(const char *name, char *const *globs)
{
	if (!*globs)
		return true;
	for (; *globs; globs++) {
		if (glob_match(*globs, name))
			return true;
	}
	return false;
}

static void print(const struct cli *c, const struct elf_sites *s, char *const *globs)
{
	for (size_t i = 0; i < s->n && !ferror(stdout); i++) {
		const struct elf_site *site = &s->site[i];

		if (!wanted(site->name, globs))
			continue;
		if (c->json) {
			json_t *v = json_pack(
				"{s:s, s:s, s:i, s:o}", "name", site->name, "kind",
				elf_site_kind_name(site->kind), "section", (int)site->section,
				"addr", json_sprintf("0x%llx", (unsigned long long)site->addr));

			json_dumpf(v, stdout, JSON_COMPACT);
			json_decref(v);
		} else {
			cli_text(stdout, site->name);
			fputs(notes[site->kind], stdout);
		}
		putchar('\n');
	}
}

static void sum_up(const char *path, const struct elf_sites *s)
{
	static const char *const sources[] = {
		[ELF_SITES_MCOUNT_LOC] = "recorded in __mcount_loc",
		[ELF_SITES_PATCHABLE] = "recorded in __patchable_function_entries",
		[ELF_SITES_RECORDED] = "found in its text, as nothing is recorded",
	};
	size_t n[ELF_SITE_OTHER + 1] = { 0 };

	for (size_t i = 0; i < s->n; i++)
		n[s->site[i].kind]++;
	fprintf(stderr,
		"%s: %zu call sites, %s: %zu nops, %zu calls%s, %zu of several nops, %zu of "
		"overridden weak functions, %zu others\n",
		path, s->n, sources[s->source], n[ELF_SITE_NOP], n[ELF_SITE_CALL],
		s->prologue ? " behind a prologue" : "", n[ELF_SITE_NOPS], n[ELF_SITE_WEAK],
		n[ELF_SITE_OTHER]);
}

int cli_file_functions(struct cli *c, const char *path, char *const *globs)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_sites s;
	struct err err = { 0 };
	struct stat st;
	void *data;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail("%s: %s", path, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return cli_fail("%s is no file with a kernel or module", path);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return cli_fail("%s: %s", path, strerrordesc_np(errno));
	rc = elf_sites_read(data, (size_t)st.st_size, &s, &err);
	if (!rc) {
		print(c, &s, globs);
		sum_up(path, &s);
		elf_sites_deinit(&s);
	}
	munmap(data, (size_t)st.st_size);
	return rc ? cli_fail("%s: %s (%s)", path, err.msg, err_code_name(err.code))
		  : cli_flush(CLI_OK);
}
