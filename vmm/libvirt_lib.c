// SPDX-License-Identifier: Apache-2.0
/* The libvirt library by dlopen(3), and its event loop. See libvirt_lib.h. */
#define LOG_PREFIX "libvirt"
#include "vmm/libvirt_lib.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#define LIB_MAIN "libvirt.so.0"
#define LIB_QEMU "libvirt-qemu.so.0"

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct lv_lib *loaded, *fake;

static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	unsigned users;
	int timer; /* wakes the loop */
	int stop; /* atomic */
} loop = { .lock = PTHREAD_MUTEX_INITIALIZER, .timer = -1 };

/* Its errors come back with the calls that failed; by itself it would print them. */
static void be_quiet(void *arg, void *error)
{
	(void)arg;
	(void)error;
}

#define WANTED(member, symbol, result, params) { #symbol, offsetof(struct lv_lib, member) },
static const struct wanted {
	const char *symbol;
	size_t at;
} of_main[] = { LV_FUNCTIONS(WANTED) }, of_qemu[] = { LV_QEMU_FUNCTIONS(WANTED) };

static int find_all(void *handle, const struct wanted *w, size_t n, struct lv_lib *lib,
		    struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		void *at = dlsym(handle, w[i].symbol);

		if (!at)
			return err_set(err, -ENOTSUP, ERR_TARGET_NO_LIBVIRT, 0,
				       "this host's libvirt is too old: it has no %s()",
				       w[i].symbol);
		/* dlsym(3): a data pointer that is a function's */
		memcpy((char *)lib + w[i].at, (const void *)&at, sizeof(at));
	}
	return 0;
}

static int open_lib(const char *name, void **ret, struct err *err)
{
	*ret = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (*ret)
		return 0;
	return err_set(err, -ENOTSUP, ERR_TARGET_NO_LIBVIRT, 0,
		       "this host has no libvirt library: %.120s", dlerror());
}

static int load(struct lv_lib *lib, struct err *err)
{
	void *handle;
	int rc = open_lib(LIB_MAIN, &handle, err);

	if (rc == 0)
		rc = find_all(handle, of_main, ARRAY_SIZE(of_main), lib, err);
	if (rc == 0)
		rc = open_lib(LIB_QEMU, &handle, err);
	if (rc == 0)
		rc = find_all(handle, of_qemu, ARRAY_SIZE(of_qemu), lib, err);
	if (rc < 0) /* what was opened stays: its destructors are not made for being unloaded */
		return rc;
	if (lib->initialize() < 0)
		return err_set(err, -ENOTSUP, ERR_TARGET_NO_LIBVIRT, 0,
			       "this host's libvirt library does not start: %.100s",
			       lib->error_text());
	lib->set_error_func(NULL, be_quiet);
	/* before any connection is opened; there can be only one in a process */
	if (lib->loop_register() < 0)
		return err_set(err, -ENOTSUP, ERR_TARGET_NO_LIBVIRT, 0,
			       "this host's libvirt library has no event loop: %.100s",
			       lib->error_text());
	return 0;
}

int lv_lib_load(const struct lv_lib **ret, struct err *err)
{
	static struct lv_lib lib;
	int rc = 0;

	pthread_mutex_lock(&load_lock);
	if (!loaded && !fake)
		rc = load(&lib, err);
	if (rc == 0 && !fake)
		loaded = &lib;
	*ret = fake ? fake : loaded;
	pthread_mutex_unlock(&load_lock);
	return rc;
}

void lv_lib_fake(const struct lv_lib *lib)
{
	pthread_mutex_lock(&load_lock);
	fake = lib;
	pthread_mutex_unlock(&load_lock);
}

static void on_timer(int timer, void *arg)
{
	(void)timer;
	(void)arg;
}

static void *run_loop(void *arg)
{
	const struct lv_lib *lib = arg;

	while (!__atomic_load_n(&loop.stop, __ATOMIC_ACQUIRE)) {
		if (lib->loop_run() < 0) {
			log_error("libvirt's event loop: %s", lib->error_text());
			break;
		}
	}
	/* what was closed meanwhile is freed by the loop: it returns at once when a timer is due */
	for (int i = 0; i < 2; i++) {
		lib->timer_update(loop.timer, 0);
		if (lib->loop_run() < 0)
			break;
	}
	return NULL;
}

/* The daemon's signals are for its main thread. */
static int start_thread(const struct lv_lib *lib)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&loop.thread, NULL, run_loop, (void *)(uintptr_t)lib);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int lv_loop_get(const struct lv_lib *lib, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&loop.lock);
	if (loop.users == 0) {
		loop.stop = 0;
		loop.timer = lib->timer_add(-1, on_timer, NULL, NULL);
		if (loop.timer < 0)
			rc = err_set(err, -EIO, ERR_IO, 0, "libvirt's event loop takes no timer");
		else if (start_thread(lib) != 0)
			rc = err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no thread for libvirt");
		if (rc < 0 && loop.timer >= 0)
			lib->timer_remove(loop.timer);
	}
	if (rc == 0)
		loop.users++;
	pthread_mutex_unlock(&loop.lock);
	return rc;
}

void lv_loop_put(const struct lv_lib *lib)
{
	pthread_mutex_lock(&loop.lock);
	if (--loop.users == 0) {
		__atomic_store_n(&loop.stop, 1, __ATOMIC_RELEASE);
		lib->timer_update(loop.timer, 0);
		pthread_join(loop.thread, NULL);
		lib->timer_remove(loop.timer);
		loop.timer = -1;
	}
	pthread_mutex_unlock(&loop.lock);
}
