# SPDX-License-Identifier: Apache-2.0
"""function_graph: every site with its return hijacked, in guests that fork, exit, kill, sleep, are
interrupted and have their CPUs taken away; and nothing of it left on any stack afterwards."""

import time

from daemon import Daemon
from graphlib import KERNELS, add_up, all_given_back, each, graph
from guest import Guest, wait_for
from testlib import ENDS, LONG, ends_too, last_kernel, main
from truth import attach


def starts(flavour):
    if flavour in ENDS:
        return 50
    return 1000 if LONG else 20 if flavour == KERNELS[0] else 5


def seconds(flavour):
    """Minutes in the long run."""
    return 300 if LONG else 10


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


@ends_too
@each
def test_all_sites_under_load(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        start_load(g)
        t = graph(d, mode="discard")  # what is overwritten could not be told by its kind
        in_use, end = [], time.monotonic() + seconds(flavour)
        while time.monotonic() < end:
            time.sleep(seconds(flavour) / 20)
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


@ends_too
@(each if LONG else last_kernel)
def test_starts_and_stops(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        start_load(g)
        left = 0
        rounds = starts(flavour)
        for _ in range(rounds):
            t = graph(d, mode="discard")
            d.wait_trace(t, lambda x: x["graph"]["entries"] > 1000)
            info = d.stop_trace(t)
            add_up(info["graph"])
            left = max(left, info["restore"]["returns_left"])
            d.delete(f"/v1/traces/{t}")
        print(f"{flavour}: {rounds} rounds, at most {left} returns left at a stop; "
              f"windows {d.get('/v1/guests/g')['windows']}")
        stop_load(g)
        all_given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
