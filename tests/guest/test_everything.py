# SPDX-License-Identifier: Apache-2.0
"""All sites armed and disarmed again and again under load, and nothing left behind."""

from daemon import Daemon
from guest import Guest, wait_for
from testlib import LONG, ends_too, first_kernel, last_kernel, main
from truth import Truth, attach

ROUNDS = 100 if LONG else 3


def agent_ranges(info):
    """Where the memory that the guest lent starts: text, data."""
    return [int(info["agent"][n], 16) for n in ("text", "data")]


def areas_at(truth, starts):
    """The guest's own word on how large the areas at these addresses are."""
    areas = {a: end - a for a, end, _ in truth.vmallocinfo()}
    for s in starts:
        assert s in areas, f"{s:#x} is no area of /proc/vmallocinfo while the agent is loaded"
    # the last page of an area is the guard page
    return [(s, areas[s] - 4096) for s in starts]


@ends_too
@last_kernel
def test_all_sites(flavour):
    with Guest(flavour, modules=["loop"]) as g, Daemon() as d:
        truth, sites = attach(g, d)
        traceable = d.get("/v1/guests/g")["traceable"]
        # the load checks its own results, and goes on all the while
        g.run("(while [ ! -e /tmp/stop ]; do mixload 5 || { touch /tmp/bad; break; }; done "
              "> /tmp/load 2>&1; touch /tmp/done) & true")
        total = 0
        for i in range(ROUNDS):
            t = d.trace("g", [], mode="overwrite")["id"]
            info = d.wait_trace(t, lambda x: x["records"] > 10000)
            if i == 0:
                armed = info["functions"]
                skipped = info["skipped"]
                assert armed + skipped >= traceable and armed > 0.99 * traceable, info
                ranges = areas_at(truth, agent_ranges(d.get("/v1/guests/g")))
                pages = [p for start, size in ranges for p in truth.pages_of(start, size)]
                text, data = (truth.walk(start) for start, _ in ranges)
                assert not text["writable"] and not text["nx"], f"agent text: {text}"
                assert data["writable"] and data["nx"], f"agent data: {data}"
            info = d.stop_trace(t)
            restore = d.trace_info(t)["restore"]
            assert restore["sites_restored"] == armed, restore
            assert restore["verified"] is True, restore
            assert restore["sites_changed"] == 0, restore
            total += d.trace_info(t)["records"]
            d.delete(f"/v1/traces/{t}")
        g.assert_alive(60)
        info = d.get("/v1/guests/g")
        print(f"{flavour}: {armed} sites, {ROUNDS} rounds, {total} records, windows "
              f"{info['windows']}")
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] is True and restore["memory_freed"] is True, restore
        g.run("touch /tmp/stop")
        wait_for("the load ends", lambda: g.sh("[ -e /tmp/done ]")[0] == 0, 90, 1)
        assert g.sh("[ -e /tmp/bad ]")[0], "the load saw a wrong result: " + g.run("cat /tmp/load")
        truth.assert_untouched(sites)
        truth.assert_given_back(ranges, pages)
        assert not d.journals(), d.journals()
        g.assert_alive()
        g.assert_no_warnings()


@first_kernel
def test_attach_and_detach(flavour):
    """Attached, traced and let go again and again, under load; nothing grows, nothing is left."""
    rounds = 200 if LONG else 20
    with Guest(flavour, load="heavy") as g, Daemon() as d:
        truth = Truth(g)
        areas = {a for a, _, line in truth.vmallocinfo() if "module_alloc" in line or "execmem" in line}
        for _ in range(rounds):
            d.attach(g, "g")
            t = d.trace("g", ["vfs_*"], mode="overwrite")["id"]
            d.wait_trace(t, lambda x: x["records"] > 100)
            d.stop_trace(t)
            restore = d.delete("/v1/guests/g")["restore"]
            assert restore["verified"] and restore["memory_freed"], restore
            assert not d.journals(), d.journals()
        g.assert_alive(60)
        g.assert_no_warnings()
        truth.assert_untouched([])
        wait_for("all memory is back", lambda: areas == {
            a for a, _, line in truth.vmallocinfo() if "module_alloc" in line or "execmem" in line}, 20)
        print(f"{flavour}: attached and detached {rounds} times")


if __name__ == "__main__":
    main()
