// SPDX-License-Identifier: Apache-2.0
/*
 * kallsyms' tables, written as scripts/kallsyms.c lays them out (the encoder is a simple greedy
 * one).
 */
#include "test_symbols_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fake_tokens_default(struct fake_kallsyms *ks)
{
	static char single[256][2];

	for (int c = 0; c < 256; c++) {
		single[c][0] = c >= 0x20 && c <= 0x7e ? (char)c : '\0';
		ks->tokens[c] = single[c];
	}
	ks->tokens[0x80] = "vfs_";
	ks->tokens[0x81] = "ftrace_pages";
	ks->tokens[0x82] = "kernel";
	ks->tokens[0x00] = "_start";
}

static void align(const struct fake_kallsyms *ks, struct buf *b)
{
	while (b->len % (ks->place_relative ? 4 : 8))
		buf_add(b, "", 1);
}

static void put32(struct buf *b, u32 v)
{
	buf_add(b, &v, sizeof(v));
}

/* The longest token that fits, at each place. */
static size_t encode(const struct fake_kallsyms *ks, const char *s, u8 *out)
{
	size_t n = 0;

	while (*s) {
		size_t best = 0;
		int code = -1;

		for (int c = 0; c < 256; c++) {
			size_t len = strlen(ks->tokens[c]);

			if (len > best && !strncmp(s, ks->tokens[c], len)) {
				best = len;
				code = c;
			}
		}
		if (code < 0)
			abort();
		out[n++] = (u8)code;
		s += best;
	}
	return n;
}

static void write_names(struct fake_kallsyms *ks, const struct fake_sym *syms, size_t n,
			struct buf *out)
{
	_cleanup_buf_ struct buf marks = { 0 };
	size_t start = out->len;

	ks->names = start;
	for (size_t i = 0; i < n; i++) {
		char full[sizeof(syms->name) + 1];
		u8 code[sizeof(full)];
		size_t len;

		if (i % 256 == 0)
			put32(&marks, (u32)(out->len - start));
		snprintf(full, sizeof(full), "%c%s", syms[i].type, syms[i].name);
		len = encode(ks, full, code);
		if (len >= 128) {
			u8 two[2] = { (u8)(len | 0x80), (u8)(len >> 7) };

			buf_add(out, two, 2);
		} else {
			buf_add(out, &(u8){ (u8)len }, 1);
		}
		buf_add(out, code, len);
	}
	align(ks, out);
	ks->markers = out->len;
	buf_add(out, marks.data, marks.len);
	align(ks, out);
}

static void write_tokens(struct fake_kallsyms *ks, struct buf *out)
{
	u16 index[256];
	size_t start = out->len;

	ks->token_table = start;
	for (int c = 0; c < 256; c++) {
		index[c] = (u16)(out->len - start);
		buf_add(out, ks->tokens[c], strlen(ks->tokens[c]) + 1);
	}
	align(ks, out);
	ks->token_index = out->len;
	buf_add(out, index, sizeof(index));
}

static void write_offsets(struct fake_kallsyms *ks, const struct fake_sym *syms, size_t n,
			  struct buf *out)
{
	ks->offsets = out->len;
	for (size_t i = 0; i < n; i++) {
		u64 rel = syms[i].addr - ks->relative_base;

		if (ks->place_relative)
			put32(out, (u32)(syms[i].addr - ks->first - out->len));
		else if (ks->all_relative)
			put32(out, (u32)rel);
		else if (syms[i].addr >> 63)
			put32(out, (u32)(-1 - (s64)rel));
		else
			put32(out, (u32)syms[i].addr);
	}
	align(ks, out);
	ks->base = out->len;
	if (!ks->place_relative)
		buf_add(out, &ks->relative_base, 8);
}

static void write_seqs(const struct fake_kallsyms *ks, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		u8 seq[3] = { (u8)(i >> 16), (u8)(i >> 8), (u8)i };

		buf_add(out, seq, 3);
	}
	align(ks, out);
}

void fake_tokens_empty(struct buf *out)
{
	static const u8 tokens[256];

	buf_add(out, tokens, sizeof(tokens));
	for (u16 i = 0; i < 256; i++)
		buf_add(out, &i, sizeof(i));
}

void fake_kallsyms_write(struct fake_kallsyms *ks, const struct fake_sym *syms, size_t n,
			 struct buf *out)
{
	align(ks, out);
	if (!ks->new_order)
		write_offsets(ks, syms, n, out);
	ks->num_syms = out->len;
	put32(out, (u32)n);
	align(ks, out);
	write_names(ks, syms, n, out);
	if (!ks->new_order && ks->seqs)
		write_seqs(ks, n, out);
	write_tokens(ks, out);
	if (ks->new_order) {
		write_offsets(ks, syms, n, out);
		write_seqs(ks, n, out);
	}
}
