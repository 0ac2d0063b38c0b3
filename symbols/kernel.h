/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is where in a Linux guest, from its memory alone: symbols, types, modules, call sites. The
 * folder's public header. Must not know how memory is reached: it reads through struct sym_mem.
 * Everything read is hostile input: walks are bounded, sizes checked, no loop without an end.
 */
#ifndef SYMBOLS_KERNEL_H
#define SYMBOLS_KERNEL_H

#include "base/err.h"
#include "base/types.h"

/* Memory as a parser sees it. read() needs the page table that kernel_locate() finds. */
struct sym_mem {
	int (*read)(void *arg, gva_t addr, void *buf,
		    size_t len); /* 0 or -EFAULT, all or nothing */
	int (*read_phys)(void *arg, gpa_t addr, void *buf, size_t len);
	/* the first multiple of @step at or after @from where there is a page */
	bool (*next_frame)(void *arg, gpa_t from, u64 step, gpa_t *ret);
	/* the next pages that can be read without waiting for the host's disks */
	bool (*next_resident)(void *arg, gpa_t from, gpa_t *start_ret, u64 *len_ret);
	void *arg;
};

/* Where the running kernel lies; enough to set the page table root. */
struct kernel_location {
	gpa_t image; /* physical address of _text's 2 MiB frame (phys_base applied) */
	gva_t text; /* _text */
	u64 kaslr_offset; /* _text minus its link address */
	gpa_t root; /* swapper_pg_dir */
	int levels; /* 4 or 5 */
	char banner[256]; /* linux_banner, without the newline */
};

struct kernel;

struct kernel_sym {
	const char *name;
	const char *module; /* NULL for the kernel itself */
	u64 addr;
	u64 size_bytes; /* up to the next symbol */
	char type; /* as in /proc/kallsyms */
};

enum site_state {
	SITE_OK, /* may be armed */
	SITE_DISABLED, /* FTRACE_FL_DISABLED, or a weak function's leftover: listed, never armed */
	SITE_IN_USE, /* the guest's own tracing has a reference: left alone */
};

/* One record of the guest's own ftrace_pages list (struct dyn_ftrace). */
struct ftrace_site {
	u64 ip; /* the call site */
	u64 rec; /* guest virtual address of the struct dyn_ftrace */
	u64 flags; /* as the guest has them */
	const char *
		name; /* as available_filter_functions shows it, "__ftrace_invalid_address___N" too */
	const char *module; /* NULL for the kernel itself */
	enum site_state state;
};

struct kernel_module {
	const char *name;
	u64 base; /* of its text */
	u64 text_bytes;
	u64 struct_addr; /* struct module */
	u32 n_syms;
	u32 n_sites;
};

/**
 * kernel_locate - find the running kernel in RAM
 *
 * First the image itself, whatever the size of RAM: .rodata starts on a 2 MiB frame with the banner,
 * and the kallsyms token table is known by its structure; else vmcoreinfo's text by a scan of RAM, which has its
 * bounds in bytes and time.
 * Candidates (stale images of an earlier boot, forged ones) are checked against vmcoreinfo and
 * against the page table they name; @confirm, where given, has the last word (does CR3 map it?).
 *
 * @confirm: may be NULL; returns true when the candidate is the one that runs
 * However memory is made, it ends after some seconds (IMAGE_STEPS).
 * Return: 0; -ENOENT no kernel (guest.not_linux); -EUCLEAN candidates, but none consistent, or too many
 * (guest.bad_memory).
 */
must_check int kernel_locate(const struct sym_mem *mem,
			     bool (*confirm)(void *arg, const struct kernel_location *loc),
			     void *arg, struct kernel_location *ret, struct err *err);

/**
 * kernel_load - read symbols, types, modules and sites of a located kernel
 *
 * @mem->read must go through the root that @loc names by now. Takes a copy of what it needs of @mem.
 * Return: 0; -EUCLEAN the tables do not make sense (guest.bad_memory); -ENOENT no BTF
 * (guest.no_btf) or no ftrace (guest.no_ftrace); -ENOMEM.
 */
must_check int kernel_load(const struct sym_mem *mem, const struct kernel_location *loc,
			   struct kernel **ret, struct err *err);
/** kernel_ref - another owner: it is gone when all have called kernel_destroy(). Context: any thread */
struct kernel *kernel_ref(struct kernel *k);
void kernel_destroy(struct kernel *k);

const struct kernel_location *kernel_location(const struct kernel *k);
const char *kernel_release(const struct kernel *k); /* "6.1.0-57-cloud-amd64" */
const char *kernel_build_id(const struct kernel *k); /* hex; "" when unknown */
u32 kernel_version(const struct kernel *k); /* major << 16 | minor << 8 | patch of the release */
/* vmcoreinfo: where its page is and how much of it is used; false when the guest has none. */
bool kernel_vmcoreinfo(const struct kernel *k, gva_t *data_ret, u64 *size_ret);

/** kernel_sym - address of the kernel's own symbol @name (never a module's); -ENOENT */
must_check int kernel_sym(const struct kernel *k, const char *name, u64 *addr_ret);

/** kernel_sym_at - the symbol that covers @addr, kernel and modules; false when none does */
bool kernel_sym_at(const struct kernel *k, u64 addr, struct kernel_sym *ret);

/**
 * kernel_sym_then - the same as of an earlier kernel_epoch(): modules that were unloaded or moved since
 *
 * Context: what protects @k, or kernel_names_lock(); strings in *ret are valid as long as it is held.
 */
