// SPDX-License-Identifier: Apache-2.0
/*
 * Backend "qemu:": a QEMU by its QMP socket. Layout and registers come from QEMU; memory comes from
 * its process; windows are ptrace's under KVM and the gdbstub's under TCG. QMP "stop" is never used:
 * it drains and flushes every disk. What does not depend on whose socket it is serves libvirt.c, too.
 */
#define LOG_PREFIX "qemu"
#include "vmm/qemu_impl.h"

#include "base/cleanup.h"
#include "vmm/mtree.h"
#include "vmm/proc.h"
#include "vmm/ptrace_window.h"
#include "vmm/qmp.h"
#include "vmm/tcg_window.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_BACKENDS 64
/* What is asked at a time is asked faster than that; who else wants the monitor waits no longer. */
#define IDLE_NS (250 * NSEC_PER_MSEC)

/*
 * What speaks QMP may not be QEMU, or may have been taken over by its guest, and name any process: the one
 * whose memory we are going to open must hold the other end of our connection. A kernel that has no way to tell
 * leaves its user, which must be the listener's; one that just does not tell leaves nothing.
 */
static int check_process(void *arg, int fd, struct err *err)
{
	const struct vm *vm = arg;
	int rc = proc_holds_peer(vm->pid, fd);
	struct ucred listener = { 0 };
	socklen_t len = sizeof(listener);
	uid_t uid;
	gid_t gid;

	if (rc == -ENOENT)
		rc = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &len) == 0 &&
		     proc_euid(vm->pid, &uid, &gid) == 0 && uid == listener.uid;
	if (rc == 1)
		return 0;
	if (rc == -EACCES)
		return err_set(err, rc, ERR_TARGET_PERMISSION, 0,
			       "no permission to look at process %d", (int)vm->pid);
	if (rc < 0 && rc != -ESRCH && rc != -ENOTCONN)
		return err_set(err, -EIO, ERR_IO, 0,
			       "the kernel does not say whether process %d is the QEMU that this "
			       "monitor belongs to (sock_diag, by AF_NETLINK): %s",
			       (int)vm->pid, strerror(-rc));
	return err_set(err, -ENODEV, ERR_TARGET_NOT_VMM, 0,
		       "process %d is not the QEMU that this monitor belongs to", (int)vm->pid);
}

static bool lives(void *arg, int wait_ms)
{
	const struct vm *vm = arg;
	struct pollfd p = { .fd = vm->pidfd, .events = POLLIN };

	return poll(&p, 1, wait_ms) == 0;
}

static const struct qmp_peer peer = { .lives = lives, .check = check_process };

/*
 * Who listens on the monitor's socket. With a socket that a manager made and handed to QEMU
 * (libvirt), that is the manager: a vCPU thread then tells whose it is.
 */
