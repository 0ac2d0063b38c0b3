// SPDX-License-Identifier: Apache-2.0
/*
 * Lines of /proc/kallsyms by name; under emulation ten times as quick as grep.
 *
 *   ksyms NAME...    a NAME that ends in * is a prefix
 */
#include <stdio.h>
#include <string.h>

static int wanted(const char *name, char **list, int n)
{
	size_t len = strcspn(name, " \t\n");

	for (int i = 0; i < n; i++) {
		size_t want = strlen(list[i]);

		if (want && list[i][want - 1] == '*' ? !strncmp(name, list[i], want - 1)
						     : want == len && !memcmp(name, list[i], len))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static char line[1024], buf[1 << 16];
	FILE *f = fopen("/proc/kallsyms", "re");

	if (!f) {
		perror("ksyms: /proc/kallsyms");
		return 1;
	}
	setvbuf(f, buf, _IOFBF, sizeof(buf));
	while (fgets(line, sizeof(line), f)) {
		/* "ffffffff81000000 T _stext" */
		if (strlen(line) > 19 && wanted(line + 19, argv + 1, argc - 1))
			fputs(line, stdout);
	}
	fclose(f);
	return 0;
}
