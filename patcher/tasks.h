/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's tasks, by a bounded walk of its own lists. Reads only; vCPUs may run. */
#ifndef PATCHER_TASKS_H
#define PATCHER_TASKS_H

#include "patcher/guest_priv.h"

/**
 * tasks_for_each - call @fn for every task (thread) of the guest
 * @fn: gets the address of the struct task_struct; may read it, and find it gone; false ends the walk
 *
 * Tasks may come and go under the walk. One that was there from its beginning to its end is seen, perhaps more than
 * once: where a task ended that the walk was at, it begins again.
 * Source: v6.1 include/linux/sched/signal.h for_each_process_thread(): init_task.tasks, then
 * signal->thread_head of each leader. Idle tasks of other CPUs are not on these lists.
 * Return: 0; -EUCLEAN a list has no end (guest.bad_memory); -EBUSY (guest.text_busy) tasks end faster than the lists
 * are read, for 5 s; -ENOTSUP; -EFAULT.
 */
must_check int tasks_for_each(struct guest *g, bool (*fn)(void *arg, u64 task), void *arg,
			      struct err *err);

#endif
