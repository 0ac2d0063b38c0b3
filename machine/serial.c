// SPDX-License-Identifier: Apache-2.0
/*
 * A 16550A serial port. See serial.h.
 * Source: National Semiconductor PC16550D, 8 (registers); <linux/serial_reg.h> for the names.
 */
#include "machine/serial.h"

#include "machine/output.h"

#include <linux/serial_reg.h>

void serial_init(struct serial *s, struct irq_line irq, int out_fd)
{
	*s = (struct serial){ .irq = irq, .out_fd = out_fd, .dll = 1 };
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->room, NULL);
}

void serial_deinit(struct serial *s)
{
	pthread_cond_destroy(&s->room);
	pthread_mutex_destroy(&s->lock);
}

/* The interrupt of the highest priority; UART_IIR_NO_INT when none is pending. Called with the lock. */
static u8 pending(const struct serial *s)
{
	if ((s->ier & UART_IER_RDI) && s->rx_n)
		return UART_IIR_RDI;
	if ((s->ier & UART_IER_THRI) && s->thr_empty_irq)
		return UART_IIR_THRI;
	return UART_IIR_NO_INT;
}

/* On a PC, OUT2 lets the interrupt through. Called with the lock. */
static void update_irq(struct serial *s)
{
	bool level = pending(s) != UART_IIR_NO_INT && (s->mcr & UART_MCR_OUT2);

	if (level == s->level)
		return;
	s->level = level;
	irq_set(&s->irq, level);
}

void serial_reset(struct serial *s)
{
	pthread_mutex_lock(&s->lock);
	s->ier = s->fcr = s->lcr = s->mcr = s->scr = s->dlm = 0;
	s->dll = 1;
	s->rx_n = 0;
	s->thr_empty_irq = false;
	update_irq(s);
	pthread_cond_signal(&s->room);
	pthread_mutex_unlock(&s->lock);
}

static void push(struct serial *s, u8 byte)
{
	if (s->rx_n == SERIAL_RX_BYTES)
		return;
	s->rx[(s->rx_head + s->rx_n) % SERIAL_RX_BYTES] = byte;
	s->rx_n++;
}

static u8 take(struct serial *s)
{
	u8 byte;

	if (!s->rx_n)
		return 0;
	byte = s->rx[s->rx_head];
	s->rx_head = (s->rx_head + 1) % SERIAL_RX_BYTES;
	s->rx_n--;
	pthread_cond_signal(&s->room);
	return byte;
}

static void transmit(struct serial *s, u8 byte)
{
	if (s->mcr & UART_MCR_LOOP)
		push(s, byte);
	else
		output_write(s->out_fd, &byte, 1, -1);
	s->thr_empty_irq = true;
}

static void write_reg(struct serial *s, u64 reg, u8 v)
{
	bool dlab = s->lcr & UART_LCR_DLAB;

	switch (reg) {
	case UART_TX:
		if (dlab)
			s->dll = v;
		else
			transmit(s, v);
		break;
	case UART_IER:
		if (dlab) {
			s->dlm = v;
			break;
		}
		/* enabling it while the transmitter is empty asks for one interrupt */
		if (!(s->ier & UART_IER_THRI) && (v & UART_IER_THRI))
			s->thr_empty_irq = true;
		s->ier = v & 0x0f;
		break;
	case UART_FCR:
		s->fcr = v;
		if (v & UART_FCR_CLEAR_RCVR) {
			s->rx_n = 0;
			pthread_cond_signal(&s->room);
		}
		break;
	case UART_LCR:
		s->lcr = v;
		break;
	case UART_MCR:
		s->mcr = v & 0x1f;
		break;
	case UART_SCR:
		s->scr = v;
		break;
	default: /* LSR and MSR are read only */
		break;
	}
}

static u8 read_iir(struct serial *s)
{
	u8 iir = pending(s);

	if (iir == UART_IIR_THRI)
		s->thr_empty_irq = false;
	return (s->fcr & UART_FCR_ENABLE_FIFO) ? iir | 0xc0 : iir;
}

/* In loopback the modem's inputs are the port's own outputs; else somebody is there and ready. */
static u8 read_msr(const struct serial *s)
{
	u8 msr = 0;

	if (!(s->mcr & UART_MCR_LOOP))
		return UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS;
	if (s->mcr & UART_MCR_RTS)
		msr |= UART_MSR_CTS;
	if (s->mcr & UART_MCR_DTR)
		msr |= UART_MSR_DSR;
	if (s->mcr & UART_MCR_OUT1)
		msr |= UART_MSR_RI;
	if (s->mcr & UART_MCR_OUT2)
		msr |= UART_MSR_DCD;
	return msr;
}

static u8 read_reg(struct serial *s, u64 reg)
{
	bool dlab = s->lcr & UART_LCR_DLAB;

	switch (reg) {
	case UART_RX:
		return dlab ? s->dll : take(s);
	case UART_IER:
		return dlab ? s->dlm : s->ier;
	case UART_IIR:
		return read_iir(s);
	case UART_LCR:
		return s->lcr;
	case UART_MCR:
		return s->mcr;
	case UART_LSR:
		return UART_LSR_TEMT | UART_LSR_THRE | (s->rx_n ? UART_LSR_DR : 0);
	case UART_MSR:
		return read_msr(s);
	default:
		return s->scr;
	}
}

/* A wider access is one of each of its bytes, as on the ISA bus. */
void serial_io(void *dev, u64 off, u8 *data, u32 len, bool is_write)
{
	struct serial *s = dev;

	pthread_mutex_lock(&s->lock);
	for (u32 i = 0; i < len; i++) {
		if (is_write)
			write_reg(s, off + i, data[i]);
		else
			data[i] = read_reg(s, off + i);
	}
	update_irq(s);
	pthread_mutex_unlock(&s->lock);
}

bool serial_receive(void *dev, const u8 *buf, size_t n)
{
	struct serial *s = dev;
	bool open;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n && !s->closed; i++) {
		while (s->rx_n == SERIAL_RX_BYTES && !s->closed)
			pthread_cond_wait(&s->room, &s->lock);
		push(s, buf[i]);
		update_irq(s);
	}
	open = !s->closed;
	pthread_mutex_unlock(&s->lock);
	return open;
}

void serial_close(void *dev)
{
	struct serial *s = dev;

	pthread_mutex_lock(&s->lock);
	s->closed = true;
	pthread_cond_broadcast(&s->room);
	pthread_mutex_unlock(&s->lock);
}
