// SPDX-License-Identifier: Apache-2.0
/* /v1/machines: virtual machines of this host, whether attached or not. */
#include "api/cli_domains.h"
#include "api/cli_scan.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"

#include <stdlib.h>
#include <string.h>

/* The name under which @vm is attached; NULL when it is not. The VMM decides, however it was named. */
static const char *attached_as(const struct scan_vm *vm, struct guest_entry *const *guests,
			       const struct guest_info *infos, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((vm->pid && infos[i].vmm_pid == vm->pid) ||
		    strcmp(infos[i].target, vm->target) == 0)
			return guests[i]->name;
	}
	return NULL;
}

static json_t *machine_doc(const struct scan_vm *vm, const char *guest)
{
	return json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:b, s:o, s:s?}", "pid",
			 vm->pid ? json_integer(vm->pid) : json_null(), "name", json_text(vm->name),
			 "target", json_text(vm->target), "state", vm->state, "accel", vm->accel,
			 "vcpus", vm->vcpus ? json_integer(vm->vcpus) : json_null(), "traceable",
			 !vm->reason[0], "reason",
			 vm->reason[0] ? json_text(vm->reason) : json_null(), "guest", guest);
}

void res_machines_list(struct request *rq)
{
	struct guest_info *infos = NULL;
	struct guest_entry **guests;
	struct scan_vm *vms = NULL;
	json_t *items = json_array();
	size_t n_guests, n;
	char note[320];

	guests = registry_guests(server_registry(rq->srv), &n_guests);
	infos = calloc(n_guests + 1, sizeof(*infos));
	for (size_t i = 0; guests && infos && i < n_guests; i++)
		guest_info(guests[i]->guest, &infos[i]);
	n = domains_add(&vms, scan_host("/proc", &vms), note, sizeof(note));
	for (size_t i = 0; guests && infos && i < n; i++)
		json_array_append_new(
			items, machine_doc(&vms[i], attached_as(&vms[i], guests, infos, n_guests)));
	if (guests && infos && items)
		request_json(rq, 200,
			     json_pack("{s:o, s:o}", "items", items, "note",
				       note[0] ? json_text(note) : json_null()));
	else
		request_json(rq, 503, NULL);
	for (size_t i = 0; guests && i < n_guests; i++)
		registry_guest_put(guests[i]);
	free(guests);
	free(infos);
	free(vms);
}
