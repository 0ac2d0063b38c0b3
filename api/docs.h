/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON documents of resources that more than one handler shows. */
#ifndef API_DOCS_H
#define API_DOCS_H

#include "patcher/guest.h"

#include <jansson.h>

struct guest_entry;
struct trace_entry;
struct trace_info;

/** guest_doc - a guest, by a user of it; NULL without memory. May wait for the guest's VMM. */
json_t *guest_doc(struct guest_entry *g);

/** restore_doc - what was put back */
json_t *restore_doc(const struct guest_restore *r);

/** trace_doc - a trace, by a user of it or once it is closed; NULL without memory */
json_t *trace_doc(struct trace_entry *t);

/** trace_missed_doc - what the guest's own tracing kept from a trace */
json_t *trace_missed_doc(const struct trace_info *i);

/** items_doc - {"items": [...]}, taking the reference of @items; NULL for NULL */
json_t *items_doc(json_t *items);

#endif
