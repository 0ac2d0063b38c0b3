# SPDX-License-Identifier: Apache-2.0
"""function_graph: exits that never return, one task's exact tree, losses, and a daemon that dies."""

import contextlib
import os
import signal
import threading

from daemon import Daemon
from graphlib import add_up, all_given_back, each, graph
from guest import Guest, GuestTimeout, wait_for
from testlib import LONG, ends_too, first_kernel, last_kernel, main
from truth import attach

FORKS = 100000 if LONG else 2000


@ends_too
@(each if LONG else last_kernel)
def test_exits_leak_nothing(flavour):
    with Guest(flavour, load="none") as g, Daemon() as d:
        truth, sites = attach(g, d)
        t = graph(d, ["do_exit", "do_group_exit", "__x64_sys_exit_group", "do_task_dead", "schedule",
                      "__x64_sys_wait4", "do_wait"], mode="discard")
        before = d.trace_info(t)["graph"]
        assert "forkexit: ok" in g.run(f"forkexit {FORKS}", 1200)
        info = {}

        def quiet():
            info.update(d.trace_info(t))
            return info["graph"]["inside"] < before["inside"] + 50

        try:
            wait_for("trace", quiet, 20)
        except GuestTimeout:
            raise AssertionError(f"frames left by tasks that have ended: {info['graph']}") from None
        print(f"{flavour}: {FORKS} exits, {info['graph']}")
        # three at least of the functions on the way out
        assert info["graph"]["never_returned"] >= 3 * FORKS, info
        assert info["graph"]["lost_frames"] == 0, info
        info = d.stop_trace(t)
        add_up(info["graph"])
        all_given_back(g, d, truth, sites)


def covered(spans):
    """Time that is in any span. Callees do not overlap, but for those of an interrupt that hit the agent at
    the entry of the next one: they stand before that, and are in its time."""
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def trees(records):
    """Checks entries against returns, and times; (parents seen, how many returns were checked)."""
    stack, parents, checked = [], set(), 0
    for r in records:
        if r["type"] == "graph_entry":
            parents.add(r["parent"])
            assert r["depth"] == len(stack), r
            stack.append({"f": r["function"], "ts": r["ts_ns"], "callees": []})
        elif r["type"] == "graph_return":
            top = stack.pop()
            assert top["f"] == r["function"], (top, r)
            # an interrupt that hit the agent after it read the clock stands inside, and is later
            inside = covered((ts, ts + ns) for ts, ns in top["callees"] if ts <= r["ts_ns"])
            assert inside <= r["duration_ns"] + 1, (top, r)
            assert abs(r["ts_ns"] - top["ts"] - r["duration_ns"]) <= 2, (top, r)
            if stack:
                stack[-1]["callees"].append((top["ts"], r["duration_ns"]))
            checked += 1
    return parents, checked


def test_tree_of_one_task():
    """Exact, on one task: calls nest, callees are never longer than their caller, no parent is ours."""
    with Guest("cloud-6.1", load="none") as g, Daemon() as d:
        d.attach(g, "g")
        g.run("calltree 50 > /tmp/pid & true")
        pid = int(wait_for("calltree", lambda: g.sh("cat /tmp/pid")[1].strip()))
        t = graph(d, pids=[pid], mode="discard")
        g.run(f"kill -USR1 {pid}; wait; while [ -d /proc/{pid} ]; do sleep 0.1; done")
        agent = d.get("/v1/guests/g")["agent"]
        d.stop_trace(t)
        records, _ = d.records(t)
        info = d.trace_info(t)
        assert info["lost"] == 0, info
        # between outermost calls: the first returns are of calls that began before, and exit never returns
        own = [r for r in records if r.get("pid") == pid and r["type"] != "graph_never"]
        outermost = [i for i, r in enumerate(own) if r.get("depth") == 0]
        first = next(i for i in outermost if own[i]["type"] == "graph_entry")
        last = next(i for i in reversed(outermost) if own[i]["type"] == "graph_return")
        parents, checked = trees(own[first:last + 1])
        assert checked > 5000, checked
        assert not [p for p in parents if p.startswith("0x")], (parents, agent)
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


@contextlib.contextmanager
def hardly_any_cpu(g, times):
    """A host with no time for the VMM, longer each time than one try at a stop window takes."""
    def starve():
        for _ in range(times):
            os.kill(g.pid, signal.SIGSTOP)
            done.wait(1.5)
            os.kill(g.pid, signal.SIGCONT)
            done.wait(0.02)

    done = threading.Event()
    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_losses_are_counted():
    """A daemon that stands still while the rings are full: trees stay well formed, nothing is silent."""
    with Guest("cloud-6.1") as g, Daemon() as d:
        d.attach(g, "g")
        t = graph(d, mode="discard")
        os.kill(d.process.pid, signal.SIGSTOP)
        try:
            g.run("mixload 3", 120)
        finally:
            os.kill(d.process.pid, signal.SIGCONT)
        d.wait_trace(t, lambda x: x["graph"]["lost_returns"] > 0)
        with hardly_any_cpu(g, 4):
            info = d.stop_trace(t)
        assert info["lost"] > 0 and info["graph"]["lost_returns"] > 0, info
        add_up(info["graph"])
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] is True and restore["memory_freed"] is True, restore
        g.assert_alive()
        g.assert_no_warnings()


@first_kernel
def test_daemon_killed(flavour):
    """kill -9 with every return hijacked: the guest runs on, the next start puts all of it back."""
    with Guest(flavour) as g:
        state = g.dir / "state"
        d = Daemon(state_dir=state).start()
        truth, sites = attach(g, d)
        t = graph(d, mode="discard")
        d.wait_trace(t, lambda x: x["graph"]["entries"] > 1000)
        text = int(d.get("/v1/guests/g")["agent"]["text"], 16)
        d.kill9()
        assert "mixload: ok" in g.run("mixload 5", 120)
        g.assert_alive()
        with Daemon(state_dir=state) as d:
            wait_for("the journal is done", lambda: not d.journals(), 60)
            truth.assert_untouched(sites, quiet=True)
            assert truth.walk(text) is None, "the agent's memory is still there"
            assert "mixload: ok" in g.run("mixload 2", 120)
            g.assert_alive()
            g.assert_no_warnings()


if __name__ == "__main__":
    main()
