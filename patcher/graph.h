/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hijacked return addresses of an attached guest: collected while function_graph runs, put back when
 * it stops, and none left before the agent's memory goes. What is dead and what is quiet is decided
 * in frames.h. Context of all: guest lock held, no window open.
 */
#ifndef PATCHER_GRAPH_H
#define PATCHER_GRAPH_H

#include "patcher/guest_priv.h"
#include "patcher/tracing.h"

/** graph_prepare - before the first return is hijacked: what there is to know of this kernel. Return:
 * 0; -ENOMEM; -ENOTSUP (guest.unsupported). Undo: graph_forget(). */
must_check int graph_prepare(struct guest *g, struct err *err);

/** graph_forget - the host's own lists; nothing in the guest */
void graph_forget(struct guest *g);

/** graph_collect - see tracing_collect() */
must_check int graph_collect(struct guest *g,
			     void (*fn)(void *arg, const struct tracing_unreturned *u), void *arg,
			     struct err *err);

/** graph_settle - what an earlier put back left in use, if nobody is on the way any more; waits for
 * at most a second, and only if there is any */
must_check int graph_settle(struct guest *g, struct err *err);

/**
 * graph_put_back - true return addresses back on the guest's stacks
 * @ret: returns_restored and returns_left are set
 *
 * Precondition: ftrace_graph_call is a nop. In stop windows; then waits, for at most a second, until
 * nobody is on the way, and looks again. What is not proven quiet by then is left to graph_settle(),
 * the next put back, or the collection of dead ones; that is no failure.
 * Return: 0; -ESRCH (vmm.gone); what vm_pause() and vm_resume() return.
 */
must_check int graph_put_back(struct guest *g, struct guest_restore *ret, struct err *err);

/**
 * graph_cells - cells that were put back and that a copy of the guest's memory may have otherwise: see rewrite.h
 * @ret: valid until the next call
 *
 * Return: how many. graph_forget_cells(): none any more.
 */
struct frames_cell;
u32 graph_cells(struct guest *g, const struct frames_cell **ret);
void graph_forget_cells(struct guest *g);

/**
 * graph_unload - no return leads through the agent any more, nor is anybody on the way
 *
 * Precondition: nobody is in the agent by way of a call site. Works from the journal alone, too: then
 * guest memory is asked for the layout, and believed if it fits what is journalled.
 * Return: 0; -EBUSY (guest.text_busy) some calls still do; -EINVAL (guest.text_changed) what the agent
 * wrote there is no more. The agent's memory must stay then.
 */
must_check int graph_unload(struct guest *g, struct err *err);

#endif
