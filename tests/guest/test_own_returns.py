# SPDX-License-Identifier: Apache-2.0
"""Two who hijack one return: ours and the guest's own kretprobe, ours and the guest's own function_graph.

A call site is either's, never both's. But a function that ends in a jump to another has its return
address in the cell of that one: __x64_sys_access() jumps to do_faccessat(). With one traced by ours and
the other by the guest, each takes the other's address for the true one, in whatever order they began. Each
must see every call, the value that was returned, and go on when the other has stopped.
"""

import re

from daemon import Daemon
from graphlib import add_up, all_given_back
from guest import Guest, wait_for
from testlib import first_kernel, main
from truth import attach

ROUNDS = 10
CALLS = 20 + ROUNDS  # calltree goes 20 rounds before it says its pid
OUTER, INNER = "__x64_sys_access", "do_faccessat"
CALLERS = {"do_syscall_64", "x64_sys_call", "arch_rethook_trampoline", "return_to_handler"}
TRACING = "/sys/kernel/tracing"


class Bed:
    def __init__(self, g, d):
        self.g, self.d = g, d

    def work(self):
        """access() of a file that is not there, ROUNDS times, by a task of its own; its pid."""
        self.g.run(f"rm -f /tmp/pid; calltree {ROUNDS} > /tmp/pid & true")
        pid = int(wait_for("calltree", lambda: self.g.sh("cat /tmp/pid")[1].strip()))
        self.g.run(f"kill -USR1 {pid}; while [ -d /proc/{pid} ]; do sleep 0.05; done", 120)
        return pid

    # ours

    def start(self, function):
        self.t = self.d.trace("g", [function], tracer="function_graph", mode="discard", retval=True)["id"]

    def stop(self, function, pids):
        """Ours ends: it has seen every call of the tasks, and what it returned."""
        info = self.d.stop_trace(self.t)
        add_up(info["graph"])
        assert info["lost"] == 0 and info["restore"]["verified"] is True, info
        records = self.d.records(self.t)[0]
        self.d.delete(f"/v1/traces/{self.t}")
        for pid in pids:
            mine = [r for r in records if r.get("pid") == pid]
            assert all(r["function"] == function for r in mine), mine
            # the caller is the true one, or who has the cell in its place
            assert {r["parent"].split("+")[0] for r in mine if r["parent"]} <= CALLERS, mine
            assert sum(r["type"] == "graph_entry" for r in mine) == CALLS, len(mine)
            back = [r["retval"]["text"] for r in mine if r["type"] == "graph_return"]
            assert back == ["-2 (ENOENT)"] * CALLS, back


class Kretprobe:
    name = "kretprobe"

    def __init__(self, g, function):
        self.g, self.function = g, function

    def start(self):
        self.g.run(f"cd {TRACING}; echo > trace; "
                   f"echo 'r:hvf/own {self.function} ret=$retval' > kprobe_events; "
                   "echo 1 > events/hvf/own/enable", 60)

    def check(self, pid):
        text = self.g.run(f"cat {TRACING}/trace", 60)
        got = re.findall(rf"-{pid} +\[.*own: \(.* <- .*\) ret=(\S+)", text)
        # 6.12 shows it as the number that it is
        assert got in (["0xfffffffffffffffe"] * CALLS, ["-2"] * CALLS), (got, text[-2000:])
        self.g.run(f"echo > {TRACING}/trace")

    def stop(self):
        self.g.run(f"cd {TRACING}; echo 0 > events/hvf/own/enable; echo > kprobe_events", 60)


class OwnGraph:
    name = "the guest's function_graph"

    def __init__(self, g, function):
        self.g, self.function = g, function

    def start(self):
        self.g.run(f"cd {TRACING}; echo {self.function} > set_ftrace_filter; "
                   "echo 1 > options/funcgraph-proc; echo function_graph > current_tracer", 60)

    def check(self, pid):
        text = self.g.run(f"cat {TRACING}/trace", 60)
        got = re.findall(rf"-{pid} .*\| .* us .*\|  {self.function}\(.*\);", text)
        assert len(got) == CALLS, (len(got), text[-2000:])
        self.g.run(f"echo > {TRACING}/trace")

    def stop(self):
        self.g.run(f"cd {TRACING}; echo nop > current_tracer; echo > set_ftrace_filter", 60)


def together(b, own, function):
    """Both on, begun in both orders; then one of them goes on alone."""
    for ours_first in (True, False):
        if ours_first:
            b.start(function)
            own.start()
        else:
            own.start()
            b.start(function)
        pids = [b.work()]
        own.check(pids[0])
        if ours_first:  # who began last ends first, and the other way round
            b.stop(function, pids)
            own.check(b.work())
            own.stop()
        else:
            own.stop()
            pids.append(b.work())
            b.stop(function, pids)


def is_jumped_to(b):
    """Is INNER jumped to? Its caller is OUTER's, then."""
    t = b.d.trace("g", [INNER], tracer="function", mode="discard")["id"]
    pid = b.work()
    b.d.stop_trace(t)
    parents = {r["parent"].split("+")[0] for r in b.d.records(t)[0] if r.get("pid") == pid}
    b.d.delete(f"/v1/traces/{t}")
    print(f"{INNER}() is called by {parents}")
    return OUTER not in parents


@first_kernel
def test_own_returns(flavour):
    # one thread of QEMU's for both vCPUs: its kernel patches itself all the time (guest.py: QEMU_RACE)
    with Guest(flavour, thread="single") as g, Daemon() as d:
        truth, sites = attach(g, d)
        b = Bed(g, d)
        assert is_jumped_to(b)
        for kind in Kretprobe, OwnGraph:
            for ours, theirs in (OUTER, INNER), (INNER, OUTER):
                print(f"{flavour}: ours on {ours}, {kind.name} on {theirs}")
                together(b, kind(g, theirs), ours)
        all_given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
