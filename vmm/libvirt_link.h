/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain of libvirt: its connection, its monitor, its events. A thread of its own makes all calls, as
 * libvirt's have no time limit: whoever waits for one does so for a time of its choice. A connection
 * that was lost is opened again by the next command. Must not know guests.
 */
#ifndef VMM_LIBVIRT_LINK_H
#define VMM_LIBVIRT_LINK_H

#include "vmm/libvirt_lib.h"
#include "vmm/qmp.h"

struct lv_link;

#define LV_URI_BYTES 128

/* What stands behind "libvirt:" in a target. */
struct lv_target {
	char uri[LV_URI_BYTES];
	char domain[128]; /* name or UUID */
};

/* What the domain's events and libvirt's last answers say. */
enum lv_run {
	LV_RUN_UNKNOWN, /* nothing was heard since the connection was made, or there is none */
	LV_RUN_RUNNING,
	LV_RUN_STOPPED,
	LV_RUN_ENDED /* its QEMU is gone, or goes; for good */
};

/**
 * lv_target_parse - "qemu:///system/NAME" and the like
 *
 * Only QEMU on this host: qemu:///system, qemu:///session, qemu+unix:///system?socket=PATH (the domain
 * stands before the question mark). Other URIs may run commands and reach other hosts.
 * Return: 0; -EINVAL (target.syntax).
 */
must_check int lv_target_parse(const char *arg, struct lv_target *ret, struct err *err);

/** lv_is_uuid - has a domain's name the form of a UUID? */
bool lv_is_uuid(const char *s);

/**
 * lv_target_uri - what to give libvirt for @t's connection now
 *
 * A socket that the target names must be root's or the daemon's user's, as must be who listens there and each directory
 * on the way, and in those nobody else may put another there. Context: waits for nobody. Return: 0; -EACCES
 * (target.untrusted_socket); -ENOTCONN nothing is there (libvirt.unreachable); -EINVAL (target.syntax).
 */
must_check int lv_target_uri(const struct lv_target *t, char uri_ret[LV_URI_BYTES],
			     struct err *err);

/**
 * lv_link_open - connect, find the domain, learn its UUID
 *
 * Return: 0; -ENOTSUP (target.no_libvirt); -ENOTCONN (libvirt.unreachable); -EACCES
 * (target.permission); -ENOENT (target.no_domain); -EBUSY (target.not_running); -ENODEV
 * (target.not_a_vmm) no QEMU connection; -ETIMEDOUT (vmm.timeout); -ENOMEM; what lv_target_uri() returns; -EAGAIN
 * (libvirt.unreachable) it owes too many answers by now: each keeps a thread of ours.
 */
must_check int lv_link_open(const struct lv_target *target, u64 timeout_ns, struct lv_link **ret,
			    struct err *err);

/** lv_link_close - also while libvirt owes an answer: what is left then goes when that comes */
void lv_link_close(struct lv_link *l);

/** lv_link_uuid - of the domain, as libvirt writes it. Valid until lv_link_close(). */
const char *lv_link_uuid(const struct lv_link *l);

/** lv_link_run - by its events alone. Context: any thread; waits for nothing. */
enum lv_run lv_link_run(const struct lv_link *l);

/** lv_link_was_running - what the last event said, also when its connection is lost; true before any */
bool lv_link_was_running(const struct lv_link *l);

/** lv_link_stopped - the event of its end was heard; its detail: LV_STOPPED_SAVED ... */
bool lv_link_stopped(const struct lv_link *l, int *detail_ret);

/** lv_link_serial - changes with every event; for lv_link_note_run() */
u32 lv_link_serial(const struct lv_link *l);

/** lv_link_note_run - what a question answered; forgotten when an event came since @serial */
void lv_link_note_run(struct lv_link *l, bool running, u32 serial);

/* virDomainQemuMonitorCommand(); its argument is a struct lv_link, closed with it. */
extern const struct qmp_transport lv_link_transport;

#endif
