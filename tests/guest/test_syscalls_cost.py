# SPDX-License-Identifier: Apache-2.0
"""
What tracing every system call adds to one, beside the tools that do it inside of the guest, on the same work,
in turns, in one run on one guest: the tracer syscalls, with what arguments point to and without (raw);
Debian's `trace-cmd record` of the events raw_syscalls and syscalls, Debian's `perf trace`, both of all tasks
and into a file; and strace.

How it is counted: in instructions of the guest. It has one vCPU, under QEMU's -icount: its clocks, the TSC
among them, go one nanosecond an instruction and stand still while it is paused. So the program's own
clock_gettime() before and after its loop says what a call takes, with all of the tracer that runs in the
calling task, and comes out the same to a few in a thousand of the whole call each time.
 - "program", CLOCK_THREAD_CPUTIME_ID: the task alone. Interrupts that come meanwhile are in it, as Linux
   charges them to whom they hit: the timer's, the same for all, and those that a tracer causes, as to wake
   its reader. Other tasks are not, be they the tool's recorder on the same vCPU or, for strace, the tracer
   itself.
 - "guest", CLOCK_MONOTONIC: all that the vCPU did from the loop's begin to its end, other tasks included;
   what a tool reads, decodes or writes later is not in it.
 - "host": processor time of QEMU and the daemon until both are quiet again, what starting the program takes
   taken off: recorders, decoders and writers of the tools in the guest, and the daemon beside it. It is
   emulation's time, good for a factor alone.

Instructions are no time. A cache miss, a `lock` prefix, rdtsc or a mispredicted branch is worth many, a mov
less than one; a `rep movs` counts each time round. They are the measure all the same, as nothing else is to
be had without a processor of one's own: processor time under TCG comes out fast or slow by a factor of two
for minutes, by how translations happen to lie in memory, whatever is recorded. Both sides read the TSC and
reserve room in a ring, so the kinds of instructions are alike. What KVM would add to either is not in it: no
tracer leaves the guest in a call.

Rings of all are large enough for nothing to be lost, which would be cheaper; that nothing was is looked at.

The work: getppid(), which points to nothing; write() of 64 bytes to /dev/null; "openat" below a descriptor
that is none, so that the path is read and little else done; "open": openat() and close() of /dev/null in
turns.

What each records: ours number, arguments, result, times, task, user, cgroup, and what arguments point to: of
write() the first 32 bytes, of openat() the path. raw of ours and raw_syscalls: number, arguments, result,
task. syscalls: a call's own arguments, in 6.1 and 6.12 without what they point to. perf trace: raw_syscalls,
decoded to text. strace: what ours does, decoded to text. What arguments point to has its price: of a path
each 8 bytes take some 25 instructions more, and one that is longer than that of "openat" here by some words
takes more than `trace-cmd record -e syscalls`, which has none of it.
"""

import re
import statistics
import tempfile
import time

from daemon import Daemon
from guest import Guest, Skip, kernel_dir, wait_for
from hostprograms import initramfs_with
from testlib import LONG, first_kernel, main
from truth import attach

CALLS = 10_000
ROUNDS = 3
WORK = "getppid", "write", "openat", "open"
TRACING = "/sys/kernel/tracing"
QUIET_S = 0.1
PROGRAM, GUEST, HOST = range(3)


def ran_ns(pid):
    """Processor time of a process, of threads that have ended, too: what clock_getcpuclockid(3) reads."""
    return time.clock_gettime_ns(~pid << 3 | 2)


