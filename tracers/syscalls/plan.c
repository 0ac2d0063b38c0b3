// SPDX-License-Identifier: Apache-2.0
/* From the kind of an argument to the bytes that show it: a line a kind. */
#include "tracers/syscalls/plan.h"

#include "tracers/syscalls/desc.h"

#define PATH_BYTES        4096u
#define SOCKADDR_BYTES    128u
#define ARRAY_MAX         32u /* elements; as many as strace shows */
#define AT_EMPTY_PATH_BIT 0x1000u
#define DENTS_BYTES       4096u /* of more than this entries are not counted */
/* struct user_msghdr and compat_msghdr, Linux v6.1 include/linux/socket.h, in words of the program's */
#define MSG_NAME    0
#define MSG_NAMELEN 1
#define MSG_IOV     2
#define MSG_IOVLEN  3
#define MSG_WORDS   7u

/* Whose plan it is. */
struct planner {
	const struct plan_opts *o;
	const struct syscall_entry *e;
	u32 word; /* bytes of a pointer */
};

/* clang-format off: a table */
static const struct kind_plan {
	u8 what, len;
	u16 each;
	u32 max; /* 0: string_max, or the struct's size */
	const char *kernel;
} kinds[K_KINDS] = {
	[K_PATH] = { CAPTURE_STRING, PLAN_STRING, 1, PATH_BYTES, "getname_flags" },
	[K_STR] = { CAPTURE_STRING, PLAN_STRING, 1, 0, NULL },
	[K_BUF] = { CAPTURE_BYTES, PLAN_ARG, 1, 0, NULL },
	[K_HEXBUF] = { CAPTURE_BYTES, PLAN_ARG, 1, 0, NULL },
	[K_STRV] = { CAPTURE_STRINGS, PLAN_FIXED, 1, 0, "copy_strings" },
	[K_ENVP] = { CAPTURE_COUNT, PLAN_FIXED, 1, 0, "copy_strings" },
	[K_SOCKADDR] = { CAPTURE_SOCKADDR, PLAN_ARG, 1, SOCKADDR_BYTES, "move_addr_to_kernel" },
	[K_SOCKLEN] = { CAPTURE_BYTES, PLAN_FIXED, 4, 4, NULL },
	[K_IOVEC] = { CAPTURE_IOVEC, PLAN_ARG, 16, 0, NULL },
	[K_MSGHDR] = { CAPTURE_BYTES, PLAN_FIXED, 1, 0, NULL },
	[K_STRUCT] = { CAPTURE_BYTES, PLAN_FIXED, 1, 0, NULL },
	[K_STRUCTS] = { CAPTURE_BYTES, PLAN_ARG, 1, 0, NULL },
	[K_INT] = { CAPTURE_BYTES, PLAN_FIXED, 1, 4, NULL },
	[K_INTS] = { CAPTURE_BYTES, PLAN_FIXED, 4, 8, NULL },
	[K_LONG] = { CAPTURE_BYTES, PLAN_FIXED, 1, 8, NULL },
	[K_SIGSET] = { CAPTURE_BYTES, PLAN_FIXED, 1, 8, NULL },
	[K_WSTATUS] = { CAPTURE_BYTES, PLAN_FIXED, 1, 4, NULL },
	[K_FDSET] = { CAPTURE_BYTES, PLAN_FIXED, 1, 128, NULL },
	[K_DENTS] = { CAPTURE_BYTES, PLAN_RET, 1, DENTS_BYTES, NULL },
	[K_SIGFRAME] = { CAPTURE_BYTES, PLAN_SIGFRAME, 1, 8, NULL },
	[K_FDSETBITS] = { CAPTURE_BYTES, PLAN_RET, 1, 128, NULL },
};
/* clang-format on */

/* The struct as the program has it; one that is not known has a size all the same. */
static const struct struct_desc *layout(const struct planner *pl, const struct arg_desc *d)
{
	const struct struct_desc *s = struct_layout(d->tab, pl->e, pl->e->abi);

	return s ? s : d->tab;
}

static u32 step_max(const struct planner *pl, const struct arg_desc *d)
{
	const struct kind_plan *k = &kinds[d->kind];
	const struct plan_opts *o = pl->o;
	u32 string_max = o->string_max ? o->string_max : 32;

	if (k->max)
		return k->max;
	if (d->kind == K_STRUCT)
		return layout(pl, d)->size;
	if (d->kind == K_STRUCTS)
		return layout(pl, d)->size * ARRAY_MAX;
	if (d->kind == K_IOVEC)
		return 2 * pl->word * ARRAY_MAX;
	if (d->kind == K_MSGHDR)
		return MSG_WORDS * pl->word;
	if (d->kind == K_STRV || (d->kind == K_ENVP && o->env))
		return o->strings_max ? o->strings_max : 4096;
	if (d->kind == K_ENVP)
		return 0;
	return string_max;
}