bool kernel_sym_then(const struct kernel *k, u64 addr, u32 epoch, struct kernel_sym *ret);

/** kernel_epoch - how often kernel_refresh() has found other modules than before */
u32 kernel_epoch(const struct kernel *k);

/**
 * kernel_generation - counts what replaced modules' names, also by others that are the same
 *
 * Strings and prototypes of modules that were got between kernel_names_lock() and kernel_names_unlock() are
 * good in a later such time if this has not changed. Context: as kernel_sym_then().
 */
u32 kernel_generation(const struct kernel *k);

/** kernel_names_lock - keep kernel_refresh() from taking names away. Context: any thread, for a short time. */
void kernel_names_lock(const struct kernel *k);
void kernel_names_unlock(const struct kernel *k);

size_t kernel_sym_count(const struct kernel *k);
void kernel_sym_get(const struct kernel *k, size_t i, struct kernel_sym *ret); /* by address */

/** kernel_btf_offset - byte offset of a member, @path may be dotted and cross anonymous members */
must_check int kernel_btf_offset(const struct kernel *k, const char *type, const char *path,
				 u32 *off_ret);
/** kernel_btf_member_size - bytes of that member */
must_check int kernel_btf_member_size(const struct kernel *k, const char *type, const char *path,
				      u32 *size_ret);
/** kernel_btf_size - sizeof(struct @type); -ENOENT */
must_check int kernel_btf_size(const struct kernel *k, const char *type, u32 *size_ret);
/** kernel_btf_enum - value of an enumerator, enum and enum64; -ENOENT */
must_check int kernel_btf_enum(const struct kernel *k, const char *enumerator, s64 *val_ret);

/* A function's parameter or its return value, as far as printing it needs. */
enum kernel_val_kind {
	KERNEL_VAL_VOID,
	KERNEL_VAL_UNSIGNED,
	KERNEL_VAL_SIGNED,
	KERNEL_VAL_BOOL,
	KERNEL_VAL_CHAR,
	KERNEL_VAL_POINTER,
	KERNEL_VAL_ENUM, /* @type is the enum's name: kernel_val_enumerator() */
	KERNEL_VAL_OTHER, /* struct or union by value: not one register */
};

struct kernel_val {
	const char *name; /* of a parameter; "" when it has none */
	const char *type; /* last name in it: "file" for const struct file *; "" when it has none */
	const struct btf_types *btf; /* that has its type; NULL: it is not known from BTF */
	u32 btf_id; /* of its type there */
	u8 size; /* bytes */
	u8 reg; /* register word that it begins in, 0 .. 5 = rdi rsi rdx rcx r8 r9; 0xff: on the stack */
	enum kernel_val_kind kind;
};

#define KERNEL_FUNC_MAX_PARAMS 16
struct kernel_func {
	struct kernel_val ret;
	u8 n_params;
	u8 n_regs; /* register words that its parameters take, 0 .. 6 */
	struct kernel_val params[KERNEL_FUNC_MAX_PARAMS];
};

/**
 * kernel_func_then - prototype of the function at call site @ip in @epoch, as kernel_sym_then() names it
 *
 * A ".isra.0" or ".constprop.0" suffix has no prototype of its own (its parameters may have changed). A
 * module's is looked up in the types that came with the module, and nowhere else: the kernel may have another
 * function of the name. Context: as kernel_sym_then(), for the strings and types too. Return: 0; -ENOENT the
 * types do not know it; -EUCLEAN the types make no sense.
 */
must_check int kernel_func_then(const struct kernel *k, u64 ip, u32 epoch, struct kernel_func *ret);

/** kernel_val_enumerator - name of @val in the enum that @v is of; NULL when it has none */
const char *kernel_val_enumerator(const struct kernel_val *v, s64 val);

/** kernel_percpu - address of CPU @cpu's copy of a per-CPU symbol (by __per_cpu_offset) */
must_check int kernel_percpu(const struct kernel *k, const char *name, u32 cpu, u64 *addr_ret);
/** kernel_percpu_gs - what to add to the GS base for it: the 32-bit displacement in %gs:disp32 */
must_check int kernel_percpu_gs(const struct kernel *k, const char *name, s32 *disp_ret);
u32 kernel_nr_cpu_ids(const struct kernel *k); /* possible CPUs: nr_cpu_ids */

size_t kernel_site_count(const struct kernel *k);
const struct ftrace_site *kernel_sites(const struct kernel *k); /* in the guest's own order */
/** kernel_site_use_mask - bits of dyn_ftrace.flags that say "the guest itself uses this site" */
u64 kernel_site_use_mask(const struct kernel *k);
/** kernel_site_at - the record of call site @ip; NULL when there is none */
const struct ftrace_site *kernel_site_at(const struct kernel *k, u64 ip);

/** kernel_module_count - loaded modules, as of the last kernel_refresh() */
size_t kernel_module_count(const struct kernel *k);
/** kernel_modules - that many, in the guest's own order */
const struct kernel_module *kernel_modules(const struct kernel *k);

/**
 * kernel_stale - have modules come or gone, or their state changed, since the last kernel_refresh()?
 *
 * By a walk of the guest's list: one word more or less for each. True also when it cannot be walked now.
 */
bool kernel_stale(const struct kernel *k);

/**
 * kernel_refresh - read modules and sites again (a module came or went, flags changed)
 *
 * Pointers from kernel_sites(), kernel_modules() and to modules' names are stale afterwards. Symbols of
 * modules that went away stay for kernel_sym_then(), up to a limit.
 */
must_check int kernel_refresh(struct kernel *k, struct err *err);

#endif
