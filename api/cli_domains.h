/* SPDX-License-Identifier: Apache-2.0 */
/* libvirt's domains among the virtual machines of this host, for `ls`. Must not know the daemon. */
#ifndef API_CLI_DOMAINS_H
#define API_CLI_DOMAINS_H

#include "api/cli_scan.h"
#include "vmm/libvirt_list.h"

/**
 * domains_merge - put domains of qemu:///system into a list of scan_host()
 * @vms: the list, which may move; a domain's QEMU in it becomes the domain
 *
 * Return: how many there are then; as many as before when there is no memory.
 */
size_t domains_merge(const struct lv_domain *domain, size_t n_domains, struct scan_vm **vms,
		     size_t n_vms);

/**
 * domains_add - ask the libvirtd of the system, if one listens, and merge what it says
 * @note: why that failed, in a sentence; "" when it did not
 *
 * Return: as domains_merge().
 */
size_t domains_add(struct scan_vm **vms, size_t n_vms, char *note, size_t size);

#endif
