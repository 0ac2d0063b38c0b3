/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stable error codes of the API, with the HTTP status they map to and what the user can do
 * next. X(ENUM, "code", http status, "hint"). Never rename a code: programs match on it.
 */
#ifndef BASE_ERR_CODES_H
#define BASE_ERR_CODES_H

/* A table: one line a code. */
/* clang-format off */
#define ERR_CODES(X)                                                                                                    \
	X(ERR_NONE,              "internal",                   500, "this is a fault of hvftrace; see the daemon's log")    \
	X(ERR_NO_MEMORY,         "no_memory",                  503, "free memory on the host, or lower the buffer sizes")   \
	X(ERR_BAD_REQUEST,       "bad_request",                400, "see /openapi.yaml for what this operation takes")      \
	X(ERR_NOT_FOUND,         "not_found",                  404, "list what exists with a GET on the parent resource")   \
	X(ERR_CONFLICT,          "conflict",                   409, "look at the resource's state first")                   \
	X(ERR_CURSOR_GONE,       "records.gone",               410, "go on from oldest_seq; those between were overwritten") \
	X(ERR_TARGET_SYNTAX,     "target.syntax",              400, "use libvirt:URI/DOMAIN, qemu:QMP-SOCKET or pid:VMM-PID") \
	X(ERR_TARGET_NO_SOCKET,  "target.no_socket",           404, "start QEMU with -qmp unix:PATH,server=on,wait=off")    \
	X(ERR_TARGET_NO_PROCESS, "target.no_process",          404, "look for the VMM's process with pgrep -a qemu")        \
	X(ERR_TARGET_NOT_VMM,    "target.not_a_vmm",           422, "name a process that runs a virtual machine")           \
	X(ERR_TARGET_PERMISSION, "target.permission",          403, "the daemon needs CAP_SYS_PTRACE over the VMM")         \
	X(ERR_TARGET_SOCKET,     "target.untrusted_socket",    403, "name a socket of root's or of the daemon's user, in directories that nobody else may change") \
	X(ERR_TARGET_TCG_PID,    "target.tcg_needs_qmp",       422, "attach with qemu:QMP-SOCKET; TCG caches guest code")   \
	X(ERR_TARGET_GDB_BUSY,   "target.gdbstub_busy",        409, "close the debugger that uses QEMU's gdbstub")          \
	X(ERR_TARGET_NO_LIBVIRT, "target.no_libvirt",          422, "install libvirt's client library (libvirt0), or use qemu: or pid:") \
	X(ERR_TARGET_NO_DOMAIN,  "target.no_domain",           404, "list the domains with virsh list --all, or hvftrace ls") \
	X(ERR_TARGET_OFF,        "target.not_running",         409, "start the domain first (virsh start NAME)")            \
	X(ERR_TARGET_SEALED,     "target.confidential",        422, "the guest's memory is kept from its host (SEV, TDX): it cannot be traced") \
	X(ERR_LIBVIRT,           "libvirt.unreachable",        503, "start libvirtd; what waits for it is tried again")     \
	X(ERR_VMM_GONE,          "vmm.gone",                   410, "the VMM's process ended; attach again once it runs")   \
	X(ERR_VMM_PROTOCOL,      "vmm.protocol",               502, "the VMM answered something unexpected; see the log")   \
	X(ERR_VMM_TIMEOUT,       "vmm.timeout",                504, "the VMM did not answer in time; is it hung?")          \
	X(ERR_PAUSE_TIMEOUT,     "vmm.pause_timeout",          504, "a vCPU did not stop in time; try again")               \
	X(ERR_GUEST_STOPPED,     "guest.stopped",              409, "let the guest run, then try again")                    \
	X(ERR_GUEST_NOT_LINUX,   "guest.not_linux",            422, "no Linux kernel was found in memory; has it booted?")  \
	X(ERR_GUEST_FIRMWARE,    "guest.not_booted",           409, "the guest is still in firmware or its boot loader")    \
	X(ERR_GUEST_NO_FTRACE,   "guest.no_ftrace",            422, "the guest's kernel needs CONFIG_DYNAMIC_FTRACE")       \
	X(ERR_GUEST_NO_BTF,      "guest.no_btf",               422, "the guest's kernel needs CONFIG_DEBUG_INFO_BTF")       \
	X(ERR_GUEST_NOT_HELD,    "guest.not_held",             409, "the host was too slow for it: end the guest and start it again") \
	X(ERR_GUEST_UNSUPPORTED, "guest.unsupported",          422, "this kernel is not supported; the detail says what is missing") \
	X(ERR_GUEST_MEMORY,      "guest.bad_memory",           422, "the guest's own tables do not make sense")             \
	X(ERR_GUEST_REBOOTED,    "guest.rebooted",             410, "detach, then attach to the kernel that runs now")      \
	X(ERR_GUEST_RESTORED,    "guest.restored",             410, "a snapshot was loaded: start the trace again")         \
	X(ERR_GUEST_ATTACHED,    "guest.already_attached",     409, "detach first, or use the guest that is attached")      \
	X(ERR_GUEST_BUSY,        "guest.text_busy",            409, "the guest itself is changing its text; try again")     \
	X(ERR_GUEST_NO_ROOM,     "guest.no_room",              422, "no padding is left in the guest's kernel for the gate") \
	X(ERR_GUEST_CHANGED,     "guest.text_changed",         409, "the bytes found are not the ones expected; nothing was written there") \
	X(ERR_GUEST_GATE,        "guest.gate_timeout",         504, "no task passed the gate; is the guest idle or hung?")  \
	X(ERR_GUEST_ALLOC,       "guest.alloc_failed",         507, "the guest's kernel has no memory to lend")             \
	X(ERR_GUEST_LEAVES,      "guest.migrating",            409, "wait for the migration or snapshot to end, then try again") \
	X(ERR_GUEST_GUARD,       "guest.integrity_guard",      409, "the guest checks its own kernel's text; unload that, or leave it alone") \
	X(ERR_JOURNAL,           "journal.failed",             500, "the state directory must be writable and not full")    \
	X(ERR_FILTER_EMPTY,      "filter.no_match",            422, "list names with hvftrace functions G GLOB")            \
	X(ERR_FILTER_COST,       "filter.too_costly",          422, "name the functions, or give fewer globs with shorter classes ([...]) and fewer *") \
	X(ERR_FILTER_PID,        "filter.no_such_pid",         422, "the pid is one of the guest's, not of the host")       \
	X(ERR_STACK_FILTER,      "filter.too_many_stacks",     422, "name the functions whose callers are wanted: --func-stack=GLOB, or fewer with -l") \
	X(ERR_TRACE_LIMIT,       "trace.limit",                409, "one trace at a time a guest: DELETE /v1/traces/ID, or hvftrace detach G --force")    \
	X(ERR_TRACE_MARKERS,     "trace.markers",              409, "a trace has 4096 markers at most; start another")      \
	X(ERR_TRACE_SNAPSHOTS,   "trace.snapshots",            409, "a guest has 16 at most: DELETE /v1/traces/ID of one")  \
	X(ERR_TRACE_ENDED,       "trace.ended",                409, "a guest keeps 32 traces that have ended: DELETE /v1/traces/ID of one") \
	X(ERR_CONSOLE_NONE,      "console.not_offered",        422, "virsh console DOMAIN for libvirt's; else where its VMM was told to put it; hvftrace run has one") \
	X(ERR_CONSOLE_READ_ONLY, "console.read_only",          422, "QEMU's console is only shown: hvftrace run --accel kvm has one to type at, or use ssh") \
	X(ERR_CONSOLE_FULL,      "console.full",               409, "nothing of it was typed; try again once somebody reads in the guest, as a getty does") \
	X(ERR_CONSOLE_SIZE,      "console.input_size",         413, "type at most 4096 bytes at a time")                \
	X(ERR_FILE_FORMAT,       "file.format",                422, "the file is not a recording of hvftrace, or is cut")   \
	X(ERR_IO,                "io",                         500, "see the system's message")
/* clang-format on */

#define ERR_ENUM(name, code, status, hint) name,
enum err_code {
	ERR_CODES(ERR_ENUM) ERR_CODE_MAX
};
#undef ERR_ENUM

#endif
