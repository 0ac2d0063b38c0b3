/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are UTF-8. What guests call things is any bytes. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/types.h"

/** utf8_len - bytes of the valid UTF-8 sequence that @s, of @left bytes, begins with; 0: there is none */
size_t utf8_len(const u8 *s, size_t left);

#endif
