# SPDX-License-Identifier: Apache-2.0
"""function_graph: every site with its return hijacked, in guests that fork, exit, kill, sleep, are
interrupted and have their CPUs taken away; and nothing of it left on any stack afterwards."""

import os
import signal
import time

from daemon import Daemon
from guest import Guest, wait_for
from testlib import LONG, main
from truth import Truth

KERNELS = os.environ.get("HVF_KERNELS", "cloud-6.1 cloud-6.12 rt-6.1").split()
SECONDS = 300 if LONG else 20
STARTS = 1000 if LONG else 20
FORKS = 100000 if LONG else 2000


def each(test):
    test.flavours = KERNELS
    return test


def graph_guest(flavour, **args):
    # see test_variants: the 8250 of an RT guest
    return Guest(flavour, append="noirqdebug" if flavour.startswith("rt") else "", **args)


def graph(d, filter=(), **more):
    more.setdefault("mode", "overwrite")
    return d.trace("g", filter, tracer="function_graph", **more)["id"]


def add_up(g):
    """entries = returns + never returned + lost returns + those still inside"""
    assert g["entries"] == (g["returns"] + g["never_returned"] + g["lost_returns"] +
                            g["inside"]), g
    assert g["frame_errors"] == 0, g


def start_load(g):
    """mixload again and again, and the second CPU taken away and given back, until stop_load()."""
    g.run("(while [ ! -e /tmp/stop ]; do mixload 5 || { touch /tmp/bad; break; }; done "
          "> /tmp/load 2>&1; touch /tmp/done) & true")
    g.run("cpu=/sys/devices/system/cpu/cpu1/online; (while [ ! -e /tmp/stop ]; do sleep 1; "
          "echo 0 > $cpu; sleep 1; echo 1 > $cpu; done; echo 1 > $cpu) > /dev/null 2>&1 & true")


def stop_load(g):
    g.run("touch /tmp/stop")
    wait_for("the load ends", lambda: g.sh("[ -e /tmp/done ]")[0] == 0, 120, 1)
    assert g.sh("[ -e /tmp/bad ]")[0], "the load saw a wrong result: " + g.run("cat /tmp/load")


def all_given_back(g, d, truth, sites):
    restore = d.delete("/v1/guests/g")["restore"]
    assert restore["verified"] is True and restore["memory_freed"] is True, restore
    truth.assert_untouched(sites, quiet=True)
    assert not d.journals(), d.journals()
    g.assert_alive(60)
    g.assert_no_warnings()


@each
def test_all_sites_under_load(flavour):
    with graph_guest(flavour) as g, Daemon() as d:
        truth = Truth(g)
        d.attach(g, "g")
        sites = [int(f["ip"], 16) for f in d.functions("g")]
        truth.note_module_sites(sites)
        start_load(g)
        t = graph(d, mode="discard")  # what is overwritten could not be told by its kind
        in_use, end = [], time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(SECONDS / 20)
            info = d.trace_info(t)
            assert info["state"] == "running", info
            in_use.append(info["graph"]["inside"])
        stop_load(g)
        info = d.stop_trace(t)
        add_up(info["graph"])
        print(f"{flavour}: {info['graph']}, lost {info['lost']}, in use {in_use}")
        assert info["graph"]["entries"] > 100000, info
        assert info["graph"]["never_returned"] > 100, info
        assert info["graph"]["lost_frames"] == 0, info
        # no growth: the second half needs no more than the first but for what comes and goes
        half = len(in_use) // 2
        assert max(in_use[half:]) < 2 * max(in_use[:half]) + 500, in_use
        assert info["restore"]["returns_left"] == 0, info["restore"]
        # sleeping tasks do not return through the agent any more: the guest sees whole stacks again
        assert "entry_SYSCALL_64" in g.run("cat /proc/1/stack")
        all_given_back(g, d, truth, sites)


