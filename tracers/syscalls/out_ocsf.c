// SPDX-License-Identifier: Apache-2.0
/*
 * Events of the Open Cybersecurity Schema Framework, version 1.3.0: classes process_activity,
 * file_activity, network_activity and kernel_activity. Which activity a call is: a line a call.
 */
#include "tracers/syscalls/desc.h"
#include "tracers/syscalls/json_priv.h"

#include <arpa/inet.h>

#define OCSF_VERSION "1.3.0"
#define OTHER        99

enum ocsf_class {
	OCSF_FILE = 1001,
	OCSF_KERNEL = 1003,
	OCSF_PROCESS = 1007,
	OCSF_NETWORK = 4001,
};

struct activity {
	u16 class_uid;
	u8 id;
	const char *name;
};

/* clang-format off: a table. Calls that are not in it are the "Other" of their class. */
static const struct {
	const char *call;
	struct activity a;
} activities[] = {
	{ "execve", { OCSF_PROCESS, 1, "Launch" } },
	{ "execveat", { OCSF_PROCESS, 1, "Launch" } },
	{ "fork", { OCSF_PROCESS, 1, "Launch" } },
	{ "vfork", { OCSF_PROCESS, 1, "Launch" } },
	{ "clone", { OCSF_PROCESS, 1, "Launch" } },
	{ "clone3", { OCSF_PROCESS, 1, "Launch" } },
	{ "exit", { OCSF_PROCESS, 2, "Terminate" } },
	{ "exit_group", { OCSF_PROCESS, 2, "Terminate" } },
	{ "pidfd_open", { OCSF_PROCESS, 3, "Open" } },
	{ "ptrace", { OCSF_PROCESS, 3, "Open" } },
	{ "process_vm_writev", { OCSF_PROCESS, 4, "Inject" } },
	{ "setuid", { OCSF_PROCESS, 5, "Set User ID" } },
	{ "setreuid", { OCSF_PROCESS, 5, "Set User ID" } },
	{ "setresuid", { OCSF_PROCESS, 5, "Set User ID" } },
	{ "creat", { OCSF_FILE, 1, "Create" } },
	{ "mkdir", { OCSF_FILE, 1, "Create" } },
	{ "mkdirat", { OCSF_FILE, 1, "Create" } },
	{ "mknod", { OCSF_FILE, 1, "Create" } },
	{ "mknodat", { OCSF_FILE, 1, "Create" } },
	{ "symlink", { OCSF_FILE, 1, "Create" } },
	{ "symlinkat", { OCSF_FILE, 1, "Create" } },
	{ "link", { OCSF_FILE, 1, "Create" } },
	{ "linkat", { OCSF_FILE, 1, "Create" } },
	{ "readlink", { OCSF_FILE, 2, "Read" } },
	{ "readlinkat", { OCSF_FILE, 2, "Read" } },
	{ "truncate", { OCSF_FILE, 3, "Update" } },
	{ "unlink", { OCSF_FILE, 4, "Delete" } },
	{ "unlinkat", { OCSF_FILE, 4, "Delete" } },
	{ "rmdir", { OCSF_FILE, 4, "Delete" } },
	{ "rename", { OCSF_FILE, 5, "Rename" } },
	{ "renameat", { OCSF_FILE, 5, "Rename" } },
	{ "renameat2", { OCSF_FILE, 5, "Rename" } },
	{ "utimensat", { OCSF_FILE, 6, "Set Attributes" } },
	{ "chmod", { OCSF_FILE, 7, "Set Security" } },
	{ "fchmodat", { OCSF_FILE, 7, "Set Security" } },
	{ "chown", { OCSF_FILE, 7, "Set Security" } },
	{ "lchown", { OCSF_FILE, 7, "Set Security" } },
	{ "fchownat", { OCSF_FILE, 7, "Set Security" } },
	{ "stat", { OCSF_FILE, 8, "Get Attributes" } },
	{ "lstat", { OCSF_FILE, 8, "Get Attributes" } },
	{ "newfstatat", { OCSF_FILE, 8, "Get Attributes" } },
	{ "statx", { OCSF_FILE, 8, "Get Attributes" } },
	{ "access", { OCSF_FILE, 9, "Get Security" } },
	{ "faccessat", { OCSF_FILE, 9, "Get Security" } },
	{ "faccessat2", { OCSF_FILE, 9, "Get Security" } },
	{ "mount", { OCSF_FILE, 12, "Mount" } },
	{ "umount2", { OCSF_FILE, 13, "Unmount" } },
	{ "open", { OCSF_FILE, 14, "Open" } },
	{ "openat", { OCSF_FILE, 14, "Open" } },
	{ "openat2", { OCSF_FILE, 14, "Open" } },
	{ "connect", { OCSF_NETWORK, 1, "Open" } },
	{ "accept", { OCSF_NETWORK, 1, "Open" } },
	{ "accept4", { OCSF_NETWORK, 1, "Open" } },
	{ "shutdown", { OCSF_NETWORK, 2, "Close" } },
	{ "sendto", { OCSF_NETWORK, 6, "Traffic" } },
	{ "sendmsg", { OCSF_NETWORK, 6, "Traffic" } },
	{ "recvfrom", { OCSF_NETWORK, 6, "Traffic" } },
	{ "recvmsg", { OCSF_NETWORK, 6, "Traffic" } },
	{ "listen", { OCSF_NETWORK, 7, "Listen" } },
};
/* clang-format on */

