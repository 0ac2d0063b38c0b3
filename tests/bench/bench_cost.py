# SPDX-License-Identifier: Apache-2.0
"""What tracing every function costs, on the same work in one run on one guest: untraced, the guest's
own function and function_graph tracers, ours. Prints the ratios of the added costs and the native cost
of a record and of a pair, and writes JSON with kernel, machine and flags to $HVF_BENCH_OUT
(build/bench-cost.json).

HVF_LONG=1 takes more rounds. The target ratio is checked in the long run only: the short one is too
short on a busy machine.
"""

import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

from daemon import Daemon, binary, build_dir, is_release
from guest import TOP, Guest
from testlib import LONG, main

TRACERS = "function", "function_graph"
ROUNDS = 9 if LONG else 3
ITERATIONS = 20000 if LONG else 2000
FLAVOUR = os.environ.get("HVF_BENCH_KERNEL", "cloud-6.1")
OUT = pathlib.Path(os.environ.get("HVF_BENCH_OUT", TOP / "build" / "bench-cost.json"))


def work(g):
    """ns per iteration: the best of two, as the first one warms caches and translated code."""
    return min(int(n) for n in g.run(f"iter {ITERATIONS} 2", 300).split())


def own_tracer(g, tracer):
    g.run(f"cd /sys/kernel/tracing; echo >set_ftrace_filter; echo {tracer} >current_tracer", 120)
    try:
        return work(g)
    finally:
        g.run("cd /sys/kernel/tracing; echo nop >current_tracer", 120)


def our_tracer(g, d, tracer):
    t = d.trace("g", [], mode="overwrite", tracer=tracer)["id"]
    try:
        return work(g)
    finally:
        d.stop_trace(t)
        d.delete(f"/v1/traces/{t}")


def native():
    """The agent's own object code, called on this machine: ns per record."""
    p = subprocess.run([binary("bench_agent")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                       timeout=120, check=True)
    return json.loads(p.stdout)


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    cache = (build_dir() / "CMakeCache.txt").read_text()
    flags = {k: v for k, v in re.findall(
        r"^(CMAKE_BUILD_TYPE|CMAKE_C_FLAGS|CMAKE_C_FLAGS_RELEASE|HVF_SANITIZE)(?::\w+)?=(.*)$",
        cache, re.M)}
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.splitlines()[0]
    return {"cpu": cpu.group(1) if cpu else platform.processor(), "cpus": os.cpu_count(),
            "host_kernel": platform.release(), "load": os.getloadavg()[0], "qemu": qemu,
            "flags": flags}


def test_cost():
    with Guest(FLAVOUR, load="none", thread="single") as g, Daemon() as d:
        d.attach(g, "g")
        times = {"untraced": []}
        # taken in turn, so that what else the machine does hits all three alike
        for _ in range(ROUNDS):
            times["untraced"].append(work(g))
            for tracer in TRACERS:
                times.setdefault(f"own {tracer}", []).append(own_tracer(g, tracer))
                times.setdefault(f"our {tracer}", []).append(our_tracer(g, d, tracer))
        windows = d.get("/v1/guests/g")["windows"]
        d.delete("/v1/guests/g")
        g.assert_no_warnings()
        release = g.run("uname -r").strip()
    best = {k: statistics.median(v) for k, v in times.items()}
    added = {k: v - best["untraced"] for k, v in best.items() if k != "untraced"}
    ratio = {}
    for tracer in TRACERS:
        assert added[f"own {tracer}"] > 0, f"the guest's own {tracer} seems to cost nothing: {times}"
        ratio[tracer] = round(added[f"own {tracer}"] / max(added[f"our {tracer}"], 1), 2)
    result = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "kernel": release,
              "accel": "tcg", "iterations": ITERATIONS, "ns_per_iteration": times,
              "median": best, "added_ns": added, "ratio": ratio,
              "native": native(), "stop_windows": windows, "machine": machine()}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"untraced {best['untraced']:.0f} ns an iteration")
    for tracer in TRACERS:
        print(f"{tracer}: added by the guest's own {added['own ' + tracer]:.0f} ns, by ours "
              f"{added['our ' + tracer]:.0f} ns: {ratio[tracer]:.1f} to 1")
    print(f"native: {json.dumps(result['native'])}")
    print(f"wrote {OUT}")
    assert min(ratio.values()) > 1, f"dearer than the guest's own tracer: {ratio}"
    if LONG and is_release():
        assert min(ratio.values()) >= 10, f"{ratio}: the target is 10 to 1"


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
