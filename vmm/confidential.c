// SPDX-License-Identifier: Apache-2.0
/* Guests whose memory is kept from the host: found out before anything of them is read. */
#include "vmm/vm_ops.h"

#include "vmm/proc.h"

#include <errno.h>

/* Descriptors that only the VMM of such a guest holds. */
static const struct {
	const char *link, *what;
} signs[] = {
	{ "/dev/sev", "AMD SEV" }, /* Linux Documentation/virt/kvm/x86/amd-memory-encryption.rst */
	/* private memory: SEV-SNP, TDX. Linux v6.8 virt/kvm/guest_memfd.c */
	{ "anon_inode:[kvm-gmem]", "guest_memfd" },
};

int vm_refuse_confidential(const struct vm *vm, const char *what, struct err *err)
{
	return err_set(err, -EACCES, ERR_TARGET_SEALED, 0,
		       "the memory of process %d's guest is kept from its host (%.40s)",
		       (int)vm->pid, what);
}

int vm_check_confidential(const struct vm *vm, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
		if (proc_count_fds(vm->pid, signs[i].link) > 0)
			return vm_refuse_confidential(vm, signs[i].what, err);
	}
	return 0;
}
