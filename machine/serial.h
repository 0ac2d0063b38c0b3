/* SPDX-License-Identifier: Apache-2.0 */
/* A 16550A serial port. Knows no KVM: an interrupt line and a file descriptor are all it needs. */
#ifndef MACHINE_SERIAL_H
#define MACHINE_SERIAL_H

#include "machine/bus.h"

#include <pthread.h>

#define SERIAL_COM1     0x3f8
#define SERIAL_COM1_IRQ 4
#define SERIAL_PORTS    8
#define SERIAL_RX_BYTES 64

struct serial {
	pthread_mutex_t lock;
	pthread_cond_t room; /* input was taken */
	struct irq_line irq;
	int out_fd; /* what the guest sends; -1: nowhere */
	bool level; /* of the line */
	bool thr_empty_irq; /* transmitter empty, not yet seen by a read of IIR */
	bool closed; /* no more input is waited for */
	u8 ier, fcr, lcr, mcr, scr, dll, dlm;
	u8 rx[SERIAL_RX_BYTES];
	u32 rx_head, rx_n;
};

/** serial_init - a port whose output goes to @out_fd, which stays the caller's */
void serial_init(struct serial *s, struct irq_line irq, int out_fd);
void serial_deinit(struct serial *s);

/** serial_reset - as after power on; what was typed and not taken is gone */
void serial_reset(struct serial *s);

/** serial_io - a bus_fn for SERIAL_PORTS ports. A write waits until @out_fd has taken the byte. */
void serial_io(void *dev, u64 off, u8 *data, u32 len, bool is_write);

/**
 * serial_receive - bytes for the guest
 *
 * Context: one thread other than a vCPU's; waits while the guest takes nothing. Return: false once
 * serial_close() was called.
 */
must_check bool serial_receive(void *dev, const u8 *buf, size_t n);

/** serial_close - nobody waits in serial_receive() any more */
void serial_close(void *dev);

#endif
