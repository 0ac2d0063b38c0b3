# SPDX-License-Identifier: Apache-2.0
"""The guest's own tracing over call sites of ours: its tools work as if we were not there, ours goes on
with the rest, and afterwards with all. Also while no daemon lives."""

import re

from daemon import Daemon
from guest import Guest, wait_for
from testlib import ends_too, last_kernel, main
from truth import attach

TRACING = "/sys/kernel/tracing"


def own_graph(g):
    """trace-cmd record -p function_graph -l 'vfs_*', without trace-cmd: how many calls it showed."""
    g.run(f"cd {TRACING}; echo 64 > buffer_size_kb; echo 'vfs_*' > set_ftrace_filter; "
          "echo 1 > tracing_on; echo function_graph > current_tracer", 120)
    g.run("cat /proc/version /proc/uptime; ls /bin")
    on = g.run(f"cat {TRACING}/enabled_functions").split("\n")
    text = g.run(f"cd {TRACING}; echo 0 > tracing_on; cat trace", 120)
    calls = set(re.findall(r"(vfs_\w+)\(\)", text))
    assert {"vfs_read", "vfs_open", "vfs_write"} <= calls, f"its own tracer shows {calls}: {text[:2000]}"
    assert any(line.startswith("vfs_read ") for line in on), on[:5]
    return len(re.findall(r"vfs_\w+\(\)", text))


def end_own_graph(g):
    g.run(f"cd {TRACING}; echo nop > current_tracer; echo > set_ftrace_filter; echo 1 > tracing_on", 120)


def kprobe(g, function):
    """A kprobe at a function's entry, by tracefs: hits while something runs that enters it."""
    g.run(f"cd {TRACING}; echo 'p:hvf {function}' > kprobe_events; echo > trace; echo 1 > tracing_on; "
          "echo 1 > events/kprobes/hvf/enable")
    g.run("cat /proc/uptime")
    return int(g.run(f"cd {TRACING}; echo 0 > events/kprobes/hvf/enable; echo 0 > tracing_on; "
                     "grep -c 'hvf: (' trace; echo > kprobe_events", 120))


def goes_on(d, t, want=1000):
    """Records are still coming."""
    n = d.trace_info(t)["records"]
    d.wait_trace(t, lambda x: x["state"] != "running" or x["records"] > n + want)
    info = d.trace_info(t)
    assert info["state"] == "running", info
    return info


@ends_too
@last_kernel
def test_own_tracing(flavour):
    with Guest(flavour) as g:
        state = g.dir / "state"
        with Daemon(state_dir=state) as d:
            truth, sites = attach(g, d)
            t = d.trace("g", [], mode="overwrite")["id"]
            before = d.wait_trace(t, lambda x: x["records"] > 1000)["functions"]
            n = own_graph(g)
            info = d.wait_trace(t, lambda x: x["taken"] > 10, 30)
            assert info["functions"] < before, info
            goes_on(d, t)
            end_own_graph(g)
            # and all is ours again
            d.wait_trace(t, lambda x: x["functions"] == before, 30)
            hits = kprobe(g, "vfs_read")
            assert hits, "its kprobe was not hit"
            goes_on(d, t)
            d.stop_trace(t)
            restore = d.delete("/v1/guests/g")["restore"]
            assert restore["verified"] and restore["memory_freed"], restore
        truth.assert_untouched(sites)
        print(f"{flavour}: {n} calls by its own function_graph, {hits} hits of its kprobe")
        dead_daemon(g, truth, sites, state)
        g.assert_alive()
        g.assert_no_warnings()


def dead_daemon(g, truth, sites, state):
    """The same with nobody there."""
    d = Daemon(state_dir=state).start()
    d.attach(g, "g")
    t = d.trace("g", [], tracer="function_graph", mode="overwrite")["id"]
    d.wait_trace(t, lambda x: x["records"] > 1000)
    d.kill9()
    n = own_graph(g)
    end_own_graph(g)
    hits = kprobe(g, "do_sys_openat2")
    assert hits, "its kprobe was not hit"
    own_graph(g)
    bad, _, _ = truth.changed(sites)
    assert len(bad) > 1000, f"only {len(bad)} sites are still armed"
    # the next daemon gives back what is left, and the guest's own goes on
    with Daemon(state_dir=state) as d:
        wait_for("the journal is done", lambda: not d.journals(), 60)
    assert "vfs_read" in g.run(f"cat {TRACING}/enabled_functions")
    end_own_graph(g)
    truth.assert_untouched(sites)
    print(f"with no daemon: {n} calls by its own function_graph, {hits} hits of its kprobe")


if __name__ == "__main__":
    main()
