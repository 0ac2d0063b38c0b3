# SPDX-License-Identifier: Apache-2.0
"""function_graph's options, each against what a program of known system calls does."""

import contextlib

from daemon import Daemon
from graphlib import add_up, all_given_back, graph
from guest import Guest, wait_for
from testlib import last_kernel, main
from truth import attach

ROUNDS = 20
# what a round of calltree does, among others: write() of 5 bytes into a pipe, read() of 5 bytes out of it,
# access() of a file that is not there


class Bed:
    """A guest with a calltree that waits for its signal."""

    def __init__(self, g, d):
        self.g, self.d = g, d

    @contextlib.contextmanager
    def task(self):
        self.g.run(f"rm -f /tmp/pid; calltree {ROUNDS} > /tmp/pid & true")
        self.pid = int(wait_for("calltree", lambda: self.g.sh("cat /tmp/pid")[1].strip()))
        yield self.pid
        self.g.sh(f"kill -USR1 {self.pid}; wait")

    def run(self, filter=(), tracer="function_graph", **options):
        """Traces one calltree; its own records."""
        with self.task() as pid:
            t = self.d.trace("g", filter, tracer=tracer, pids=[pid], mode="discard", **options)["id"]
            self.go(pid)
        info = self.d.stop_trace(t)
        assert info["lost"] == 0, info
        records, _ = self.d.records(t)
        self.info = info
        self.d.delete(f"/v1/traces/{t}")
        return [r for r in records if r.get("pid") == pid]

    def go(self, pid):
        self.g.run(f"kill -USR1 {pid}; while [ -d /proc/{pid} ]; do sleep 0.05; done", 120)


def kinds(records):
    return {r["type"] for r in records}


def entries(records):
    return [r for r in records if r["type"] == "graph_entry"]


def roots(b):
    all_calls = entries(b.run(graph=["vfs_read", "vfs_write"]))
    outermost = [r["function"] for r in all_calls if r["depth"] == 0]
    assert set(outermost) == {"vfs_read", "vfs_write"}, set(outermost)
    assert outermost.count("vfs_read") == outermost.count("vfs_write") == ROUNDS, len(outermost)
    inside = {r["function"] for r in all_calls if r["depth"] > 0}
    assert {"pipe_read", "pipe_write"} & inside or len(inside) > 3, inside
    add_up(b.info["graph"])


def notrace(b):
    plain = {r["function"] for r in entries(b.run(graph=["ksys_write"]))}
    assert "vfs_write" in plain and len(plain) > 3, plain
    without = {r["function"] for r in entries(b.run(graph=["ksys_write"], graph_notrace=["vfs_write"]))}
    # neither it nor what only it calls
    assert "ksys_write" in without and "vfs_write" not in without, without
    assert "pipe_write" not in without and len(without) < len(plain), without
    add_up(b.info["graph"])


def notrace_of_what_never_returns(b):
    """No entry was told, so no end is."""
    t = graph(b.d, ["do_group_exit", "do_exit", "exit_*"], mode="discard", graph_notrace=["do_exit"])
    assert "forkexit: ok" in b.g.run("forkexit 100", 300)
    b.d.wait_trace(t, lambda x: x["graph"]["never_returned"] >= 100, 20)
    info = b.d.stop_trace(t)
    add_up(info["graph"])
    records, _ = b.d.records(t)
    b.d.delete(f"/v1/traces/{t}")
    never = {r["function"] for r in records if r["type"] == "graph_never"}
    assert never == {"do_group_exit"}, never


def depth(b):
    seen = entries(b.run(graph=["ksys_*"], max_graph_depth=2))
    assert {r["depth"] for r in seen} == {0, 1}, {r["depth"] for r in seen}
    add_up(b.info["graph"])


