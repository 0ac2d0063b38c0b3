# SPDX-License-Identifier: Apache-2.0
"""Breakpoints and single steps in guests of our own VMM, by its control socket and by signal."""

import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

from bare import TWO, Bare, Vmm, order, type_to
from daemon import binary
from guest import die_with_parent, wait_for
from small import Control, need_kvm
from testlib import main

ORDER = signal.SIGRTMIN + 1
NONE, TAKEN, ARMED, HIT, OVER = range(5)  # base/debug_page.h
TOLD, NO_KVM, DR7, FULL, STUCK, FAILED, RESET, EXPIRED = range(8)
HOLD_S = 5
ROUNDS = 30


class Two:
    """A guest with two vCPUs that come to `mark` when they are told to; says again what it was told."""

    def __init__(self, g, p):
        self.pid, self.process, self.symbols = p.pid, p, g.symbols()
        self.control_path = f"{g.dir.name}/control"
        self.control = Control(self.control_path)
        self.keyboard = type_to(f"{g.dir.name}/input")
        self.mark = self.symbols["mark"]
        self.traps = 0  # of the guest's own
        self.say("ab")  # both vCPUs are there

    def type(self, text):
        self.keyboard.sendall(text.encode())

    def hear(self, text):
        got = b""
        while len(got) < len(text):
            more = self.process.stdout.read(len(text) - len(got))
            assert more, (got, text)
            got += more
        assert got.decode() == text

    def say(self, text):
        self.type(text)
        self.hear(text)

    def ok(self, command):
        assert self.control.ask(command) == "ok", command

    def stands(self):
        """The console takes what is typed, and nobody hears it."""
        self.type("x")
        time.sleep(0.2)
        os.set_blocking(self.process.stdout.fileno(), False)
        assert self.process.stdout.read() is None
        os.set_blocking(self.process.stdout.fileno(), True)

    def page(self):
        maps = pathlib.Path(f"/proc/{self.pid}/maps").read_text()
        base = int(re.search("^([0-9a-f]+)-.*memfd:hvftrace-debug", maps, re.M).group(1), 16)
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
            f.seek(base)
            names = "version seq orders state reason addr until_ns vcpu".split()
            return dict(zip(names, struct.unpack("<IIQIIQQI", f.read(44))))

    def order(self, addr):
        order(self.process, ORDER, addr)

    def wait_state(self, state):
        wait_for(f"state {state}", lambda: self.page()["state"] == state)
        return self.page()


@contextlib.contextmanager
def two():
    need_kvm()
    with Bare(TWO) as g:
        with Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--cpus", "2", "--input",
                  f"{g.dir.name}/input", "--control", f"{g.dir.name}/control"], stdin=subprocess.DEVNULL,
                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                 preexec_fn=die_with_parent) as p:
            t = Two(g, p)
            yield t
            t.type("q")
            assert p.wait(timeout=20) == 2 * (4 + t.traps) + 1


def test_the_right_vcpu_at_the_right_place():
    """Held there, stepped from instruction to instruction, and on; the breakpoint stays."""
    with two() as t:
        places = [t.symbols[f"mark{i}"] for i in range(1, 6)]
        assert t.control.ask("go") == t.control.ask("step") == "error no breakpoint holds the guest"
        t.ok(f"break {t.mark:x}")
        t.ok(f"break 0x{t.mark:X}".replace("0X", "0x"))
        for i in range(ROUNDS):
            vcpu = i % 2
            t.type("ab"[vcpu])
            assert t.control.event() == f"vCPU {vcpu} is at the breakpoint {t.mark:#x}: the guest is held"
            assert t.control.ask("status") == \
                f"ok life 1 console_lost 0 held_vcpu {vcpu} held_at {t.mark:x}"
            before = t.control.registers(f"registers {vcpu}")
            assert before["rip"] == t.mark
            other = t.control.registers(f"registers {1 - vcpu}")
            if i < 4:
                t.stands()
            if i % 4 < 2:  # one of them does a port of the host's: the guest is one instruction further, too
                got = [t.control.ask(f"step {vcpu}") for _ in places]
                assert got == [f"ok vcpu {vcpu} rip {at:x}" for at in places], got
                after = t.control.registers(f"registers {vcpu}")
                assert (after["rip"], after["rbx"]) == (places[-1], before["rbx"] + 1)
            same = t.control.registers(f"registers {1 - vcpu}")
            assert dict(other, window_ns=0) == dict(same, window_ns=0)
            t.ok("go")
            t.hear("ab"[vcpu] if i >= 4 else "ab"[vcpu] + "x")
        # the other one by itself, as long as the first is held
        t.type("a")
        assert t.control.event().startswith("vCPU 0 is at")
        ips = {int(t.control.ask("step 1").split()[-1], 16) for _ in range(20)}
        assert len(ips) == 3 and min(ips) > places[-1], ips
        assert t.control.ask("step 2") == "error the guest has vCPUs 0 to 1"
        t.ok(f"unbreak {t.mark:x}")
        assert t.control.ask(f"unbreak {t.mark:x}") == f"error there is no breakpoint at {t.mark:#x}"
        t.ok("go")
        t.hear("a")
        t.say("abab")
        for bad in ("break", "break x", "break 0x", "break 11112222333344445", "unbreak", "step x", "gone"):
            assert t.control.ask(bad).startswith("error commands are"), bad


