// SPDX-License-Identifier: Apache-2.0
/*
 * api/cli_text.c, api/cli_names.c, api/cli_scan.c and api/cli_domains.c: words, numbers, files of names,
 * and QEMU's command lines.
 */
#include "api/cli.h"
#include "api/cli_domains.h"
#include "api/cli_names.h"
#include "api/cli_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

const struct cli_verb *cli_verb_find(const char *name)
{
	(void)name;
	return NULL;
}

static void durations(void **state)
{
	u64 ns;

	(void)state;
	assert_true(cli_duration("10", &ns) && ns == 10 * NSEC_PER_SEC);
	assert_true(cli_duration("500ms", &ns) && ns == 500 * NSEC_PER_MSEC);
	assert_true(cli_duration("50us", &ns) && ns == 50000);
	assert_true(cli_duration("7ns", &ns) && ns == 7);
	assert_true(cli_duration("2m", &ns) && ns == 120 * NSEC_PER_SEC);
	assert_true(cli_duration("1h", &ns) && ns == 3600 * NSEC_PER_SEC);
	assert_false(cli_duration("", &ns));
	assert_false(cli_duration("0", &ns));
	assert_false(cli_duration("-1", &ns));
	assert_false(cli_duration(" 1", &ns));
	assert_false(cli_duration("1 s", &ns));
	assert_false(cli_duration("1.5", &ns));
	assert_false(cli_duration("5u", &ns));
	assert_false(cli_duration("5uss", &ns));
	assert_false(cli_duration("0us", &ns));
	assert_false(cli_duration("99999999999999999999", &ns));
	assert_false(cli_duration("18446744073709551615h", &ns));
}

static void sizes(void **state)
{
	u64 n;

	(void)state;
	assert_true(cli_size("512M", &n) && n == 512ull << 20);
	assert_true(cli_size("2g", &n) && n == 2ull << 30);
	assert_true(cli_size("4096", &n) && n == 4096);
	assert_false(cli_size("M", &n));
	assert_false(cli_size("1X", &n));
	assert_false(cli_size("1MB", &n));
	assert_false(cli_size("0", &n));
	assert_false(cli_size("99999999999T", &n));
}

static void near_words(void **state)
{
	static const char *const words[] = { "ls", "attach", "detach", "record", "report" };

	(void)state;
	assert_string_equal(cli_closest("atach", words, 5), "attach");
	assert_string_equal(cli_closest("detahc", words, 5), "detach");
	assert_string_equal(cli_closest("recrod", words, 5), "record");
	assert_string_equal(cli_closest("sl", words, 5), "ls");
	assert_null(cli_closest("frobnicate", words, 5));
	assert_null(cli_closest("", words, 5));
	assert_null(cli_closest("a-word-that-is-much-longer-than-any-verb-there-is", words, 5));
}

static void terminals_are_left_alone(void **state)
{
	char buf[64] = "";
	FILE *f = fmemopen(buf, sizeof(buf), "w");

	(void)state;
	cli_text(f, "a\x1b[31m\n\x7f\xc2\x9b\xc3\xa4z");
	fclose(f);
	assert_string_equal(buf, "a?[31m???\xc3\xa4z");
}

static void lines_of_names(void **state)
{
	static const struct {
		const char *line, *glob; /* NULL: none is taken */
	} lines[] = {
		{ "vfs_read\n", "vfs_read" },
		{ "  vfs_*\t\r\n", "vfs_*" },
		{ ":mod:ext4", ":mod:ext4" },
		{ "[a-z]*_read", "[a-z]*_read" },
		{ "", "" },
		{ "\n", "" },
		{ " \t\r\n", "" },
		{ "# all of them\n", "" },
		{ "  #vfs_read", "" },
		{ "vfs_read # why\n", "vfs_read" },
		{ "a#b\n", "a#b" },
		{ "ext4_sync [ext4]\n", "ext4_sync:mod:ext4" },
		{ "ext4_sync\t[ext4]  # why\n", "ext4_sync:mod:ext4" },
		{ "ext4_sync (disabled)\n", "ext4_sync" },
		{ "ext4_sync [ext4] (in use by the guest)\n", "ext4_sync:mod:ext4" },
		{ "vfs_read vfs_write\n", NULL },
		{ "vfs_read []\n", NULL },
		{ "vfs_read [ext4\n", NULL },
		{ "vfs_read [ext4]x\n", NULL },
		{ "vfs_read (disabled\n", NULL },
		{ "vfs_read [a] [b]\n", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		char line[128], *glob;
		const char *why = NULL;

		strcpy(line, lines[i].line);
		glob = cli_names_glob(line, &why);
		if (!lines[i].glob) {
			assert_null(glob);
			assert_string_equal(why, "a line is one glob, or NAME [MODULE]");
			continue;
		}
		assert_non_null(glob);
		assert_string_equal(glob, lines[i].glob);
		free(glob);
	}
}

static void long_lines_of_names(void **state)
{
	char line[600];
	const char *why = NULL;
	char *glob;

	(void)state;
	memset(line, 'x', sizeof(line));
	strcpy(line + 511, "\n");
	glob = cli_names_glob(line, &why);
	assert_non_null(glob);
	assert_int_equal(strlen(glob), 511);
	free(glob);
	memset(line, 'x', sizeof(line));
	strcpy(line + 512, "\n");
	assert_null(cli_names_glob(line, &why));
	assert_string_equal(why, "a glob has at most 511 bytes");
}

static int read_names(const char *text, size_t len, json_t *globs, json_t *origins)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, len, "r");
	int r;

	assert_non_null(f);
	r = cli_names_read(f, "names", globs, origins);
	fclose(f);
	return r;
}

