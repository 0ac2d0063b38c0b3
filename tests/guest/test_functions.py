# SPDX-License-Identifier: Apache-2.0
"""
The list of functions equals the guest's own available_filter_functions, as a multiset.

One difference is told apart: before Linux v6.1 (commit b39181f7c690, "ftrace: Add FTRACE_MCOUNT_MAX_OFFSET to
avoid adding weak function") a guest shows what is left of an overridden weak function under the name of the
function before it. We call it what later kernels do, on all of them.
"""

import bisect
import re
from collections import Counter

from daemon import Daemon
from guest import Guest
from testlib import each_kernel, ends_too, main


def own_list(guest):
    """(name, module or None) of each line: "vfs_read", "loop_attr_do_show [loop]"."""
    out = []
    for line in guest.run("cat /sys/kernel/tracing/available_filter_functions", 120).splitlines():
        f = line.split()
        out.append((f[0], f[1].strip("[]") if len(f) > 1 else None))
    return out


def names_weak(guest):
    major, minor = re.match(r"(\d+)\.(\d+)", guest.run("uname -r")).groups()
    return (int(major), int(minor)) >= (6, 1)


def as_guest_names(guest, listed):
    """(name, module) of each of our functions as the guest's own list has them, see above."""
    if names_weak(guest):
        return [(f["name"], f.get("module")) for f in listed]
    at = {}
    for name, addrs in guest.symbols().items():
        for a in addrs:
            at.setdefault(a, name)
    order = sorted(at)
    out = []
    for f in listed:
        name = f["name"]
        if name.startswith("__ftrace_invalid_address__"):
            name = at[order[bisect.bisect_right(order, int(f["ip"], 16)) - 1]]
        out.append((name, f.get("module")))
    return out


def ours(d, **q):
    return [(f["name"], f.get("module")) for f in d.functions("g", **q)]


def compare(got, want):
    a, b = Counter(got), Counter(want)
    assert a == b, (f"{sum((a - b).values())} too many: {list((a - b).items())[:10]}; "
                    f"{sum((b - a).values())} missing: {list((b - a).items())[:10]}")


@ends_too
@each_kernel
def test_same_as_the_guests(flavour):
    with Guest(flavour, modules=["loop", "dummy"]) as g, Daemon() as d:
        info = d.attach(g, "g")
        want = own_list(g)
        listed = d.functions("g")
        compare(as_guest_names(g, listed), want)
        # what the guest itself cannot trace is marked, and nothing else
        invalid = [n for n, _ in want if n.startswith("__ftrace_invalid_address__")]
        if not names_weak(g):
            assert not invalid, invalid[:3]
            invalid = [f["name"] for f in listed if f["name"].startswith("__ftrace_invalid_address__")]
        marked = [f["name"] for f in listed if f["state"] == "disabled"]
        assert Counter(invalid) == Counter(marked), (invalid[:3], marked[:3])
        assert info["functions"] == len(want)
        assert info["traceable"] == len(want) - len(invalid)
        repeated = [n for n, c in Counter(n for n, _ in want).items() if c > 1]
        print(f"{flavour}: {len(want)} functions, {len(invalid)} not traceable, "
              f"{len(repeated)} names occur more than once")
        assert any(m == "loop" for _, m in want), "the module's functions are missing in the guest"
        d.delete("/v1/guests/g")
        # a module that went away takes its functions with it
        g.run("rmmod loop")
        d.attach(g, "g")
        compare(as_guest_names(g, d.functions("g")), own_list(g))
        d.delete("/v1/guests/g")
        g.assert_alive()
        g.assert_no_warnings()


def test_globs_and_pages():
    import fnmatch
    with Guest("cloud-6.1") as g, Daemon() as d:
        d.attach(g, "g")
        every = ours(d)
        for glob in ("vfs_*", "*_open", "do_sys_openat2", "tcp_v4_*"):
            want = [f for f in every if fnmatch.fnmatchcase(f[0], glob)]
            assert want, glob
            compare(ours(d, glob=glob), want)
        compare(ours(d, glob="vfs_*", limit=7), [f for f in every if f[0].startswith("vfs_")])
        assert ours(d, glob="no_such_function_*") == []
        d.delete("/v1/guests/g")


if __name__ == "__main__":
    main()