static int find_process(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	_cleanup_threads_ struct vm_threads t = { 0 };
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	char state;
	u64 start;
	int rc;

	if (getsockopt(qmp_fd(priv->q), SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return err_set(err, -errno, ERR_IO, 0, "SO_PEERCRED: %s", strerror(errno));
	rc = qemu_threads(vm, &t, err);
	if (rc < 0)
		return rc;
	if (t.n && (cred.pid <= 0 || (proc_stat(cred.pid, t.tid[0], &state, &start) < 0 &&
				      !proc_host_tid(cred.pid, t.tid[0]))))
		cred.pid = proc_thread_group(t.tid[0]);
	if (cred.pid <= 0)
		return err_set(err, -ENOENT, ERR_TARGET_NO_PROCESS, 0,
			       "cannot tell which process QEMU is");
	rc = vm_open_process(vm, cred.pid, err);
	if (rc == 0)
		rc = check_process(vm, qmp_fd(priv->q), err);
	if (rc == 0)
		qmp_set_peer(priv->q, &peer, vm);
	return rc;
}

static int find_accel(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	json_t *value = NULL;
	int rc = qmp_command(priv->q, "query-kvm", NULL, &value, QEMU_QMP_NS, err);

	if (rc < 0)
		return rc;
	vm->accel = json_is_true(json_object_get(value, "enabled")) ? VM_ACCEL_KVM : VM_ACCEL_TCG;
	json_decref(value);
	return 0;
}

/* "Host virtual address for 0x0 (pc.ram) is 0x7f7a9fe00000" (monitor/misc.c, 7.2) */
static int gpa_to_hva(struct vm *vm, u64 addr, u64 *hva_ret, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	_cleanup_free_ char *text = NULL;
	char line[64];
	const char *p;
	char *end;
	int rc;

	snprintf(line, sizeof(line), "gpa2hva 0x%llx", (unsigned long long)addr);
	rc = qmp_hmp(priv->q, line, -1, &text, QEMU_QMP_NS, err);
	if (rc < 0)
		return rc;
	p = strstr(text, ") is 0x");
	if (p) {
		*hva_ret = strtoull(p + 5, &end, 16);
		if (end > p + 7)
			return 0;
	}
	text[strcspn(text, "\r\n")] = '\0';
	return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, addr, "QEMU on guest RAM at 0x%llx: %.100s",
		       (unsigned long long)addr, text);
}

static int add_range(struct vm *vm, const struct mtree_range *r, struct err *err)
{
	/* pages that are only partly RAM are of no use to anybody */
	u64 start = (r->start + PAGE_SIZE - 1) & PAGE_MASK;
	u64 end = r->end & PAGE_MASK;
	u64 first;
	u64 last;
	int rc;

	if (start >= end)
		return 0;
	rc = gpa_to_hva(vm, start, &first, err);
	if (rc == 0)
		rc = gpa_to_hva(vm, end - PAGE_SIZE, &last, err);
	if (rc < 0)
		return rc;
	if (last - first != end - PAGE_SIZE - start)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, start,
			       "guest RAM at 0x%llx is not contiguous in QEMU",
			       (unsigned long long)start);
	return vm_mem_add(vm, gpa(start), end - start, first, err);
}

static size_t backend_names(json_t *list, const char **ret, size_t max)
{
	size_t n = 0;
	size_t i;
	json_t *b;

	json_array_foreach(list, i, b)
	{
		const char *id = json_string_value(json_object_get(b, "id"));

		if (id && n < max)
			ret[n++] = id;
	}
	return n;
}

int qemu_list_ram(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	_cleanup_free_ struct mtree_range *range = calloc(VM_MAX_RAM, sizeof(*range));
	_cleanup_free_ char *text = NULL;
	const char *names[MAX_BACKENDS];
	json_t *backends = NULL;
	size_t n_names;
	size_t n = 0;
	int rc;

	if (!range)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	rc = qmp_hmp(priv->q, "info mtree -f", -1, &text, QEMU_QMP_NS, err);
	if (rc < 0)
		return rc;
	rc = mtree_parse(text, range, VM_MAX_RAM, &n);
	if (rc < 0)
		return err_set(err, -EPROTO, ERR_VMM_PROTOCOL, 0,
			       "cannot find guest RAM in QEMU's memory tree: %s", strerror(-rc));
	rc = qmp_command(priv->q, "query-memdev", NULL, &backends, QEMU_QMP_NS, err);
	if (rc < 0)
		return rc;
	n_names = backend_names(backends, names, MAX_BACKENDS);
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (mtree_is_guest_ram(&range[i], &range[0], names, n_names))
			rc = add_range(vm, &range[i], err);
	}
	json_decref(backends);
	return rc;
}

static int qemu_attach(struct vm *vm, const char *path, struct err *err)
{
	struct qemu_priv *priv = calloc(1, sizeof(*priv));
	int rc;

	if (!priv)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	vm->priv = priv;
	rc = qmp_open(path, QEMU_QMP_NS, &priv->q, err);
	if (rc == 0)
		rc = find_process(vm, err);
	if (rc == 0)
		rc = qemu_adopt(vm, err);
	return rc < 0 ? rc : qmp_share(priv->q, IDLE_NS, err);
}

/*
 * QEMU 6.0 and later: the machine's link to a sev-guest, sev-snp-guest or tdx-guest object, "" for none.
 * Before: query-sev. What a QEMU does not know it answers with an error.
 */
