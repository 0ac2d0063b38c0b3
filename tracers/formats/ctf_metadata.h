/* SPDX-License-Identifier: Apache-2.0 */
/* Private to tracers/formats/. */
#ifndef TRACERS_FORMATS_CTF_METADATA_H
#define TRACERS_FORMATS_CTF_METADATA_H

#include "tracers/formats/priv.h"

/** ctf_metadata - the file "metadata", when all records are in */
void ctf_metadata(struct export *x, struct buf *b);

#endif
