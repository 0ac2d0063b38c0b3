// SPDX-License-Identifier: Apache-2.0
/* Verbs about guests: ls, attach, info, functions, modules, detach. */
#include "api/cli.h"

#include "api/cli_domains.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text(const json_t *doc, const char *key)
{
	const char *s = json_string_value(json_object_get(doc, key));

	return s ? s : "-";
}

static long long number(const json_t *doc, const char *key)
{
	return (long long)json_integer_value(json_object_get(doc, key));
}

/* The one operand of a verb; NULL after a usage message. */
static const char *one_operand(const char *verb, int argc, char **argv, const char *what)
{
	if (argc - optind == 1)
		return argv[optind];
	cli_usage(verb, argc == optind ? "which %s?" : "only one %s", what);
	return NULL;
}

static int print_json(json_t *doc)
{
	json_dumpf(doc, stdout, JSON_INDENT(2));
	putchar('\n');
	return cli_flush(CLI_OK);
}

static void list_attached(struct cli_table *t, const json_t *guests)
{
	char vcpus[24], functions[24];
	size_t i;
	json_t *g;

	json_array_foreach(guests, i, g)
	{
		snprintf(vcpus, sizeof(vcpus), "%lld", number(g, "vcpus"));
		snprintf(functions, sizeof(functions), "%lld", number(g, "traceable"));
		cli_table_add(t, 7,
			      (const char *[]){ text(g, "name"), text(g, "accel"), vcpus,
						text(g, "release"), functions, text(g, "state"),
						text(g, "target") });
	}
}

static bool is_attached(const json_t *guests, const struct scan_vm *vm)
{
	size_t i;
	json_t *g;

	json_array_foreach(guests, i, g)
	{
		if ((vm->pid && number(g, "vmm_pid") == (long long)vm->pid) ||
		    strcmp(text(g, "target"), vm->target) == 0)
			return true;
	}
	return false;
}

static void list_others(struct cli_table *t, const json_t *guests, const struct scan_vm *vms,
			size_t n)
{
	char vcpus[24], state[160];

	for (size_t i = 0; i < n; i++) {
		const struct scan_vm *vm = &vms[i];

		if (is_attached(guests, vm))
			continue;
		snprintf(vcpus, sizeof(vcpus), "%u", vm->vcpus);
		if (vm->reason[0])
			snprintf(state, sizeof(state), "no: %s", vm->reason);
		else
			snprintf(state, sizeof(state), "can be attached");
		cli_table_add(t, 7,
			      (const char *[]){ vm->name[0] ? vm->name : "-", vm->accel,
						vm->vcpus ? vcpus : "-", "-", "-", state,
						vm->target });
	}
}

static json_t *others_doc(const json_t *guests, const struct scan_vm *vms, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++) {
		const struct scan_vm *vm = &vms[i];

		if (is_attached(guests, vm))
			continue;
		json_array_append_new(
			list, json_pack("{s:o, s:s, s:s, s:s, s:s, s:i, s:b, s:s}", "pid",
					vm->pid ? json_integer(vm->pid) : json_null(), "name",
					vm->name, "target", vm->target, "state", vm->state, "accel",
					vm->accel, "vcpus", (int)vm->vcpus, "traceable",
					!vm->reason[0], "reason", vm->reason));
	}
	return list;
}

