// SPDX-License-Identifier: Apache-2.0
/* From an event to texts: which arguments there are, by calls_*.c, and what came back. */
#include "tracers/syscalls/decode.h"

#include "tracers/syscalls/decode_priv.h"

#include <stdlib.h>

/* Linux v6.1 include/linux/errno.h, with strace's words for them */
static const struct {
	int no;
	const char *name, *text;
} restarts[] = {
	{ 512, "ERESTARTSYS", "To be restarted if SA_RESTART is set" },
	{ 513, "ERESTARTNOINTR", "To be restarted" },
	{ 514, "ERESTARTNOHAND", "To be restarted if no handler" },
	{ 516, "ERESTART_RESTARTBLOCK", "Interrupted by signal" },
};

static const struct {
	const char *name;
	u32 bit;
} class_names[] = {
	{ "file", SC_FILE },       { "desc", SC_DESC },   { "process", SC_PROCESS },
	{ "network", SC_NETWORK }, { "net", SC_NETWORK }, { "memory", SC_MEMORY },
	{ "signal", SC_SIGNAL },   { "ipc", SC_IPC },     { "creds", SC_CREDS },
};

static int by_name(const void *key, const void *elem)
{
	const struct call_desc *c = elem;

	return strcmp(key, c->name);
}

const struct call_desc *call_desc_find(const char *name)
{
	static const struct call_list *const lists[] = { &calls_desc,    &calls_file,
							 &calls_process, &calls_memory,
							 &calls_network, &calls_misc };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		const struct call_desc *c = bsearch(name, lists[i]->calls, lists[i]->n,
						    sizeof(*lists[i]->calls), by_name);

		if (c)
			return c;
	}
	return NULL;
}

/* Those with names of their own have the arguments of another. */
const struct call_desc *call_desc_of(const char *name, u8 abi)
{
	const struct call_desc *c = call_desc_find(name);
	char plain[SYSCALL_PLAIN_MAX];
	const char *other = abi == SYSCALL_ABI_32 && !c ? syscall_plain_name(name, plain) : NULL;

	return other ? call_desc_find(other) : c;
}

u32 decode_classes(const char *name)
{
	const struct call_desc *c = call_desc_find(name);

	return c ? c->classes : 0;
}

u32 decode_class(const char *name)
{
	if (*name == '%')
		name++;
	for (size_t i = 0; i < ARRAY_SIZE(class_names); i++)
		if (!strcmp(class_names[i].name, name))
			return class_names[i].bit;
	return 0;
}

const char *decode_errno(int no)
{
	for (size_t i = 0; i < ARRAY_SIZE(restarts); i++)
		if (restarts[i].no == no)
			return restarts[i].name;
	return no > 0 && no < 4096 ? strerrorname_np(no) : NULL;
}

static bool is_mem(u8 kind)
{
	return kind >= K_PATH;
}

static const struct variant *variant_find(const struct call_desc *c, const struct syscall_event *e)
{
	u64 cmd;

	if (!c->n_variants)
		return NULL;
	cmd = (u32)e->args[c->cmd_arg] & (c->cmd_mask ? c->cmd_mask : UINT32_MAX);
	for (u32 i = 0; i < c->n_variants; i++)
		if (c->variants[i].cmd == cmd)
			return &c->variants[i];
	return NULL;
}

static struct decoded_arg *arg_begin(struct decoded *d, u8 a)
{
	struct decoded_arg *r = &d->args[d->n++];

	*r = (struct decoded_arg){ .arg = a, .capture = -1, .off = (u32)d->text.len };
	return r;
}

/* {mask=[]}; without a capture nothing, as it is no argument */
static bool put_sigframe(struct decoded *out, struct dec *d)
{
	const u8 *p;
	struct decoded_arg *r;

	d->capture = -1;
	if (!find_capture(d, 0, CAPTURE_BYTES, &p) || d->e->captures[d->capture].len < 8)
		return true;
	r = arg_begin(out, 0);
	r->capture = d->capture;
	r->pointer = true;
	buf_adds(d->b, "{mask=");
	put_sigset(d->b, p, 8);
	buf_adds(d->b, "}");
	r->len = (u32)out->text.len - r->off;
	return true;
}

/* false: nothing after this one is known yet */
static bool put_arg(struct decoded *out, struct dec *d, const struct arg_desc *desc, u8 place)
{
	u8 a = desc->from ? (u8)(desc->from - 1) : place;
	u64 v = d->e->args[a];
	struct decoded_arg *r;

	if (desc->if_mask && !(d->e->args[desc->if_arg - 1] & desc->if_mask))
		return true;
	if (d->e->state == SYSCALL_UNFINISHED && desc->out && v) {
		out->cut = true;
		return false;
	}
	if (desc->kind == K_SIGFRAME)
		return put_sigframe(out, d);
	r = arg_begin(out, a);
	r->label = desc->label;
	r->pointer = is_mem(desc->kind) || desc->kind == K_ADDR;
	if (desc->label)
		buf_adds(d->b, desc->label);
	d->capture = -1;
	d->fd_arg = a;
	d->unread = false;
	if (is_mem(desc->kind))
		put_mem(d, desc, a, v);
	else
		put_val(d, desc->kind, desc->tab, v);
	r->capture = d->capture;
	r->unread = d->unread;
	r->len = (u32)out->text.len - r->off;
	return true;
}