@each
def test_starts_and_stops(flavour):
    with graph_guest(flavour) as g, Daemon() as d:
        truth = Truth(g)
        d.attach(g, "g")
        sites = [int(f["ip"], 16) for f in d.functions("g")]
        truth.note_module_sites(sites)
        start_load(g)
        left = 0
        for _ in range(STARTS):
            t = graph(d, mode="discard")
            d.wait_trace(t, lambda x: x["graph"]["entries"] > 1000)
            info = d.stop_trace(t)
            add_up(info["graph"])
            left = max(left, info["restore"]["returns_left"])
            d.delete(f"/v1/traces/{t}")
        print(f"{flavour}: {STARTS} rounds, at most {left} returns left at a stop; "
              f"windows {d.get('/v1/guests/g')['windows']}")
        stop_load(g)
        all_given_back(g, d, truth, sites)


@each
def test_exits_leak_nothing(flavour):
    with graph_guest(flavour, load="none") as g, Daemon() as d:
        truth = Truth(g)
        d.attach(g, "g")
        sites = [int(f["ip"], 16) for f in d.functions("g")]
        t = graph(d, ["do_exit", "do_group_exit", "__x64_sys_exit_group", "do_task_dead", "schedule",
                      "__x64_sys_wait4", "do_wait"], mode="discard")
        before = d.trace_info(t)["graph"]
        assert "forkexit: ok" in g.run(f"forkexit {FORKS}", 1200)
        info = d.wait_trace(t, lambda x: x["graph"]["inside"] < before["inside"] + 50, 20)
        print(f"{flavour}: {FORKS} exits, {info['graph']}")
        # three at least of the functions on the way out
        assert info["graph"]["never_returned"] >= 3 * FORKS, info
        assert info["graph"]["lost_frames"] == 0, info
        info = d.stop_trace(t)
        add_up(info["graph"])
        all_given_back(g, d, truth, sites)


def trees(records, pid):
    """Checks entries against returns, and times; (parents seen, how many returns were checked)."""
    stack, parents, checked = [], set(), 0
    for r in records:
        if r.get("pid") != pid:
            continue
        if r["type"] == "graph_entry":
            parents.add(r["parent"])
            assert r["depth"] == len(stack), r
            stack.append({"f": r["function"], "ts": r["ts_ns"], "callees": 0})
        elif r["type"] == "graph_return":
            top = stack.pop()
            assert top["f"] == r["function"], (top, r)
            assert top["callees"] <= r["duration_ns"] + 1, (top, r)
            assert abs(r["ts_ns"] - top["ts"] - r["duration_ns"]) <= 2, (top, r)
            if stack:
                stack[-1]["callees"] += r["duration_ns"]
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
        # its first returns are of calls that began before, and exit never returns
        first = next(i for i, r in enumerate(records)
                     if r["type"] == "graph_entry" and "sys_getppid" in r["function"])
        last = max(i for i, r in enumerate(records)
                   if r["type"] == "graph_return" and "sys_getpgid" in r["function"])
        depth = records[first]["depth"]
        window = [dict(r, depth=r["depth"] - depth) for r in records[first:last]
                  if r.get("pid") == pid]
        end = max(i for i, r in enumerate(window) if r["depth"] == 0 and r["type"] == "graph_return")
        parents, checked = trees(window[:end + 1], pid)
        assert checked > 5000, checked
        assert not [p for p in parents if p.startswith("0x")], (parents, agent)
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


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
        info = d.stop_trace(t)
        assert info["lost"] > 0 and info["graph"]["lost_returns"] > 0, info
        add_up(info["graph"])
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] is True and restore["memory_freed"] is True, restore
        g.assert_alive()
        g.assert_no_warnings()


@each
def test_daemon_killed(flavour):
    """kill -9 with every return hijacked: the guest runs on, the next start puts all of it back."""
    with graph_guest(flavour) as g:
        truth = Truth(g)
        state = g.dir / "state"
        d = Daemon(state_dir=state).start()
        d.attach(g, "g")
        sites = [int(f["ip"], 16) for f in d.functions("g")]
        truth.note_module_sites(sites)
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
