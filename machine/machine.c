// SPDX-License-Identifier: Apache-2.0
/* Building a guest, starting and ending it. See machine.h. */
#include "machine/machine.h"

#include "base/cleanup.h"
#include "machine/boot_x86.h"

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

static void on_guest_end(void *arg, enum guest_end how, u32 value)
{
	switch (how) {
	case GUEST_RESET:
		machine_end(arg, EXIT_GUEST_ENDED, "the guest reset itself");
		break;
	case GUEST_POWER_OFF:
		machine_end(arg, EXIT_GUEST_ENDED, "the guest powered itself off");
		break;
	case GUEST_DEBUG_EXIT:
		machine_end(arg, (int)((value << 1 | 1) & 0xff), "the guest ended itself with %u",
			    value);
		break;
	}
}

/* Lines that no other device has; all are in the MP table, too. */
static const u8 virtio_gsi[MACHINE_MAX_VIRTIO] = { 5, 6, 7, 10, 11, 12, 14, 15, 3, 13 };

/* The next free place. Never more than there are, as disks are counted before. */
static struct irq_line take_place(struct machine *m)
{
	u32 i = m->n_virtio++;

	m->place[i] =
		(struct virtio_place){ MACHINE_VIRTIO_BASE + i * VIRTIO_MMIO_BYTES, virtio_gsi[i] };
	return (struct irq_line){ kvm_set_irq, m, virtio_gsi[i] };
}

/* Is the console that the kernel's command line names last, the one it reads from, hvc0? */
static bool wants_hvc(const char *cmdline)
{
	static const char option[] = "console=";
	const char *last = NULL;

	for (const char *at = strstr(cmdline, option); at; at = strstr(at + 1, option)) {
		if (at == cmdline || at[-1] == ' ')
			last = at + strlen(option);
	}
	return last && strncmp(last, "hvc", 3) == 0;
}

struct console_sink machine_console(struct machine *m)
{
	if (m->has_hvc)
		return (struct console_sink){ &m->hvc, virtio_console_receive,
					      virtio_console_close };
	return (struct console_sink){ &m->serial, serial_receive, serial_close };
}

static int add_hvc(struct machine *m, const struct machine_config *c, struct err *err)
{
	virtio_console_init(&m->hvc, c->out_fd, &m->mem, take_place(m));
	m->has_hvc = true;
	return bus_add(&m->mmio, m->place[m->n_virtio - 1].base, VIRTIO_MMIO_BYTES, virtio_io,
		       &m->hvc.dev, err);
}

static int add_virtio(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc;

	virtio_rng_init(&m->rng, &m->mem, take_place(m));
	rc = bus_add(&m->mmio, m->place[0].base, VIRTIO_MMIO_BYTES, virtio_io, &m->rng, err);
	for (u32 i = 0; !rc && i < c->n_disks; i++) {
		struct irq_line irq = take_place(m);

		m->n_disks++;
		rc = virtio_blk_init(&m->disk[i], &c->disk[i], i, &m->mem, irq, err);
		if (!rc)
			rc = bus_add(&m->mmio, m->place[m->n_virtio - 1].base, VIRTIO_MMIO_BYTES,
				     virtio_io, &m->disk[i].dev, err);
	}
	if (!rc && wants_hvc(c->cmdline))
		rc = add_hvc(m, c, err);
	return rc;
}

static int add_devices(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc = legacy_add(&m->legacy, &m->pio, err);

	if (!rc)
		rc = bus_add(&m->pio, SERIAL_COM1, SERIAL_PORTS, serial_io, &m->serial, err);
	return rc ? rc : add_virtio(m, c, err);
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

static int add_vcpus(struct machine *m, u64 entry, struct err *err)
{
	int most = ioctl(m->kvm, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);
	int rc = 0;

	if (most > 0 && m->n_vcpus > (u32)most)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0,
			       "KVM here gives a guest at most %d vCPUs, not %u", most, m->n_vcpus);
	for (u32 i = 0; !rc && i < m->n_vcpus; i++)
		rc = vcpu_create(&m->vcpu[i], entry, err);
	return rc;
}