static void put_described(struct decoded *out, struct dec *d, const struct call_desc *c,
			  const struct variant *var)
{
	u8 n_fixed = var ? (u8)(c->cmd_arg + 1) : SYSCALL_ARGS;
	u8 i = 0;

	for (; i < n_fixed && c->args[i].kind; i++)
		if (!put_arg(out, d, &c->args[i], i))
			return;
	if (!var)
		return;
	for (u8 j = 0; j < ARRAY_SIZE(var->args) && var->args[j].kind; j++)
		if (!put_arg(out, d, &var->args[j], (u8)(n_fixed + j)))
			return;
}

/* A call that nobody described: what the guest says of its arguments, else all six in hex. */
static void put_undescribed(struct decoded *out, struct dec *d)
{
	static const struct arg_desc hex = { .kind = K_LX };
	static const struct arg_desc number = { .kind = K_D };
	const struct syscall_entry *entry = d->e->entry;

	for (u32 i = 0; i < MIN(d->e->n_args, (u32)SYSCALL_ARGS); i++) {
		const char *type = "";

		if (entry->described && i < entry->n_args)
			type = entry->args[i].type;

		put_arg(out, d, strcmp(type, "int") ? &hex : &number, (u8)i);
	}
}

static void put_error(struct buf *b, s64 ret)
{
	int no = (int)-ret;
	const char *name = decode_errno(no);

	for (size_t i = 0; i < ARRAY_SIZE(restarts); i++)
		if (restarts[i].no == no) {
			buf_addf(b, "? %s (%s)", name, restarts[i].text);
			return;
		}
	if (name)
		buf_addf(b, "-1 %s (%s)", name, strerrordesc_np(no));
	else
		buf_addf(b, "-1 (errno %d)", no);
}

/* ([{fd=3, revents=POLLIN}]) */
static void put_revents(struct buf *b, const struct syscall_event *e)
{
	const struct syscall_capture *last = NULL;
	const char *sep = "";

	for (u32 i = 0; i < e->n_captures; i++) {
		const struct syscall_capture *c = &e->captures[i];

		if (c->arg == 0 && c->what == CAPTURE_BYTES && !c->failed &&
		    c->source == CAPTURE_USER_EXIT && c->off <= e->data_len &&
		    c->len <= e->data_len - c->off)
			last = c;
	}
	if (!last)
		return;
	buf_adds(b, " ([");
	for (u32 i = 0; i + 8 <= last->len; i += 8) {
		const u8 *p = e->data + last->off + i;
		u64 revents = load_le(p + 6, 2);

		if (!revents)
			continue;
		buf_addf(b, "%s{fd=%d, revents=", sep, (s32)load_le(p, 4));
		put_flags(b, &xlat_poll_events, revents, false);
		buf_adds(b, "}");
		sep = ", ";
	}
	buf_adds(b, "])");
}

static void put_ret_flags(struct dec *d, u8 kind, s64 ret)
{
	buf_addf(d->b, "%#llx (flags ", (unsigned long long)ret);
	put_val(d, kind, &xlat_fd_flags, (u64)ret);
	buf_adds(d->b, ")");
}

static void put_result(struct dec *d, u8 kind)
{
	s64 ret = d->e->ret;

	switch (kind) {
	case R_X:
		put_val(d, K_LX, NULL, (u64)ret);
		return;
	case R_O:
		put_val(d, K_O, NULL, (u64)ret);
		return;
	case R_FD:
		d->fd_arg = CAPTURE_RETURN;
		put_val(d, K_FD, NULL, (u64)ret);
		return;
	case R_GETFD:
		if (ret)
			put_ret_flags(d, K_FLAGS, ret);
		else
			buf_adds(d->b, "0");
		return;
	case R_GETFL:
		put_ret_flags(d, K_OPEN, ret);
		return;
	default:
		buf_addf(d->b, "%lld", (long long)ret);
	}
	if ((kind == R_TIMEOUT || kind == R_POLL) && !ret)
		buf_adds(d->b, " (Timeout)");
	else if (kind == R_POLL)
		put_revents(d->b, d->e);
}

/* The interrupted code's register may look like one, as strace shows it. */
static bool looks_failed(const struct syscall_event *e)
{
	return syscall_failed(e) ||
	       (e->state == SYSCALL_SIGRETURN && e->ret < 0 && e->ret >= -4095);
}

static void put_ret(struct dec *d, const struct call_desc *c, const struct variant *var)
{
	if (d->e->state == SYSCALL_NEVER || d->e->state == SYSCALL_UNFINISHED)
		buf_adds(d->b, "?");
	else if (looks_failed(d->e))
		put_error(d->b, d->e->ret);
	else
		put_result(d, var ? var->ret : c ? c->ret : R_D);
}

void decode_event(struct decoded *d, const struct syscall_event *e, const struct decode_opts *o)
{
	const struct call_desc *c = call_desc_of(e->entry->name, e->abi);
	const struct variant *var = c ? variant_find(c, e) : NULL;
	struct dec dec = { .b = &d->text,
			   .e = e,
			   .o = o,
			   .max = o->string_max   ? o->string_max
				  : e->string_max ? e->string_max
						  : DECODE_STRING_MAX,
			   .fd_arg = -1,
			   .capture = -1 };

	dec.ok = !syscall_failed(e) && e->state != SYSCALL_UNFINISHED && e->state != SYSCALL_NEVER;
	buf_reset(&d->text);
	d->text.failed = false;
	d->n = 0;
	d->cut = false;
	if (c)
		put_described(d, &dec, c, var);
	else
		put_undescribed(d, &dec);
	d->ret_off = (u32)d->text.len;
	put_ret(&dec, c, var);
	d->ret_len = (u32)d->text.len - d->ret_off;
}

void decoded_deinit(struct decoded *d)
{
	buf_deinit(&d->text);
}
