# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every fault point of the engine, each in turn: the next start puts everything back."""

import struct
import subprocess
import zlib

from daemon import binary
from faults import ATTACHED, ONLY_OLD, Table, die, flat, recover, recover_saying
from guest import Guest, Skip, wait_for
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
        # every second one in the short run
        for point in list(points(flavour))[::1 if LONG else 2]:
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


class Killed:
    """Of one guest: an engine that dies at a point, and the journal that it leaves."""

    def __init__(self, g):
        self.g, self.truth, self.sites, self.state = g, Truth(g), kernel_sites(g), g.dir / "state"
        self.program, self.areas = binary("attach_cycle_faults"), lent(self.truth)

    def die(self, point):
        die(self.program, self.g.target, self.state, FUNCTIONS, point, 800)
        [journal] = self.state.glob("*.journal")
        return journal

    def recover(self, point):
        return recover_saying(self.program, self.state, point)

    def untouched(self, point):
        try:
            self.truth.assert_untouched(self.sites, quiet=True)
        except AssertionError as e:
            raise AssertionError(f"after {point}: {e}") from e
        wait_for(f"memory is back after {point}", lambda: lent(self.truth) == self.areas, 20)
        self.g.assert_alive(60)
        self.g.assert_no_warnings()


# records of a journal: u32 length, u32 type, u32 CRC-32 of type and payload; then the payload
ALLOC, TEXT, DATA = 5, 1, 2


def moved(journal, where):
    """The journal's bytes, with what is lent at other addresses."""
    out, at = journal[:8], 8
    while at < len(journal):
        size, kind, _ = struct.unpack_from("<III", journal, at)
        payload = journal[at + 12:at + 12 + size]
        if kind == ALLOC:
            what, pad, addr, length = struct.unpack("<IIQQ", payload)
            payload = struct.pack("<IIQQ", what, pad, where.get(what, addr) if addr else 0, length)
        out += struct.pack("<III", size, kind, zlib.crc32(struct.pack("<I", kind) + payload)) + payload
        at += 12 + size
    return out


def test_journal_of_another_time():
    """What it has as lent is not there, or is another's, as after a snapshot was loaded: nothing is freed."""
    if not LONG:
        raise Skip("dies and recovers many times; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1", mem=256) as g:
        k = Killed(g)
        # memory of the guest's own: mapped, not executable
        theirs = [a for a, end, line in k.truth.vmallocinfo()
                  if "module_alloc" not in line and end - a >= 0x5000 and "vmalloc" in line
                  and k.truth.walk(a)]
        assert len(theirs) >= 2, k.truth.vmallocinfo()
        for point in ("arm.done", "agent.written", "agent.borrowed:2", "gate.armed:2", "agent.freed:1"):
            journal = k.die(point)
            old = journal.read_bytes()
            k.recover(point)
            k.untouched(point)
            for new in (old, moved(old, {TEXT: theirs[0], DATA: theirs[1]}), moved(old, {TEXT: theirs[0]})):
                journal.write_bytes(new)
                said = k.recover(point)
                assert "not where the journal has it" in said, said
                k.untouched(point)
        assert "mixload: ok" in g.run("mixload 2", 120)
        k.untouched("all")


def test_gate_that_came_with_the_memory():
    """No journal has it, as after a snapshot that was taken while it was open: it is known by its code."""
    if not LONG:
        raise Skip("dies and recovers many times; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1", mem=256) as g:
        k = Killed(g)
        for point in ("interlock.journalled:1", "interlock.in:1", "gate.opened:1", "gate.armed:1",
                      "gate.sites_back:1"):
            k.die(point).unlink()
            assert k.truth.changed(k.sites)[2], "no gate is in: this test shows nothing"
            run = subprocess.run([k.program, g.target, k.state, FUNCTIONS, "1", "800"], env={},
                                 capture_output=True, text=True, timeout=240, check=False)
            assert run.returncode == 0, f"after {point}: {run.stdout}{run.stderr}"
            assert "a gate came with its memory" in run.stderr, run.stderr
            k.untouched(point)
        assert "mixload: ok" in g.run("mixload 2", 120)


if __name__ == "__main__":
    main()
