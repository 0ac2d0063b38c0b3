/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of every recorded call site as the guest had them: what is put back, and what a detach is held
 * to. Kept in the order of kernel_sites(), so whoever refreshes those refreshes this.
 */
#ifndef PATCHER_BASELINE_H
#define PATCHER_BASELINE_H

#include "patcher/guest_priv.h"

/** baseline_take - as they are now. Context: nothing of ours is armed. Return: 0; -ENOMEM; -ESRCH (vmm.gone). */
must_check int baseline_take(struct guest *g, struct err *err);

/** baseline_read - bytes of every recorded site as they are now, in the order of kernel_sites(); free() them */
must_check int baseline_read(struct guest *g, u8 **bytes_ret, struct err *err);

/**
 * baseline_refresh - kernel_refresh(), and the bytes of the sites that are new
 *
 * Those that were there before keep theirs. Return: 0; what kernel_refresh() returns: then nothing has changed;
 * as baseline_take().
 */
must_check int baseline_refresh(struct guest *g, struct err *err);

/** baseline_verify - every recorded site against it; true when all are as before or explained */
bool baseline_verify(struct guest *g);

#endif