static void files_of_names(void **state)
{
	static const char good[] = "# two\nvfs_read\n\n tcp_* [net]\nvfs_read";
	static const char *const bad[] = { "# none\n\n", "a b\n", "ok\n\xff\n" };
	json_t *globs = json_array(), *origins = json_object();

	(void)state;
	assert_int_equal(read_names(good, strlen(good), globs, origins), CLI_OK);
	assert_int_equal(json_array_size(globs), 3);
	assert_string_equal(json_string_value(json_array_get(globs, 1)), "tcp_*:mod:net");
	assert_string_equal(json_string_value(json_object_get(origins, "vfs_read")), "names:2");
	assert_string_equal(json_string_value(json_object_get(origins, "tcp_*:mod:net")),
			    "names:4");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(read_names(bad[i], strlen(bad[i]), globs, origins), CLI_FAILED);
	assert_int_equal(read_names("a\0b\n", 4, globs, origins), CLI_FAILED);
	json_decref(globs);
	json_decref(origins);
}

/* "a|b|c" stands for three arguments. */
static bool scan(const char *args, struct scan_vm *vm)
{
	char data[1024];
	size_t len = strlen(args);

	memcpy(data, args, len + 1);
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '|')
			data[i] = 0;
	}
	return scan_cmdline(data, len + 1, vm);
}

static void command_lines(void **state)
{
	struct scan_vm vm;

	(void)state;
	assert_true(scan(
		"/usr/bin/qemu-system-x86_64|-enable-kvm|-smp|4|-name|guest=web1,debug-threads=on|"
		"-qmp|unix:/run/web1,server=on,wait=off",
		&vm));
	assert_string_equal(vm.accel, "kvm");
	assert_int_equal(vm.vcpus, 4);
	assert_string_equal(vm.name, "web1");
	assert_string_equal(vm.qmp, "/run/web1");

	assert_true(scan("qemu-system-x86_64|-name|plain,process=x|-machine|q35,accel=kvm:tcg|"
			 "-smp|sockets=1,cpus=2|-chardev|socket,id=mon,path=/a,,b/m.sock,server=on|"
			 "-mon|chardev=mon,id=monitor,mode=control",
			 &vm));
	assert_string_equal(vm.accel, "kvm");
	assert_int_equal(vm.vcpus, 2);
	assert_string_equal(vm.name, "plain");
	assert_string_equal(vm.qmp, "/a,b/m.sock");

	assert_true(scan("qemu-kvm|-qmp|tcp:localhost:4444|-mon|chardev=x|-accel|tcg,thread=multi",
			 &vm));
	assert_string_equal(vm.accel, "tcg");
	assert_int_equal(vm.vcpus, 1);
	assert_string_equal(vm.qmp, "");
}

static void other_command_lines(void **state)
{
	static const char *const others[] = { "vim|qemu-system-x86_64", "/usr/bin/qemu-img|info",
					      "", "|", "qemu-x86_64-static|/bin/sh" };
	/* options without a value, with empty ones, or with a value that is far too long */
	static const char *const odd[] = { "qemu-system-x86_64|-smp",
					   "qemu-system-x86_64|-qmp|unix:",
					   "qemu-system-x86_64|-name|",
					   "qemu-system-x86_64|-|--||-smp|x",
					   "qemu-system-x86_64|-mon|,,,=,|-chardev|id=,path=" };
	char data[600] = "qemu-system-x86_64\0-name\0";
	struct scan_vm vm;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(scan(others[i], &vm));
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		assert_true(scan(odd[i], &vm));
		assert_string_equal(vm.qmp, "");
	}
	memset(data + 25, 'n', sizeof(data) - 25); /* and no NUL at the end */
	assert_true(scan_cmdline(data, sizeof(data), &vm));
	assert_int_equal(strlen(vm.name), sizeof(vm.name) - 1);
}

