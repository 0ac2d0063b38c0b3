# SPDX-License-Identifier: Apache-2.0
"""The list of functions equals the guest's own available_filter_functions, as a multiset."""

from collections import Counter

from daemon import Daemon
from guest import Guest
from testlib import each_kernel, main


def own_list(guest):
    """(name, module or None) of each line: "vfs_read", "loop_attr_do_show [loop]"."""
    out = []
    for line in guest.run("cat /sys/kernel/tracing/available_filter_functions", 120).splitlines():
        f = line.split()
        out.append((f[0], f[1].strip("[]") if len(f) > 1 else None))
    return out


def ours(d, **q):
    return [(f["name"], f.get("module")) for f in d.functions("g", **q)]


def compare(got, want):
    a, b = Counter(got), Counter(want)
    assert a == b, (f"{sum((a - b).values())} too many: {list((a - b).items())[:10]}; "
                    f"{sum((b - a).values())} missing: {list((b - a).items())[:10]}")


@each_kernel
def test_same_as_the_guests(flavour):
    with Guest(flavour, modules=["loop", "dummy"]) as g, Daemon() as d:
        info = d.attach(g, "g")
        want = own_list(g)
        listed = d.functions("g")
        compare([(f["name"], f.get("module")) for f in listed], want)
        # what the guest itself cannot trace is marked, and nothing else
        invalid = [n for n, _ in want if n.startswith("__ftrace_invalid_address__")]
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
        compare(ours(d), own_list(g))
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
