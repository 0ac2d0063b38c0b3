# SPDX-License-Identifier: Apache-2.0
"""QEMU's monitor is left to others while we are attached and ask nothing. No kernel is booted."""

import contextlib
import os
import subprocess
import tempfile

from daemon import binary
from guest import Skip, die_with_parent, wait_for
from qmp import Qmp
from testlib import main


class Qemu:
    """One that runs its firmware, with a monitor that is fought for and one of the test's."""

    def __init__(self, stack, accel):
        self.dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvf-monitor-"))
        self.path = f"{self.dir}/qmp"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", accel, "-smp", "2", "-m", "128", "-display", "none",
             "-nodefaults", "-qmp", f"unix:{self.path},server=on,wait=off",
             "-qmp", f"unix:{self.dir}/own,server=on,wait=off"],
            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)
        self.qmp = Qmp(f"{self.dir}/own")
        stack.callback(self.qmp.close)

    def another(self):
        """Another client of the monitor: greeted within a second, or TimeoutError."""
        return contextlib.closing(Qmp(self.path, timeout=1))


class Windows:
    """tests/guest/vm_windows: attached until it is closed."""

    def __init__(self, stack, target):
        self.process = subprocess.Popen([binary("vm_windows"), target], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)
        self.is_attached = self.process.stdout.readline().strip()

    def ask(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def detach(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def stops_and_ends(q, w):
    """What becomes of the VMM is seen by the next command, as ever."""
    q.qmp.command("stop")
    assert w.ask(1) == "0 stopped guest.stopped"
    q.qmp.command("cont")
    assert w.ask(1) == "1 running -"
    q.qmp.command("system_reset")
    assert w.ask(1) == "1 running -"
    q.process.kill()
    q.process.wait()
    assert w.ask(1) == "0 gone vmm.gone"


def test_kvm():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise Skip("no KVM")
    with contextlib.ExitStack() as stack:
        q = Qemu(stack, "kvm")
        w = Windows(stack, f"qemu:{q.path}")
        assert w.is_attached == "kvm 2", w.is_attached
        for _ in range(3):
            with q.another() as other:
                assert other.command("query-status")["running"]
            assert w.ask(5) == "5 running -"
        # one that stays: windows go on by what is known of the threads
        with q.another():
            assert w.ask(3) == "3 running -"
        wait_for("it is ours again", lambda: w.ask(1) == "1 running -", 20)
        stops_and_ends(q, w)


def test_tcg():
    with contextlib.ExitStack() as stack:
        q = Qemu(stack, "tcg")
        w = Windows(stack, f"qemu:{q.path}")
        assert w.is_attached == "tcg 2", w.is_attached
        with q.another() as other:
            assert other.command("query-status")["running"]
        # from the first window on the stub is open, and who else has the monitor might not let us let go
        assert w.ask(5) == "5 running -"
        try:
            with q.another():
                raise AssertionError("the monitor was left while a gdbstub of ours is open")
        except TimeoutError:
            pass
        w.detach()
        with q.another() as other:
            assert [c for c in other.command("query-chardev") if c["label"] == "gdb"] == []
        w = Windows(stack, f"qemu:{q.path}")
        assert w.ask(1) == "1 running -"
        stops_and_ends(q, w)


if __name__ == "__main__":
    main()