def values(b):
    seen = b.run(["vfs_write", "do_faccessat"], retval=True, args=True)
    writes = [r for r in seen if r["function"] == "vfs_write" and r["type"] == "graph_entry"]
    assert len(writes) == ROUNDS, len(writes)
    for r in writes:
        assert [a["name"] for a in r["args"]] == ["file", "buf", "count", "pos"], r
        assert r["args"][0]["type"] == "file *" and int(r["args"][2]["value"], 16) == 5, r
        assert int(r["args"][0]["value"], 16) >> 63 == 1, r
    back = [r["retval"] for r in seen if r["function"] == "vfs_write" and r["type"] == "graph_return"]
    assert [int(v["value"], 16) for v in back] == [5] * ROUNDS, back
    refused = [r["retval"]["text"] for r in seen
               if r["function"] == "do_faccessat" and r["type"] == "graph_return"]
    assert refused == ["-2 (ENOENT)"] * ROUNDS, refused
    # the function tracer takes arguments too
    seen = b.run(["vfs_write"], tracer="function", args=True)
    assert [int(r["args"][2]["value"], 16) for r in seen] == [5] * ROUNDS, seen


def threshold(b):
    with_all = entries(b.run())
    ns = 200_000
    seen = b.run(threshold_ns=ns)
    assert kinds(seen) <= {"graph_return"}, kinds(seen)
    assert len(seen) < len(with_all) / 2, (len(seen), len(with_all))
    # ticks are rounded down when they are turned into time
    assert all(r["duration_ns"] >= ns - 1 for r in seen), min(r["duration_ns"] for r in seen)


def sleeping(b, sleep_time):
    """Durations of hrtimer_nanosleep() around 100 ms of sleep, ms."""
    t = graph(b.d, ["hrtimer_nanosleep"], mode="discard", sleep_time=sleep_time)
    pids = [int(b.g.run("sh -c 'echo $$; exec sleep 0.1'")) for _ in range(3)]
    info = b.d.stop_trace(t)
    assert info["restore"]["sites_restored"] == info["functions"] == 1, info
    records, _ = b.d.records(t)
    b.d.delete(f"/v1/traces/{t}")
    assert "switch" not in kinds(records), kinds(records)
    return [r["duration_ns"] / 1e6 for r in records
            if r["type"] == "graph_return" and r.get("pid") in pids]


def sleep_time(b):
    asleep = sleeping(b, True)
    awake = sleeping(b, False)
    print(f"100 ms of sleep: {asleep} ms, without sleep time {awake} ms")
    assert len(asleep) == len(awake) == 3, (asleep, awake)
    assert min(asleep) >= 99, asleep
    assert max(awake) < 90 and min(awake) >= 0, awake


def irqs(b):
    t = graph(b.d, mode="overwrite", irqs=False)
    b.g.sh("mixload 2", 120)  # whether each of its loads got its turn does not matter
    b.d.stop_trace(t)
    records, _ = b.d.records(t)
    b.d.delete(f"/v1/traces/{t}")
    hard = [r for r in entries(records) if r["context"][2] in "hHzZ"]
    assert len(records) > 1000 and not hard, hard[:3]


def switch_live(b):
    """From one tracer to the other and back under load; nothing is armed anew, all adds up."""
    t = graph(b.d, ["vfs_*", "pipe_*"], mode="discard", buffer_records=1 << 22)
    for tracer in ("function", "function_graph", "function", "function_graph"):
        before = b.d.trace_info(t)["records"]
        status, body = b.d.request("PATCH", f"/v1/traces/{t}", {"tracer": tracer})
        assert status == 200 and body["tracer"] == tracer, body
        b.g.sh("mixload 1", 120)
        b.d.wait_trace(t, lambda x, n=before: x["records"] > n + 100)
    add_up(b.d.stop_trace(t)["graph"])
    seen = kinds(b.d.records(t)[0])
    assert {"function", "graph_entry", "graph_return", "tracer"} <= seen, seen
    b.d.delete(f"/v1/traces/{t}")


@last_kernel
def test_options(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        b = Bed(g, d)
        for step in (roots, notrace, notrace_of_what_never_returns, depth, values, threshold, sleep_time,
                     irqs, switch_live):
            print(f"{flavour}: {step.__name__}")
            step(b)
        all_given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
