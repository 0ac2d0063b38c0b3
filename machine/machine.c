// SPDX-License-Identifier: Apache-2.0
/* Building a guest, starting and ending it. See machine.h. */
#include "machine/machine.h"

#include "base/cleanup.h"
#include "machine/boot_x86.h"
#include "machine/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

void machine_end(struct machine *m, int status, const char *fmt, ...)
{
	const u64 one = 1;
	va_list ap;

	pthread_mutex_lock(&m->end_lock);
	if (!m->ended) {
		va_start(ap, fmt);
		vsnprintf(m->why, sizeof(m->why), fmt, ap);
		va_end(ap);
		m->status = status;
		m->ended = true;
		(void)!write(m->end_fd, &one, sizeof(one));
	}
	pthread_mutex_unlock(&m->end_lock);
}

void machine_tell(struct machine *m, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	output_say("%s", line);
	if (m->tell)
		m->tell(m->tell_arg, line);
}

/*
 * The kernel's command line. One that is told to do without ACPI learns of virtio devices here. To be
 * freed; NULL: no memory.
 */
static char *command_line(const struct machine *m, const char *given)
{
	char *text = strdup(given);

	for (u32 i = 0; text && strstr(given, "acpi=off") && i < m->n_virtio; i++) {
		char *longer = NULL;

		if (asprintf(&longer, "%s virtio_mmio.device=4K@0x%x:%u", text, m->place[i].base,
			     m->place[i].gsi) < 0)
			longer = NULL;
		free(text);
		text = longer;
	}
	return text;
}

int machine_add_vcpus(struct machine *m, struct err *err)
{
	int most = ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);
	int rc = 0;

	if (most > 0 && m->n_vcpus > (u32)most)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "KVM here gives a guest at most %d vCPUs, not %u", most, m->n_vcpus);
	for (u32 i = 0; !rc && i < m->n_vcpus; i++)
		rc = vcpu_create(&m->vcpu[i], &m->boot, err);
	return rc;
}

static int load(struct machine *m, const struct machine_config *c, struct err *err)
{
	_cleanup_free_ char *line = command_line(m, c->cmdline);
	struct boot_config boot = { .protocol = c->protocol,
				    .kernel = c->kernel,
				    .initrd = c->initrd,
				    .cmdline = line,
				    .cpus = c->cpus,
				    .virtio = m->place,
				    .n_virtio = m->n_virtio };

	if (!line)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	return boot_load(&m->mem, &boot, &m->boot, err);
}

static int set_up(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc;

	rc = kvm_open(&m->kvm, err);
	if (!rc)
		rc = mem_init(&m->mem, c->memory_bytes, err);
	if (!rc)
		rc = spare_init(&m->spare, MEM_HOLE_END + mem_high_bytes(&m->mem), err);
	if (!rc)
		rc = debug_init(m, err);
	if (!rc)
		rc = devices_add(m, c, err);
	if (!rc)
		rc = load(m, c, err);
	if (!rc && !m->no_reboot)
		rc = mem_save(&m->mem, &m->start, err);
	if (!rc)
		rc = kvm_create_vm(m, err);
	if (!rc && c->lend)
		rc = kvm_lend_spare(m, err);
	return rc ? rc : machine_add_vcpus(m, err);
}

int machine_create(const struct machine_config *c, struct machine **ret, struct err *err)
{
	struct machine *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	m->kvm = m->vm = m->mem.fd = m->spare.fd = m->debug.fd = -1;
	m->emulated = c->emulated;
	m->no_reboot = c->no_reboot;
	m->triple_fault_resets = c->triple_fault_resets;
	m->tell = c->tell;
	m->tell_arg = c->tell_arg;
	m->life = 1;
	pthread_mutex_init(&m->end_lock, NULL);
	pthread_mutex_init(&m->go_lock, NULL);
	pthread_cond_init(&m->go, NULL);
	pthread_cond_init(&m->all_out, NULL);
	m->end_fd = eventfd(0, EFD_CLOEXEC);
	m->vcpu = calloc(c->cpus, sizeof(*m->vcpu));
	m->n_vcpus = m->vcpu ? c->cpus : 0;
	for (u32 i = 0; i < m->n_vcpus; i++)
		m->vcpu[i] = (struct vcpu){ .m = m, .id = i, .fd = -1 };
	if (m->end_fd < 0 || !m->vcpu)
		rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	else
		rc = set_up(m, c, err);
	if (rc) {
		machine_destroy(m);
		return rc;
	}
	*ret = m;
	return 0;
}

int machine_start(struct machine *m, struct err *err)
{
	char name[16];
	int rc = devices_start(m, err);

	if (rc)
		return rc;
	vcpu_catch_kicks();
	for (u32 i = 0; i < m->n_vcpus; i++) {
		struct vcpu *v = &m->vcpu[i];
		int no = pthread_create(&v->thread, NULL, vcpu_thread, v);

		if (no)
			return err_set(err, -no, ERR_IO, 0, "a vCPU's thread: %s",
				       strerrordesc_np(no));
		v->started = true;
		snprintf(name, sizeof(name), "vcpu %u", i);
		(void)pthread_setname_np(v->thread, name);
	}
	return 0;
}

void machine_go(struct machine *m)
{
	pthread_mutex_lock(&m->go_lock);
	m->going = true;
	pthread_cond_broadcast(&m->go);
	pthread_cond_broadcast(&m->all_out);
	pthread_mutex_unlock(&m->go_lock);
}

void machine_lend(struct machine *m, enum spare_order order)
{
	struct err err = { 0 };
	int rc;

	pthread_mutex_lock(&m->go_lock);
	rc = order == SPARE_LEND ? kvm_lend_spare(m, &err) : kvm_take_spare_back(m, &err);
	pthread_mutex_unlock(&m->go_lock);
	if (rc)
		machine_tell(m, "%s", err.msg);
}

void machine_slots(struct machine *m, char *buf, size_t cap)
{
	u64 low = mem_low_bytes(&m->mem), high = mem_high_bytes(&m->mem);
	size_t n;

	n = (size_t)snprintf(buf, cap, "0+%llx", (unsigned long long)low);
	if (high && n < cap)
		n += (size_t)snprintf(buf + n, cap - n, " %llx+%llx", MEM_HOLE_END,
				      (unsigned long long)high);
	pthread_mutex_lock(&m->go_lock);
	if (m->spare.base && n < cap)
		snprintf(buf + n, cap - n, " %llx+%llx", (unsigned long long)m->spare.gpa,
			 SPARE_BYTES);
	pthread_mutex_unlock(&m->go_lock);
}

void machine_stop(struct machine *m)
{
	life_stop(m);
	devices_stop(m);
	/* from now on why and how it ended stay as they are, and are seen as they are */
	machine_end(m, EXIT_GUEST_ENDED, "the guest was ended");
}

void machine_destroy(struct machine *m)
{
	if (!m)
		return;
	machine_stop(m);
	devices_deinit(m);
	for (u32 i = 0; i < m->n_vcpus; i++)
		vcpu_close(&m->vcpu[i]);
	if (m->vm >= 0)
		close(m->vm);
	if (m->kvm >= 0)
		close(m->kvm);
	if (m->end_fd >= 0)
		close(m->end_fd);
	mem_copy_deinit(&m->start);
	mem_deinit(&m->mem);
	spare_deinit(&m->spare);
	debug_deinit(m);
	pthread_cond_destroy(&m->all_out);
	pthread_cond_destroy(&m->go);
	pthread_mutex_destroy(&m->go_lock);
	pthread_mutex_destroy(&m->end_lock);
	free(m->vcpu);
	free(m);
}
