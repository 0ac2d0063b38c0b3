# SPDX-License-Identifier: Apache-2.0
"""Points at which the engine can be killed: each is in one of two tables, and each table is printed.

A point is a fault_point("NAME") in patcher/*.c, compiled into attach_cycle_faults. ATTACHED are hit in a
guest of somebody else's (tests/guest/test_faults.py), OWN_VMM in one of our own VMM, which lends memory of
its own (tests/guest/test_small_kvm.py). tests/style/test_faults.py fails for one that is in neither.
Standard library only.
"""

import pathlib
import re
import subprocess

PATCHER = pathlib.Path(__file__).resolve().parents[2] / "patcher"

# which times to die; those that are passed again and again are so in phases that differ
ATTACHED = {
    "attach.journal": (1,),
    "gate.code_journalled": (1, 2),
    "gate.sites_journalled": (1, 2),
    "gate.armed": (1, 2, 3, 4, 5, 6, 7),
    "gate.opened": (1, 2),
    "gate.done": (1, 2, 3, 4, 5, 6, 7),
    "gate.sites_back": (1, 2),
    "gate.code_back": (1, 2),
    "agent.borrowed": (1, 2),
    "agent.written": (1,),
    "agent.half_protected": (1,),
    "agent.protected": (1,),
    "interlock.journalled": (1, 2, 3),
    "interlock.in": (1, 2, 3),
    "interlock.out": (1, 2, 3),
    "text.before_write": (1, 2, 3, 4, 5, 6),
    "text.after_write": (1, 2, 3, 4, 5, 6),
    "text.between_batches": (1, 2, 3, 5),
    "arm.journalled": (1,),
    "arm.done": (1,),
    "arm.more_journalled": (1,),
    "graph.switched": (1, 2, 3, 4),
    "disarm.start": (1,),
    "disarm.written": (1,),
    "graph.restored": (1, 2),
    "graph.settled": (1, 2),
    "graph.unloaded": (1,),
    "agent.rewritten": (1,),
    "agent.unprotected": (1,),
    "agent.freed": (1, 2),
    "detach.verified": (1,),
}
# set_memory_ro and set_memory_x one after the other: only before set_memory_rox (v6.2)
ONLY_OLD = ("agent.half_protected",)
# where the VMM's memory is lent, mapped, and given back; what is in the guest when one dies there
OWN_VMM = {
    "spare.lent_journalled": (1,),
    "spare.lent": (1,),
    "spare.journalled": (1,),
    "spare.mapped": (1,),
    "agent.written": (1,),
    "arm.done": (1,),
    "agent.freed": (1, 2),
    "spare.returned": (1,),
}


def in_sources(folder=PATCHER):
    """The names of all points that the sources have."""
    names = set()
    for path in sorted(folder.glob("*.c")):
        text = path.read_text()
        found = re.findall(r'\bfault_point\("([^"]+)"\)', text)
        assert len(found) == len(re.findall(r"\bfault_point\(", text)), f"{path}: a point with no plain name"
        names |= set(found)
    return names


def flat(table, leave_out=()):
    """NAME:N of each time to die."""
    return [f"{name}:{n}" for name, times in table.items() if name not in leave_out for n in times]


def die(program, target, state, functions, point, ms):
    """Traces the functions for some milliseconds, until killed at the point."""
    run = subprocess.run([program, target, state, functions, "1", str(ms)], env={"HVF_FAULT": point},
                         capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == -9, f"{point} is not hit: {run.stdout}{run.stderr}"


def recover_saying(program, state, point):
    """The next start, which leaves no journal; what it said."""
    run = subprocess.run([program, "--recover", state], capture_output=True, text=True, timeout=120,
                         check=False)
    assert run.returncode == 0, f"after {point}: {run.stdout}{run.stderr}"
    left = [p.name for p in pathlib.Path(state).iterdir() if p.name.endswith(".journal")]
    assert not left, f"after {point}: {left}"
    return run.stdout + run.stderr


def recover(program, state, point):
    """The same; (records that were not read, refused ones), or None where it tells of none."""
    said = re.search(r"(\d+) records were not read, (\d+) more", recover_saying(program, state, point))
    return (int(said[1]), int(said[2])) if said else None


class Table:
    """What became of the guest at each point."""

    def __init__(self, title):
        self.title, self.rows = title, []

    def add(self, point, changed, memory, records):
        """
        changed: what of kernel text differed while nobody was there; the caller has seen it restored
        records: recover()'s. None where no agent runs that could have made any, neither then nor since.
        """
        told = f"{records[0]} unread, {records[1]} refused: told" if records else "none to tell of"
        self.rows.append((point, "alive", f"{changed} changed -> 0", memory, told))

    def show(self):
        print(f"{self.title}: killed at {len(self.rows)} points, each time recovered by the next start")
        print(f"{'point':26} {'guest':6} {'text restored':22} {'memory':11} records accounted")
        for point, alive, text, memory, records in self.rows:
            print(f"{point:26} {alive:6} {text:22} {memory:11} {records}")
