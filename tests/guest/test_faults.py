# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every fault point of the engine, each in turn: the next start puts everything back."""

import pathlib
import re
import subprocess

from daemon import binary
from guest import Guest, wait_for
from testlib import LONG, first_kernel, main
from truth import Truth

PATCHER = pathlib.Path(__file__).resolve().parents[2] / "patcher"
# points that are passed again and again, in phases that differ: which time to die
TIMES = {
    "text.before_write": (1, 2, 3, 4, 5, 6),
    "text.after_write": (1, 2, 3, 4, 5, 6),
    "text.between_batches": (1, 2, 3, 5),
    "gate.armed": (1, 2, 3, 4, 5, 6, 7),
    "gate.done": (1, 2, 3, 4, 5, 6, 7),
    "gate.opened": (1, 2),
    "gate.code_journalled": (1, 2),
    "gate.sites_journalled": (1, 2),
    "gate.sites_back": (1, 2),
    "gate.code_back": (1, 2),
    "agent.borrowed": (1, 2),
    "agent.freed": (1, 2),
    "interlock.journalled": (1, 2, 3),
    "interlock.in": (1, 2, 3),
    "interlock.out": (1, 2, 3),
    "graph.switched": (1, 2, 3, 4),
    "graph.restored": (1, 2),
    "graph.settled": (1, 2),
}
# some that a task sleeps in, so that there is always a return to put back
FUNCTIONS = "@(vfs_*|hrtimer_nanosleep|do_wait)"
# set_memory_ro and set_memory_x one after the other: only before set_memory_rox (v6.2)
ONLY_OLD = ("agent.half_protected",)


def points(flavour):
    """Every fault point that the sources name, with the times to hit it."""
    names = set()
    for path in PATCHER.glob("*.c"):
        names |= set(re.findall(r'fault_point\("([^"]+)"\)', path.read_text()))
    assert len(names) > 15, names
    for name in sorted(names):
        if name.startswith("spare."):  # of our own VMM's guests
            continue
        if name in ONLY_OLD and flavour != "cloud-6.1":
            continue
        times = TIMES.get(name, (1,))
        for n in times if LONG else times[::3]:
            yield f"{name}:{n}"


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
        truth = Truth(g)
        state = g.dir / "state"
        areas = lent(truth)
        sites = kernel_sites(g)
        rows = []
        for point in points(flavour):
            run = subprocess.run([program, g.target, state, FUNCTIONS, "1", "800"],
                                 env={"HVF_FAULT": point}, capture_output=True, text=True,
                                 timeout=120, check=False)
            assert run.returncode == -9, f"{point} is not hit: {run.stdout}{run.stderr}"
            g.assert_alive(60)
            bad, _, _ = truth.changed(sites)
            run = subprocess.run([program, "--recover", state], capture_output=True, text=True,
                                 timeout=120, check=False)
            assert run.returncode == 0, f"after {point}: {run.stdout}{run.stderr}"
            left = [p.name for p in state.iterdir() if p.name.endswith(".journal")]
            assert not left, f"after {point}: {left}"
            try:
                truth.assert_untouched(sites, quiet=True)
            except AssertionError as e:
                raise AssertionError(f"after {point}: {e}") from e
            # vfree() unmaps at once, its area may wait for a flush
            wait_for(f"memory is back after {point}", lambda: lent(truth) == areas, 20)
            said = re.search(r"(\d+) records were not read, (\d+) more", run.stdout + run.stderr)
            armed = point.startswith(("arm.", "disarm.", "graph.switched", "graph.restored"))
            assert said or not armed, f"after {point}: no word on records: {run.stderr}"
            rows.append((point, "alive", f"{len(bad)} -> 0", "given back",
                         f"{said[1]} unread, {said[2]} refused: told" if said else "none were made"))
        g.assert_alive()
        g.assert_no_warnings()
        print(f"{flavour}: killed at {len(rows)} points, each time recovered by the next start")
        print(f"{'point':26} guest  sites changed  memory      records")
        for point, alive, text, memory, records in rows:
            print(f"{point:26} {alive:6} {text:14} {memory:11} {records}")


if __name__ == "__main__":
    main()
