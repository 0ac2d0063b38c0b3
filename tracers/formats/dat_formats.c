// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptions of the events of dat_events.c, as the files events/SYSTEM/EVENT/format have them. Readers go
 * by the names of the fields. See dat.h.
 */
#include "tracers/formats/dat.h"

#include <string.h>

#define FIELDS_MAX 6

struct field {
	const char *decl; /* "unsigned long func" */
	u16 offset, size;
	bool is_signed;
};

struct format {
	const char *system, *name;
	u16 id;
	struct field fields[FIELDS_MAX]; /* behind struct dat_common; decl NULL: no more */
	const char *print;
};

/* clang-format off: a table */
static const struct format formats[] = {
	{ "ftrace",
	  "function",
	  DAT_FUNCTION,
	  { { "unsigned long ip", 8, 8, false }, { "unsigned long parent_ip", 16, 8, false } },
	  "\" %ps <-- %ps\", (void *)REC->ip, (void *)REC->parent_ip" },
	{ "ftrace",
	  "funcgraph_entry",
	  DAT_GRAPH_ENTRY,
	  { { "unsigned long func", 8, 8, false }, { "int depth", 16, 4, true } },
	  "\"--> %ps (%d)\", (void *)REC->func, REC->depth" },
	{ "ftrace",
	  "funcgraph_exit",
	  DAT_GRAPH_EXIT,
	  { { "unsigned long func", 8, 8, false },
	    { "unsigned long long calltime", 16, 8, false },
	    { "unsigned long long rettime", 24, 8, false },
	    { "unsigned int overrun", 32, 4, false },
	    { "int depth", 36, 4, true } },
	  "\"<-- %ps (%d) (start: %llx  end: %llx) over: %u\", (void *)REC->func, REC->depth, "
	  "REC->calltime, REC->rettime, REC->overrun" },
	{ "sched",
	  "sched_switch",
	  DAT_SCHED_SWITCH,
	  { { "char prev_comm[16]", 8, 16, false },
	    { "pid_t prev_pid", 24, 4, true },
	    { "char next_comm[16]", 28, 16, false },
	    { "pid_t next_pid", 44, 4, true } },
	  "\"prev_comm=%s prev_pid=%d ==> next_comm=%s next_pid=%d\", REC->prev_comm, "
	  "REC->prev_pid, REC->next_comm, REC->next_pid" },
	{ "raw_syscalls",
	  "sys_enter",
	  DAT_SYS_ENTER,
	  { { "long id", 8, 8, true },
	    { "unsigned long args[6]", 16, 48, false },
	    { "unsigned long handler", 64, 8, false } },
	  "\"NR %ld %ps(%lx, %lx, %lx, %lx, %lx, %lx)\", REC->id, (void *)REC->handler, "
	  "REC->args[0], REC->args[1], REC->args[2], REC->args[3], REC->args[4], REC->args[5]" },
	{ "raw_syscalls",
	  "sys_exit",
	  DAT_SYS_EXIT,
	  { { "long id", 8, 8, true },
	    { "long ret", 16, 8, true },
	    { "unsigned long handler", 24, 8, false } },
	  "\"NR %ld %ps = %ld\", REC->id, (void *)REC->handler, REC->ret" },
	{ "hvftrace",
	  "lost",
	  DAT_LOST,
	  { { "unsigned long count", 8, 8, false } },
	  "\"%lu events were lost before the end\", REC->count" },
	{ "hvftrace",
	  "never_returned",
	  DAT_NEVER,
	  { { "unsigned long func", 8, 8, false } },
	  "\"%ps() will never return: its task ended inside\", (void *)REC->func" },
};
/* clang-format on */

static const struct field common_fields[] = {
	{ "unsigned short common_type", 0, 2, false },
	{ "unsigned char common_flags", 2, 1, false },
	{ "unsigned char common_preempt_count", 3, 1, false },
	{ "int common_pid", 4, 4, true },
};

const char *dat_header_page(void)
{
	return "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
	       "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
	       "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
	       "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
}

const char *dat_header_event(void)
{
	return "# compressed entry header\n"
	       "\ttype_len    :    5 bits\n"
	       "\ttime_delta  :   27 bits\n"
	       "\tarray       :   32 bits\n"
	       "\n"
	       "\tpadding     : type == 29\n"
	       "\ttime_extend : type == 30\n"
	       "\ttime_stamp : type == 31\n"
	       "\tdata max type_len  == 28\n";
}

const char *const *dat_systems(size_t *n_ret)
{
	static const char *const systems[] = { "sched", "raw_syscalls", "hvftrace" };

	*n_ret = ARRAY_SIZE(systems);
	return systems;
}

static void add_field(struct buf *b, const struct field *f)
{
	buf_addf(b, "\tfield:%s;\toffset:%u;\tsize:%u;\tsigned:%d;\n", f->decl, f->offset, f->size,
		 f->is_signed);
}

static void add_format(struct buf *b, const struct format *f)
{
	buf_addf(b, "name: %s\nID: %u\nformat:\n", f->name, f->id);
	for (size_t i = 0; i < ARRAY_SIZE(common_fields); i++)
		add_field(b, &common_fields[i]);
	buf_adds(b, "\n");
	for (size_t i = 0; i < FIELDS_MAX && f->fields[i].decl; i++)
		add_field(b, &f->fields[i]);
	buf_addf(b, "\nprint fmt: %s\n", f->print);
}

/* How many, then the length and text of each. */
void dat_formats(struct buf *b, const char *system)
{
	_cleanup_buf_ struct buf text = { 0 };
	u32 n = 0;
	u64 len;

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		n += strcmp(formats[i].system, system) == 0;
	buf_add(b, &n, sizeof(n));
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i].system, system) != 0)
			continue;
		buf_reset(&text);
		add_format(&text, &formats[i]);
		len = text.len;
		buf_add(b, &len, sizeof(len));
		buf_add(b, text.data, text.len);
		b->failed |= buf_failed(&text);
	}
}
