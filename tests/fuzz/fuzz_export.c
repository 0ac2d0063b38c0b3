// SPDX-License-Identifier: Apache-2.0
/*
 * Exports and what they read. The input is (1) records, of which every format must make what its readers
 * take, (2) an archive, (3) a host's trace.dat, or (4) a recording in blocks.
 */
#include "tests/unit/test_tracers_export.h"

#include "base/cursor.h"
#include "tracers/rec_store.h"

#include <errno.h>
#include <stdlib.h>

#define MUST(cond)                                                                 \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool one_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	(void)arg;
	if (addr % 3 == 0)
		return false;
	*ret = (struct kernel_sym){ .name = addr % 2 ? "f" : "__x64_sys_read",
				    .module = addr % 5 ? NULL : "m\xff\"",
				    .type = 't' };
	*off_ret = addr % 16;
	return true;
}

static void export_records(const u8 *data, size_t size)
{
	const struct output_names names = { .sym = one_sym };
	struct output_meta meta = { .guest = "g" };
	const struct export_format *formats, *f;
	struct cursor c = cursor_init(data, size);
	struct trace_record r;
	struct buf out = { 0 };
	struct export *x;
	size_t n;
	u8 which = 0;

	formats = export_formats(&n);
	if (!cursor_u8(&c, &which))
		return;
	f = &formats[which % n];
	strcpy(meta.tracer, which & 0x80 ? "syscalls" : "function_graph");
	MUST(!export_create(f, &meta, NULL, &x, NULL));
	export_head(x, &out);
	memset(&r, 0, sizeof(r));
	while (cursor_bytes(&c, &r, offsetof(struct trace_record, prev_pid))) {
		r.ts_ns >>= 1; /* 292 years; beyond that JSON's readers give up, and clocks do */
		r.duration_ns >>= 1;
		r.has_retval = r.seq & 1;
		r.n_args %= TRACE_MAX_ARGS + 1;
		r.prev_pid = r.pid ^ 1;
		r.cpu %= 64; /* the rest costs memory, nothing else */
		(void)!cursor_bytes(&c, r.comm, TRACE_COMM_LEN);
		export_record(x, &out, &r, &names);
		if (r.seq % 7 == 3)
			export_lost(x, &out, r.seq >> 8);
	}
	while (export_end(x, &out))
		;
	MUST(!export_check(x, NULL) && !buf_failed(&out));
	MUST(!check_export(f, &out));
	export_destroy(x);
	buf_deinit(&out);
}

static void read_archive(const u8 *data, size_t size)
{
	struct tar_reader t = { 0 };
	size_t files = 0;
	const struct tar_sink sink = { any_file, any_data, &files };

	(void)!tar_read(&t, &sink, data, size);
	MUST(files <= size / TAR_BLOCK);
}

static void read_peer(const u8 *data, size_t size)
{
	FILE *f = fmemopen((void *)(uintptr_t)data, size, "rb");
	struct dat_peer peer;

	MUST(f);
	if (!dat_peer_read(f, &peer, NULL))
		MUST(strnlen(peer.clock, sizeof(peer.clock)) < sizeof(peer.clock));
	fclose(f);
}

/* As it is, and with the first block's checksum put right. */
static void read_blocks(const u8 *data, size_t size)
{
	u8 copy[4096], out[512];
	struct store_block h;
	struct rec_blocks *b;
	size_t len = MIN(size, sizeof(copy)), total = 0;
	ssize_t n;
	FILE *f;

	memcpy(copy, data, len);
	if (len > sizeof(h)) {
		memcpy(&h, copy, sizeof(h));
		h.magic = STORE_BLOCK_MAGIC;
		h.packed_len = (u32)(len - sizeof(h));
		h.crc = 0;
		h.crc = rec_crc32(rec_crc32(0, &h, sizeof(h)), copy + sizeof(h),
				  h.kind == STORE_DROPPED ? 0 : h.packed_len);
		memcpy(copy, &h, sizeof(h));
	}
	f = fmemopen(len > sizeof(h) ? copy : (void *)(uintptr_t)data, len ? len : 1, "rb");
	MUST(f);
	b = rec_blocks_open(f);
	MUST(b);
	while ((n = rec_blocks_read(b, out, sizeof(out), NULL)) == (ssize_t)sizeof(out))
		total += (size_t)n;
	MUST(n >= -EBADMSG - 100 && total <= 100 * (size_t)STORE_BLOCK_MAX);
	rec_blocks_close(b);
	fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] % 4) {
	case 0:
		export_records(data + 1, size - 1);
		break;
	case 1:
		read_archive(data + 1, size - 1);
		break;
	case 2:
		read_peer(data + 1, size - 1);
		break;
	default:
		read_blocks(data + 1, size - 1);
		break;
	}
	return 0;
}
