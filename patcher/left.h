/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests whose memory was saved, maybe with an agent in it, and whose VMM has ended since (virsh managedsave,
 * snapshot-revert). They come back with that, in another process and when their owner likes. A note in the state
 * directory has them looked at then. Must not know libvirt.
 */
#ifndef PATCHER_LEFT_H
#define PATCHER_LEFT_H

#include "patcher/guest_priv.h"

/**
 * left_note_at_end - its VMM has ended: was its memory saved with changes of ours in it, or is a snapshot loaded?
 *
 * Then a note is made, once. What fails is logged. Context: guest lock held.
 */
void left_note_at_end(struct guest *g);

/** left_note - have the guest looked at as one that was saved: its memory is of another time. Context: guest lock held */
void left_note(const struct guest *g);
/** left_note_target - the same of a guest that nobody has attached. Return: false: it could not be made (logged) */
bool left_note_target(const char *state_dir, const char *target);
/** left_settled - it was looked at: there is no note any more */
void left_settled(const struct guest *g);

/** left_any - is there a note? */
bool left_any(const char *state_dir);

/**
 * left_look - attach each that runs again, which takes out what came back with it, and let go
 *
 * Notes of guests that are no more, or that somebody has attached, go. Context: any thread, now and then.
 */
void left_look(const char *state_dir);

#endif
