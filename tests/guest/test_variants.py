# SPDX-License-Identifier: Apache-2.0
"""Other kernels and other ways to run one: KPTI, 4-level paging, no KASLR, generic and PREEMPT_RT."""

from collections import Counter

from daemon import Daemon
from guest import Guest
from testlib import LONG, main
from truth import Truth

# name, kernel, arguments of the guest, paging levels
VARIANTS = [
    ("kpti-4-level", "cloud-6.1", {"append": "pti=on no5lvl"}, 4),
    ("kpti-5-level", "cloud-6.12", {"append": "pti=on"}, 5),
]
if LONG:
    VARIANTS += [
        ("no-kaslr", "cloud-6.1", {"append": "nokaslr"}, 5),
        ("old-cpu", "cloud-6.12", {"cpu": "qemu64", "append": "pti=on"}, 4),
        ("generic", "generic-6.1", {}, 5),
        ("preempt-rt", "rt-6.1", {}, 5),
        ("one-vcpu", "cloud-6.1", {"cpus": 1}, 5),
        ("anonymous-ram", "cloud-6.12", {"ram": "anonymous"}, 5),
        ("above-4-gib", "cloud-6.1", {"mem": 5120}, 5),
    ]


def check(kernel, args, levels):
    with Guest(kernel, **args) as g, Daemon() as d:
        truth = Truth(g)
        info = d.attach(g, "g")
        assert info["paging_levels"] == levels, info
        if "pti=on" in args.get("append", ""):
            assert "isolation: " in g.run("dmesg | grep 'page tables isolation'")
        listed = d.functions("g")
        want = Counter(g.run("cut -d' ' -f1 /sys/kernel/tracing/available_filter_functions",
                             120).split())
        assert Counter(f["name"] for f in listed) == want
        sites = [int(f["ip"], 16) for f in listed]
        # exact
        t = d.trace("g", ["do_sys_openat2"])["id"]
        pid = int(g.run("open1000 200").split()[0])
        d.stop_trace(t)
        n = sum(r["type"] == "function" and r["pid"] == pid for r in d.records(t)[0])
        assert n == 200, f"{n} records, not 200"
        d.delete(f"/v1/traces/{t}")
        # everything
        t = d.trace("g", [], mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 10000)
        assert "mixload: ok" in g.run("mixload 3", 120)
        d.stop_trace(t)
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] is True and restore["memory_freed"] is True, restore
        truth.assert_untouched(sites, quiet=True)
        g.assert_alive()
        g.assert_no_warnings()


def _test(kernel, args, levels):
    return lambda: check(kernel, args, levels)


for _name, _kernel, _args, _levels in VARIANTS:
    globals()["test_" + _name.replace("-", "_")] = _test(_kernel, _args, _levels)


if __name__ == "__main__":
    main()
