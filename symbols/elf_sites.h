/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites of a file: a kernel (vmlinux), a module or an object, x86-64. By what its compiler and linker
 * recorded, or else by what is in its text, as scripts/recordmcount finds them. Parses bytes, nothing else:
 * the file may be anything.
 */
#ifndef SYMBOLS_ELF_SITES_H
#define SYMBOLS_ELF_SITES_H

#include "base/err.h"
#include "base/types.h"

#define ELF_SITE_BYTES 5 /* MCOUNT_INSN_SIZE */
#define ELF_SITES_MAX  (1u << 20)

/* How the sites were found; the first that a file has counts. */
enum elf_site_source {
	ELF_SITES_MCOUNT_LOC, /* section __mcount_loc, or the symbols around its contents in a vmlinux */
	ELF_SITES_PATCHABLE, /* section __patchable_function_entries */
	ELF_SITES_RECORDED, /* neither: calls of mcount or __fentry__, and nops where functions begin */
};

enum elf_site_kind {
	ELF_SITE_NOP, /* one nop of ELF_SITE_BYTES: can be armed as it is */
	ELF_SITE_CALL, /* a call of mcount or __fentry__, which the kernel makes a nop of at boot */
	ELF_SITE_NOPS, /* several nops: a task may be preempted between two of them, so never armed */
	ELF_SITE_WEAK, /* of a weak function that another one took the place of: no symbol has it */
	ELF_SITE_OTHER, /* no call site that we know */
};

struct elf_site {
	u64 addr; /* virtual; in an object the offset in its section */
	u32 section; /* index */
	enum elf_site_kind kind;
	const char *name; /* of its function, in the file's bytes; "?" for ELF_SITE_WEAK */
};

struct elf_sites {
	struct elf_site *site; /* by section and address */
	size_t n;
	enum elf_site_source source;
	bool prologue; /* calls are of mcount, behind the function's prologue (-pg without -mfentry) */
};

/**
 * elf_sites_read - all call sites of a file
 * @data: @len bytes, kept by the caller for as long as names are used
 *
 * Local functions have sites as global ones; of several names of one function a global one is taken, then a
 * weak one. Return: 0, also when there are none; -ENOEXEC no x86-64 ELF file of 64 bits (file.format);
 * -EUCLEAN its tables make no sense (file.format); -ENOMEM. Undo: elf_sites_deinit().
 * Source: System V ABI, x86-64 supplement 0.99.7, 4.4; Linux v6.1 scripts/recordmcount.h.
 */
must_check int elf_sites_read(const void *data, size_t len, struct elf_sites *ret, struct err *err);
void elf_sites_deinit(struct elf_sites *s);

/** elf_site_kind_name - "nop", "call", "nops", "weak", "other" */
const char *elf_site_kind_name(enum elf_site_kind kind);

#endif
