# SPDX-License-Identifier: Apache-2.0
"""
What tracing every system call adds to one, beside the tools that do it inside of the guest, on the same work,
in turns, in one run on one guest: the tracer syscalls, with what arguments point to and without (raw);
Debian's `trace-cmd record` of the events raw_syscalls and syscalls, Debian's `perf trace`, both of all tasks
and into a file; and strace.

How it is counted: the guest has two vCPUs, each a thread of QEMU's. The program that calls has the first one
for itself, the tools have the other. What the first thread runs more than without a tracer, divided by the
number of calls, is what the program pays: column "program". What all the rest runs more, until it is quiet
again, is "beside it": recorders, decoders and writers of the tools in the guest, and the daemon on the host.
In processor time, as what else the machine does hardly counts then; under TCG, so it is their ratio that
counts. Rings of all are large enough for nothing to be lost, which would be cheaper; that nothing was is
looked at.

What each records: ours number, arguments, result, times, task, user, cgroup, and what arguments point to: of
write() the first 32 bytes, of openat() the path. raw of ours and raw_syscalls: number, arguments, result,
task. syscalls: a call's own arguments, in 6.1 and 6.12 without what they point to. perf trace: raw_syscalls,
decoded to text. strace: what ours does, decoded to text.
"""

import os
import pathlib
import re
import statistics
import tempfile
import time

from daemon import Daemon
from guest import Guest, Skip, kernel_dir, wait_for
from hostprograms import initramfs_with
from testlib import LONG, first_kernel, main
from truth import attach

CALLS = 60_000
ROUNDS = 3
WORK = "getppid", "write", "open"
TRACING = "/sys/kernel/tracing"
QUIET_S = 0.1


def ran_ns(task):
    try:
        return int(pathlib.Path(f"{task}/schedstat").read_text().split()[0])
    except OSError:
        return 0