static int load(struct machine *m, const struct machine_config *c, u64 *entry_ret, struct err *err)
{
	_cleanup_free_ char *line = command_line(m, c->cmdline);
	struct boot_config boot = { .kernel = c->kernel,
				    .initrd = c->initrd,
				    .cmdline = line,
				    .cpus = c->cpus,
				    .virtio = m->place,
				    .n_virtio = m->n_virtio };

	if (!line)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	return boot_load(&m->mem, &boot, entry_ret, err);
}

static int set_up(struct machine *m, const struct machine_config *c, struct err *err)
{
	u64 entry;
	int rc;

	rc = kvm_open(&m->kvm, err);
	if (!rc)
		rc = mem_init(&m->mem, c->memory_bytes, err);
	if (!rc)
		rc = spare_init(&m->spare, MEM_HOLE_END + mem_high_bytes(&m->mem), err);
	if (!rc)
		rc = add_devices(m, c, err);
	if (!rc)
		rc = load(m, c, &entry, err);
	if (!rc)
		rc = kvm_create_vm(m, err);
	return rc ? rc : add_vcpus(m, entry, err);
}

int machine_create(const struct machine_config *c, struct machine **ret, struct err *err)
{
	struct machine *m = calloc(1, sizeof(*m));
	struct irq_line com1 = { kvm_set_irq, m, SERIAL_COM1_IRQ };
	int rc;

	if (!m)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a guest");
	m->kvm = m->vm = m->mem.fd = m->spare.fd = -1;
	m->emulated = c->emulated;
	pthread_mutex_init(&m->end_lock, NULL);
	pthread_mutex_init(&m->go_lock, NULL);
	pthread_cond_init(&m->go, NULL);
	legacy_init(&m->legacy, on_guest_end, m);
	serial_init(&m->serial, com1, c->out_fd);
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
	int rc;

	rc = virtio_start(&m->rng, err);
	for (u32 i = 0; !rc && i < m->n_disks; i++)
		rc = virtio_start(&m->disk[i].dev, err);
	if (!rc && m->has_hvc)
		rc = virtio_start(&m->hvc.dev, err);
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
	pthread_mutex_unlock(&m->go_lock);
}

static void stop_vcpus(struct machine *m)
{
	__atomic_store_n(&m->stopping, true, __ATOMIC_SEQ_CST);
	machine_go(m); /* those that still wait */
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (m->vcpu[i].started)
			vcpu_kick(&m->vcpu[i]);
	}
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (m->vcpu[i].started)
			pthread_join(m->vcpu[i].thread, NULL);
	}
}

void machine_destroy(struct machine *m)
{
	if (!m)
		return;
	stop_vcpus(m);
	if (m->n_virtio)
		virtio_deinit(&m->rng);
	for (u32 i = 0; i < m->n_disks; i++)
		virtio_blk_deinit(&m->disk[i]);
	if (m->has_hvc)
		virtio_console_deinit(&m->hvc);
	for (u32 i = 0; i < m->n_vcpus; i++) {
		if (m->vcpu[i].run)
			munmap(m->vcpu[i].run, m->run_bytes);
		if (m->vcpu[i].fd >= 0)
			close(m->vcpu[i].fd);
	}
	if (m->vm >= 0)
		close(m->vm);
	if (m->kvm >= 0)
		close(m->kvm);
	if (m->end_fd >= 0)
		close(m->end_fd);
	mem_deinit(&m->mem);
	spare_deinit(&m->spare);
	serial_deinit(&m->serial);
	legacy_deinit(&m->legacy);
	pthread_cond_destroy(&m->go);
	pthread_mutex_destroy(&m->go_lock);
	pthread_mutex_destroy(&m->end_lock);
	free(m->vcpu);
	free(m);
}
