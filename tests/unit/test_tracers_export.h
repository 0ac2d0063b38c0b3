/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit test of exports and their fuzz target share: checks of what any input must give. */
#ifndef TESTS_UNIT_TEST_TRACERS_EXPORT_H
#define TESTS_UNIT_TEST_TRACERS_EXPORT_H

#include "tracers/formats/dat_peer.h"
#include "tracers/formats/export.h"
#include "tracers/formats/tar.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* NULL: it is as it should be; else what is wrong. */

static const char *check_speedscope(const struct buf *b)
{
	json_t *doc = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES, NULL);
	size_t n_frames =
		json_array_size(json_object_get(json_object_get(doc, "shared"), "frames"));
	json_t *profile, *event;
	const char *bad = doc ? NULL : "speedscope: no JSON";
	size_t i, k;

	json_array_foreach(json_object_get(doc, "profiles"), i, profile)
	{
		json_int_t stack[512],
			at = json_integer_value(json_object_get(profile, "startValue"));
		json_int_t end = json_integer_value(json_object_get(profile, "endValue"));
		size_t depth = 0;

		json_array_foreach(json_object_get(profile, "events"), k, event)
		{
			json_int_t now = json_integer_value(json_object_get(event, "at"));
			json_int_t frame = json_integer_value(json_object_get(event, "frame"));
			bool open = *json_string_value(json_object_get(event, "type")) == 'O';

			if (now < at || now > end)
				bad = "speedscope: a time goes back, or beyond the end";
			if (frame < 0 || (size_t)frame >= n_frames)
				bad = "speedscope: no such frame";
			if (open && depth < 512)
				stack[depth++] = frame;
			else if (open || !depth || stack[--depth] != frame)
				bad = "speedscope: calls do not nest";
			at = now;
		}
		if (depth)
			bad = "speedscope: a call is left open";
	}
	json_decref(doc);
	return bad;
}

static const char *check_chrome(const struct buf *b)
{
	json_t *doc = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES, NULL);
	const char *bad = json_array_size(json_object_get(doc, "traceEvents")) ||
					  json_is_array(json_object_get(doc, "traceEvents"))
				  ? NULL
				  : "chrome: no JSON";

	json_decref(doc);
	return bad;
}

/* Packets follow each other to the end. */
static const char *check_perfetto(const struct buf *b)
{
	size_t at = 0;

	while (at < b->len) {
		const u8 *p = (const u8 *)b->data + at;

		if (b->len - at < 4 || p[0] != 0x0a)
			return "perfetto: no packet";
		at += 4 + ((size_t)(p[1] & 0x7f) | (size_t)(p[2] & 0x7f) << 7 | (size_t)p[3] << 14);
	}
	return at == b->len ? NULL : "perfetto: a packet beyond the end";
}

static const char *check_dat(const struct buf *b)
{
	FILE *f = fmemopen(b->data, b->len, "rb");
	struct dat_peer peer;
	int r = f ? dat_peer_read(f, &peer, NULL) : -1;

	if (f)
		fclose(f);
	return !r && peer.trace_id && !strcmp(peer.clock, "local") ? NULL
								   : "trace.dat: not its head";
}

static bool any_file(void *arg, const char *name)
{
	*(size_t *)arg += name != NULL;
	return true;
}

static bool any_data(void *arg, const void *data, size_t len)
{
	(void)arg;
	(void)data;
	(void)len;
	return true;
}

static const char *check_ctf(const struct buf *b)
{
	struct tar_reader t = { 0 };
	size_t files = 0;
	const struct tar_sink sink = { any_file, any_data, &files };

	/* in two parts, wherever */
	if (tar_read(&t, &sink, b->data, b->len / 3) ||
	    tar_read(&t, &sink, b->data + b->len / 3, b->len - b->len / 3) || !tar_complete(&t))
		return "ctf: no archive";
	return files ? NULL : "ctf: no metadata";
}

static const char *check_export(const struct export_format *f, const struct buf *b)
{
	if (!strcmp(f->name, "speedscope"))
		return check_speedscope(b);
	if (!strcmp(f->name, "chrome"))
		return check_chrome(b);
	if (!strcmp(f->name, "perfetto"))
		return check_perfetto(b);
	if (!strncmp(f->name, "trace.dat", 9))
		return check_dat(b);
	return !strcmp(f->name, "ctf") ? check_ctf(b) : NULL;
}

#endif
