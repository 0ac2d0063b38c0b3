// SPDX-License-Identifier: Apache-2.0
/*
 * The file around the pages. All that comes before them is made in memory: it has one line a function and
 * one a task. Version 6 is one thing after the other; version 7 sections that options point to. See dat.h.
 */
#include "tracers/formats/dat.h"

#include "tracers/fmt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES 65536u
#define CPUS_MAX   4096u /* of what a recording claims; those that have records are all there */

enum option { /* of both versions; from OPT_HEADER_INFO on, sections of version 7 too */
	OPT_DONE = 0,
	OPT_CPUSTAT = 2,
	OPT_BUFFER = 3,
	OPT_TRACECLOCK = 4,
	OPT_UNAME = 5,
	OPT_CPUCOUNT = 8,
	OPT_VERSION = 9,
	OPT_TRACEID = 11,
	OPT_TIME_SHIFT = 12,
	OPT_STRINGS = 15,
	OPT_HEADER_INFO = 16,
	OPT_FTRACE_EVENTS = 17,
	OPT_EVENT_FORMATS = 18,
	OPT_KALLSYMS = 19,
	OPT_CMDLINES = 21,
};

static const char section_names[] = "options\0headers\0ftrace events\0event formats\0kallsyms\0"
				    "command lines\0flyrecord\0strings";

static void add_u16(struct buf *b, u16 v)
{
	buf_add(b, &v, sizeof(v));
}

static void add_u32(struct buf *b, u32 v)
{
	buf_add(b, &v, sizeof(v));
}

static void add_u64(struct buf *b, u64 v)
{
	buf_add(b, &v, sizeof(v));
}

static void add_headers(struct buf *b)
{
	const char *page = dat_header_page(), *event = dat_header_event();

	buf_add(b, "header_page", 12);
	add_u64(b, strlen(page));
	buf_adds(b, page);
	buf_add(b, "header_event", 13);
	add_u64(b, strlen(event));
	buf_adds(b, event);
}

static void add_events(struct buf *b)
{
	const char *const *systems;
	size_t n;

	systems = dat_systems(&n);
	add_u32(b, (u32)n);
	for (size_t i = 0; i < n; i++) {
		buf_add(b, systems[i], strlen(systems[i]) + 1);
		dat_formats(b, systems[i]);
	}
}

/* Without the characters that part a line into columns. */
static char *put_word(char *p, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		*p++ = s[i] == ' ' || s[i] == '[' || s[i] == ']' ? '_' : s[i];
	return p;
}

static char *put_symbol(char *p, u64 addr, char type)
{
	p = fmt_hex(p, addr, 16);
	*p++ = ' ';
	*p++ = type && type != '?' ? type : 't';
	*p++ = ' ';
	return p;
}

/*
 * What begins at each address that was met; what lies inside of a symbol is found by its beginning. A reader
 * takes the last one for the end of all (libtraceevent 1.7.1 src/event-parse.c func_bcmp()), so there is one.
 */
static void add_kallsyms(struct export *x, struct buf *b)
{
	size_t at = b->len;
	u64 end = 0;
	u32 size;
	char *p;

	add_u32(b, 0);
	for (u32 id = 1; id <= syms_count(x->syms); id++) { /* it grows meanwhile */
		const struct exp_sym *sym = syms_at(x->syms, id);
		size_t module_len = sym->module ? strlen(sym->module) : 0;

		end = MAX(end, MAX(sym->addr + 1, sym->start + sym->size_bytes));
		if (!syms_is_latest(x->syms, id)) /* the file has one name for an address */
			continue;
		if (sym->addr != sym->start) {
			if (!syms_start(x->syms, id))
				export_fail(x, -ENOMEM);
			continue;
		}
		p = buf_reserve(b, sym->name_len + module_len + 32);
		if (!p)
			return;
		p = put_symbol(p, sym->addr, sym->type);
		p = put_word(p, sym->name, sym->name_len);
		if (module_len) {
			p = FMT_LIT(p, "\t[");
			p = FMT_LIT(put_word(p, sym->module, module_len), "]");
		}
		*p++ = '\n';
		b->len = (size_t)(p - b->data);
	}
	p = buf_reserve(b, 32);
	if (!p)
		return;
	p = FMT_LIT(put_symbol(p, end, 't'), "_end\n");
	b->len = (size_t)(p - b->data);
	size = (u32)(b->len - at - sizeof(u32));
	if (!buf_failed(b))
		memcpy(b->data + at, &size, sizeof(size));
}

