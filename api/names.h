/* SPDX-License-Identifier: Apache-2.0 */
/* Guests' names: what they may look like, and one for who gives none. */
#ifndef API_NAMES_H
#define API_NAMES_H

#include "base/types.h"

#define NAME_MAX_BYTES  64
#define NAME_MAX_TARGET 255

/** name_valid - is @name a guest's name: [A-Za-z0-9._-]{1,64}, not starting with a dot or dash */
bool name_valid(const char *name);

/** name_derive - a name for a guest from its target, without regard to others */
void name_derive(const char *target, char ret[NAME_MAX_BYTES + 1]);

#endif
