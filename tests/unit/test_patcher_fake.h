/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of a few pages of memory for tests of patcher/: a kernel's text with call sites, the agent's text and data.
 * The linker has the functions of vmm/ and symbols/ that it stands for called here instead: see CMakeLists.txt.
 */
#ifndef TESTS_PATCHER_FAKE_H
#define TESTS_PATCHER_FAKE_H

#include "patcher/guest_priv.h"
#include "symbols/kernel.h"
#include "vmm/vm.h"

#define KERNEL      0xffffffff81000000ull
#define PREPARE     (KERNEL + 0x2000) /* ftrace_arch_code_modify_prepare() */
#define HOOK        (PREPARE + 7) /* its call that takes text_mutex */
#define LOCK        (KERNEL + 0x3000) /* mutex_lock() */
#define CAVE        (KERNEL + 0x3f00)
#define FAKE_ETEXT  (KERNEL + 0x3ab5)
#define MUTEX       0xffffffff82000040ull
#define NOTES       0xffffffff82001000ull /* vmcoreinfo_data */
#define BOX         (NOTES + PAGE_SIZE - 128)
#define TEXT        0xffffffffc0400000ull
#define DATA        0xffffffffc0800000ull
#define N_SITES     6u
#define FAKE_PIECES 4u
#define MAX_LOG     512u

/* Its memory. */
struct fake_piece {
	u64 addr;
	bool executable;
	size_t len;
	u8 bytes[0x4000];
};
extern struct fake_piece fake_pieces[FAKE_PIECES];

struct fake_state {
	struct ftrace_site sites[N_SITES];
	u64 written[MAX_LOG]; /* text, in this order */
	size_t n_written;
	bool paused;
	struct guest g;
	char dir[32];
};
extern struct fake_state fake;

extern const u8 fake_nop[MCOUNT_INSN_SIZE];

/* All at rest, with a journal in which nothing is. */
int fake_setup(void **state);
int fake_teardown(void **state);

/* Where the host has @len bytes at @addr; NULL: not mapped */
u8 *fake_at(u64 addr, size_t len);
/* Call site @i */
u64 fake_site(size_t i);
bool fake_at_rest(size_t i);
/* Puts a call there; is there one? */
void fake_call(u64 from, u64 to);
bool fake_calls(u64 from, u64 to);
/* When was the text at @addr written? */
size_t fake_when(u64 addr);
/* One more in the journal, of @kind; how many there are */
void fake_note(u64 addr, u64 old_target, u64 new_target, enum journal_kind kind);
size_t fake_n_noted(enum journal_kind kind);
/* The journal has an agent */
void fake_lend(u64 text_bytes, u64 data_bytes);

#endif
