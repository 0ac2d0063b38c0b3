// SPDX-License-Identifier: Apache-2.0
/* /dev/kvm, the VM, its RAM and its interrupt chips. See machine.h. */
#include "machine/machine.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

/* Intel's real mode emulation needs four pages nobody else uses, right below the firmware's place. */
#define IDENTITY_MAP_ADDR 0xfffbc000ull
#define TSS_ADDR          0xfffbd000ul

#define SLOT_LOW   0
#define SLOT_HIGH  1
#define SLOT_SPARE 2

static int cannot_open(struct err *err, int no)
{
	switch (no) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return err_set(
			err, -ENOENT, ERR_IO, 0,
			"no KVM on this host (/dev/kvm: %s): load kvm_intel or kvm_amd, or let "
			"the firmware turn virtualisation on",
			strerrordesc_np(no));
	case EACCES:
	case EPERM:
		return err_set(
			err, -EACCES, ERR_IO, 0,
			"no permission to use /dev/kvm: join the group that owns it, often kvm");
	default:
		return err_set(err, -no, ERR_IO, 0, "/dev/kvm: %s", strerrordesc_np(no));
	}
}

int kvm_open(int *fd_ret, struct err *err)
{
	static const struct {
		int cap;
		const char *name;
	} need[] = {
		{ KVM_CAP_USER_MEMORY, "memory slots" },
		{ KVM_CAP_IRQCHIP, "interrupt controllers" },
		{ KVM_CAP_PIT2, "a timer" },
		{ KVM_CAP_EXT_CPUID, "CPUID tables" },
		{ KVM_CAP_IMMEDIATE_EXIT, "immediate exits (Linux 4.13)" },
	};
	_cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return cannot_open(err, errno);
	if (ioctl(fd, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		return err_set(err, -ENOTSUP, ERR_IO, 0, "KVM's API is not version %d",
			       KVM_API_VERSION);
	for (size_t i = 0; i < ARRAY_SIZE(need); i++) {
		if (ioctl(fd, KVM_CHECK_EXTENSION, need[i].cap) <= 0)
			return err_set(err, -ENOTSUP, ERR_IO, 0, "KVM here has no %s",
				       need[i].name);
	}
	*fd_ret = no_cleanup_fd(fd);
	return 0;
}

int kvm_failed(struct err *err, const char *what)
{
	return err_set(err, -errno, ERR_IO, 0, "KVM: %s: %s", what, strerrordesc_np(errno));
}

static int add_slot(const struct machine *m, u32 slot, u64 gpa_base, u64 len, const u8 *host,
		    struct err *err)
{
	struct kvm_userspace_memory_region r = { .slot = slot,
						 .guest_phys_addr = gpa_base,
						 .memory_size = len,
						 .userspace_addr = (u64)(uintptr_t)host };

	if (len && ioctl(m->vm, KVM_SET_USER_MEMORY_REGION, &r) < 0)
		return kvm_failed(err, "the guest's memory");
	return 0;
}

int kvm_lend_spare(struct machine *m, struct err *err)
{
	int rc;

	if (m->spare.base)
		return 0;
	rc = spare_map(&m->spare, err);
	if (!rc)
		rc = add_slot(m, SLOT_SPARE, m->spare.gpa, SPARE_BYTES, m->spare.base, err);
	if (!rc)
		rc = spare_show(&m->spare, err);
	if (rc) { /* a slot that is left leads to nothing */
		struct err undo = { 0 };

		if (kvm_take_spare_back(m, &undo))
			spare_unmap(&m->spare);
	}
	return rc;
}

/* A slot of no size is one that goes, and with it all that a CPU may have kept of translations into it. */
int kvm_take_spare_back(struct machine *m, struct err *err)
{
	struct kvm_userspace_memory_region r = { .slot = SLOT_SPARE };

	if (!m->spare.base)
		return 0;
	r.guest_phys_addr = m->spare.gpa;
	r.userspace_addr = (u64)(uintptr_t)m->spare.base;
	if (ioctl(m->vm, KVM_SET_USER_MEMORY_REGION, &r) < 0)
		return kvm_failed(err, "taking memory above the guest's away");
	spare_unmap(&m->spare);
	return 0;
}

int kvm_create_vm(struct machine *m, struct err *err)
{
	struct kvm_pit_config pit = { .flags = KVM_PIT_SPEAKER_DUMMY };
	u64 identity = IDENTITY_MAP_ADDR;
	int size = ioctl(m->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	u64 low = mem_low_bytes(&m->mem);
	int rc;

	if (size < (int)sizeof(struct kvm_run))
		return kvm_failed(err, "the size of a vCPU");
	m->run_bytes = (size_t)size;
	do {
		m->vm = ioctl(m->kvm, KVM_CREATE_VM, 0);
	} while (m->vm < 0 && errno == EINTR);
	if (m->vm < 0)
		return kvm_failed(err, "a virtual machine");
	if (ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_SET_IDENTITY_MAP_ADDR) > 0 &&
	    ioctl(m->vm, KVM_SET_IDENTITY_MAP_ADDR, &identity) < 0)
		return kvm_failed(err, "the identity map's address");
	if (ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_SET_TSS_ADDR) > 0 &&
	    ioctl(m->vm, KVM_SET_TSS_ADDR, TSS_ADDR) < 0)
		return kvm_failed(err, "the task state's address");
	rc = add_slot(m, SLOT_LOW, 0, low, m->mem.base, err);
	if (!rc)
		rc = add_slot(m, SLOT_HIGH, MEM_HOLE_END, mem_high_bytes(&m->mem),
			      m->mem.base + low, err);
	if (!rc && m->spare.base)
		rc = add_slot(m, SLOT_SPARE, m->spare.gpa, SPARE_BYTES, m->spare.base, err);
	if (rc)
		return rc;
	if (ioctl(m->vm, KVM_CREATE_IRQCHIP, 0) < 0)
		return kvm_failed(err, "interrupt controllers");
	if (ioctl(m->vm, KVM_CREATE_PIT2, &pit) < 0)
		return kvm_failed(err, "the timer");
	return 0;
}

void kvm_set_irq(void *arg, u32 gsi, bool level)
{
	const struct machine *m = arg;
	struct kvm_irq_level irq = { .irq = gsi, .level = level };

	/* cannot fail for lines that the chips have */
	(void)ioctl(m->vm, KVM_IRQ_LINE, &irq);
}
