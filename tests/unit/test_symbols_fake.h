/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's memory, made by hand in a byte array: one kernel or more, each with kallsyms, BTF, page
 * tables, vmcoreinfo, modules and call sites. For the tests of symbols/ and its fuzz targets.
 */
#ifndef TESTS_SYMBOLS_FAKE_H
#define TESTS_SYMBOLS_FAKE_H

#include "base/buf.h"
#include "symbols/kernel.h"

#define FAKE_RAM     (32ull << 20)
#define FAKE_TEXT    0x000000ull /* parts of the image, from its first byte */
#define FAKE_RODATA  0x200000ull
#define FAKE_DATA    0x400000ull
#define FAKE_END     0x600000ull
#define FAKE_MODULES 0xffffffffc0000000ull
#define FAKE_FILL    300 /* functions vfs_fill_000 .. */

struct fake_guest {
	u8 *ram;
	u64 ram_bytes;
	u64 hole_start, hole_end; /* guest physical addresses that cannot be read */
};

struct fake_sym {
	u64 addr;
	u32 order; /* of several at one address */
	char type;
	char name[300];
};

/* kallsyms' tables as bytes. */
struct fake_kallsyms {
	const char *tokens[256];
	bool new_order; /* v6.4 and later */
	bool seqs; /* kallsyms_seqs_of_names */
	bool all_relative; /* v6.15 and later: no absolute per-CPU symbols */
	bool place_relative; /* v7.0 and later */
	u64 relative_base;
	u64 first; /* for place_relative: where the first byte of the buffer lies */
	/* out, positions in the bytes */
	size_t num_syms, names, markers, token_table, token_index, offsets, base;
};

struct fake_opts {
	u64 image; /* physical, 2 MiB aligned */
	u64 virt; /* _text */
	u64 heap; /* physical: 1 MiB for what the kernel allocates, then 2 MiB of modules */
	int levels;
	bool new_order, seqs, all_relative, place_relative;
	bool mem_array; /* struct module as of v6.4 */
	bool landing_pads;
	bool no_btf;
	bool no_vmcoreinfo;
	bool no_banner_page; /* .rodata begins with something else */
	u32 n_modules; /* up to 4 */
};

struct fake_kernel {
	struct fake_guest *g;
	struct fake_opts o;
	u64 heap_next;
	u64 table_next; /* physical, the next free page table */
	u64 direct; /* page_offset_base */
	struct fake_sym *syms;
	size_t n_syms;
	/* guest virtual addresses of what tests damage */
	u64 pages[2]; /* struct ftrace_page */
	u64 records[2];
	u32 n_records[2];
	u64 mods[4]; /* struct module */
	u64 mod_kallsyms[4];
	u64 vmcoreinfo;
	u64 btf, btf_bytes;
};

void fake_guest_init(struct fake_guest *g);
void fake_guest_deinit(struct fake_guest *g);

/** fake_kernel_build - put a kernel into @g; fake_kernel_deinit() frees only host memory */
void fake_kernel_build(struct fake_kernel *k, struct fake_guest *g, const struct fake_opts *o);
void fake_kernel_deinit(struct fake_kernel *k);

/** fake_mem - callbacks that read @g, virtual addresses as @k maps them; valid as long as @k */
struct sym_mem fake_mem(struct fake_kernel *k);

/** fake_at - host address of @va, which @k must map */
void *fake_at(struct fake_kernel *k, u64 va);
u64 fake_sym_addr(const struct fake_kernel *k, const char *name);
void fake_put64(struct fake_kernel *k, u64 va, u64 v);
void fake_put32(struct fake_kernel *k, u64 va, u32 v);

/** fake_tokens_default - single characters and a few longer tokens */
void fake_tokens_default(struct fake_kallsyms *ks);

/** fake_tokens_empty - the smallest table of 256 tokens and its index, 768 bytes, appended to @out */
void fake_tokens_empty(struct buf *out);

/** fake_kallsyms_write - the tables for @syms (sorted by address) appended to @out */
void fake_kallsyms_write(struct fake_kallsyms *ks, const struct fake_sym *syms, size_t n,
			 struct buf *out);

/** fake_btf - the types that symbols/ asks for, as the kernel's BTF; from malloc */
u8 *fake_btf(bool mem_array, u32 *bytes_ret);

/*
 * Damage that a fuzzer chooses: each six bytes of its input are a position (32 bits, taken modulo
 * the length), how (overwrite 1, 2, 4 or 8 bytes) and with what. Sound tables with a few wrong
 * bytes go deeper than random ones.
 */
#define FAKE_PATCHES 64

struct fake_patches {
	u8 *bytes;
	size_t len;
	size_t n;
	struct {
		size_t at;
		u8 before[8];
	} undo[FAKE_PATCHES];
};

void fake_patch(struct fake_patches *p, u8 *bytes, size_t len, const u8 *data, size_t size);
void fake_unpatch(struct fake_patches *p);

/** fake_file - a file of tests/unit/data/symbols, NUL-terminated, from malloc */
char *fake_file(const char *name, size_t *bytes_ret);

#endif
