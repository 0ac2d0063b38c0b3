# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every fault point of the engine, each in turn: the next start puts everything back."""

from daemon import binary
from faults import ATTACHED, ONLY_OLD, Table, die, flat, recover
from guest import Guest, wait_for
from testlib import LONG, first_kernel, main
from truth import Truth

# some that a task sleeps in, so that there is always a return to put back
FUNCTIONS = "@(vfs_*|hrtimer_nanosleep|do_wait)"


def points(flavour):
    leave_out = ONLY_OLD if flavour != "cloud-6.1" else ()
    if LONG:
        return flat(ATTACHED, leave_out)
    return flat({name: times[::3] for name, times in ATTACHED.items()}, leave_out)


def kernel_sites(g):
    """Call sites by the guest's own word: its filter functions' addresses, or the byte after endbr64."""
    start, text = g.kernel_text()
    out = []
    for a in {a for aa in g.symbols().values() for a in aa}:
        off = a - start
        if not 0 <= off < len(text) - 16:
            continue
        off += 4 if text[off:off + 4] in (b"\xf3\x0f\x1e\xfa", b"\x66\x0f\x1f\x00") else 0
        if text[off:off + 5] == b"\x0f\x1f\x44\x00\x00":
            out.append(start + off)
    return sorted(out)


def lent(truth):
    """Areas that the module allocator gave."""
    return {(a, end) for a, end, line in truth.vmallocinfo()
            if "module_alloc" in line or "execmem" in line}


@first_kernel
def test_every_point(flavour):
    program = binary("attach_cycle_faults")
    with Guest(flavour) as g:
        g.run("for i in 1 2 3; do (while :; do sleep 0.3; done) > /dev/null & done; true")
        truth = Truth(g)
        state = g.dir / "state"
        areas = lent(truth)
        sites = kernel_sites(g)
        table = Table(flavour)
        for point in points(flavour):
            die(program, g.target, state, FUNCTIONS, point, 800)
            g.assert_alive(60)
            bad, _, _ = truth.changed(sites)
            records = recover(program, state, point)
            try:
                truth.assert_untouched(sites, quiet=True)
            except AssertionError as e:
                raise AssertionError(f"after {point}: {e}") from e
            # vfree() unmaps at once, its area may wait for a flush
            wait_for(f"memory is back after {point}", lambda: lent(truth) == areas, 20)
            armed = point.startswith(("arm.", "disarm.", "graph.switched", "graph.restored"))
            assert records or not armed, f"after {point}: no word on records"
            table.add(point, f"{len(bad)} sites", "given back", records)
        g.assert_alive()
        g.assert_no_warnings()
        table.show()


if __name__ == "__main__":
    main()