/* A domain's QEMU is that domain, and not listed twice; one that does not run has none. */
static void domains(void **state)
{
	static const struct lv_domain domain[] = {
		{ "web1", "ab3d89b0-4c0e-49e1-a883-7322a1346cbe", "running", true, true },
		{ "off", "00000000-4c0e-49e1-a883-7322a1346cbe", "shut off", false, false },
		{ "idle", "11111111-4c0e-49e1-a883-7322a1346cbe", "paused", true, false },
	};
	struct scan_vm *vms = calloc(2, sizeof(*vms));

	(void)state;
	assert_non_null(vms);
	assert_true(scan("qemu-kvm|-name|guest=other|-accel|kvm", &vms[0]));
	vms[0].pid = 100;
	assert_true(scan("qemu-kvm|-name|guest=web1|-accel|kvm|-uuid|"
			 "AB3D89B0-4c0e-49e1-a883-7322a1346cbe",
			 &vms[1]));
	vms[1].pid = 200;
	assert_int_equal(domains_merge(domain, 0, &vms, 2), 2);
	assert_int_equal(domains_merge(domain, 3, &vms, 2), 4);
	assert_string_equal(vms[0].name, "other");
	assert_string_equal(vms[1].target, "libvirt:qemu:///system/web1");
	assert_int_equal(vms[1].pid, 200);
	assert_string_equal(vms[1].accel, "kvm");
	assert_string_equal(vms[1].reason, "");
	assert_string_equal(vms[2].target, "libvirt:qemu:///system/off");
	assert_string_equal(vms[2].reason, "the domain is shut off");
	assert_int_equal(vms[2].pid, 0);
	assert_string_equal(vms[3].reason, "the domain is paused");
	free(vms);
	vms = NULL;
	assert_int_equal(domains_merge(domain, 1, &vms, 0), 1);
	assert_string_equal(vms[0].name, "web1");
	free(vms);
}

static void write_file(const char *path, const char *data, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
}

/* A /proc of our own: one guest with a socket (relative to its folder), one without, one other process. */
static void a_host(void **state)
{
	static const char qmp[] = "qemu-system-x86_64\0-qmp\0unix:m.sock,server=on";
	static const char bare[] = "qemu-system-x86_64\0-smp\0002";
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char dir[] = "/tmp/hvf-scan-XXXXXX", cmd[64], want[80];
	struct scan_vm *vms;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("100", 0700) | mkdir("200", 0700) | mkdir("300", 0700) |
				 mkdir("400", 0700) | mkdir("400/fd", 0700) | mkdir("sys", 0700),
			 0);
	write_file("400/cmdline", "/opt/bin/some-vmm\0--quiet", 25);
	assert_int_equal(symlink("anon_inode:kvm-vm", "400/fd/3") |
				 symlink("anon_inode:kvm-vcpu:0", "400/fd/4") |
				 symlink("anon_inode:kvm-vcpu:1", "400/fd/5") |
				 symlink("anon_inode:kvm-vcpu-stats", "400/fd/6"),
			 0);
	write_file("100/cmdline", qmp, sizeof(qmp));
	write_file("200/cmdline", bare, sizeof(bare));
	write_file("300/cmdline", "init", 5);
	write_file("sys/cmdline", bare, sizeof(bare));
	assert_int_equal(symlink(dir, "100/cwd"), 0);
	strcpy(addr.sun_path, "m.sock");
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);

	assert_int_equal(scan_host(dir, &vms), 3);
	for (size_t i = 0; i < 3; i++) {
		if (vms[i].pid == 400) {
			assert_string_equal(vms[i].target, "pid:400");
			assert_string_equal(vms[i].name, "some-vmm");
			assert_string_equal(vms[i].accel, "kvm");
			assert_string_equal(vms[i].reason, "");
			assert_int_equal(vms[i].vcpus, 2);
		} else if (vms[i].pid == 100) {
			snprintf(want, sizeof(want), "qemu:%s/m.sock", dir);
			assert_string_equal(vms[i].target, want);
			assert_string_equal(vms[i].reason, "");
		} else {
			assert_string_equal(vms[i].target, "pid:200");
			assert_non_null(strstr(vms[i].reason, "TCG needs -qmp"));
		}
	}
	free(vms);
	unlink("m.sock");
	assert_int_equal(scan_host(dir, &vms), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(vms[i].pid == 100, !!strstr(vms[i].reason, "QMP socket is gone"));
	free(vms);
	assert_int_equal(scan_host("/nonexistent", &vms), 0);
	close(fd);
	assert_int_equal(chdir("/"), 0);
	snprintf(cmd, sizeof(cmd), "rm -rf -- '%s'", dir);
	assert_int_equal(system(cmd), 0); /* NOLINT(cert-env33-c): a fixed command, our own name */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations),      cmocka_unit_test(sizes),
		cmocka_unit_test(near_words),     cmocka_unit_test(terminals_are_left_alone),
		cmocka_unit_test(command_lines),  cmocka_unit_test(other_command_lines),
		cmocka_unit_test(a_host),         cmocka_unit_test(lines_of_names),
		cmocka_unit_test(files_of_names), cmocka_unit_test(long_lines_of_names),
		cmocka_unit_test(domains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
