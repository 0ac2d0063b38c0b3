# SPDX-License-Identifier: Apache-2.0
"""A guest whose memory is copied away: refused, and a trace that runs gives way."""

import concurrent.futures
import contextlib
import os

from daemon import Daemon, problem
from guest import Guest, Skip, wait_for
from testlib import LONG, first_kernel, main
from truth import attach


def begin(g):
    """A migration that will not end by itself."""
    g.qmp.command("migrate-set-parameters", **{"max-bandwidth": 4096})
    g.qmp.command("migrate", uri="exec:cat >/dev/null")
    wait_for("it is active", lambda: g.qmp.command("query-migrate").get("status") == "active", 20)


def cancel(g):
    g.qmp.command("migrate_cancel")
    wait_for("it is over", lambda: g.qmp.command("query-migrate").get("status") == "cancelled", 20)


@first_kernel
def test_migration(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        begin(g)
        reply = d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": ["vfs_*"]})
        problem(reply, 409, "guest.migrating")
        truth.assert_untouched(sites, quiet=True)
        cancel(g)
        t = d.trace("g", ["vfs_*"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        begin(g)
        info = d.wait_trace(t, lambda x: x["state"] == "failed", 30)
        assert info["error"]["code"] == "guest.migrating", info
        truth.assert_untouched(sites, quiet=True)
        if LONG:
            detached_meanwhile(g, d, truth, sites)
            t = d.trace("g", ["vfs_*"])["id"]
        else:
            cancel(g)
        d.stop_trace(t)
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        truth.assert_untouched(sites)
        g.assert_alive()
        g.assert_no_warnings()


def detached_meanwhile(g, d, truth, sites):
    """What calls the agent may be in the copy for ever: its memory stays until that has ended, then goes."""
    problem(d.request("DELETE", "/v1/guests/g"), 409, "guest.migrating")
    assert d.journals(), "the agent's memory is noted nowhere"
    truth.assert_untouched(sites, quiet=True)
    cancel(g)
    wait_for("the journal is done", lambda: not d.journals(), 60)
    g.assert_alive()
    d.attach(g, "g")


@first_kernel
def test_who_arrives(flavour):
    """A trace gives way while its guest leaves. What arrives has what it leads to, and can be traced."""
    with Guest(flavour) as g, Daemon() as d:
        copy = d.dir / "copy"
        truth, sites = attach(g, d)
        t = d.trace("g", ["vfs_*", "do_wait", "*nanosleep"], tracer="function_graph", mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        g.qmp.command("migrate-set-parameters", **{"max-bandwidth": 16 << 20})
        g.qmp.command("migrate", uri=f"exec:cat >{copy}")
        info = d.wait_trace(t, lambda x: x["state"] == "failed", 30)
        assert info["error"]["code"] == "guest.migrating", info
        problem(d.request("DELETE", "/v1/guests/g"), 409, "guest.migrating")
        g.qmp.command("migrate-set-parameters", **{"max-bandwidth": 1 << 33})
        wait_for("it has left", lambda: g.qmp.command("query-migrate")["status"] == "completed", 120)
        g.stop()
        wait_for("the journal is done", lambda: not d.journals(), 60)
        with Guest(flavour, incoming=copy) as to, Daemon() as there:
            to.note_text(truth.sym("_text"), truth.sym("_etext"))
            truth.guest = to
            truth.assert_untouched(sites, quiet=True)
            to.assert_alive(60)
            there.attach(to, "g")
            t = there.trace("g", ["vfs_*"])["id"]
            there.wait_trace(t, lambda x: x["records"] > 100)
            there.stop_trace(t)
            assert there.delete("/v1/guests/g")["restore"]["verified"]
            truth.assert_untouched(sites)
            to.assert_alive(60)
            to.assert_no_warnings()


def test_a_monitor_that_does_not_answer():
    """QEMU's main thread waits in open(): whether the guest goes away is not known, so nothing is armed."""
    if not LONG:
        raise Skip("boots a guest of its own; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1") as g, Daemon() as d:
        truth, sites = attach(g, d)
        with silent(g):
            wait_for("it is said", lambda: d.get("/v1/guests/g")["state"] == "unknown", 60)
            reply = d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": ["vfs_*"]})
            problem(reply, 504, "vmm.timeout")
            wait_for("an event, too", lambda: "vmm_silent" in kinds(d), 30)
            truth.assert_untouched(sites, quiet=True)
        wait_for("it answers", lambda: d.get("/v1/guests/g")["state"] == "running", 60)
        wait_for("that is an event, too", lambda: "vmm_answers" in kinds(d), 30)
        t = d.trace("g", ["vfs_*"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        d.stop_trace(t)
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        truth.assert_untouched(sites)
        g.assert_alive()


@contextlib.contextmanager
def silent(g):
    """Both monitors' commands wait; the guest runs on, and its RAM is read from the file that holds it."""
    fifo = g.dir / "fifo"
    os.mkfifo(fifo)
    g.qmp.sock.settimeout(300)
    g.read_phys = g.read_ram
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            dump = pool.submit(g.qmp.command, "dump-guest-memory", paging=False, protocol=f"file:{fifo}",
                               begin=0, length=4096)
            try:
                yield
            finally:
                with open(fifo, "rb") as f:
                    while f.read(65536):
                        pass
            dump.result(60)
    finally:
        del g.read_phys


def kinds(d):
    return [e["type"] for e in d.get("/v1/events")["items"]]


if __name__ == "__main__":
    main()
