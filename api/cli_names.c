// SPDX-License-Identifier: Apache-2.0
/* Files of names. See cli_names.h. */
#include "api/cli_names.h"

#include "api/body.h"
#include "api/cli.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n\v\f"

/* Is @rest what may come after a name: [MODULE], (STATE), a comment? *@module_ret: "" for none. */
static bool take_rest(char *rest, const char **module_ret)
{
	char *end;

	*module_ret = "";
	if (*rest == '[') {
		end = strchr(rest, ']');
		if (!end || end == rest + 1 || (end[1] && !strchr(BLANKS, end[1])))
			return false;
		*end = 0;
		*module_ret = rest + 1;
		rest = end + 1;
		rest += strspn(rest, BLANKS);
	}
	if (*rest == '(') {
		end = strchr(rest, ')');
		if (!end)
			return false;
		rest = end + 1;
		rest += strspn(rest, BLANKS);
	}
	return !*rest || *rest == '#';
}

char *cli_names_glob(char *line, const char **why_ret)
{
	char *name = line + strspn(line, BLANKS), *rest, *glob;
	const char *module = "";
	size_t len;

	if (!*name || *name == '#')
		return strdup("");
	len = strcspn(name, BLANKS);
	rest = name + len + strspn(name + len, BLANKS);
	name[len] = 0;
	if (!take_rest(rest, &module)) {
		*why_ret = "a line is one glob, or NAME [MODULE]";
		return NULL;
	}
	if (asprintf(&glob, "%s%s%s", name, *module ? ":mod:" : "", module) < 0) {
		*why_ret = "out of memory";
		return NULL;
	}
	if (strlen(glob) > BODY_MAX_GLOB) {
		*why_ret = "a glob has at most 511 bytes";
		free(glob);
		return NULL;
	}
	return glob;
}

/* One line, @len bytes of which were read. Return: NULL, or what is wrong with it. */
static const char *take_line(char *line, size_t len, const char *origin, json_t *globs,
			     json_t *origins)
{
	const char *why = NULL;
	_cleanup_free_ char *glob = NULL;

	if (strlen(line) != len)
		return "a name has no NUL in it";
	glob = cli_names_glob(line, &why);
	if (!glob || !*glob)
		return why;
	if (json_array_size(globs) == BODY_MAX_GLOBS)
		return "at most 65536 globs are taken";
	if (json_array_append_new(globs, json_string(glob)))
		return "a name is UTF-8";
	if (!json_object_get(origins, glob))
		json_object_set_new(origins, glob, json_string(origin));
	return NULL;
}

int cli_names_read(FILE *f, const char *name, json_t *globs, json_t *origins)
{
	_cleanup_free_ char *line = NULL;
	size_t room = 0, n = 0, before = json_array_size(globs);
	const char *why;
	char origin[512];
	ssize_t len;

	while ((len = getline(&line, &room, f)) >= 0) {
		snprintf(origin, sizeof(origin), "%.480s:%zu", name, ++n);
		why = take_line(line, (size_t)len, origin, globs, origins);
		if (why)
			return cli_fail("%s: %s", origin, why);
	}
	if (ferror(f))
		return cli_fail("cannot read %s: %s", name, strerrordesc_np(errno));
	/* no glob would mean every function, which is the last thing that is meant */
	if (json_array_size(globs) == before)
		return cli_fail("%s: there is no glob in it", name);
	return CLI_OK;
}

int cli_names_file(const char *path, json_t *globs, json_t *origins)
{
	static bool stdin_is_read;
	_cleanup_fclose_ FILE *f = NULL;

	if (strcmp(path, "-") == 0) {
		if (stdin_is_read)
			return cli_fail("standard input was read already: give @- once");
		stdin_is_read = true;
		return cli_names_read(stdin, "standard input", globs, origins);
	}
	f = fopen(path, "re");
	if (!f)
		return cli_fail("cannot read %s: %s", path, strerrordesc_np(errno));
	return cli_names_read(f, path, globs, origins);
}