static void add_cmdlines(struct export *x, struct buf *b)
{
	size_t at = b->len;
	u64 size;

	add_u64(b, 0);
	for (u32 i = 0; i < tasks_count(x->tasks); i++) {
		const struct task *t = tasks_at(x->tasks, i);
		char *p;

		if (!t->pid)
			continue; /* readers know it as <idle> */
		p = buf_reserve(b, FMT_U64_MAX + TRACE_COMM_LEN + 2);
		if (!p)
			return;
		p = fmt_u64(p, t->pid);
		*p++ = ' ';
		for (const char *c = t->comm; *c; c++)
			*p++ = *c >= ' ' ? *c : '?';
		*p++ = '\n';
		b->len = (size_t)(p - b->data);
	}
	size = b->len - at - sizeof(size);
	if (!buf_failed(b))
		memcpy(b->data + at, &size, sizeof(size));
}

static void option(struct buf *b, u16 id, const void *data, size_t len)
{
	add_u16(b, id);
	add_u32(b, (u32)len);
	buf_add(b, data, len);
}

static void option_text(struct buf *b, u16 id, struct buf *text)
{
	b->failed |= buf_failed(text);
	if (!buf_failed(text))
		option(b, id, text->data, text->len + 1);
	buf_reset(text);
}

/* Of this trace: the same for all exports of it. */
static u64 own_trace_id(const struct export *x)
{
	u64 h = 0xcbf29ce484222325 ^ x->meta.started_ns;

	for (size_t i = 0; i < sizeof(x->meta.guest) && x->meta.guest[i]; i++)
		h = (h ^ (u8)x->meta.guest[i]) * 0x100000001b3;
	return h ? h : 1;
}

/* One sample a CPU: the same for all, as their clock is one. */
static void add_time_shift(struct export *x, struct buf *b, u32 n_cpus)
{
	_cleanup_buf_ struct buf data = { 0 };
	u64 scaling = 1, fraction = 0;

	add_u64(&data, x->opts.host_trace_id);
	add_u32(&data, 0);
	add_u32(&data, n_cpus);
	for (u32 i = 0; i < n_cpus; i++) {
		add_u32(&data, 1);
		add_u64(&data, x->first_ns);
		add_u64(&data, (u64)x->meta.zero_mono_ns);
		add_u64(&data, scaling);
	}
	for (u32 i = 0; i < n_cpus; i++)
		add_u64(&data, fraction);
	b->failed |= buf_failed(&data);
	if (!buf_failed(&data))
		option(b, OPT_TIME_SHIFT, data.data, data.len);
}

/* `trace-cmd report --stat` shows these. */
static void add_stats(struct export *x, struct buf *b)
{
	_cleanup_buf_ struct buf t = { 0 };
	struct dat *d = x->priv;
	char started[40], zero[40];

	buf_addf(
		&t,
		"hvftrace %s\nguest: %.64s\nkernel: %.80s\ntracer: %.32s\nclock: the guest's trace "
		"clock, 0 at %s\nstarted: %s\nrecords: %llu\nlost: %llu\nrestored: %s\n",
		HVF_VERSION, x->meta.guest, x->meta.release, x->meta.tracer,
		export_time(export_boot_ns(x), zero), export_time(x->meta.started_ns, started),
		(unsigned long long)x->n_records, (unsigned long long)x->n_lost,
		x->meta.restored ? "yes" : "not known");
	option_text(b, OPT_CPUSTAT, &t);
	for (u32 i = 0; i < d->n_cpus; i++) {
		if (!d->cpu[i])
			continue;
		buf_addf(&t, "CPU: %u\nentries: %llu\nmissed events: %llu\n", i,
			 (unsigned long long)d->cpu[i]->n_events,
			 (unsigned long long)d->cpu[i]->n_missed);
		option_text(b, OPT_CPUSTAT, &t);
	}
}

static void add_options(struct export *x, struct buf *b, u32 n_cpus)
{
	_cleanup_buf_ struct buf t = { 0 };
	u64 id = own_trace_id(x);

	buf_adds(&t, "[local]");
	option_text(b, OPT_TRACECLOCK, &t);
	buf_addf(&t, "Linux %.64s %.80s", x->meta.guest, x->meta.release);
	option_text(b, OPT_UNAME, &t);
	buf_addf(&t, "hvftrace %s", HVF_VERSION);
	option_text(b, OPT_VERSION, &t);
	option(b, OPT_CPUCOUNT, &n_cpus, sizeof(n_cpus));
	option(b, OPT_TRACEID, &id, sizeof(id));
	if (x->opts.host_trace_id && x->meta.zero_mono_ns)
		add_time_shift(x, b, n_cpus);
	add_stats(x, b);
}