class Bed:
    def __init__(self, g, d):
        self.g, self.d = g, d

    def ran(self):
        return ran_ns(self.g.pid) + ran_ns(self.d.pid)

    def quiet(self):
        """Until the tools have done what is theirs."""
        def is_quiet():
            before = self.ran()
            time.sleep(QUIET_S)
            return self.ran() - before < 0.15 * QUIET_S * 1e9
        wait_for("tools are done", is_quiet, 120)

    def one(self, n, what, prefix=""):
        before = self.ran()
        said = self.g.run(f"{prefix} syscallmem cost {n} {what}", 120)
        self.quiet()
        return [int(ns) for ns in said.split()] + [self.ran() - before]

    def work(self, n=CALLS, prefix=""):
        """{what: (program, guest, host)}, a call"""
        times, start = {}, self.one(0, WORK[0], prefix)
        for what in WORK:
            ran = self.one(n, what, prefix)
            times[what] = [ran[PROGRAM] / n, ran[GUEST] / n, (ran[HOST] - start[HOST]) / (n + n // 10)]
        return times


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
    """Until it is stopped; returns what was measured meanwhile."""
    # it may be sent twice: see Guest.sh()
    b.g.run(f"[ ! -e /tmp/tool/pid ] || kill -KILL $(cat /tmp/tool/pid); rm -rf /tmp/tool; mkdir /tmp/tool; "
            f"cd /tmp/tool; echo 0 >{TRACING}/tracing_on; : >out; "
            f"(exec {command} >said 2>&1) & echo $! >/tmp/tool/pid")
    wait_for(f"{command} is ready", ready, 240)
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
    assert recorded > len(WORK) * CALLS * 40, said  # an enter and an exit take more
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
    """It stops the program twice a call: fewer will do."""
    return b.work(2000, "strace -f -o /tmp/strace.out")


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


def added(rounds):
    """{tool: {what: [[of each round] a measure]}}: less what the same takes without a tracer"""
    base = {w: [statistics.median(r[w][i] for r in rounds["untraced"]) for i in range(3)] for w in WORK}
    return {tool: {w: [[r[w][i] - (base[w][i] if tool != "untraced" else 0) for r in rows]
                       for i in range(3)] for w in WORK}
            for tool, rows in rounds.items()}


def table(flavour, cost):
    print(f"{flavour}: a call of each work, untraced, then what each tracer adds to that: instructions of "
          f"the program, median of {ROUNDS} rounds (least..most), of the whole guest meanwhile; us of the "
          "host's processors in all")
    for what in WORK:
        print(f"{what:>28}{'program':>14}{'':>18}{'guest':>10}{'host':>10}")
        for tool, row in cost.items():
            own, meanwhile, host = row[what]
            print(f"  {tool:>26}{statistics.median(own):14.0f}{f'({min(own):.0f}..{max(own):.0f})':>18}"
                  f"{statistics.median(meanwhile):10.0f}{statistics.median(host) / 1000:10.1f}")


@first_kernel
def test_cost(flavour):
    if not LONG:
        raise Skip("counts instructions under five tracers for minutes; HVF_LONG=1 asks for it")
    with tempfile.TemporaryDirectory(prefix="hvf-tools-") as tmp:
        initrd, missing = initramfs_with(kernel_dir(flavour), ("trace-cmd", "perf", "strace"), tmp)
        with Guest(flavour, load="none", cpus=1, icount=True, mem=1024, initrd=initrd) as g, Daemon() as d:
            attach(g, d)
            b, rounds = Bed(g, d), {}
            have = {name: runs_here(g, name, missing) for name in ("trace-cmd", "perf", "strace")}
            for _ in range(ROUNDS):  # in turn, so that what else the machine does hits all alike
                for tool, run, program in tools(missing):
                    if have.get(program, True):
                        rounds.setdefault(tool, []).append(run(b))
            g.assert_no_warnings()
    cost = added(rounds)
    table(flavour, cost)
    check(cost)


def check(cost):
    def of(tool, what, measure=PROGRAM):
        return statistics.median(cost[tool][what][measure])

    for what in WORK:
        raw, mine = of("ours, raw", what), of("ours, with memory", what)
        # 100 is less than any record takes: the clocks do count instructions, of traced calls
        assert of("untraced", what) > 100 and raw > 100 and mine > 100, (what, cost)
        # as much as they record, and less than either
        for tool in ("trace-cmd -e raw_syscalls", "trace-cmd -e syscalls"):
            assert tool not in cost or raw < of(tool, what), (tool, what, cost)
        # each call by its own event, as ours are; what arguments point to they do not copy
        tool = "trace-cmd -e syscalls"
        assert tool not in cost or mine < of(tool, what), (tool, what, cost)
        # more than they record, and less than either; also with what is spent beside the program
        for tool in ("perf trace", "strace -f"):
            assert tool not in cost or mine < of(tool, what), (tool, what, cost)
            assert tool not in cost or of("ours, with memory", what, HOST) < of(tool, what, HOST), \
                (tool, what, cost)


if __name__ == "__main__":
    main()
