# SPDX-License-Identifier: Apache-2.0
"""Exact: so many calls, so many records, none lost; the guest's own tracer counts the same."""

import re

from daemon import Daemon
from guest import Guest, wait_for
from testlib import ends_too, last_kernel, main

CALLS = 1000


def lost(info):
    return info["lost"]


def check(records, pid, comm):
    mine = [r for r in records if r["type"] == "function" and r["pid"] == pid and r["comm"] == comm]
    assert len(mine) == CALLS, f"{len(mine)} records of {comm}-{pid}, not {CALLS}"
    assert {r["function"] for r in mine} == {"do_sys_openat2"}
    assert {r["tgid"] for r in mine} <= {pid}, "the tgid of a process of one thread is its pid"
    times = [r["ts_ns"] for r in mine]
    assert times == sorted(times), "records of one task are not in the order of their times"
    return mine


@ends_too
@last_kernel
def test_every_call_once(flavour):
    with Guest(flavour) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["do_sys_openat2"])["id"]
        pid = int(g.run("open1000").split()[0])
        end_info = d.stop_trace(t)
        records, end = d.records(t)
        check(records, pid, "open1000")
        info = d.trace_info(t)
        assert lost(info) == 0, info
        seqs = [r["seq"] for r in records if "seq" in r]
        assert seqs == list(range(1, len(seqs) + 1)), "sequence numbers have holes"
        assert end is not None and info["records"] == len(seqs), (end, end_info)
        assert all(r["parent"] for r in records if r["type"] == "function")
        d.delete("/v1/guests/g")
        own = own_count(g)
        assert own == CALLS, f"the guest's own tracer counts {own}"
        g.assert_alive()
        g.assert_no_warnings()


def own_count(g):
    """How often the guest's own function tracer sees it, for another run of the program."""
    out = g.run("cd /sys/kernel/tracing; echo do_sys_openat2 >set_ftrace_filter; echo 4096 >buffer_size_kb; "
                "echo function >current_tracer; open1000; echo 0 >tracing_on; cat trace >/tmp/own; "
                "echo nop >current_tracer; echo >set_ftrace_filter; echo 1 >tracing_on", 120)
    pid = int(out.split()[0])
    lines = g.run(f"grep -E '^ *open1000-{pid} ' /tmp/own").splitlines()
    return sum(bool(re.search(r": do_sys_openat2 <-", l)) for l in lines)


@last_kernel
def test_pid_filter(flavour):
    """With a pid, only that task's records, though others open files all the time."""
    with Guest(flavour) as g, Daemon() as d:
        d.attach(g, "g")
        g.run("open1000 -w >/tmp/pid 2>/tmp/err & true")
        pid = int(wait_for("open1000 waits", lambda: g.run("cat /tmp/pid").strip()))
        t = d.trace("g", ["do_sys_openat2"], pids=[pid])["id"]
        g.run("ls / >/dev/null; cat /proc/uptime >/dev/null")
        g.run(f"kill -USR1 {pid}")
        wait_for("open1000 ends", lambda: g.sh(f"[ -d /proc/{pid} ]")[0], 60, 0.2)
        d.stop_trace(t)
        records, _ = d.records(t)
        check(records, pid, "open1000")
        others = {(r["pid"], r["comm"]) for r in records if r["type"] == "function" and r["pid"] != pid}
        assert not others, f"records of other tasks: {others}"
        assert lost(d.trace_info(t)) == 0
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


def test_anonymous_ram():
    """The same with QEMU's and libvirt's default memory, which no other process can map."""
    with Guest("cloud-6.1", ram="anonymous") as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["do_sys_openat2"])["id"]
        pid = int(g.run("open1000").split()[0])
        d.stop_trace(t)
        check(d.records(t)[0], pid, "open1000")
        assert lost(d.trace_info(t)) == 0
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
