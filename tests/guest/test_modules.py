# SPDX-License-Identifier: Apache-2.0
"""Modules that come and go while the guest is traced."""

import collections

from daemon import Daemon, problem
from guest import Guest, Skip, wait_for
from testlib import LONG, ends_too, first_kernel, main
from truth import attach

MODULE = "loop"


def listed(d):
    return {m["name"]: m for m in d.get("/v1/guests/g/modules")["items"]}


def use(g):
    """Has the module's code run, on its way out too."""
    g.run("hvf-module loop; cd /tmp; dd if=/dev/zero of=img bs=64k count=4 2>/dev/null; "
          "losetup /dev/loop0 img; dd if=/dev/loop0 of=/dev/null bs=4k 2>/dev/null; losetup -d /dev/loop0")


@ends_too
@first_kernel
def test_while_all_is_armed(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        assert MODULE not in listed(d)
        t = d.trace("g", [], mode="overwrite")["id"]
        before = d.wait_trace(t, lambda x: x["records"] > 1000)["functions"]
        use(g)
        there = listed(d)[MODULE]
        assert there["functions"] > 10, there
        # armed by itself: its globs meant all there is, also what comes
        d.wait_trace(t, lambda x: x["functions"] >= before + there["functions"] // 2, 30)
        use(g)
        assert "mixload: ok" in g.run("mixload 2", 120)
        g.run(f"rmmod {MODULE}")
        d.wait_trace(t, lambda x: x["functions"] <= before + 1, 30)
        assert MODULE not in listed(d)
        # somewhere else: what was freed is taken first
        g.run("hvf-module dummy || true; hvf-module loop")
        wait_for("it is there again", lambda: MODULE in listed(d), 30)
        d.wait_trace(t, lambda x: x["functions"] > before + 10, 30)
        use(g)
        info = d.stop_trace(t)
        arguments(g, d)
        records, _ = d.records(t)
        names = {r["function"] for r in records if r.get("module") == MODULE}
        assert len(names) > 5, names
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        truth.assert_untouched(sites)
        integrity_guard(g, d, truth, sites)
        g.assert_alive()
        g.assert_no_warnings()
        print(f"{flavour}: {there['functions']} call sites of {MODULE}, {len(names)} of them seen, "
              f"{info['functions']} armed at the end")


def arguments(g, d):
    """By the types that came with the module, and the kernel's that those go on from."""
    t = d.trace("g", ["lo_ioctl", "loop_set_status"], args=True, retval=True, tracer="function_graph")["id"]
    use(g)
    d.wait_trace(t, lambda x: x["records"] >= 6)
    d.stop_trace(t)
    records, _ = d.records(t)
    calls = [r for r in records if r["type"] == "graph_entry" and r["function"] == "lo_ioctl"]
    d.delete(f"/v1/traces/{t}")
    if g.sh(f"[ -e /sys/kernel/btf/{MODULE} ]")[0]:
        # before v5.11 (CONFIG_DEBUG_INFO_BTF_MODULES) a module comes without its types
        assert calls and "args" not in calls[0], calls[:1]
        return
    assert [a["name"] for a in calls[0]["args"]] == ["bdev", "mode", "cmd", "arg"], calls[0]
    assert calls[0]["args"][0]["type"] == "block_device *", calls[0]
    assert 0x4c01 in [int(r["args"][2]["value"], 16) for r in calls], calls  # LOOP_CLR_FD
    returns = [r for r in records if r["type"] == "graph_return" and r["function"] == "lo_ioctl"]
    assert {(r["retval"]["type"], r["retval"]["text"]) for r in returns} >= {("int", "0")}, returns


def integrity_guard(g, d, truth, sites):
    """A guest that watches its own text is refused before anything is touched."""
    d.attach(g, "g")
    # a module of that name will do, without the signature that it had under its own
    g.run("sed 's/veth/lkrg/g; s/~Module signature/~No longer signed/' /lib/hvf-modules/veth.ko "
          "> /tmp/lkrg.ko; insmod /tmp/lkrg.ko")
    reply = d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": ["vfs_*"]})
    problem(reply, 409, "guest.integrity_guard")
    assert d.get("/v1/guests/g")["agent"]["loaded"] is False
    truth.assert_untouched(sites, quiet=True)
    g.run("rmmod lkrg")
    t = d.trace("g", ["vfs_*"])["id"]
    d.wait_trace(t, lambda x: x["records"] > 10)
    d.stop_trace(t)
    assert d.delete("/v1/guests/g")["restore"]["verified"]


def of_loop(d, t, kind):
    return [r for r in d.get(f"/v1/traces/{t}/records?limit=1000")["items"]
            if r.get("module") == MODULE and r["type"] == kind]


def test_options_of_new_modules():
    """A module that comes while it is traced: what was asked of its functions holds, be it as a root, of what
    they return or of who calls. Also when another glob's module has gone. And the journal does not grow."""
    if not LONG:
        raise Skip("boots a guest of its own; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1", modules=["loop", "dummy"]) as g, Daemon() as d:
        truth, sites = attach(g, d)
        both = ["dummy_*", "lo*:mod:loop"]
        for options in ({"filter": both, "retval": True}, {"filter": [*both, "vfs_read"], "graph": both[1:]},
                        {"filter": both, "stack": both, "tracer": "function"}):
            t = d.trace("g", **{"tracer": "function_graph", "mode": "overwrite", **options})["id"]
            # what is no module's: the kernel has functions so called, too
            gone = len(options["filter"]) - len(both) + sum(
                f["state"] == "traceable" and not f["module"] for f in d.functions("g", both[0]))
            g.run(f"rmmod dummy; rmmod {MODULE}")
            d.wait_trace(t, lambda x, n=gone: x["functions"] == n, 30)
            g.run(f"hvf-module {MODULE}")  # and dummy stays away
            d.wait_trace(t, lambda x, n=gone: x["functions"] > n + 5, 30)
            use(g)
            kind = "function" if options.get("tracer") else "graph_entry"
            calls = wait_for("its calls", lambda t=t, k=kind: of_loop(d, t, k), 30)
            if options.get("retval"):
                back = of_loop(d, t, "graph_return")
                assert back and all("retval" in r for r in back if r["function"] == "lo_ioctl"), back[:5]
            if options.get("graph"):
                roots = [r for r in calls if r["depth"] == 0]
                assert roots, calls[:5]
            if options.get("stack"):
                assert all(r["stack"] for r in calls), calls[:5]
            d.stop_trace(t)
            d.delete(f"/v1/traces/{t}")
            g.run("hvf-module dummy")
        too_many_callers(g, d)
        journal_stays_short(g, d)
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        truth.assert_untouched([s for s in sites if s not in truth.module_sites], quiet=True)
        g.assert_alive()
        g.assert_no_warnings()


def too_many_callers(g, d):
    """All but three of the functions that can have their callers are there from the beginning."""
    g.run(f"rmmod {MODULE}")
    there = [f for f in d.functions("g") if f["state"] == "traceable"]
    dummy = sum(f["module"] == "dummy" for f in there)
    count = collections.Counter(f["name"] for f in there)
    of = ("vfs_", "tcp_", "net", "xfrm_", "blk_")
    names = sorted(n for n, k in count.items() if k == 1 and n.startswith(of))
    globs = [*names[:997 - dummy], "*:mod:[dl]*"]
    t = d.trace("g", globs, tracer="function", mode="overwrite", stack=globs)["id"]
    before = d.trace_info(t)["functions"]
    assert before == 997, (before, dummy, len(names))
    g.run(f"hvf-module {MODULE}")
    info = d.wait_trace(t, lambda x: x["functions"] > before + 5, 30)
    n = info["functions"] - before
    assert info["unheeded"] == n - 3, (info, n)
    print(f"{before} functions with callers, then {n} more of {MODULE}, {info['unheeded']} of them without")
    d.stop_trace(t)
    d.delete(f"/v1/traces/{t}")


def journal_stays_short(g, d):
    """A module that is loaded and unloaded in a loop."""
    t = d.trace("g", [":mod:loop", "vfs_read"], mode="overwrite")["id"]
    n = d.trace_info(t)["functions"]
    sizes = []
    for _ in range(40):
        g.run(f"rmmod {MODULE}")
        d.wait_trace(t, lambda x: x["functions"] < n, 30)
        g.run(f"hvf-module {MODULE}")
        d.wait_trace(t, lambda x: x["functions"] >= n, 30)
        sizes.append(sum(p.stat().st_size for p in d.journals()))
    print(f"journal: {sizes[0]} bytes after the first round, {max(sizes)} at most, {sizes[-1]} in the end")
    assert max(sizes) < 200000 and sizes[-1] < sizes[0] * 30, sizes
    d.stop_trace(t)
    d.delete(f"/v1/traces/{t}")


if __name__ == "__main__":
    main()