int cli_ls(struct cli *c, int argc, char **argv)
{
	struct cli_table t = { 0 };
	struct scan_vm *vms = NULL;
	json_t *doc, *guests;
	char note[320];
	int status;
	size_t n;

	if (!cli_no_options(c, argc, argv, &status))
		return status;
	/* the host is looked at even when no daemon runs: what it finds is of use all the same */
	status = cli_request(c, "GET", "/v1/guests", NULL, &doc);
	guests = json_object_get(doc, "items");
	n = domains_add(&vms, scan_host("/proc", &vms), note, sizeof(note));
	if (note[0])
		fprintf(stderr, "hvftrace: %s\n", note);
	if (c->json) {
		json_t *all = json_pack("{s:O?, s:o}", "guests", guests, "others",
					others_doc(guests, vms, n));

		print_json(all);
		json_decref(all);
	} else {
		cli_table_add(&t, 7,
			      (const char *[]){ "NAME", "ACCEL", "VCPUS", "KERNEL", "FUNCTIONS",
						"STATE", "TARGET" });
		list_attached(&t, guests);
		list_others(&t, guests, vms, n);
		if (t.n_rows > 1 || status == CLI_OK)
			cli_table_print(&t);
	}
	free(vms);
	json_decref(doc);
	return cli_flush(status);
}

/*
 * The target as the daemon takes it: the path of a socket is absolute, whatever folder the daemon runs
 * in. To be freed; NULL after a message.
 */
static char *absolute_target(const char *target)
{
	_cleanup_free_ char *path = NULL;
	char *ret = NULL;

	if (strncmp(target, "qemu:", 5) != 0 || !target[5] || target[5] == '/') {
		ret = strdup(target);
	} else {
		path = realpath(target + 5, NULL);
		if (!path) {
			cli_fail("%s: %s (target.no_socket)", target + 5, strerrordesc_np(errno));
			return NULL;
		}
		if (asprintf(&ret, "qemu:%s", path) < 0)
			ret = NULL;
	}
	if (!ret)
		cli_fail("out of memory");
	return ret;
}

int cli_attach(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "name", required_argument, NULL, 'n' },
					       { "window-limit", required_argument, NULL, 'w' },
					       CLI_COMMON_LONG,
					       { NULL, 0, NULL, 0 } };
	const char *name = NULL, *operand;
	u64 limit_ns = 0;
	_cleanup_free_ char *target = NULL;
	json_t *doc;
	int opt, status;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		status = -1;
		if (opt == 'n')
			name = optarg;
		else if (opt == 'w')
			status = cli_window_limit(argv[0], optarg, &limit_ns);
		else
			status = cli_common_option(c, argv[0], opt, optarg);
		if (status != -1)
			return status == CLI_HELP_SHOWN ? CLI_OK : status;
	}
	operand = one_operand(argv[0], argc, argv, "target");
	if (!operand)
		return CLI_USAGE;
	target = absolute_target(operand);
	if (!target)
		return CLI_FAILED;
	status = cli_request(c, "POST", "/v1/guests",
			     json_pack("{s:s, s:s*, s:o*}", "target", target, "name", name,
				       "window_limit_ns",
				       limit_ns ? json_integer((json_int_t)limit_ns) : NULL),
			     &doc);
	if (status != CLI_OK)
		return status;
	if (c->json) {
		status = print_json(doc);
	} else {
		printf("%s: Linux ", text(doc, "name"));
		cli_text(stdout, text(doc, "release"));
		printf(", %lld vCPUs (%s), %lld functions, found in %.0f ms\n",
		       number(doc, "vcpus"), text(doc, "accel"), number(doc, "traceable"),
		       (double)number(doc, "find_ns") / 1e6);
		status = cli_flush(CLI_OK);
	}
	json_decref(doc);
	return status;
}

static void info_line(const char *key, const char *value)
{
	printf("%-14s", key);
	cli_text(stdout, value);
	putchar('\n');
}

static double ms(const json_t *doc, const char *key)
{
	return (double)number(doc, key) / 1e6;
}

/* How long finding out took, and for how long the guest was held up since. */
static void print_times(const json_t *doc, const json_t *windows)
{
	printf("%-14s%.3f ms\n", "find time", ms(doc, "find_ns"));
	if (number(doc, "lend_ns"))
		printf("%-14s%.3f ms\n", "lend time", ms(doc, "lend_ns"));
	else
		info_line("lend time", "no memory was lent yet");
	printf("%-14s%lld", "stop windows", number(windows, "count"));
	if (number(windows, "count"))
		printf(", last %.3f ms, longest %.3f ms, %.3f ms together", ms(windows, "last_ns"),
		       ms(windows, "max_ns"), ms(windows, "total_ns"));
	printf("\n%-14s%.3f ms\n", "window limit", ms(windows, "limit_ns"));
}

