/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RAM of a guest of ours: one memfd, mapped once, with a hole below 4 GiB where devices are.
 *
 *   gpa    0 |------ low ------| 3 GiB ...hole... 4 GiB |------ high ------|
 *   host     [ low | high ]                              contiguous, so other processes find it easily
 *
 * What a guest names by address goes through mem_at() or the copies; no other way leads into its RAM.
 * The guest writes to it at any time: what was checked is copied out first.
 */
#ifndef MACHINE_MEM_H
#define MACHINE_MEM_H

#include "base/err.h"
#include "base/types.h"

#define MEM_HOLE_START (3ull << 30)
#define MEM_HOLE_END   (4ull << 30)
#define MEM_MIN_BYTES  (16ull << 20)
#define MEM_MAX_BYTES  (4ull << 40)

struct guest_mem {
	u8 *base; /* NULL: none */
	u64 len; /* all of it, without the hole */
	int fd;
};

/**
 * mem_init - make a guest's RAM, all zeros; the host gives pages as they are touched
 * @len: bytes, a multiple of 4 KiB, MEM_MIN_BYTES to MEM_MAX_BYTES
 *
 * Context: any thread. Return: 0; -EINVAL @len; -ENOMEM; a system error of memfd_create(2) or mmap(2).
 */
must_check int mem_init(struct guest_mem *m, u64 len, struct err *err);
void mem_deinit(struct guest_mem *m);

/** mem_low_bytes - how much RAM lies below the hole */
u64 mem_low_bytes(const struct guest_mem *m);

/** mem_high_bytes - how much lies from MEM_HOLE_END on; 0 when all fits below the hole */
u64 mem_high_bytes(const struct guest_mem *m);

/* What was in RAM once: its pages that held anything. */
struct mem_copy {
	struct mem_run {
		u64 off, len; /* bytes, in RAM without the hole */
	} * run;
	u32 n_runs;
	u8 *bytes; /* of all runs, one after another; a mapping */
	u64 len;
};

/**
 * mem_save - keep a copy of RAM as it is now, of pages that are not all zeros
 *
 * Context: nobody writes to it meanwhile. Return: 0; -ENOMEM. mem_copy_deinit() is fine after a failure.
 */
must_check int mem_save(const struct guest_mem *m, struct mem_copy *ret, struct err *err);
void mem_copy_deinit(struct mem_copy *c);

/** mem_restore - RAM is again as it was at mem_save(), all else zeros; the host has its pages back */
must_check int mem_restore(const struct guest_mem *m, const struct mem_copy *c, struct err *err);

/**
 * mem_at - host address of guest physical [@addr, @addr + @len)
 *
 * Context: any thread. Return: NULL unless all of it is RAM in one piece; @len 0 is refused, too.
 */
void *mem_at(const struct guest_mem *m, gpa_t addr, u64 len);

/** mem_read / mem_write - copy out of or into RAM; false, and nothing is copied, outside of it */
must_check bool mem_read(const struct guest_mem *m, gpa_t addr, void *buf, u64 len);
must_check bool mem_write(const struct guest_mem *m, gpa_t addr, const void *buf, u64 len);

#endif