/* Strings, bytes, ints, and what is a row of bits or of fixed size are the same for all. */
static bool is_wide(const struct planner *pl, const struct arg_desc *d)
{
	static const bool narrow_too[K_KINDS] = {
		[K_PATH] = true,      [K_STR] = true,   [K_BUF] = true,    [K_HEXBUF] = true,
		[K_STRV] = true,      [K_ENVP] = true,  [K_INT] = true,    [K_SOCKADDR] = true,
		[K_SOCKLEN] = true,   [K_INTS] = true,  [K_SIGSET] = true, [K_WSTATUS] = true,
		[K_FDSETBITS] = true, [K_FDSET] = true, [K_DENTS] = true,
	};

	if (d->kind == K_STRUCT || d->kind == K_STRUCTS)
		return !struct_layout(d->tab, pl->e, SYSCALL_ABI_32) ||
		       pl->e->abi == SYSCALL_ABI_X32;
	if ((d->kind == K_IOVEC || d->kind == K_MSGHDR) && pl->word == 4)
		return false;
	return !narrow_too[d->kind];
}

static void step_add(struct plan *p, const struct arg_desc *d, u8 a, const struct planner *pl)
{
	const struct kind_plan *k = &kinds[d->kind];
	struct plan_step *s;

	if (p->n == PLAN_STEPS)
		return;
	s = &p->steps[p->n++];
	*s = (struct plan_step){ .arg = a,
				 .what = k->what,
				 .len = k->len,
				 .len_arg = (u8)(a + 1),
				 .each = k->each,
				 .at_exit = d->out,
				 .kernel = d->out ? NULL : k->kernel,
				 .at_error = d->when_interrupted,
				 .wide = is_wide(pl, d),
				 .if_arg = PLAN_ANY,
				 .ptr_at = -1,
				 .len_at = -1,
				 .max = step_max(pl, d) };
	if (d->kind == K_STRUCTS)
		s->each = layout(pl, d)->size;
	if (d->kind == K_IOVEC)
		s->each = (u16)(2 * pl->word);
	if (d->kind == K_ENVP && pl->o->env)
		s->what = CAPTURE_STRINGS, s->env = true;
	if (d->out && (d->kind == K_BUF || d->kind == K_HEXBUF || d->kind == K_STRUCTS))
		s->len = PLAN_RET;
	if (d->out && d->kind == K_SOCKADDR)
		s->len = PLAN_PTR;
	if (d->tab == &sd_timespec && d->kind == K_STRUCTS) { /* utimensat's two */
		s->len = PLAN_FIXED;
		s->max = 2u * layout(pl, d)->size;
	}
}

/* Memory that one look does not tell: lengths before and after, what iovecs point to. */
static void extra_add(struct plan *p, const struct arg_desc *d, u8 a, const struct planner *pl)
{
	struct plan_step *s = &p->steps[p->n - 1], more = *s;
	u32 string_max = pl->o->string_max ? pl->o->string_max : 32;
	int16_t word = (int16_t)pl->word;

	if (d->kind == K_IOVEC || d->kind == K_MSGHDR) {
		s->at_exit = false;
		more.what = CAPTURE_DATA;
		more.len = d->out ? PLAN_RET : PLAN_FIXED;
		more.each = (u16)MIN(string_max, (u32)UINT16_MAX);
		more.max = string_max * ARRAY_MAX;
		if (d->kind == K_MSGHDR) {
			more.ptr_at = (int16_t)(MSG_IOV * word);
			more.len_at = (int16_t)(MSG_IOVLEN * word);
		}
	} else if (d->kind == K_SOCKLEN || d->kind == K_OFFSET || d->tab == &sd_pollfd) {
		s->at_exit = false;
		more.at_exit = true;
	} else {
		return;
	}
	more.arg = a;
	if (p->n < PLAN_STEPS)
		p->steps[p->n++] = more;
	if (d->kind != K_MSGHDR || p->n > PLAN_STEPS - 3)
		return;
	more.what = CAPTURE_IOVEC;
	more.len = PLAN_FIXED;
	more.each = (u16)(2 * pl->word);
	more.max = 2 * pl->word * ARRAY_MAX;
	more.at_exit = false;
	p->steps[p->n++] = more;
	more.what = CAPTURE_SOCKADDR;
	more.each = 1;
	more.ptr_at = MSG_NAME;
	more.len_at = (int16_t)(MSG_NAMELEN * word);
	more.max = SOCKADDR_BYTES;
	more.at_exit = d->out;
	more.kernel = d->out ? NULL : "move_addr_to_kernel";
	p->steps[p->n++] = more;
	if (!d->out)
		return;
	more.what = CAPTURE_BYTES; /* recvmsg changes msg_namelen and msg_flags */
	more.ptr_at = more.len_at = -1;
	more.max = MSG_WORDS * pl->word;
	p->steps[p->n++] = more;
}

