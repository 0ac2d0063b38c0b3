/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which virtual machines run on this host, from /proc: QEMU processes, and any other that has a guest on
 * KVM. Must not know the daemon.
 */
#ifndef API_CLI_SCAN_H
#define API_CLI_SCAN_H

#include "base/types.h"

struct scan_vm {
	pid_t pid; /* 0: a domain that has no process */
	char name[128]; /* QEMU's -name, "" when none; of another VMM its program's name */
	char uuid[37]; /* -uuid; "" when none */
	char target[256]; /* what to attach: "libvirt:URI/DOMAIN", "qemu:PATH" or "pid:N" */
	const char *state; /* a domain's, in libvirt's words; "running" of others */
	char reason[128]; /* why it cannot be traced; "" when it can */
	const char *accel; /* "kvm", "tcg" or "unknown" */
	u32 vcpus; /* 0 when not known */
	char qmp[200]; /* the QMP socket's path as it was given; "" when none */
};

/**
 * scan_cmdline - what a QEMU command line says
 * @data: /proc/PID/cmdline: NUL-terminated arguments; @len bytes that may be anything
 *
 * Fills name, uuid, accel, vcpus and qmp. Return: false when it is no QEMU system emulator.
 */
bool scan_cmdline(const char *data, size_t len, struct scan_vm *ret);

/**
 * scan_host - all of them
 * @proc: "/proc", or a test's
 *
 * Return: how many; *ret is an array to be freed.
 */
size_t scan_host(const char *proc, struct scan_vm **ret);

#endif