class Bed:
    def __init__(self, g, d):
        self.g, self.d = g, d
        first = next(c for c in g.qmp.command("query-cpus-fast") if c["cpu-index"] == 0)
        self.program = pathlib.Path(f"/proc/{g.pid}/task/{first['thread-id']}")
        self.pin()

    def pin(self):
        """The program's vCPU has a host CPU for itself, too: what caches lose to others would be counted."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) > 1:
            for pid in self.g.pid, self.d.pid:
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(task.name), cpus[:1] if task == self.program else cpus[1:])

    def ran(self):
        """What the program's vCPU has run, and all the rest."""
        tasks = [t for pid in (self.g.pid, self.d.pid)
                 for t in pathlib.Path(f"/proc/{pid}/task").glob("*") if t != self.program]
        return ran_ns(self.program), sum(map(ran_ns, tasks))

    def quiet(self):
        """Until the tools have done what is theirs."""
        def is_quiet():
            before = self.ran()[1]
            time.sleep(QUIET_S)
            return self.ran()[1] - before < 0.15 * QUIET_S * 1e9
        wait_for("tools are done", is_quiet, 120)

    def one(self, n, what, prefix=""):
        before = self.ran()
        self.g.run(f"taskset 1 {prefix} syscallmem cost {n} {what}", 120)
        self.quiet()
        return [b - a for a, b in zip(before, self.ran())]

    def work(self, n=CALLS, prefix=""):
        """{what: (program, beside it)}, ns a call: what else is run and done is taken off."""
        self.one(n // 10, "write", prefix)  # code that is not translated yet
        return {what: [(b - a) / (n - n // 10) for a, b in zip(self.one(n // 10, what, prefix),
                                                              self.one(n, what, prefix))]
                for what in WORK}


def untraced(b):
    return b.work()


def ours(b, **options):
    t = b.d.trace("g", tracer="syscalls", mode="discard", buffer_records=1 << 20, **options)["id"]
    try:
        times = b.work()
    finally:
        lost = b.d.stop_trace(t)["lost"]
        b.d.delete(f"/v1/traces/{t}")
    assert lost == 0, lost
    return times


def in_background(b, command, ready):
    """Of the second vCPU, until it is stopped; returns what was measured meanwhile."""
    # it may be sent twice: see Guest.sh()
    b.g.run(f"[ ! -e /tmp/tool/pid ] || kill -KILL $(cat /tmp/tool/pid); rm -rf /tmp/tool; mkdir /tmp/tool; "
            f"cd /tmp/tool; echo 0 >{TRACING}/tracing_on; : >out; "
            f"(exec taskset 2 {command} >said 2>&1) & echo $! >/tmp/tool/pid")
    wait_for(f"{command} is ready", ready, 60)
    b.quiet()
    try:
        return b.work()
    finally:
        b.g.run("kill -INT $(cat /tmp/tool/pid); "
                "while kill -0 $(cat /tmp/tool/pid) 2>/dev/null; do sleep 0.2; done; rm /tmp/tool/pid", 120)
        b.g.run(f"echo >{TRACING}/trace; echo 1 >{TRACING}/tracing_on")


def trace_cmd(b, event):
    def ready():
        return b.g.run(f"cat {TRACING}/tracing_on").strip() == "1"
    times = in_background(b, f"trace-cmd record -e {event} -b 20000 -o trace.dat", ready)
    said = b.g.run("cat /tmp/tool/said")
    assert not re.search(r"[1-9]\d* events? lost|overrun: *[1-9]", said), said
    recorded = sum(int(n) for n in re.findall(r"\((\d+) uncompressed\)", said))
    assert recorded > 3 * CALLS * 40, said  # an enter and an exit take more
    return times


def perf_trace(b):
    def ready():
        b.g.run("syscallmem cost 100 getppid")
        return int(b.g.run("stat -c %s /tmp/tool/out")) > 0
    times = in_background(b, "perf trace -a -m 8192 -o out", ready)
    assert int(b.g.run("grep -c 'syscallmem.* write(' /tmp/tool/out")) >= CALLS
    assert b.g.sh("grep -m 1 LOST /tmp/tool/out")[0] != 0
    return times


def strace(b):
    """It stops the program twice a call: fewer will do. On one vCPU with it, as one waits for the other."""
    return b.work(600, "strace -f -o /tmp/strace.out")


def tools(missing):
    yield "untraced", untraced, None
    yield "ours, with memory", ours, None
    yield "ours, raw", lambda b: ours(b, raw=True), None
    yield "trace-cmd -e raw_syscalls", lambda b: trace_cmd(b, "raw_syscalls"), "trace-cmd"
    yield "trace-cmd -e syscalls", lambda b: trace_cmd(b, "syscalls"), "trace-cmd"
    yield "perf trace", perf_trace, "perf"
    yield "strace -f", strace, "strace"


def runs_here(g, name, missing):
    """Says why not."""
    if name in missing:
        print(f"{name} is not installed on this host, so it is not in the table (scripts/setup --tests)")
        return False
    status, said = g.sh("trace-cmd list -t" if name == "trace-cmd" else f"{name} --version")
    if status:
        print(f"{name} does not run in the guest: status {status}: {said.strip()[-200:]}")
    return not status


def medians(rounds):
    """{tool: {what: (program, beside it)}}"""
    return {tool: {what: [statistics.median(r[what][i] for r in rows) for i in (0, 1)] for what in WORK}
            for tool, rows in rounds.items()}


def table(flavour, cost):
    print(f"{flavour}: ns a call, medians of {ROUNDS} rounds: program + beside it; "
          "after the first line: added to that")
    print(f"{'':>28}" + "".join(f"{w:>22}" for w in WORK))
    for tool, row in cost.items():
        print(f"  {tool:>26}" + "".join(f"{row[w][0]:12.0f} + {row[w][1]:7.0f}" for w in WORK))


@first_kernel
def test_cost(flavour):
    if not LONG:
        raise Skip("times calls under five tracers for minutes; HVF_LONG=1 asks for it")
    with tempfile.TemporaryDirectory(prefix="hvf-tools-") as tmp:
        initrd, missing = initramfs_with(kernel_dir(flavour), ("trace-cmd", "perf", "strace"), tmp)
        with Guest(flavour, load="none", mem=1024, initrd=initrd) as g, Daemon() as d:
            attach(g, d)
            b, rounds = Bed(g, d), {}
            have = {name: runs_here(g, name, missing) for name in ("trace-cmd", "perf", "strace")}
            for _ in range(ROUNDS):  # in turn, so that what else the machine does hits all alike
                for tool, run, program in tools(missing):
                    if have.get(program, True):
                        rounds.setdefault(tool, []).append(run(b))
            g.assert_no_warnings()
    cost = medians(rounds)
    for tool, row in cost.items():
        if tool != "untraced":
            for what in WORK:
                row[what] = [t - u for t, u in zip(row[what], cost["untraced"][what])]
    table(flavour, cost)
    check(cost)


def check(cost):
    mine, raw = cost["ours, with memory"], cost["ours, raw"]
    for what in WORK:
        assert mine[what][0] > 0 and raw[what][0] > 0, (what, cost)
        # as much as they record, and less than either
        for tool in ("trace-cmd -e raw_syscalls", "trace-cmd -e syscalls"):
            if tool in cost:
                assert raw[what][0] < cost[tool][what][0], (tool, what, cost)
        # each call by its own event, as ours are; what arguments point to they do not copy
        if "trace-cmd -e syscalls" in cost:
            assert mine[what][0] < cost["trace-cmd -e syscalls"][what][0], (what, cost)
        # more than they record, and less than either; also with what is spent beside the program
        for tool in ("perf trace", "strace -f"):
            if tool in cost:
                assert mine[what][0] < cost[tool][what][0], (tool, what, cost)
                assert sum(mine[what]) < sum(cost[tool][what]), (tool, what, cost)


if __name__ == "__main__":
    main()