static void print_info(const json_t *doc)
{
	const json_t *w = json_object_get(doc, "windows"), *a = json_object_get(doc, "agent");
	const json_t *traces = json_object_get(doc, "traces"), *id;
	size_t i;

	info_line("name", text(doc, "name"));
	info_line("target", text(doc, "target"));
	info_line("state", text(doc, "state"));
	info_line("attached", text(doc, "attached"));
	info_line("release", text(doc, "release"));
	info_line("banner", text(doc, "banner"));
	info_line("build id", text(doc, "build_id"));
	printf("%-14s%s, pid %lld, %lld vCPUs, %lld MiB\n", "vmm", text(doc, "accel"),
	       number(doc, "vmm_pid"), number(doc, "vcpus"), number(doc, "ram_bytes") >> 20);
	printf("%-14s%s, %lld page table levels\n", "kaslr offset", text(doc, "kaslr_offset"),
	       number(doc, "paging_levels"));
	printf("%-14s%lld\n", "symbols", number(doc, "symbols"));
	printf("%-14s%lld, %lld can be traced, %lld in use by the guest, %lld armed\n", "functions",
	       number(doc, "functions"), number(doc, "traceable"), number(doc, "in_use"),
	       number(doc, "armed"));
	printf("%-14s%lld\n", "modules", number(doc, "modules"));
	if (json_is_true(json_object_get(a, "loaded")))
		printf("%-14stext %s, data %s, %lld KiB\n", "agent", text(a, "text"),
		       text(a, "data"), number(a, "bytes") >> 10);
	else
		info_line("agent", "not loaded");
	print_times(doc, w);
	printf("%-14s", "traces");
	json_array_foreach(traces, i, id) printf("%s%s", i ? ", " : "", json_string_value(id));
	puts(json_array_size(traces) ? "" : "none");
}

/* GET of the one guest that the command line names, printed by @print. */
static int show_guest(struct cli *c, int argc, char **argv, const char *rest,
		      void (*print)(const json_t *doc))
{
	_cleanup_free_ char *path = NULL;
	const char *guest;
	json_t *doc;
	int status;

	if (!cli_no_options(c, argc, argv, &status))
		return status;
	guest = one_operand(argv[0], argc, argv, "guest");
	if (!guest)
		return CLI_USAGE;
	path = cli_guest_path(guest, rest);
	if (!path)
		return cli_fail("out of memory");
	status = cli_request(c, "GET", path, NULL, &doc);
	if (status != CLI_OK)
		return status;
	if (c->json)
		print_json(doc);
	else
		print(doc);
	json_decref(doc);
	return cli_flush(CLI_OK);
}

int cli_info(struct cli *c, int argc, char **argv)
{
	return show_guest(c, argc, argv, "", print_info);
}

static void print_modules(const json_t *doc)
{
	struct cli_table t = { 0 };
	char size[24], functions[24];
	size_t i;
	json_t *m;

	cli_table_add(&t, 4, (const char *[]){ "MODULE", "BASE", "TEXT", "FUNCTIONS" });
	json_array_foreach(json_object_get(doc, "items"), i, m)
	{
		snprintf(size, sizeof(size), "%lld", number(m, "text_bytes"));
		snprintf(functions, sizeof(functions), "%lld", number(m, "functions"));
		cli_table_add(
			&t, 4,
			(const char *[]){ text(m, "name"), text(m, "base"), size, functions });
	}
	cli_table_print(&t);
}

int cli_modules(struct cli *c, int argc, char **argv)
{
	return show_guest(c, argc, argv, "/modules", print_modules);
}