static struct activity activity_of(const char *call)
{
	u32 classes = decode_classes(call);

	for (size_t i = 0; i < ARRAY_SIZE(activities); i++)
		if (!strcmp(activities[i].call, call))
			return activities[i].a;
	if (classes & SC_PROCESS)
		return (struct activity){ OCSF_PROCESS, OTHER, call };
	if (classes & SC_FILE)
		return (struct activity){ OCSF_FILE, OTHER, call };
	if (classes & SC_NETWORK)
		return (struct activity){ OCSF_NETWORK, OTHER, call };
	return (struct activity){ OCSF_KERNEL, 4, "Invoke" };
}

static const char *base_name(const u8 *path, size_t *len)
{
	size_t start = *len;

	while (start && path[start - 1] != '/')
		start--;
	*len -= start;
	return (const char *)path + start;
}

static void put_file(struct buf *b, const u8 *path, size_t n)
{
	size_t base_len = n;
	const char *base = base_name(path, &base_len);

	js_open(b, "file");
	js_mem(b, "name", base, base_len);
	js_mem(b, "path", path, n);
	js_u64(b, "type_id", 0); /* unknown: the call does not say */
	js_close(b);
}

/* The program's arguments as one line; its own NULs become spaces. */
static void put_cmd_line(struct buf *b, const struct syscall_event *e)
{
	_cleanup_buf_ struct buf line = { 0 };
	const u8 *p;
	const struct syscall_capture *c = syscall_capture_find(
		e, !strcmp(e->entry->name, "execveat") ? 2 : 1, CAPTURE_STRINGS, &p);

	if (!c || !c->len)
		return;
	buf_add(&line, p, c->len);
	b->failed |= line.failed;
	if (line.failed)
		return;
	if (!line.data[line.len - 1])
		line.len--;
	for (size_t i = 0; i < line.len; i++)
		if (!line.data[i])
			line.data[i] = ' ';
	js_mem(b, "cmd_line", line.data, line.len);
}

static void put_process(struct buf *b, const struct syscall_event *e, bool target)
{
	size_t n = 0;
	const u8 *path = sys_path(e, &n);
	bool exec = target && !strncmp(e->entry->name, "execve", 6);

	js_open(b, "process");
	js_u64(b, "pid", e->tgid ? e->tgid : e->pid);
	js_u64(b, "tid", e->pid);
	js_comm(b, "name", exec && e->state == SYSCALL_EXECVE ? e->comm_after : e->comm);
	if (exec)
		put_cmd_line(b, e);
	if (exec && path)
		put_file(b, path, n);
	js_close(b);
}

