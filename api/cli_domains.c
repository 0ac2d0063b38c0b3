// SPDX-License-Identifier: Apache-2.0
/* libvirt's domains on this host. See cli_domains.h. */
#include "api/cli_domains.h"

#include "base/cleanup.h"

#include <string.h>

#define LIST_NS (5 * NSEC_PER_SEC)

static struct scan_vm *find_uuid(struct scan_vm *vms, size_t n, const char *uuid)
{
	for (size_t i = 0; i < n; i++) {
		if (vms[i].uuid[0] && strcasecmp(vms[i].uuid, uuid) == 0)
			return &vms[i];
	}
	return NULL;
}

static void describe(const struct lv_domain *d, struct scan_vm *vm)
{
	snprintf(vm->name, sizeof(vm->name), "%s", d->name);
	snprintf(vm->target, sizeof(vm->target), "libvirt:" LV_SYSTEM_URI "/%s", d->name);
	vm->state = d->state;
	vm->reason[0] = '\0';
	if (!d->active || !d->running)
		snprintf(vm->reason, sizeof(vm->reason), "the domain is %s", d->state);
}

size_t domains_merge(const struct lv_domain *domain, size_t n_domains, struct scan_vm **vms,
		     size_t n_vms)
{
	struct scan_vm *grown = realloc(*vms, (n_vms + n_domains + 1) * sizeof(*grown));
	size_t n = n_vms;

	if (!grown)
		return n_vms;
	*vms = grown;
	for (size_t i = 0; i < n_domains; i++) {
		struct scan_vm *vm = find_uuid(grown, n_vms, domain[i].uuid);

		if (!vm) {
			vm = &grown[n++];
			*vm = (struct scan_vm){ .accel = "-" };
			snprintf(vm->uuid, sizeof(vm->uuid), "%s", domain[i].uuid);
		}
		describe(&domain[i], vm);
	}
	return n;
}

size_t domains_add(struct scan_vm **vms, size_t n_vms, char *note, size_t size)
{
	_cleanup_free_ struct lv_domain *domain = NULL;
	struct err err = { 0 };
	size_t n = 0;

	note[0] = '\0';
	/* most hosts without a libvirtd have no library of it either: it is not even looked for */
	if (!lv_daemon_listens())
		return n_vms;
	if (lv_list(LIST_NS, &domain, &n, &err) < 0) {
		snprintf(note, size, "libvirt's domains are not listed: %s (%s)", err.msg,
			 err_code_name(err.code));
		return n_vms;
	}
	return domains_merge(domain, n, vms, n_vms);
}
