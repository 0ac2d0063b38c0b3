/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and return values as text and JSON. Private to tracers/. */
#ifndef TRACERS_OUT_VALUES_H
#define TRACERS_OUT_VALUES_H

#include "tracers/output.h"

#define VALUE_NAME_MAX  96u /* a longer name of a parameter or type is cut */
#define ARGS_TEXT_MAX   (KERNEL_FUNC_MAX_PARAMS * (VALUE_NAME_MAX + 64) + 8)
#define RETVAL_TEXT_MAX 24u
#define VALUES_JSON_MAX (KERNEL_FUNC_MAX_PARAMS * (3 * 6 * VALUE_NAME_MAX + 160) + 256)

/** fmt_args - "(file=0xffff888100bd2a00, n=-2)"; "()" for none. Room: ARGS_TEXT_MAX. */
char *fmt_args(char *p, const struct trace_record *r, const struct output_names *names);

/** fmt_retval - "0x10", or "-2" for an error. Room: RETVAL_TEXT_MAX. */
char *fmt_retval(char *p, const struct trace_record *r, const struct output_names *names);

/** fmt_values_json - ,"args":[...] or ,"retval":{...}, or nothing. Room: VALUES_JSON_MAX. */
char *fmt_values_json(char *p, const struct trace_record *r, const struct output_names *names);

/** fmt_json_escaped - out_json_string() without quotes; at most six times @len bytes */
char *fmt_json_escaped(char *p, const char *s, size_t len);

#endif