/* The other end, where a call names one; else ours, as the class wants one of them. */
static void put_endpoint(struct buf *b, const struct syscall_event *e, const char *host)
{
	const struct syscall_capture *c = NULL;
	char ip[INET6_ADDRSTRLEN] = "";
	const u8 *p = NULL;

	for (u8 a = 0; a < SYSCALL_ARGS && !c; a++)
		c = syscall_capture_find(e, a, CAPTURE_SOCKADDR, &p);
	if (!c || c->len < 8 || !(p[0] == AF_INET || (p[0] == AF_INET6 && c->len >= 24)) || p[1] ||
	    !inet_ntop(p[0], p + (p[0] == AF_INET ? 4 : 8), ip, sizeof(ip))) {
		js_open(b, "src_endpoint");
		js_str(b, "hostname", host);
		js_close(b);
		return;
	}
	js_open(b, "dst_endpoint");
	js_str(b, "ip", ip);
	js_u64(b, "port", (u64)p[2] << 8 | p[3]);
	js_close(b);
}

static void put_class(struct buf *b, const struct syscall_event *e, u16 class_uid, const char *host)
{
	size_t n = 0;
	const u8 *path = sys_path(e, &n);

	if (class_uid == OCSF_PROCESS) {
		put_process(b, e, true);
		if (e->state == SYSCALL_NEVER)
			js_s64(b, "exit_code", (s32)e->args[0]);
	} else if (class_uid == OCSF_FILE) {
		put_file(b, path ? path : (const u8 *)"", path ? n : 0);
	} else if (class_uid == OCSF_NETWORK) {
		put_endpoint(b, e, host);
	} else {
		js_open(b, "kernel");
		js_str(b, "name", e->entry->name);
		js_str(b, "system_call", e->entry->name);
		js_u64(b, "type_id", 2); /* System Call */
		js_close(b);
	}
}

static void put_base(struct buf *b, const struct syscall_event *e, const struct activity *a,
		     const struct out_sys_opts *o)
{
	js_u64(b, "activity_id", a->id);
	js_str(b, "activity_name", a->name);
	js_u64(b, "category_uid", a->class_uid / 1000);
	js_u64(b, "class_uid", a->class_uid);
	js_u64(b, "type_uid", a->class_uid * 100ull + a->id);
	js_u64(b, "severity_id", 1); /* Informational */
	js_u64(b, "time", (o->boot_ns + e->ts_ns) / NSEC_PER_MSEC);
	js_u64(b, "duration", e->duration_ns / NSEC_PER_MSEC);
	js_open(b, "metadata");
	js_str(b, "version", OCSF_VERSION);
	js_open(b, "product");
	js_str(b, "name", "hvftrace");
	js_str(b, "vendor_name", "hvftrace");
	js_str(b, "version", o->version ? o->version : HVF_VERSION);
	js_close(b);
	js_u64(b, "sequence", e->seq);
	js_close(b);
}

static void put_status(struct buf *b, const struct syscall_event *e)
{
	const char *error = syscall_failed(e) ? decode_errno((int)-e->ret) : NULL;
	u64 status = e->state == SYSCALL_UNFINISHED ? 0 : syscall_failed(e) ? 2 : 1;

	js_u64(b, "status_id", status); /* Unknown, Success, Failure */
	if (error)
		js_str(b, "status_code", error);
}

void out_sys_ocsf(struct buf *b, const struct syscall_event *e, struct decoded *d,
		  const struct out_sys_opts *o)
{
	struct activity a = activity_of(e->entry->name);
	_cleanup_buf_ struct buf args = { 0 };

	decode_event(d, e, &o->decode);
	sys_args_join(&args, e, d);
	if (buf_failed(&d->text) || args.failed) {
		b->failed = true;
		return;
	}
	buf_adds(b, "{");
	put_base(b, e, &a, o);
	put_status(b, e);
	js_open(b, "device");
	js_str(b, "hostname", o->host ? o->host : "");
	js_u64(b, "type_id", 6); /* Virtual */
	js_close(b);
	js_open(b, "actor");
	put_process(b, e, false);
	if (e->uid != SYSCALL_NO_UID) {
		js_open(b, "user");
		js_key(b, "uid");
		buf_addf(b, "\"%u\"", e->uid);
		js_close(b);
	}
	js_close(b);
	put_class(b, e, a.class_uid, o->host ? o->host : "");
	js_open(b, "unmapped");
	js_str(b, "syscall", e->entry->name);
	js_mem(b, "args", args.data ? args.data : "", args.len);
	js_mem(b, "ret", d->text.data + d->ret_off, d->ret_len);
	if (e->cgroup)
		js_u64(b, "cgroup", e->cgroup);
	js_close(b);
	buf_adds(b, "}\n");
}
