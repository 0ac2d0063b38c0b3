// SPDX-License-Identifier: Apache-2.0
/* All devices of a guest: which, where, their life. See machine.h. */
#include "machine/machine.h"

#include <errno.h>
#include <string.h>

/* Each kind once a life: the guest could fill a log with it. */
static void on_panic(struct machine *m, bool crash_loaded)
{
	u32 life = machine_life(m);

	if (__atomic_exchange_n(&m->panic_told[crash_loaded], life, __ATOMIC_RELAXED) == life)
		return;
	machine_tell(m, "the guest's kernel panics%s (life %u)",
		     crash_loaded ? ", its crash kernel takes over" : "", life);
}

static void on_guest(void *arg, enum guest_event what, u32 value)
{
	struct machine *m = arg;

	switch (what) {
	case GUEST_RESET:
		machine_reset(m, "reset itself");
		break;
	case GUEST_POWER_OFF:
		machine_end(m, EXIT_GUEST_ENDED, "the guest powered itself off");
		break;
	case GUEST_DEBUG_EXIT:
		machine_end(m, (int)((value << 1 | 1) & 0xff), "the guest ended itself with %u",
			    value);
		break;
	case GUEST_PANIC:
	case GUEST_CRASH_LOADED:
		on_panic(m, what == GUEST_CRASH_LOADED);
		break;
	}
}

/* Lines that no other device has; all are in the MP table, too. */
static const u8 virtio_gsi[MACHINE_MAX_VIRTIO] = { 5, 6, 7, 10, 11, 12, 14, 15, 3, 13 };

/* The line of the next free place. Never more than there are, as cards are counted before. */
static struct irq_line next_line(struct machine *m)
{
	return (struct irq_line){ kvm_set_irq, m, virtio_gsi[m->n_virtio] };
}

static int take_place(struct machine *m, struct virtio_dev *d, struct err *err)
{
	u32 i = m->n_virtio++;

	m->place[i] =
		(struct virtio_place){ MACHINE_VIRTIO_BASE + i * VIRTIO_MMIO_BYTES, virtio_gsi[i] };
	m->virtio[i] = d;
	return bus_add(&m->mmio, m->place[i].base, VIRTIO_MMIO_BYTES, virtio_io, d, err);
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

static int add_disks(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc = 0;

	for (u32 i = 0; !rc && i < c->n_disks; i++) {
		m->n_disks++;
		rc = virtio_blk_init(&m->disk[i], &c->disk[i], i, &m->mem, next_line(m), err);
		if (!rc)
			rc = take_place(m, &m->disk[i].dev, err);
	}
	return rc;
}

static int add_nets(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc = 0;

	for (u32 i = 0; !rc && i < c->n_nets; i++) {
		struct tap tap;

		rc = tap_open(&tap, &c->net[i], err);
		if (rc) {
			tap_close(&tap);
			break;
		}
		virtio_net_init(&m->net[m->n_nets++], &tap, &m->mem, next_line(m));
		rc = take_place(m, &m->net[i].dev, err);
	}
	return rc;
}

static int add_vsock(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc;

	if (!c->vsock.path)
		return 0;
	m->has_vsock = true;
	rc = virtio_vsock_init(&m->vsock, &c->vsock, &m->mem, next_line(m), err);
	return rc ? rc : take_place(m, &m->vsock.dev, err);
}

static int add_virtio(struct machine *m, const struct machine_config *c, struct err *err)
{
	int rc;

	if (c->n_disks + c->n_nets + (c->vsock.path != NULL) > MACHINE_MAX_CARDS)
		return err_set(err, -E2BIG, ERR_BAD_REQUEST, 0,
			       "at most %d disks, network cards and sockets together",
			       MACHINE_MAX_CARDS);
	virtio_rng_init(&m->rng, &m->mem, next_line(m));
	rc = take_place(m, &m->rng, err);
	if (!rc)
		rc = add_disks(m, c, err);
	if (!rc)
		rc = add_nets(m, c, err);
	if (!rc)
		rc = add_vsock(m, c, err);
	if (rc || !wants_hvc(c->cmdline))
		return rc;
	m->has_hvc = true;
	virtio_console_init(&m->hvc, c->out_fd, &m->mem, next_line(m));
	return take_place(m, &m->hvc.dev, err);
}

int devices_add(struct machine *m, const struct machine_config *c, struct err *err)
{
	const struct irq_line sci = { kvm_set_irq, m, ACPI_SCI };
	const struct irq_line com1 = { kvm_set_irq, m, SERIAL_COM1_IRQ };
	int rc;

	legacy_init(&m->legacy, sci, on_guest, m);
	serial_init(&m->serial, com1, c->out_fd);
	rc = legacy_add(&m->legacy, &m->pio, err);
	if (!rc)
		rc = bus_add(&m->pio, SERIAL_COM1, SERIAL_PORTS, serial_io, &m->serial, err);
	return rc ? rc : add_virtio(m, c, err);
}

int devices_start(struct machine *m, struct err *err)
{
	int rc = 0;

	for (u32 i = 0; !rc && i < m->n_virtio; i++)
		rc = virtio_start(m->virtio[i], err);
	return rc;
}

void devices_stop(struct machine *m)
{
	for (u32 i = 0; i < m->n_virtio; i++)
		virtio_stop(m->virtio[i]);
}

void devices_reset(struct machine *m)
{
	for (u32 i = 0; i < m->n_virtio; i++)
		virtio_reset(m->virtio[i]);
	serial_reset(&m->serial);
	legacy_reset(&m->legacy);
}

void devices_deinit(struct machine *m)
{
	if (m->n_virtio)
		virtio_deinit(&m->rng);
	for (u32 i = 0; i < m->n_disks; i++)
		virtio_blk_deinit(&m->disk[i]);
	for (u32 i = 0; i < m->n_nets; i++)
		virtio_net_deinit(&m->net[i]);
	if (m->has_vsock)
		virtio_vsock_deinit(&m->vsock);
	if (m->has_hvc)
		virtio_console_deinit(&m->hvc);
	serial_deinit(&m->serial);
	legacy_deinit(&m->legacy);
}
