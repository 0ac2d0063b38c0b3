// SPDX-License-Identifier: Apache-2.0
/* Whatever a guest calls its tasks and functions: a record is one line, of valid JSON. */
#include "tracers/output.h"

#include "base/cursor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond, const char *what)
{
	if (!cond) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

static bool input_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const char *name = arg;

	if (addr & 1)
		return false;
	*ret = (struct kernel_sym){ .name = name, .module = addr & 2 ? name : NULL };
	*off_ret = addr;
	return true;
}

/* Every kind, size and place of a parameter, all called like the function. */
static bool input_func(void *arg, u64 ip, struct kernel_func *ret)
{
	*ret = (struct kernel_func){ .n_params = ip % (KERNEL_FUNC_MAX_PARAMS + 1) };
	ret->ret =
		(struct kernel_val){ .name = "", .type = arg, .size = (u8)(ip >> 1), .reg = 0xff };
	ret->ret.kind = (ip >> 7) % (KERNEL_VAL_OTHER + 1);
	for (u32 i = 0; i < ret->n_params; i++) {
		u32 bits = (u32)(ip >> (i % 8 * 8)) * (i + 1);

		ret->params[i] = (struct kernel_val){ .name = arg, .type = arg, .size = (u8)bits };
		ret->params[i].reg = bits & 1 ? 0xff : (u8)(bits >> 1) % TRACE_MAX_ARGS;
		ret->params[i].kind = (bits >> 5) % (KERNEL_VAL_OTHER + 1);
	}
	return ip & 8;
}

static void check_line(const struct buf *b)
{
	json_t *obj = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES, NULL);

	must(b->len && memchr(b->data, '\n', b->len) == b->data + b->len - 1, "not one line");
	must(json_is_object(obj), "not a JSON object");
	json_decref(obj);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor c = cursor_init(data, size);
	struct output_names names = { .sym = input_sym, .func = input_func };
	struct output_meta meta = { 0 };
	struct trace_record r = { 0 };
	struct buf b = { 0 };
	u32 stack[4] = { 3 }; /* struct trace_stack */
	char *name;

	if (!cursor_bytes(&c, &r, sizeof(r)))
		return 0;
	r.comm[TRACE_COMM_LEN] = 0;
	r.n_args %= TRACE_MAX_ARGS + 1;
	r.has_retval = r.seq & 4; /* a bool of any bits is none */
	r.seq >>= 1; /* jansson's integers are signed */
	r.ts_ns >>= 1;
	r.duration_ns >>= 1;
	name = strndup((const char *)data + c.pos, cursor_left(&c));
	must(name != NULL, "no memory");
	names.arg = name;
	/* pointers of ours, whatever the input has there */
	memcpy(stack + 1, r.args, sizeof(stack) - sizeof(stack[0]));
	r.stack = r.ip & 16 ? (const struct trace_stack *)stack : NULL;
	r.text = name;
	r.capture = NULL;
	out_json_record(&b, &r, &names);
	check_line(&b);
	buf_reset(&b);
	out_json_end(&b, &meta, name);
	check_line(&b);
	buf_reset(&b);
	out_text_record(&b, &r, &names);
	for (size_t i = 0; i + 1 < b.len; i++)
		must(((u8)b.data[i] >= 0x20 && b.data[i] != 0x7f) || (r.stack && b.data[i] == '\n'),
		     "a control character");
	free(name);
	buf_deinit(&b);
	return 0;
}
