// SPDX-License-Identifier: Apache-2.0
/* The metadata of ctf.c's streams, in TSDL. Keep the two alike. */
#include "tracers/formats/ctf_metadata.h"

#include "tracers/fmt.h"

/* clang-format off: as it is shown */
static const char declarations[] =
	"typealias integer { size = 16; align = 8; signed = false; } := u16;\n"
	"typealias integer { size = 32; align = 8; signed = false; } := u32;\n"
	"typealias integer { size = 32; align = 8; signed = true; } := s32;\n"
	"typealias integer { size = 64; align = 8; signed = false; } := u64;\n"
	"typealias integer { size = 64; align = 8; signed = true; } := s64;\n"
	"typealias integer { size = 64; align = 8; signed = false; base = 16; } := hex64;\n"
	"typealias integer { size = 16; align = 8; signed = false; base = 16; } := hex16;\n"
	"typealias integer { size = 64; align = 8; signed = false; map = clock.guest.value; } := ns_t;\n"
	"\n";

static const char streams[] =
	"stream {\n"
	"\tid = 0;\n"
	"\tpacket.context := struct {\n"
	"\t\tns_t timestamp_begin;\n"
	"\t\tns_t timestamp_end;\n"
	"\t\tu64 content_size;\n"
	"\t\tu64 packet_size;\n"
	"\t\tu64 events_discarded;\n"
	"\t\tu32 cpu_id;\n"
	"\t};\n"
	"\tevent.header := struct { u16 id; ns_t timestamp; };\n"
	"\tevent.context := struct { u32 tid; u32 pid; string procname; hex16 context; };\n"
	"};\n"
	"event { id = 0; name = \"function\"; stream_id = 0; fields := struct {\n"
	"\thex64 ip; string func; string module; hex64 parent_ip; string parent; string parent_module; }; };\n"
	"event { id = 1; name = \"funcgraph_entry\"; stream_id = 0; fields := struct {\n"
	"\thex64 ip; string func; string module; hex64 parent_ip; string parent; string parent_module;\n"
	"\tu32 depth; }; };\n"
	"event { id = 2; name = \"funcgraph_exit\"; stream_id = 0; fields := struct {\n"
	"\thex64 ip; string func; string module; u32 depth; u64 duration_ns; }; };\n"
	"event { id = 3; name = \"never_returned\"; stream_id = 0; fields := struct {\n"
	"\thex64 ip; string func; string module; hex64 parent_ip; string parent; string parent_module;\n"
	"\tu32 depth; }; };\n"
	"event { id = 4; name = \"sched_switch\"; stream_id = 0; fields := struct {\n"
	"\tstring prev_comm; s32 prev_tid; string next_comm; s32 next_tid; }; };\n"
	"event { id = 5; name = \"syscall_entry\"; stream_id = 0; fields := struct {\n"
	"\tstring syscall; s32 nr; hex64 args[6]; }; };\n"
	"event { id = 6; name = \"syscall_exit\"; stream_id = 0; fields := struct {\n"
	"\tstring syscall; s32 nr; s64 ret; }; };\n"
	"event { id = 7; name = \"lost_at_end\"; stream_id = 0; fields := struct { u64 count; }; };\n";
/* clang-format on */

/* A string of TSDL: what has a meaning there is left out. */
static void add_string(struct buf *b, const char *key, const char *s, size_t max)
{
	char *p;

	buf_addf(b, "\t%s = \"", key);
	p = buf_reserve(b, max + 4);
	if (!p)
		return;
	for (size_t i = 0; i < max && s[i]; i++)
		*p++ = s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] == 0x7f ? '?' : s[i];
	p = FMT_LIT(p, "\";\n");
	b->len = (size_t)(p - b->data);
}

void ctf_metadata(struct export *x, struct buf *b)
{
	const struct output_meta *m = &x->meta;
	u64 zero = export_boot_ns(x);
	char time[40];

	buf_adds(b, "/* CTF 1.8 */\n");
	buf_adds(b, declarations);
	buf_adds(b, "trace {\n\tmajor = 1;\n\tminor = 8;\n\tbyte_order = le;\n"
		    "\tpacket.header := struct { u32 magic; u32 stream_id; };\n};\n");
	buf_adds(b, "env {\n");
	add_string(b, "hostname", m->guest, sizeof(m->guest));
	buf_adds(b, "\tdomain = \"kernel\";\n\tsysname = \"Linux\";\n");
	add_string(b, "kernel_release", m->release, sizeof(m->release));
	buf_adds(b, "\ttracer_name = \"hvftrace\";\n\ttracer_version = \"" HVF_VERSION "\";\n");
	add_string(b, "tracer", m->tracer, sizeof(m->tracer));
	add_string(b, "started", export_time(m->started_ns, time), sizeof(time));
	buf_addf(b, "\trecords = %llu;\n\tlost = %llu;\n", (unsigned long long)x->n_records,
		 (unsigned long long)x->n_lost);
	add_string(b, "restored", m->restored ? "yes" : "not known", 16);
	buf_addf(b,
		 "};\nclock {\n\tname = guest;\n"
		 "\tdescription = \"the guest's trace clock\";\n"
		 "\tfreq = 1000000000;\n\toffset_s = %llu;\n\toffset = %llu;\n};\n",
		 (unsigned long long)(zero / NSEC_PER_SEC),
		 (unsigned long long)(zero % NSEC_PER_SEC));
	buf_adds(b, streams);
}
