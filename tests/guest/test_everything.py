# SPDX-License-Identifier: Apache-2.0
"""All sites armed and disarmed again and again under load, and nothing left behind."""

from daemon import Daemon, pick
from guest import Guest, wait_for
from testlib import LONG, each_kernel, main
from truth import Truth

ROUNDS = 100 if LONG else 10


def agent_ranges(info):
    """[(start, size)] of the memory that the guest lent."""
    at = pick(info, "agent", default=info)
    text, data = (int(str(pick(at, n, "agent_" + n)), 0) for n in ("text", "data"))
    return text, data


def areas_at(truth, starts):
    """The guest's own word on how large the areas at these addresses are."""
    areas = {a: end - a for a, end, _ in truth.vmallocinfo()}
    for s in starts:
        assert s in areas, f"{s:#x} is no area of /proc/vmallocinfo while the agent is loaded"
    # the last page of an area is the guard page
    return [(s, areas[s] - 4096) for s in starts]


@each_kernel
def test_all_sites(flavour):
    with Guest(flavour, modules=["loop"]) as g, Daemon() as d:
        truth = Truth(g)
        d.attach(g, "g")
        sites = [int(str(pick(f, "ip")), 0) for f in d.functions("g")]
        truth.note_module_sites(sites)
        traceable = pick(d.get("/v1/guests/g"), "traceable", "n_traceable")
        # the load checks its own results, and goes on all the while
        g.run("(while [ ! -e /tmp/stop ]; do mixload 5 || { touch /tmp/bad; break; }; done "
              "> /tmp/load 2>&1; touch /tmp/done) & true")
        total = 0
        for i in range(ROUNDS):
            t = pick(d.trace("g", [], mode="overwrite"), "id", "trace", "name")
            info = d.wait_trace(t, lambda x: pick(x, "records", "n_records") > 10000)
            if i == 0:
                armed = pick(info, "functions", "n_functions")
                skipped = pick(info, "skipped", "n_skipped", default=0)
                assert armed + skipped >= traceable and armed > 0.99 * traceable, info
                ranges = areas_at(truth, agent_ranges(d.get("/v1/guests/g")))
                pages = [p for start, size in ranges for p in truth.pages_of(start, size)]
                text, data = (truth.walk(start) for start, _ in ranges)
                assert not text["writable"] and not text["nx"], f"agent text: {text}"
                assert data["writable"] and data["nx"], f"agent data: {data}"
            info = d.stop_trace(t)
            restore = pick(d.trace_info(t), "restore")
            assert pick(restore, "sites_restored") == armed, restore
            assert pick(restore, "verified") is True, restore
            assert pick(restore, "sites_changed") == 0, restore
            total += pick(d.trace_info(t), "records", "n_records")
            d.delete(f"/v1/traces/{t}")
        g.assert_alive(60)
        info = d.get("/v1/guests/g")
        print(f"{flavour}: {armed} sites, {ROUNDS} rounds, {total} records, windows "
              f"{pick(info, 'windows', 'stop_windows')}")
        restore = d.delete("/v1/guests/g")
        assert pick(restore, "verified") is True and pick(restore, "memory_freed") is True, restore
        g.run("touch /tmp/stop")
        wait_for("the load ends", lambda: g.sh("[ -e /tmp/done ]")[0] == 0, 90, 1)
        assert g.sh("[ -e /tmp/bad ]")[0], "the load saw a wrong result: " + g.run("cat /tmp/load")
        truth.assert_untouched(sites)
        truth.assert_given_back(ranges, pages)
        assert not d.journals(), d.journals()
        g.assert_alive()
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
