// SPDX-License-Identifier: Apache-2.0
/* /v1/machines: virtual machines of this host, whether attached or not. */
#include "api/cli_domains.h"
#include "api/cli_scan.h"
#include "api/registry.h"
#include "api/resources.h"
#include "api/server.h"

#include <stdlib.h>
#include <string.h>

struct attached {
	char name[NAME_MAX_BYTES + 1];
	char target[NAME_MAX_TARGET + 1];
	pid_t vmm_pid;
};

/* As many as there are; false without memory. */
static bool list_attached(struct registry *reg, struct attached **ret, size_t *n_ret)
{
	struct guest_entry *g = NULL;
	struct attached *more, *a;
	bool failed = false;
	size_t cap = 0;

	while ((g = registry_guest_next(reg, g))) {
		if (*n_ret == cap) {
			more = reallocarray(*ret, cap + 32, sizeof(**ret));
			failed |= !more;
			if (!more)
				continue;
			*ret = more;
			cap += 32;
		}
		a = &(*ret)[(*n_ret)++];
		memcpy(a->name, g->name, sizeof(a->name));
		memcpy(a->target, g->target, sizeof(a->target));
		a->vmm_pid = guest_vmm_pid(g->guest);
	}
	return !failed;
}

/* The name under which @vm is attached; NULL when it is not. The VMM decides, however it was named. */
static const char *attached_as(const struct scan_vm *vm, const struct attached *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((vm->pid && all[i].vmm_pid == vm->pid) ||
		    strcmp(all[i].target, vm->target) == 0)
			return all[i].name;
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
	struct attached *attached = NULL;
	struct scan_vm *vms = NULL;
	json_t *items = json_array();
	size_t n_attached = 0, n;
	char note[320];
	bool ok;

	/* no guest is used any more when libvirt is asked, which may take its time */
	ok = list_attached(server_registry(rq->srv), &attached, &n_attached);
	n = domains_add(&vms, scan_host("/proc", &vms), note, sizeof(note));
	for (size_t i = 0; ok && i < n; i++)
		json_array_append_new(
			items, machine_doc(&vms[i], attached_as(&vms[i], attached, n_attached)));
	if (ok && items)
		request_json(rq, 200,
			     json_pack("{s:o, s:o}", "items", items, "note",
				       note[0] ? json_text(note) : json_null()));
	else
		request_json(rq, 503, NULL);
	free(attached);
	free(vms);
}
