// SPDX-License-Identifier: Apache-2.0
/* Proof of where lent memory is. See lent.h. */
#include "patcher/lent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "patcher/gate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CHUNK (64u << 10)

/* Not 0, which most pages that are not in use have. */
static u8 some_byte(void)
{
	u8 b;

	if (getrandom(&b, sizeof(b), 0) != sizeof(b))
		b = (u8)(monotonic_ns() >> 4);
	return b ? b : 0x3d;
}

static bool all_are(const u8 *p, size_t n, u8 b)
{
	return p[0] == b && memcmp(p, p + 1, n - 1) == 0;
}

int lent_prove(struct gate *gate, struct guest *g, u64 addr, u64 bytes, struct err *err)
{
	_cleanup_free_ u8 *chunk = NULL;
	u8 with = some_byte();
	const u64 args[4] = { addr, with, bytes };
	u64 fn;
	int rc;

	if (!vm_ram_guessed(g->vm))
		return 0;
	chunk = malloc(CHUNK);
	if (!chunk)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to look at lent pages");
	if (kernel_sym(g->k, "memset", &fn))
		return err_set(err, -ENOENT, ERR_GUEST_UNSUPPORTED, 0, "this kernel has no memset");
	rc = gate_call(gate, fn, args, NULL, err);
	for (u64 off = 0; !rc && off < bytes; off += CHUNK) {
		size_t n = (size_t)MIN(bytes - off, (u64)CHUNK);

		rc = guest_read(g, addr + off, chunk, n, err);
		if (!rc && !all_are(chunk, n, with))
			rc = err_set(
				err, -EFAULT, ERR_GUEST_MEMORY, addr + off,
				"what the guest writes to 0x%llx is not where its VMM's memory was "
				"taken to have it: nothing was written there",
				(unsigned long long)(addr + off));
	}
	return rc;
}