static void list_add(struct plan *p, const struct arg_desc *args, u8 n, u8 first,
		     const struct planner *pl)
{
	for (u8 i = 0; i < n && args[i].kind; i++) {
		const struct arg_desc *d = &args[i];

		if (!kinds[d->kind].each || d->from || p->n == PLAN_STEPS)
			continue;
		step_add(p, d, (u8)(first + i), pl);
		extra_add(p, d, (u8)(first + i), pl);
	}
}

static struct planner planner_of(const struct syscall_entry *e, const struct plan_opts *o)
{
	return (struct planner){ o, e, e->abi == SYSCALL_ABI_32 ? 4 : 8 };
}

bool plan_for(const char *name, const struct plan_opts *o, struct plan *ret)
{
	const struct syscall_entry e = { .name = name, .abi = SYSCALL_ABI_64 };
	const struct planner pl = planner_of(&e, o);
	const struct call_desc *c = call_desc_find(name);

	*ret = (struct plan){ 0 };
	if (c)
		list_add(ret, c->args, SYSCALL_ARGS, 0, &pl);
	return ret->n != 0;
}

/*
 * With AT_EMPTY_PATH a path that is empty is not copied: Linux v6.11 include/linux/fs.h vfs_empty_path(). One
 * that is not is the kernel's copy, which counts for more.
 */
static void empty_path_add(struct plan *p, const struct call_desc *c)
{
	for (u8 i = 0; i < SYSCALL_ARGS && c->args[i].kind; i++) {
		const struct arg_desc *d = &c->args[i];
		bool at = d->kind == K_STATX || (d->kind == K_FLAGS && d->tab == &xlat_at);

		if (!at || p->n == PLAN_STEPS || !p->n || p->steps[0].what != CAPTURE_STRING)
			continue;
		p->steps[p->n] = p->steps[0];
		p->steps[p->n].kernel = NULL;
		p->steps[p->n].max = 1;
		p->steps[p->n].if_arg = i;
		p->steps[p->n].if_mask = p->steps[p->n].if_value = AT_EMPTY_PATH_BIT;
		p->n++;
	}
}

static void fd_add(struct plan *p, u8 arg, bool at_exit)
{
	if (p->n < PLAN_STEPS)
		p->steps[p->n++] = (struct plan_step){ .arg = arg,
						       .what = CAPTURE_FD,
						       .at_exit = at_exit,
						       .if_arg = PLAN_ANY,
						       .ptr_at = -1,
						       .len_at = -1 };
}

static void fds_add(struct plan *p, const struct call_desc *c)
{
	for (u8 i = 0; i < SYSCALL_ARGS && c->args[i].kind; i++) {
		if ((c->args[i].kind == K_FD || c->args[i].kind == K_DIRFD) && !c->args[i].from)
			fd_add(p, i, false);
	}
	if (c->ret == R_FD)
		fd_add(p, CAPTURE_RETURN, true);
	for (u8 i = 0; i < c->n_variants; i++) {
		if (c->variants[i].ret != R_FD || p->n == PLAN_STEPS)
			continue;
		fd_add(p, CAPTURE_RETURN, true);
		p->steps[p->n - 1].if_arg = c->cmd_arg;
		p->steps[p->n - 1].if_mask = c->cmd_mask ? c->cmd_mask : UINT32_MAX;
		p->steps[p->n - 1].if_value = (u32)c->variants[i].cmd;
	}
}

bool plan_all(const struct syscall_entry *e, const struct plan_opts *o, struct plan *ret)
{
	const struct planner pl = planner_of(e, o);
	const struct call_desc *c = call_desc_of(e->name, e->abi);

	*ret = (struct plan){ 0 };
	if (c)
		list_add(ret, c->args, SYSCALL_ARGS, 0, &pl);
	if (c)
		empty_path_add(ret, c);
	for (u8 i = 0; c && i < c->n_variants; i++) {
		u8 from = ret->n;

		list_add(ret, c->variants[i].args, ARRAY_SIZE(c->variants[i].args),
			 (u8)(c->cmd_arg + 1), &pl);
		for (u8 j = from; j < ret->n; j++) {
			ret->steps[j].if_arg = c->cmd_arg;
			ret->steps[j].if_mask = c->cmd_mask ? c->cmd_mask : UINT32_MAX;
			ret->steps[j].if_value = (u32)c->variants[i].cmd;
		}
	}
	if (c && o->fd_paths)
		fds_add(ret, c);
	return ret->n != 0;
}

bool plan_for_cmd(const char *name, u64 cmd, const struct plan_opts *o, struct plan *ret)
{
	const struct syscall_entry e = { .name = name, .abi = SYSCALL_ABI_64 };
	const struct planner pl = planner_of(&e, o);
	const struct call_desc *c = call_desc_find(name);

	*ret = (struct plan){ 0 };
	for (u8 i = 0; c && i < c->n_variants; i++)
		if (c->variants[i].cmd == (cmd & (c->cmd_mask ? c->cmd_mask : UINT32_MAX)))
			list_add(ret, c->variants[i].args, ARRAY_SIZE(c->variants[i].args),
				 (u8)(c->cmd_arg + 1), &pl);
	return ret->n != 0;
}