static u32 file_cpus(const struct export *x)
{
	const struct dat *d = x->priv;

	return MAX(d->n_cpus, MIN(x->meta.vcpus, CPUS_MAX));
}

static u64 cpu_bytes(const struct export *x, u32 cpu)
{
	const struct dat *d = x->priv;

	if (cpu >= d->n_cpus || !d->cpu[cpu])
		return 0;
	return d->cpu[cpu]->stream.bytes + (d->v7 ? sizeof(u32) : 0);
}

static void add_magic(struct buf *b, const char *version)
{
	buf_add(b, "\x17\x08\x44tracing", 10);
	buf_add(b, version, 2);
	buf_add(b, "\0\x08", 2); /* little-endian, longs of 8 bytes */
	add_u32(b, DAT_PAGE);
}

static void make_v6(struct export *x, struct buf *b)
{
	u32 n_cpus = file_cpus(x);
	struct dat *d = x->priv;
	u64 off;

	add_magic(b, "6");
	add_headers(b);
	dat_formats(b, "ftrace");
	add_events(b);
	add_kallsyms(x, b);
	add_u32(b, 0); /* no formats of trace_printk() */
	add_cmdlines(x, b);
	add_u32(b, n_cpus);
	buf_add(b, "options  ", 10);
	add_options(x, b, n_cpus);
	add_u16(b, OPT_DONE);
	buf_add(b, "flyrecord", 10);
	off = b->len + 16ull * n_cpus;
	off = (off + DAT_PAGE - 1) / DAT_PAGE * DAT_PAGE;
	d->data_off = off;
	for (u32 i = 0; i < n_cpus; i++) {
		add_u64(b, off);
		add_u64(b, cpu_bytes(x, i));
		off += cpu_bytes(x, i);
	}
	while (b->len < d->data_off && !buf_failed(b))
		buf_add(b, "", 1);
}

static u32 name_of(enum option id)
{
	static const u8 place[] = {
		[OPT_DONE] = 0,          [OPT_HEADER_INFO] = 1, [OPT_FTRACE_EVENTS] = 2,
		[OPT_EVENT_FORMATS] = 3, [OPT_KALLSYMS] = 4,    [OPT_CMDLINES] = 5,
		[OPT_BUFFER] = 6,        [OPT_STRINGS] = 7
	};
	u32 off = 0;

	for (u32 i = 0; i < place[id]; i++)
		off += (u32)strlen(section_names + off) + 1;
	return off;
}

static void section_head(struct buf *b, enum option id, bool packed, u64 size)
{
	add_u16(b, (u16)id);
	add_u16(b, packed);
	add_u32(b, name_of(id));
	add_u64(b, size);
}

/* @data compressed, as a section. Return: where it begins. */
static u64 section(struct export *x, struct buf *b, enum option id, struct buf *data)
{
	struct dat *d = x->priv;
	size_t max = ZSTD_compressBound(data->len), n;
	u64 at = b->len;
	char *packed;

	section_head(b, id, true, 0);
	add_u32(b, 0);
	add_u32(b, (u32)data->len);
	packed = buf_reserve(b, max);
	if (!packed || buf_failed(data)) {
		b->failed = true;
		return 0;
	}
	n = ZSTD_compressCCtx(d->zstd, packed, max, data->data, data->len, ZSTD_CLEVEL_DEFAULT);
	if (ZSTD_isError(n)) {
		b->failed = true;
		return 0;
	}
	b->len += n;
	memcpy(b->data + at + 8, &(u64){ n + 8 }, 8);
	memcpy(b->data + at + 16, &(u32){ (u32)n }, 4);
	buf_reset(data);
	return at;
}

