# SPDX-License-Identifier: Apache-2.0
"""The oldest kernel that we hold to, and Debian's newest: what the product does, once each."""

import os
import re
from collections import Counter

from daemon import Daemon
from guest import Guest
from test_functions import compare, names_weak, own_list
from testlib import ENDS, main
from truth import attach
from ways import StockWay, check_way

def check_functions(d, g):
    """The guest's own list, with a module. Its names for weak ones take long: see test_functions.py."""
    listed, want = [(f["name"], f.get("module")) for f in d.functions("g")], own_list(g)
    assert len(listed) == len(want) and any(m == "loop" for _, m in want), len(want)
    if names_weak(g):
        compare(listed, want)
    else:
        more = Counter(f for f in listed if not f[0].startswith("__ftrace_invalid_address__")) - Counter(want)
        assert not more, list(more)[:10]


def check_facts(d, g):
    """What it is told to be built with is what its own file says."""
    built = set(re.findall(r"^(CONFIG_\w+)=y$", (g.kernel / "config").read_text(), re.M))
    told = d.get("/v1/guests/g/facts")["config"]
    assert told, "nothing is told"
    wrong = [name for name, there in told.items() if there != (name in built)]
    assert not wrong, wrong


def check_syscalls(d, g):
    """Names, arguments and what they point to: of the program, and of a file."""
    t = d.trace("g", ["execve", "openat"], tracer="syscalls", mode="discard")["id"]
    g.run("cat /proc/version")
    info = d.stop_trace(t)
    records, _ = d.records(t)
    d.delete(f"/v1/traces/{t}")
    assert info["lost"] == 0, info
    calls = [(r["syscall"], [a["text"] for a in r["args"]], r["ret"]) for r in records
             if r["type"] == "syscall"]
    assert any(c == "execve" and a[1] == '["cat", "/proc/version"]' for c, a, _ in calls), calls
    # (directory, path, flags) without a mode: no file is made
    assert ("openat", ["AT_FDCWD", '"/proc/version"', "O_RDONLY"], "3") in calls, calls


def check_own_tracing(d, way, g):
    """The guest's own tracer over a site of ours: it sees each call, and has nothing to complain of."""
    t = d.trace("g", ["do_sys_openat2"])["id"]
    g.run("cd /sys/kernel/tracing; echo do_sys_openat2 >set_ftrace_filter; echo function >current_tracer")
    pid = way.open_files(40)
    own = g.run(f"grep -c '^ *open1000-{pid} .*: do_sys_openat2 <-' /sys/kernel/tracing/trace")
    g.run("cd /sys/kernel/tracing; echo nop >current_tracer; echo >set_ftrace_filter")
    d.stop_trace(t)
    d.delete(f"/v1/traces/{t}")
    assert int(own) == 40, own


def each(test):
    test.flavours = os.environ.get("HVF_KERNELS", " ".join(ENDS)).split()
    return test


@each
def test_kernel(flavour):
    with Guest(flavour, modules=["loop"]) as g, Daemon() as d:
        truth, sites = attach(g, d)
        way = StockWay(g, sites, truth)
        check_functions(d, g)
        check_facts(d, g)
        check_syscalls(d, g)
        check_own_tracing(d, way, g)
        check_way(d, way, "g")


if __name__ == "__main__":
    main()
