/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QMP: JSON objects over a stream socket, or carried by a manager that owns that socket (libvirt). One
 * command at a time, events skipped, every wait with an end, every answer bounded. Must not know
 * guests. Source: docs/interop/qmp-spec.txt, QEMU 7.2.
 */
#ifndef VMM_QMP_H
#define VMM_QMP_H

#include "base/err.h"
#include "base/types.h"

#include <jansson.h>

struct qmp;

/* QEMU answers "info mtree -f" of a large guest with some 100 KiB. */
#define QMP_MAX_MESSAGE (8u << 20)

/* Finds the end of a JSON object in a stream that may come in any pieces. */
struct qmp_scan {
	size_t pos; /* looked at so far */
	u32 depth;
	bool in_string;
	bool escaped;
	bool started;
};

/**
 * qmp_scan_object - go on looking for the end of the object that begins the stream
 *
 * Return: its length once it is complete; 0 more bytes are needed; -EPROTO it is no object.
 */
ssize_t qmp_scan_object(struct qmp_scan *scan, const char *data, size_t len);

/**
 * qmp_open - connect to the monitor at @path and negotiate
 *
 * Return: 0; -ENOENT nobody listens (target.no_socket); -EACCES (target.permission); -ETIMEDOUT no
 * greeting (vmm.timeout): another client has the monitor, or QEMU hangs; -EPROTO; -ENOMEM.
 */
must_check int qmp_open(const char *path, u64 timeout_ns, struct qmp **ret, struct err *err);

/** qmp_open_fd - the same on a connected socket, which is owned from here on, also on failure */
must_check int qmp_open_fd(int fd, u64 timeout_ns, struct qmp **ret, struct err *err);
void qmp_close(struct qmp *q);

/* Whose monitor it is; for connections that are lost while that lives. */
struct qmp_peer {
	bool (*lives)(void *arg, int wait_ms); /* and goes on to for so long */
	/*
	 * @fd: another connection to the same path, which was accepted. Return: 0; -ENODEV it is somebody else's by
	 * now; another error: that cannot be told
	 */
	int (*check)(void *arg, int fd, struct err *err);
};

/**
 * qmp_set_peer - have a connection of qmp_open() made again when it is lost, with the next command
 *
 * No command is sent twice.
 */
void qmp_set_peer(struct qmp *q, const struct qmp_peer *peer, void *arg);

/**
 * qmp_share - have the monitor left to others when no command was sent for @idle_ns, and events read meanwhile
 *
 * The next command connects again, as after a loss. Where the path leads to no socket any more that would not do: it is
 * not left. Without a peer (qmp_set_peer()), or carried by a transport, nothing is done. Context: once. Return: 0; an errno of what a thread needs. Undo: qmp_close().
 */
must_check int qmp_share(struct qmp *q, u64 idle_ns, struct err *err);

/** qmp_keep - or not to leave it, from now on: who else connects might stay. Context: any thread. */
void qmp_keep(struct qmp *q, bool keep);

/**
 * qmp_silent - did the last command get no answer in time, nor since, or is there no connection for one?
 *
 * Looks whether what was owed has come; asks nothing, waits for nobody. Context: any thread.
 */
bool qmp_silent(struct qmp *q);
int qmp_fd(const struct qmp *q); /* -1: there is no connection now */
bool qmp_is_carried(const struct qmp *q); /* by a transport */

/* A manager's way to QEMU's monitor: whole commands and whole answers. */
struct qmp_transport {
	/*
	 * @command: JSON text without an id; *answer_ret: JSON text, to be freed, at most
	 * QMP_MAX_MESSAGE bytes. Never keeps the caller for longer than @timeout_ns. Return: 0;
	 * -ENOTCONN (libvirt.unreachable) the manager is away, QEMU may be well; -ETIMEDOUT;
	 * -ESRCH QEMU has ended; -EPROTO the manager refused.
	 */
	int (*command)(void *arg, const char *command, u64 timeout_ns, char **answer_ret,
		       struct err *err);
	bool (*owes)(void *arg); /* an answer to a command that timed out */
	void (*close)(void *arg);
};

/** qmp_open_transport - commands by way of @t; @arg is owned from here on, also on failure; -ENOMEM */
must_check int qmp_open_transport(const struct qmp_transport *t, void *arg, struct qmp **ret,
				  struct err *err);

/**
 * qmp_command - run one command
 * @args: its arguments, NULL for none; the reference is taken, also on failure
 * @ret:  the value of "return"; the caller's to json_decref(); may be NULL
 *
 * Context: any thread; serialised by a lock.
 * Return: 0; -EPROTO QEMU answered with an error, or with nonsense (vmm.protocol); -ETIMEDOUT;
 * -ESRCH the monitor is closed (vmm.gone); -ENOTCONN its transport is away, its connection was lost just now
 * (vmm.protocol), or it was before and there is no other: nobody listens (target.no_socket), somebody else does
 * (target.not_a_vmm), or why that is not known; -ENOMEM. While an answer is owed, nothing is sent: that is waited for
 * first.
 */
must_check int qmp_command(struct qmp *q, const char *command, json_t *args, json_t **ret,
			   u64 timeout_ns, struct err *err);

/**
 * qmp_hmp - run a human monitor command
 * @cpu: the vCPU it is about, or -1
 * @text_ret: what it printed; the caller's to free()
 */
must_check int qmp_hmp(struct qmp *q, const char *line, int cpu, char **text_ret, u64 timeout_ns,
		       struct err *err);

#endif
