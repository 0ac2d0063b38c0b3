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
        if name in ONLY_OLD and flavour != "cloud-6.1":
            continue
        times = TIMES.get(name, (1,))
        for n in times if LONG else times[::3]:
            yield f"{name}:{n}"


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
        hit = 0
        for point in points(flavour):
            run = subprocess.run([program, g.target, state, FUNCTIONS, "1", "800"],
                                 env={"HVF_FAULT": point}, capture_output=True, text=True,
                                 timeout=120, check=False)
            assert run.returncode == -9, f"{point} is not hit: {run.stdout}{run.stderr}"
            hit += 1
            g.assert_alive(60)
            run = subprocess.run([program, "--recover", state], capture_output=True, text=True,
                                 timeout=120, check=False)
            assert run.returncode == 0, f"after {point}: {run.stdout}{run.stderr}"
            left = [p.name for p in state.iterdir() if p.name.endswith(".journal")]
            assert not left, f"after {point}: {left}"
            try:
                truth.assert_untouched([], quiet=True)
            except AssertionError as e:
                raise AssertionError(f"after {point}: {e}") from e
            # vfree() unmaps at once, its area may wait for a flush
            wait_for(f"memory is back after {point}", lambda: lent(truth) == areas, 20)
        g.assert_alive()
        g.assert_no_warnings()
        print(f"{flavour}: died at {hit} points, everything put back each time")


if __name__ == "__main__":
    main()
