// SPDX-License-Identifier: Apache-2.0
/* Options of a trace.dat. See dat_peer.h. Source: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5). */
#include "tracers/formats/dat_peer.h"

#include <errno.h>
#include <string.h>

#define NAME_BYTES   256u /* of a string that is passed over */
#define FILES_MAX    65536u /* formats in a file; v6.12 has some 3000 events */
#define SECTIONS_MAX 1024u
#define OPTIONS_MAX  65536u
#define CLOCK_BYTES  512u
#define OPT_DONE     0
#define OPT_CLOCK    4
#define OPT_TRACE_ID 11
#define PACKED       1 /* a section's flag */

static must_check bool get(FILE *f, void *buf, size_t len)
{
	return fread(buf, 1, len, f) == len;
}

static bool skip(FILE *f, u64 len)
{
	return len <= INT64_MAX && fseeko(f, (off_t)len, SEEK_CUR) == 0;
}

/* A string with its NUL. */
static bool skip_string(FILE *f)
{
	for (u32 i = 0; i < NAME_BYTES; i++) {
		int c = getc(f);

		if (c <= 0)
			return c == 0;
	}
	return false;
}

static bool skip_u32_bytes(FILE *f)
{
	u32 len;

	return get(f, &len, sizeof(len)) && skip(f, len);
}

static bool skip_u64_bytes(FILE *f)
{
	u64 len;

	return get(f, &len, sizeof(len)) && skip(f, len);
}

static bool skip_formats(FILE *f)
{
	u32 n;

	if (!get(f, &n, sizeof(n)) || n > FILES_MAX)
		return false;
	while (n--) {
		if (!skip_u64_bytes(f))
			return false;
	}
	return true;
}

static bool skip_systems(FILE *f)
{
	u32 n;

	if (!get(f, &n, sizeof(n)) || n > FILES_MAX)
		return false;
	while (n--) {
		if (!skip_string(f) || !skip_formats(f))
			return false;
	}
	return true;
}

/* Of "local global [mono] tai" the one in brackets. */
static void take_clock(struct dat_peer *p, const char *text)
{
	const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
	size_t len = close ? (size_t)(close - open - 1) : 0;

	if (!len || len >= sizeof(p->clock))
		return;
	memcpy(p->clock, open + 1, len);
	p->clock[len] = 0;
}

/* One option's data. */
static bool take_option(FILE *f, u16 id, u32 len, struct dat_peer *p)
{
	char text[CLOCK_BYTES + 1] = { 0 };

	if (id == OPT_TRACE_ID && len == sizeof(p->trace_id))
		return get(f, &p->trace_id, sizeof(p->trace_id));
	if (id != OPT_CLOCK || len > CLOCK_BYTES)
		return skip(f, len);
	if (!get(f, text, len))
		return false;
	take_clock(p, text);
	return true;
}

/* Version 6: everything comes one after the other, the options nearly last. */
static bool read_v6(FILE *f, struct dat_peer *p)
{
	char word[10];
	u32 len, cpus;
	u16 id;

	if (!skip(f, 12) || !skip_u64_bytes(f) || !skip(f, 13) || !skip_u64_bytes(f) ||
	    !skip_formats(f) || !skip_systems(f) || !skip_u32_bytes(f) || !skip_u32_bytes(f) ||
	    !skip_u64_bytes(f) || !get(f, &cpus, sizeof(cpus)) || !get(f, word, sizeof(word)))
		return false;
	if (memcmp(word, "options  ", sizeof(word)) != 0)
		return true; /* it has none */
	for (u32 i = 0; i < OPTIONS_MAX; i++) {
		if (!get(f, &id, sizeof(id)))
			return false;
		if (id == OPT_DONE)
			return true;
		if (!get(f, &len, sizeof(len)) || !take_option(f, id, len, p))
			return false;
	}
	return false;
}

/* The options at @off. *@next_ret: where there are more; 0: nowhere */
static bool read_options(FILE *f, u64 off, struct dat_peer *p, u64 *next_ret)
{
	u16 head[2], id;
	u32 name, len;
	u64 size;

	*next_ret = 0;
	if (off > INT64_MAX || fseeko(f, (off_t)off, SEEK_SET) || !get(f, head, sizeof(head)) ||
	    !get(f, &name, sizeof(name)) || !get(f, &size, sizeof(size)) || head[0] != OPT_DONE ||
	    (head[1] & PACKED))
		return false;
	for (u32 i = 0; i < OPTIONS_MAX; i++) {
		if (!get(f, &id, sizeof(id)) || !get(f, &len, sizeof(len)))
			return false;
		if (id == OPT_DONE)
			return len == sizeof(*next_ret) && get(f, next_ret, sizeof(*next_ret));
		if (!take_option(f, id, len, p))
			return false;
	}
	return false;
}

static bool read_v7(FILE *f, struct dat_peer *p)
{
	u64 next;

	/* the compression's name and version */
	for (u32 i = 0; i < 2; i++) {
		if (!skip_string(f))
			return false;
	}
	if (!get(f, &next, sizeof(next)))
		return false;
	for (u32 i = 0; next; i++) {
		if (i == SECTIONS_MAX || !read_options(f, next, p, &next))
			return false;
	}
	return true;
}

int dat_peer_read(FILE *f, struct dat_peer *ret, struct err *err)
{
	char magic[12], kind[2];
	u32 page;
	bool ok;

	*ret = (struct dat_peer){ 0 };
	if (!get(f, magic, sizeof(magic)) || memcmp(magic, "\x17\x08\x44tracing", 10) != 0 ||
	    !get(f, kind, sizeof(kind)) || !get(f, &page, sizeof(page)))
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0, "not a trace.dat of trace-cmd");
	if (kind[0] || magic[11] || (magic[10] != '6' && magic[10] != '7'))
		return err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0,
			       "neither version 6 nor 7 of a little-endian host's trace.dat");
	ok = magic[10] == '6' ? read_v6(f, ret) : read_v7(f, ret);
	return ok ? 0
		  : err_set(err, -EBADMSG, ERR_FILE_FORMAT, 0,
			    "the options of this trace.dat do not make sense");
}