/* As available_filter_functions shows them, with a word about those that cannot be traced. */
static void print_functions(const json_t *items, bool json)
{
	size_t i;
	json_t *f;

	json_array_foreach(items, i, f)
	{
		const char *module = json_string_value(json_object_get(f, "module"));

		if (json) {
			json_dumpf(f, stdout, JSON_COMPACT);
			putchar('\n');
			continue;
		}
		cli_text(stdout, text(f, "name"));
		if (module) {
			fputs(" [", stdout);
			cli_text(stdout, module);
			putchar(']');
		}
		if (strcmp(text(f, "state"), "disabled") == 0)
			fputs(" (disabled)", stdout);
		else if (strcmp(text(f, "state"), "in_use") == 0)
			fputs(" (in use by the guest)", stdout);
		putchar('\n');
	}
}

static char *functions_path(const char *guest, char *const *globs, const char *cursor)
{
	_cleanup_buf_ struct buf b = { 0 };
	char *part = cli_guest_path(guest, "/functions?limit=10000");

	buf_adds(&b, part ? part : "");
	b.failed |= !part;
	free(part);
	for (; *globs; globs++) {
		part = cli_escape(*globs);
		buf_addf(&b, "&glob=%s", part ? part : "");
		b.failed |= !part;
		free(part);
	}
	if (cursor)
		buf_addf(&b, "&cursor=%s", cursor);
	return buf_failed(&b) ? NULL : strdup(b.data);
}

int cli_functions(struct cli *c, int argc, char **argv)
{
	json_t *doc = NULL, *next;
	char *path;
	int status;

	if (!cli_no_options(c, argc, argv, &status))
		return status;
	if (optind == argc)
		return cli_usage(argv[0], "which guest?");
	/* a guest's name has no slash, and a file beside us is meant when there is one */
	if (strchr(argv[optind], '/') || access(argv[optind], F_OK) == 0)
		return cli_file_functions(c, argv[optind], argv + optind + 1);
	do {
		path = functions_path(argv[optind], argv + optind + 1,
				      json_string_value(json_object_get(doc, "next_cursor")));
		json_decref(doc);
		if (!path)
			return cli_fail("out of memory");
		status = cli_request(c, "GET", path, NULL, &doc);
		free(path);
		if (status != CLI_OK)
			return status;
		print_functions(json_object_get(doc, "items"), c->json);
		next = json_object_get(doc, "next_cursor");
	} while (json_is_string(next) && !ferror(stdout));
	json_decref(doc);
	return cli_flush(CLI_OK);
}

int cli_detach(struct cli *c, int argc, char **argv)
{
	static const struct option longs[] = { { "force", no_argument, NULL, 'f' },
					       CLI_COMMON_LONG,
					       { NULL, 0, NULL, 0 } };
	_cleanup_free_ char *path = NULL;
	const char *guest;
	bool force = false;
	json_t *doc, *r;
	int opt, status;

	while ((opt = getopt_long(argc, argv, CLI_COMMON_SHORT, longs, NULL)) != -1) {
		if (opt == 'f')
			force = true;
		else if ((status = cli_common_option(c, argv[0], opt, optarg)) != -1)
			return status == CLI_HELP_SHOWN ? CLI_OK : status;
	}
	guest = one_operand(argv[0], argc, argv, "guest");
	if (!guest)
		return CLI_USAGE;
	path = cli_guest_path(guest, force ? "?force=true" : "");
	if (!path)
		return cli_fail("out of memory");
	status = cli_request(c, "DELETE", path, NULL, &doc);
	if (status != CLI_OK)
		return status;
	r = json_object_get(doc, "restore");
	if (c->json) {
		print_json(doc);
	} else {
		printf("%s: detached, %lld sites put back", text(doc, "name"),
		       number(r, "sites_restored"));
		if (number(r, "sites_changed"))
			printf(", %lld left as the guest itself changed them",
			       number(r, "sites_changed"));
		puts(json_is_true(json_object_get(r, "verified")) ? ", verified" : "");
	}
	json_decref(doc);
	return cli_flush(CLI_OK);
}
