/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where guest RAM lies in a VMM that tells nobody: candidates from its memory map, and the choice
 * among them by what the guest's own memory says.
 */
#ifndef VMM_LAYOUT_H
#define VMM_LAYOUT_H

#include "vmm/proc.h"

struct vm;

#define LAYOUT_MAX_PIECES     2
#define LAYOUT_MAX_CANDIDATES 24

/* One way to see host memory as guest RAM. piece[0] begins at physical 0. */
struct layout {
	size_t n;
	struct {
		u64 gpa, hva, len;
	} piece[LAYOUT_MAX_PIECES];
};

/* A range of usable RAM in the guest's own firmware map. */
struct e820_ram {
	u64 start, end;
};

/**
 * layout_candidates - the ways in which the largest writable mappings can be guest RAM, best first
 * @q35: QEMU's q35 board: RAM below 4 GiB ends at 2 GiB once there are 2.75 GiB
 *
 * Return: how many were written to @ret, at most LAYOUT_MAX_CANDIDATES; 0 when nothing fits.
 */
size_t layout_candidates(const struct proc_maps *maps, bool q35, struct layout *ret);

/**
 * layout_parse_e820 - usable RAM from a Linux boot_params page
 * @page:  4096 bytes that may be one
 * @ret:   at least 128
 *
 * Return: how many ranges; 0 when the page is no boot_params or its table makes no sense.
 * Source: Documentation/arch/x86/zero-page.rst, v6.12.
 */
size_t layout_parse_e820(const u8 *page, struct e820_ram *ret);

/**
 * layout_parse_pvh - usable RAM from what a PVH kernel was given
 * @low: guest RAM from physical 0 on, @len bytes of it
 * @at:  where a struct hvm_start_info may begin
 * @ret: at least 128
 *
 * Return: how many ranges; 0 when there is none, its map is not within @low, or makes no sense.
 * Source: Xen xen/include/public/arch-x86/hvm/start_info.h, version 1.
 */
size_t layout_parse_pvh(const u8 *low, u64 len, u64 at, struct e820_ram *ret);

/** layout_matches_e820 - does @c hold all of the guest's RAM, and no more than its top? */
bool layout_matches_e820(const struct layout *c, const struct e820_ram *ram, size_t n);

/**
 * layout_guess - fill @vm's RAM from the memory map of its process
 *
 * Where there is more than one way to see it, the guest's own memory map must say which is right: what is written
 * by a wrong one goes to other pages of the guest. Return: 0; -ENODEV (target.not_a_vmm); -ESRCH; -EACCES.
 */
must_check int layout_guess(struct vm *vm, struct err *err);

#endif