static int check_confidential(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	json_t *value = NULL, *args;
	const char *path;
	int rc = vm_check_confidential(vm, err);

	if (rc < 0)
		return rc;
	args = json_pack("{s:s, s:s}", "path", "/machine", "property",
			 "confidential-guest-support");
	rc = qmp_command(priv->q, "qom-get", args, &value, QEMU_QMP_NS, NULL);
	path = rc ? NULL : json_string_value(value);
	if (path && *path)
		rc = vm_refuse_confidential(vm, path, err);
	json_decref(value);
	if (rc == -EACCES || path)
		return rc;
	value = NULL;
	rc = qmp_command(priv->q, "query-sev", NULL, &value, QEMU_QMP_NS, NULL);
	rc = !rc && json_is_true(json_object_get(value, "enabled"))
		     ? vm_refuse_confidential(vm, "query-sev says so", err)
		     : 0;
	json_decref(value);
	return rc;
}

int qemu_adopt(struct vm *vm, struct err *err)
{
	struct qemu_priv *priv = vm->priv;
	int rc = find_accel(vm, err);

	if (rc == 0)
		rc = check_confidential(vm, err);
	if (rc == 0)
		rc = qemu_list_ram(vm, err);
	if (rc == 0)
		rc = vm_mem_open(vm, err);
	if (rc < 0)
		return rc;
	priv->running = true; /* until QEMU has been asked */
	if (vm->accel == VM_ACCEL_KVM) {
		qemu_note_threads(vm);
		return ptrace_window_create(vm->pid, &priv->ptrace, err);
	}
	rc = tcg_window_check(priv->q, vm->pid, err);
	if (rc < 0)
		return rc;
	return tcg_window_create(priv->q, vm->pid, &priv->tcg, err);
}

void qemu_detach(struct vm *vm)
{
	struct qemu_priv *priv = vm->priv;

	if (!priv)
		return;
	ptrace_window_destroy(priv->ptrace);
	tcg_window_destroy(priv->tcg);
	qmp_close(priv->q);
	proc_threads_deinit(&priv->vcpus);
	free(priv);
	vm->priv = NULL;
}

/*
 * After -ENOTCONN: the manager is away, without which the guest is not migrated either, or no monitor of QEMU listens
 * where ours did: then it is as with a pid: target, and stays so. Anything else may be a matter of a moment.
 */
static bool nobody_to_ask(const struct qemu_priv *priv, const struct err *err)
{
	return qmp_is_carried(priv->q) || err->code == ERR_TARGET_NO_SOCKET ||
	       err->code == ERR_TARGET_NOT_VMM;
}

/*
 * query-migrate (qapi/migration.json MigrationStatus): those in which no memory is on its way, from here or to here.
 * All others count, also such as no QEMU has yet: 9.1 got "postcopy-recover-setup", 10.2 "postcopy-device".
 */
enum vm_leaving qemu_leaves(struct vm *vm)
{
	static const char *const stays[] = { "none", "cancelled", "failed", "completed" };
	struct qemu_priv *priv = vm->priv;
	const char *status;
	json_t *value = NULL;
	struct err err = { 0 };
	bool leaves;
	int rc = qmp_command(priv->q, "query-migrate", NULL, &value, QEMU_QMP_NS, &err);

	/* a connection that was lost is made again with the next command */
	if (rc == -ENOTCONN && !qmp_is_carried(priv->q))
		rc = qmp_command(priv->q, "query-migrate", NULL, &value, QEMU_QMP_NS, &err);
	vm->leaving_told = !rc;
	if (rc)
		return rc == -ETIMEDOUT || (rc == -ENOTCONN && !nobody_to_ask(priv, &err))
			       ? VM_LEAVING_UNKNOWN
			       : VM_STAYS;
	status = json_string_value(json_object_get(value, "status"));
	leaves = status; /* none: there never was a migration */
	for (size_t i = 0; status && i < ARRAY_SIZE(stays); i++)
		leaves = leaves && strcmp(status, stays[i]) != 0;
	json_decref(value);
	return leaves ? VM_LEAVES : VM_STAYS;
}

bool qemu_silent(const struct vm *vm)
{
	const struct qemu_priv *priv = vm->priv;

	return qmp_silent(priv->q);
}

const struct vm_ops vm_ops_qemu = {
	.name = "qemu",
	.attach = qemu_attach,
	.detach = qemu_detach,
	.state = qemu_state,
	.pause = qemu_pause,
	.resume = qemu_resume,
	.write_text = qemu_write_text,
	.threads = qemu_host_threads,
	.vcpu_regs = qemu_vcpu_regs,
	.leaves = qemu_leaves,
	.silent = qemu_silent,
	.list_ram = qemu_list_ram,
};
