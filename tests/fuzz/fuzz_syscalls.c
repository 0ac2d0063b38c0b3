// SPDX-License-Identifier: Apache-2.0
/*
 * Any call with any arguments and any captured bytes: text stays printable and a line, the JSON forms
 * stay one valid object a line, and the arguments' texts lie one after the other.
 */
#include "tracers/sys_user.h"
#include "tracers/syscalls/filter.h"
#include "tracers/syscalls/output.h"
#include "tracers/syscalls/plan.h"

#include "base/cursor.h"
#include "tracers/syscalls/desc.h"

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

/* The call that the input names: one of the tables', or one that nobody described. */
static const char *pick(u16 which)
{
	static const struct call_list *const lists[] = { &calls_desc,    &calls_file,
							 &calls_process, &calls_memory,
							 &calls_network, &calls_misc };
	const struct call_list *l = lists[which % ARRAY_SIZE(lists)];
	size_t i = which / ARRAY_SIZE(lists) % (l->n + 1);

	return i < l->n ? l->calls[i].name : "frobnicate";
}

static void check_line(const struct buf *b)
{
	json_t *obj = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES, NULL);

	must(b->len && memchr(b->data, '\n', b->len) == b->data + b->len - 1, "not one line");
	must(json_is_object(obj), "not a JSON object");
	json_decref(obj);
}

static void check_text(const struct buf *b)
{
	must(b->len && b->data[b->len - 1] == '\n', "no line");
	for (size_t i = 0; i + 1 < b->len; i++)
		must(b->data[i] >= 0x20 && b->data[i] <= 0x7e, "not printable");
}

static void check_decoded(const struct decoded *d)
{
	u32 end = 0;

	must(d->n <= DECODE_ARGS, "too many arguments");
	for (u32 i = 0; i < d->n; i++) {
		must(d->args[i].off >= end, "arguments overlap");
		end = d->args[i].off + d->args[i].len;
		must(d->args[i].arg < SYSCALL_ARGS && d->args[i].capture < SYSCALL_CAPTURES,
		     "an index");
	}
	must(end <= d->ret_off && d->ret_off + d->ret_len == d->text.len, "the result");
}

/* Without this hardly any capture would lie inside of the bytes; @wild leaves some as they are. */
static void captures_tame(struct syscall_event *e, bool wild)
{
	for (u32 i = 0; i < e->n_captures; i++) {
		struct syscall_capture *c = &e->captures[i];

		c->truncated = c->count & 1;
		c->failed = (c->count & 0xe) == 0xe;
		if (wild && c->count & 0x10)
			continue;
		c->arg &= 7;
		c->what %= CAPTURE_FD + 1;
		c->off %= e->data_len + 1;
		c->len %= e->data_len - c->off + 1;
	}
}

/* Fields that the outputs may trust (assemble.c sees to them) are made sound; others are not. */
static bool event_read(struct cursor *c, struct syscall_event *e, struct syscall_entry *entry)
{
	u16 which;
	u8 shape;

	if (!cursor_u16(c, &which) || !cursor_u8(c, &shape) || !cursor_bytes(c, e, sizeof(*e)))
		return false;
	*entry = (struct syscall_entry){ .name = pick(which),
					 .described = shape & 1,
					 .n_args = shape >> 1 & 7 };
	if (entry->n_args > SYSCALL_ARGS)
		entry->n_args = SYSCALL_ARGS;
	for (u32 i = 0; i < entry->n_args; i++)
		entry->args[i] = (struct syscall_arg){ shape & 0x10 ? "int" : "char *", "a" };
	e->entry = entry;
	e->seq >>= 1; /* jansson's integers are signed */
	e->ts_ns >>= 2;
	e->duration_ns >>= 1;
	e->comm[SYSCALL_COMM_LEN] = e->comm_after[SYSCALL_COMM_LEN] = 0;
	e->n_captures %= SYSCALL_CAPTURES + 1;
	e->data = c->data + c->pos;
	e->data_len = (u32)cursor_left(c);
	e->captures_left_out = shape & 0x20;
	captures_tame(e, shape & 0x40);
	return true;
}

/* Whatever the ring says of a piece, its capture is one that others can index with. */
static void check_pieces(const uint8_t *data, size_t size)
{
	struct sys_user_piece p;
	u64 key;

	for (size_t i = 0; i + sizeof(key) <= size && i < 64; i++) {
		memcpy(&key, data + i, sizeof(key));
		if (sys_user_piece(key, (u32)key, 8, &p))
			must(p.capture.arg <= CAPTURE_RETURN && p.capture.what <= CAPTURE_FD &&
				     p.capture.source <= CAPTURE_USER_EXIT,
			     "piece");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const forms[])(struct buf *, const struct syscall_event *, struct decoded *,
				     const struct out_sys_opts *) = { out_sys_json, out_sys_falco,
								      out_sys_ocsf };
	const struct plan_opts plan_opts = { .fd_paths = size & 1 };
	struct cursor c = cursor_init(data, size);
	struct out_sys_opts o = { .pid = true, .time_of_day = true, .duration = true };
	struct sys_summary *s = sys_summary_create();
	struct decoded d = { 0 };
	struct syscall_entry entry;
	struct syscall_event e;
	struct buf b = { 0 };
	struct plan plan;
	char *name;

	if (!event_read(&c, &e, &entry) || !s) {
		sys_summary_destroy(s);
		return 0;
	}
	name = strndup((const char *)e.data, e.data_len);
	must(name != NULL, "no memory");
	o.host = name;
	out_sys_text(&b, &e, &d, &o);
	check_decoded(&d);
	check_text(&b);
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		buf_reset(&b);
		forms[i](&b, &e, &d, &o);
		check_line(&b);
	}
	must(!sys_summary_add(s, &e), "summary");
	sys_summary_print(s, &b);
	(void)plan_all(&entry, &plan_opts, &plan);
	must(plan.n <= PLAN_STEPS, "plan");
	check_pieces(data, size);
	sys_summary_destroy(s);
	decoded_deinit(&d);
	buf_deinit(&b);
	free(name);
	return 0;
}
