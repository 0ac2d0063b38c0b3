/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libvirt library, loaded when it is first needed: a host without it traces plain QEMU. What we
 * need of its headers is declared here, so that none is needed to build. Must not know guests.
 *
 * Source: include/libvirt/{libvirt-host,libvirt-domain,libvirt-event,libvirt-qemu,virterror}.h, 9.0.0;
 * all of it is part of the stable ABI of libvirt.so.0 and libvirt-qemu.so.0 since 4.5.0 at the latest.
 */
#ifndef VMM_LIBVIRT_LIB_H
#define VMM_LIBVIRT_LIB_H

#include "base/err.h"
#include "base/types.h"

/* virConnectPtr and virDomainPtr */
struct lv_conn;
struct lv_dom;

#define LV_UUID_BYTES 37 /* VIR_UUID_STRING_BUFLEN */
#define LV_NO_ID      UINT32_MAX /* virDomainGetID() of a domain that does not run */

enum {
	LV_ERR_NO_DOMAIN = 42, /* VIR_ERR_NO_DOMAIN and so on */
	LV_ERR_AUTH_FAILED = 45,
	LV_ERR_OPERATION_INVALID = 55,
	LV_ERR_OPERATION_TIMEOUT = 68,
	LV_ERR_AUTH_CANCELLED = 79,
	LV_ERR_ACCESS_DENIED = 88,
	LV_ERR_AUTH_UNAVAILABLE = 94
};

enum {
	LV_EVENT_ID_LIFECYCLE = 0, /* VIR_DOMAIN_EVENT_ID_LIFECYCLE and so on */
	LV_EVENT_ID_REBOOT = 1
};

enum lv_event {
	LV_EVENT_STARTED = 2, /* VIR_DOMAIN_EVENT_STARTED and so on */
	LV_EVENT_SUSPENDED = 3,
	LV_EVENT_RESUMED = 4,
	LV_EVENT_STOPPED = 5, /* its detail: */
	LV_STOPPED_SAVED = 4, /* VIR_DOMAIN_EVENT_STOPPED_SAVED */
	LV_STOPPED_FROM_SNAPSHOT = 6, /* another QEMU goes on from a snapshot */
	LV_EVENT_SHUTDOWN = 6,
	LV_EVENT_PMSUSPENDED = 7,
	LV_EVENT_CRASHED = 8
};

typedef void (*lv_any_cb)(
	void); /* virConnectDomainEventGenericCallback: cast to what the id wants */
typedef int (*lv_lifecycle_cb)(struct lv_conn *c, struct lv_dom *d, int event, int detail,
			       void *arg);
typedef void (*lv_reboot_cb)(struct lv_conn *c, struct lv_dom *d, void *arg);
typedef void (*lv_close_cb)(struct lv_conn *c, int reason, void *arg);
typedef void (*lv_timeout_cb)(int timer, void *arg);
typedef void (*lv_error_cb)(void *arg, void *error);
typedef void (*lv_free_cb)(void *arg);

/* One function of the library a line: X(member, symbol, result, parameters). */
/* clang-format off */
#define LV_FUNCTIONS(X)                                                                                     \
	X(initialize,      virInitialize,              int, (void))                                         \
	X(set_error_func,  virSetErrorFunc,            void, (void *arg, lv_error_cb cb))                   \
	X(error_code,      virGetLastErrorCode,        int, (void))                                         \
	X(error_text,      virGetLastErrorMessage,     const char *, (void))                                \
	X(open,            virConnectOpen,             struct lv_conn *, (const char *uri))                 \
	X(open_read_only,  virConnectOpenReadOnly,     struct lv_conn *, (const char *uri))                 \
	X(close,           virConnectClose,            int, (struct lv_conn *c))                            \
	X(is_alive,        virConnectIsAlive,          int, (struct lv_conn *c))                            \
	X(type,            virConnectGetType,          const char *, (struct lv_conn *c))                   \
	X(keep_alive,      virConnectSetKeepAlive,     int, (struct lv_conn *c, int seconds, unsigned n))   \
	X(list,            virConnectListAllDomains,   int, (struct lv_conn *c, struct lv_dom ***, unsigned flags)) \
	X(by_name,         virDomainLookupByName,      struct lv_dom *, (struct lv_conn *c, const char *name)) \
	X(by_uuid,         virDomainLookupByUUIDString, struct lv_dom *, (struct lv_conn *c, const char *uuid)) \
	X(dom_free,        virDomainFree,              int, (struct lv_dom *d))                             \
	X(dom_name,        virDomainGetName,           const char *, (struct lv_dom *d))                    \
	X(dom_uuid,        virDomainGetUUIDString,     int, (struct lv_dom *d, char *ret))                  \
	X(dom_id,          virDomainGetID,             unsigned, (struct lv_dom *d))                        \
	X(dom_state,       virDomainGetState,          int, (struct lv_dom *d, int *state, int *reason, unsigned flags)) \
	X(event_add,       virConnectDomainEventRegisterAny, int, (struct lv_conn *c, struct lv_dom *d, int id, lv_any_cb cb, void *arg, lv_free_cb free)) \
	X(event_remove,    virConnectDomainEventDeregisterAny, int, (struct lv_conn *c, int callback))      \
	X(close_add,       virConnectRegisterCloseCallback, int, (struct lv_conn *c, lv_close_cb cb, void *arg, lv_free_cb free)) \
	X(close_remove,    virConnectUnregisterCloseCallback, int, (struct lv_conn *c, lv_close_cb cb))     \
	X(loop_register,   virEventRegisterDefaultImpl, int, (void))                                        \
	X(loop_run,        virEventRunDefaultImpl,     int, (void))                                         \
	X(timer_add,       virEventAddTimeout,         int, (int ms, lv_timeout_cb cb, void *arg, lv_free_cb free)) \
	X(timer_update,    virEventUpdateTimeout,      void, (int timer, int ms))                           \
	X(timer_remove,    virEventRemoveTimeout,      int, (int timer))

/* of libvirt-qemu.so.0; *answer_ret is to be freed */
#define LV_QEMU_FUNCTIONS(X)                                                                                \
	X(monitor_command, virDomainQemuMonitorCommand, int, (struct lv_dom *d, const char *command, char **answer_ret, unsigned flags))
/* clang-format on */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define LV_MEMBER(member, symbol, result, params) result(*member) params;
struct lv_lib {
	LV_FUNCTIONS(LV_MEMBER)
	LV_QEMU_FUNCTIONS(LV_MEMBER)
};
#undef LV_MEMBER

/**
 * lv_lib_load - the library's functions; loads it at the first call and keeps it
 *
 * Context: any thread. Return: 0; -ENOTSUP (target.no_libvirt) this host has none.
 */
must_check int lv_lib_load(const struct lv_lib **ret, struct err *err);

/** lv_lib_fake - for unit tests: use @lib from here on; NULL for the real one */
void lv_lib_fake(const struct lv_lib *lib);

/**
 * lv_loop_get / lv_loop_put - have libvirt's event loop run in a thread of ours while it is needed
 *
 * Connections that are to deliver events are opened and closed between the two. Counted; the last put
 * ends the thread. Context: any thread but the loop's. Return: 0; -ENOMEM; -EIO.
 */
must_check int lv_loop_get(const struct lv_lib *lib, struct err *err);
void lv_loop_put(const struct lv_lib *lib);

#endif
