// SPDX-License-Identifier: Apache-2.0
/*
 * A console whose counters the VMM sets as it likes. Properties: what is read is of the ring, a place never goes behind
 * what was said, and whoever reads on comes to the end.
 */
#include "base/console_ring.h"

#include <stdlib.h>
#include <string.h>

static struct console_ring writer, reader;
static u8 buf[CONSOLE_RING_BYTES];

static void must(bool what)
{
	if (!what)
		abort();
}

static void read_on(u64 at, size_t n)
{
	u64 end = console_ring_end(&reader), lost, from;
	size_t did, total = 0;

	do {
		from = at;
		did = console_ring_read(&reader, &at, buf, n, &lost);
		must(did <= n && at <= end && (!did || !lost));
		must(from > end ? at == end : at == from + did + lost);
		total += did;
	} while (did || lost);
	must(at == end && total <= CONSOLE_RING_BYTES);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t len);
int LLVMFuzzerTestOneInput(const u8 *data, size_t len)
{
	u64 in[4];
	u64 *counters;
	int fd;

	if (!writer.shared &&
	    (console_ring_create(&writer, &fd, NULL) || console_ring_open(&reader, fd)))
		abort();
	if (len < sizeof(in))
		return 0;
	memcpy(in, data, sizeof(in));
	counters = (u64 *)(void *)writer.shared;
	counters[1] = in[0]; /* begun */
	counters[2] = in[1]; /* done */
	must(console_ring_tail(&reader, in[2]) <= in[1]);
	read_on(in[3], 4096);
	read_on(console_ring_tail(&reader, in[2]), sizeof(buf));
	return 0;
}
