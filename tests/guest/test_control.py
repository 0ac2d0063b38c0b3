# SPDX-License-Identifier: Apache-2.0
"""A running trace is paused, filtered anew, marked and copied, in a real guest; then all is as before."""

import time

from daemon import Daemon
from guest import Guest
from testlib import last_kernel, main


def change(d, t, **body):
    status, doc = d.request("PATCH", f"/v1/traces/{t}", body)
    assert status == 200, (status, doc)
    return doc


def count(d, t):
    time.sleep(0.3)  # more than the drain waits
    return d.trace_info(t)["records"]


def calls_after(d, t, after):
    """(function, pid) of the records."""
    end, found = count(d, t), set()
    while after < end:
        page = d.get(f"/v1/traces/{t}/records?after={after}&limit=10000")
        found |= {(r["function"], r["pid"]) for r in page["items"] if r["type"] != "marker"}
        after = page["next_after"]
    return found


def mark(d, t, text):
    d.post(f"/v1/traces/{t}/markers", {"text": text})


def control(d, g, tracer, call):
    options = {"retval": True} if tracer == "function_graph" else {}
    t = d.trace("g", ["do_sys_openat2"], tracer=tracer, **options)["id"]
    assert change(d, t, tracer=tracer)["tracer"] == tracer, "it is that already"
    mark(d, t, "before any record")
    g.run("open1000")
    change(d, t, tracing_on=False)
    paused = count(d, t)
    assert paused >= 1000 * call, paused
    g.run("open1000")
    assert count(d, t) == paused, "records while it is paused"
    # filters change while it is paused, and it stays so
    doc = change(d, t, filter=["vfs_read", "vfs_write"])
    assert (doc["functions"], doc["tracing_on"]) == (2, False), doc
    g.run("cat /proc/uptime >/dev/null")
    assert count(d, t) == paused
    mark(d, t, "on again")
    change(d, t, tracing_on=True)
    g.run("open1000; cat /proc/uptime >/dev/null")
    assert {f for f, _ in calls_after(d, t, paused)} == {"vfs_read", "vfs_write"}
    copy = d.post(f"/v1/traces/{t}/snapshot")
    doc = change(d, t, filter=["do_sys_openat2"], pids=[1])
    before = count(d, t)
    g.run("open1000")
    assert calls_after(d, t, before) <= {("do_sys_openat2", 1)}, "calls of others than task 1"
    end = d.stop_trace(t)
    assert end["lost"] == 0 and end["restore"]["verified"], end
    texts = [(r["text"], r["ts_ns"]) for r in d.records(t)[0] if r["type"] == "marker"]
    assert [x for x, _ in texts] == ["before any record", "on again"], texts
    assert 0 < texts[0][1] < texts[1][1]
    records, _ = d.records(copy["id"])
    assert [r["seq"] for r in records if "seq" in r][-1] >= copy["records"], copy
    assert len([r for r in records if r["type"] == "marker"]) == 2
    g.assert_alive()


@last_kernel
def test_changes(flavour):
    with Guest(flavour) as g, Daemon() as d:
        d.attach(g, "g")
        control(d, g, "function", 1)
        control(d, g, "function_graph", 2)
        doc = d.delete("/v1/guests/g?force=true")
        assert doc["restore"]["verified"], doc
        kinds = [x["type"] for x in d.get("/v1/events")["items"]]
        assert kinds.count("trace_snapshot") == 2 and kinds[-1] == "guest_detached", kinds
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
