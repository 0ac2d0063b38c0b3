# SPDX-License-Identifier: Apache-2.0
"""A guest whose memory is copied away by somebody who cannot be asked: what runs on from the copy is as whole
as what we let go. QEMU with KVM and the small Linux, reached as any VMM's process; the copy is a file's."""

import os

from daemon import Daemon
from guest import Skip, wait_for
from qmp import Qmp
from testlib import LONG, main
from ways import SmallQemuGuest, SmallWay

TIMEOUT = 600
# some task is always inside of one of these; the rest is where everybody passes by
FILTERS = ["vfs_*", "ksys_*", "do_sys*", "hrtimer_*", "tty_*", "n_tty_*", "schedule*", "__x64_sys_*"]


class Source(SmallQemuGuest):
    """It is reached as any VMM's process; a monitor is the test's own."""

    @property
    def target(self):
        return f"pid:{self.pid}"

    def wait_ready(self):
        super().wait_ready()
        self.qmp = Qmp(str(self.qmp_path), 60)

    def status(self):
        return self.qmp.command("query-migrate")

    def begin_copy(self, path):
        """Returns when all of its RAM was sent once. It goes no further: nobody reads on until end_copy()."""
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        self.qmp.command("migrate-set-parameters", **{"max-bandwidth": 1 << 30, "downtime-limit": 1})
        self.qmp.command("migrate", uri=f"exec:dd bs=4k of={fifo} 2>/dev/null")
        self.stream, self.copy = open(fifo, "rb", buffering=0), open(path, "wb")  # pylint: disable=R1732
        while not self.was_sent():
            self.copy.write(self.stream.read(65536))
        self.assert_copying()

    def was_sent(self):
        """By what is left: firmware comes last."""
        ram = self.status().get("ram", {"remaining": 1, "total": 0})
        return ram["remaining"] <= ram["total"] - (self.mem << 20)

    def assert_copying(self):
        assert self.status()["status"] == "active", self.status()
        assert self.qmp.command("query-status")["running"]

    def end_copy(self):
        self.assert_copying()
        self.qmp.command("migrate-set-parameters", **{"downtime-limit": 20000})
        with self.stream, self.copy:
            while data := self.stream.read(1 << 20):
                self.copy.write(data)
        wait_for("it was copied", lambda: self.status()["status"] == "completed", 120)


class Destination(SmallQemuGuest):
    """What runs on from a copy."""

    def __init__(self, path, **more):
        super().__init__(extra=["-incoming", f"exec:cat {path}"], **more)

    def wait_ready(self):
        self.qmp = Qmp(str(self.qmp_path), 60)
        wait_for("it runs", self.runs, 60)

    def runs(self):
        return self.qmp.command("query-status")["status"] == "running"

    def assert_whole(self, before):
        self.do("open 20", 180)
        self.do("open 200", 180)
        assert self.runs(), self.console()
        self.assert_no_warnings()
        after = self.kernel_text()
        changed = [hex(self.symbols["_text"] + i) for i in range(len(after)) if before[i] != after[i]]
        assert not changed, f"{len(changed)} bytes of kernel text differ: {changed[:10]}"


def copied(tracer):
    with Source(timeout=TIMEOUT) as g, Daemon() as d:
        way, copy = SmallWay(g), g.dir / "copy"
        d.attach(g, "g")
        t = d.trace("g", FILTERS, tracer=tracer, mode="overwrite")["id"]
        way.open_files(20)
        g.begin_copy(copy)
        d.stop_trace(t)
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        g.end_copy()
        with Destination(copy, timeout=TIMEOUT) as to:
            to.assert_whole(way.before)


def test_returns():
    """
    All call sites were copied armed, and who waits inside of a traced function with a return address of ours
    on its stack; who copies knows nothing of our writing them back.
    """
    if not LONG:
        raise Skip("boots two guests where KVM emulates kernel code; HVF_LONG=1 asks for it")
    copied("function_graph")


def test_function():
    if not LONG:
        raise Skip("boots two more guests; HVF_LONG=1 asks for it")
    copied("function")


if __name__ == "__main__":
    main()