static void add_sections(struct export *x, struct buf *b, struct buf *options)
{
	_cleanup_buf_ struct buf t = { 0 };
	u64 at;

	add_headers(&t);
	at = section(x, b, OPT_HEADER_INFO, &t);
	option(options, OPT_HEADER_INFO, &at, sizeof(at));
	dat_formats(&t, "ftrace");
	at = section(x, b, OPT_FTRACE_EVENTS, &t);
	option(options, OPT_FTRACE_EVENTS, &at, sizeof(at));
	add_events(&t);
	at = section(x, b, OPT_EVENT_FORMATS, &t);
	option(options, OPT_EVENT_FORMATS, &at, sizeof(at));
	add_kallsyms(x, &t);
	at = section(x, b, OPT_KALLSYMS, &t);
	option(options, OPT_KALLSYMS, &at, sizeof(at));
	add_cmdlines(x, &t);
	at = section(x, b, OPT_CMDLINES, &t);
	option(options, OPT_CMDLINES, &at, sizeof(at));
	at = b->len;
	section_head(b, OPT_STRINGS, false, sizeof(section_names));
	buf_add(b, section_names, sizeof(section_names));
	option(options, OPT_STRINGS, &at, sizeof(at));
}

/* Where each CPU's data will be, as the section @at begins right behind the options. */
static void add_buffer(struct export *x, struct buf *options, u64 at)
{
	_cleanup_buf_ struct buf t = { 0 };
	u32 n_cpus = file_cpus(x), n = 0;
	u64 off = at + 16;

	for (u32 i = 0; i < n_cpus; i++)
		n += cpu_bytes(x, i) > 0;
	add_u64(&t, at);
	buf_add(&t, "", 1);
	buf_add(&t, "local", 6);
	add_u32(&t, DAT_PAGE);
	add_u32(&t, n);
	for (u32 i = 0; i < n_cpus; i++) {
		if (!cpu_bytes(x, i))
			continue;
		add_u32(&t, i);
		add_u64(&t, off);
		add_u64(&t, cpu_bytes(x, i));
		off += cpu_bytes(x, i);
	}
	options->failed |= buf_failed(&t);
	if (!buf_failed(&t))
		option(options, OPT_BUFFER, t.data, t.len);
}

static void make_v7(struct export *x, struct buf *b)
{
	_cleanup_buf_ struct buf options = { 0 };
	u64 done = 0, total = 0, at;
	struct dat *d = x->priv;
	size_t size;

	add_magic(b, "7");
	buf_add(b, "zstd", 5);
	buf_add(b, ZSTD_VERSION_STRING, sizeof(ZSTD_VERSION_STRING));
	at = b->len;
	add_u64(b, 0);
	add_sections(x, b, &options);
	if (buf_failed(b))
		return;
	memcpy(b->data + at, &(u64){ b->len }, 8);
	add_options(x, &options, file_cpus(x));
	/* with the option that says where the data are, the options have this size */
	size = options.len;
	add_buffer(x, &options, 0);
	at = b->len + 16 + options.len + 2 + 4 + 8;
	options.len = size;
	add_buffer(x, &options, at);
	option(&options, OPT_DONE, &done, sizeof(done));
	b->failed |= buf_failed(&options);
	if (buf_failed(b))
		return;
	section_head(b, OPT_DONE, false, options.len);
	buf_add(b, options.data, options.len);
	for (u32 i = 0; i < d->n_cpus; i++)
		total += cpu_bytes(x, i);
	section_head(b, OPT_BUFFER, true, total);
}

/* The next part of a CPU's data. Return: is there more of it? */
static bool add_data(struct export *x, struct buf *b)
{
	struct dat *d = x->priv;
	struct dat_cpu *c = d->cpu[d->next_cpu];
	char *p = buf_reserve(b, PART_BYTES);
	ssize_t n;

	if (!p)
		return false;
	if (d->v7 && !d->place.begun)
		add_u32(b, c->n_chunks);
	n = spool_read(d->spool, &c->stream, &d->place, b->data + b->len, PART_BYTES - 4);
	if (n < 0)
		export_fail(x, (int)n);
	if (n <= 0)
		return false;
	b->len += (size_t)n;
	return true;
}

bool dat_file_end(struct export *x, struct buf *b)
{
	struct dat *d = x->priv;

	if (!d->head.len) {
		if (d->v7)
			make_v7(x, &d->head);
		else
			make_v6(x, &d->head);
		if (buf_failed(&d->head))
			export_fail(x, -ENOMEM);
	}
	if (d->head_off < d->head.len && !buf_failed(&d->head)) {
		size_t n = MIN(d->head.len - d->head_off, (size_t)PART_BYTES);

		buf_add(b, d->head.data + d->head_off, n);
		d->head_off += n;
		return true;
	}
	while (d->next_cpu < d->n_cpus) {
		if (d->cpu[d->next_cpu] && add_data(x, b))
			return true;
		spool_place_deinit(&d->place);
		d->next_cpu++;
	}
	return false;
}
