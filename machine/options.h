/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hvftrace-vmm. */
#ifndef MACHINE_OPTIONS_H
#define MACHINE_OPTIONS_H

#include "machine/machine.h"

struct options {
	const char *kernel, *initrd, *append; /* the latter two may be NULL */
	enum boot_protocol protocol;
	const char *console; /* file for the serial port's output; NULL: standard output */
	const char *input; /* "-", or the path of a socket to listen on; NULL: none */
	const char *pidfile; /* NULL: none */
	struct disk_source disk[MACHINE_MAX_DISKS];
	u32 n_disks;
	struct net_source net[MACHINE_MAX_NETS];
	u32 n_nets;
	struct vsock_source vsock; /* path NULL: none */
	const char *control; /* path of a socket to listen on; NULL: none */
	u32 cpus;
	u64 memory_bytes;
	bool daemonize, no_reboot, triple_fault_resets;
	bool wait; /* stop before the guest's first instruction, until SIGCONT */
};

/**
 * options_parse - fill @ret from the arguments
 *
 * Return: -1 to go on, or the exit status; what is wrong was said on stderr.
 */
int options_parse(int argc, char **argv, struct options *ret);

#endif