def test_a_guest_that_uses_them_itself():
    """Refused, and nothing changed; given up when the guest begins to. Its own traps reach it."""
    with two() as t:
        t.say("d")
        assert t.control.ask(f"break {t.mark:x}") == "error the guest uses debug registers of vCPU 0 itself"
        t.order(t.mark)
        assert t.wait_state(OVER)["reason"] == DR7
        t.say("abte")
        for _ in range(ROUNDS):
            t.ok(f"break {t.mark:x}")
            t.type("a")
            assert t.control.event().startswith("vCPU 0 is at")
            t.ok("go")
            t.hear("a")
            t.say("t")
            t.type("d")
            assert t.control.event() == "the guest uses its debug registers: breakpoints are given up"
            t.hear("d")
            t.say("abe")
        t.order(t.symbols["never"])
        t.wait_state(ARMED)
        t.say("d")
        assert t.wait_state(OVER)["reason"] == DR7
        t.say("e")
        for i in range(4):
            t.ok(f"break {t.symbols['never'] + i:x}")
        assert t.control.ask(f"break {t.mark:x}") == \
            "error there are 4 breakpoints already, and the CPU has no more"
        t.traps = 1 + ROUNDS


def test_the_next_life():
    """A reset ends a hold; what was set by the control socket is in the next life, too; an order is not."""
    with two() as t:
        t.ok(f"break {t.mark:x}")
        for life in range(2, 8):
            if life % 2:
                t.type("a")
                assert t.control.event().startswith("vCPU 0 is at")
            t.ok("reset")
            assert t.control.event() == f"the guest was reset by its control socket: life {life}"
            t.type("b")
            assert t.control.event().startswith("vCPU 1 is at")
            assert t.control.ask("status").startswith(f"ok life {life} ")
            t.ok("go")
            t.hear("b")
        t.ok(f"unbreak {t.mark:x}")
        for before in (ARMED, HIT):
            t.order(t.mark)
            t.wait_state(ARMED)
            if before == HIT:
                t.type("a")
                t.wait_state(HIT)
                t.control.event()
            t.ok("reset")
            t.control.event()
            page = t.page()
            assert (page["state"], page["reason"]) == (OVER, RESET), page
            t.say("ab")


def test_who_set_them_leaves():
    """Nobody else may meddle; with the client its breakpoints go, and the guest that one holds runs on."""
    with two() as t:
        t.ok(f"break {t.mark:x}")
        other = Control(t.control_path)
        for command in (f"break {t.mark + 3:x}", f"unbreak {t.mark:x}", "step", "go"):
            assert other.ask(command) == "error another client has set breakpoints", command
        t.type("b")
        assert t.control.event() == other.event()
        t.control.socket.close()
        t.control.lines.close()
        t.hear("b")
        t.control = other
        wait_for("they are gone", lambda: other.ask(f"break {t.mark:x}") == "ok")
        t.type("a")
        assert other.event().startswith("vCPU 0 is at")
        t.ok("go")
        t.hear("a")


def test_by_order():
    """Once, told by the page; a hold that nobody takes over ends by itself; no value, no order."""
    with two() as t:
        page = t.page()
        assert (page["version"], page["state"], page["orders"]) == (1, NONE, 0), page
        for i in range(ROUNDS):
            vcpu = i % 2
            t.order(t.mark)
            t.wait_state(ARMED)
            t.type("ab"[vcpu])
            page = t.wait_state(HIT)
            assert (page["addr"], page["vcpu"], page["orders"]) == (t.mark, vcpu, 2 * i + 1), page
            assert t.control.registers(f"registers {vcpu}")["rip"] == t.mark
            assert t.control.event().startswith(f"vCPU {vcpu} is at")
            t.order(0)
            page = t.wait_state(OVER)
            assert page["reason"] == TOLD, page
            t.hear("ab"[vcpu])
            t.say("ab")  # it was for once
        t.order(t.mark)
        t.wait_state(ARMED)
        start = time.monotonic()
        t.type("b")
        page = t.wait_state(HIT)
        assert 0 < page["until_ns"] - time.clock_gettime_ns(time.CLOCK_MONOTONIC) <= HOLD_S * 10**9, page
        os.kill(t.pid, ORDER)
        t.stands()
        assert t.page() == page
        t.hear("b")
        took = time.monotonic() - start
        assert HOLD_S - 0.5 < took < HOLD_S + 3, took
        t.hear("x")
        assert t.wait_state(OVER)["reason"] == EXPIRED
        t.control.event()
        assert t.control.event().startswith("nobody asked for more in time")
        # one that is held can be ended by another order
        t.order(t.mark)
        t.wait_state(ARMED)
        t.type("a")
        t.wait_state(HIT)
        t.order(t.symbols["never"])
        t.hear("a")
        assert t.page()["state"] == ARMED


if __name__ == "__main__":
    main()
