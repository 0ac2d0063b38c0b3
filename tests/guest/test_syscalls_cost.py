# SPDX-License-Identifier: Apache-2.0
"""
What tracing every system call adds to one, on the same work in one run on one guest: the tracer syscalls,
with arguments and the memory that they point to; the guest's own events raw_syscalls and syscalls, which
trace-cmd and perf trace are made of, into its own buffer; and strace. In processor time of QEMU, as what
else the machine does hardly counts then; under TCG, so it is their ratio that counts.
"""

import pathlib

from daemon import Daemon
from guest import Guest, Skip
from testlib import LONG, first_kernel, main
from truth import attach

CALLS = 200_000 if LONG else 40_000
ROUNDS = 5 if LONG else 2
WORK = "getppid", "write", "open"
TRACING = "/sys/kernel/tracing"


def cpu_ns(g):
    """What QEMU's threads have run."""
    tasks = pathlib.Path(f"/proc/{g.pid}/task").glob("*/schedstat")
    return sum(int(t.read_text().split()[0]) for t in tasks)


def one(g, n, what, tracer=""):
    before = cpu_ns(g)
    g.run(f"{tracer} syscallmem cost {n} {what}", 120)
    return cpu_ns(g) - before


def work(g, n=CALLS, tracer=""):
    """ns a call, of each kind: what the program and the shell take is taken off."""
    one(g, n // 4, "write", tracer)  # code that is not translated yet
    return [(one(g, n, what, tracer) - one(g, 1, what, tracer)) / n for what in WORK]


def own_events(g, events):
    g.run(f"cd {TRACING}; echo 1 >events/{events}/enable; echo 1 >tracing_on", 60)
    try:
        return work(g)
    finally:
        g.run(f"cd {TRACING}; echo 0 >events/{events}/enable; echo >trace", 60)


def ours(g, d):
    t = d.trace("g", tracer="syscalls", mode="overwrite")["id"]
    try:
        return work(g)
    finally:
        d.stop_trace(t)
        d.delete(f"/v1/traces/{t}")


def strace(g):
    """It stops the program twice a call: fewer will do."""
    if g.sh("strace -V")[0] != 0:
        return None
    return work(g, 400, "strace -f -o /dev/null")


@first_kernel
def test_cost(flavour):
    if not LONG:
        raise Skip("times calls for half a minute; HVF_LONG=1 asks for it")
    with Guest(flavour, load="none", thread="single") as g, Daemon() as d:
        attach(g, d)
        times = {}
        for _ in range(ROUNDS):  # in turn, so that what else the machine does hits all alike
            for name, run in (("untraced", lambda: work(g)), ("ours", lambda: ours(g, d)),
                              ("raw_syscalls", lambda: own_events(g, "raw_syscalls")),
                              ("syscalls", lambda: own_events(g, "syscalls"))):
                times.setdefault(name, []).append(run())
        slow = strace(g)
        g.assert_no_warnings()
    # the least of all rounds: what else the machine does only adds to it
    best = {name: [min(column) for column in zip(*rows)] for name, rows in times.items()}
    if slow:
        best["strace"] = slow
    added = {name: [t - u for t, u in zip(row, best["untraced"])] for name, row in best.items()}
    print(f"{flavour}: ns added to a call  " + "  ".join(f"{w:>12}" for w in WORK))
    for name, row in added.items():
        shown = best["untraced"] if name == "untraced" else row
        print(f"  {name:>24}  " + "  ".join(f"{t:12.0f}" for t in shown))
    # a call as such
    assert 0 < added["ours"][0] < min(added["raw_syscalls"][0], added["syscalls"][0]), added
    # write() and openat() have what they point to with us, which neither of the others reads: that costs more
    total = {name: sum(row) for name, row in added.items()}
    assert total["ours"] < 2 * total["raw_syscalls"], total
    assert not slow or total["ours"] < total["strace"] / 10, total


if __name__ == "__main__":
    main()
