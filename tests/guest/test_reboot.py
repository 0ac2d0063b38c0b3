# SPDX-License-Identifier: Apache-2.0
"""A guest that is reset under us: nothing is written into the kernel that comes after."""

from daemon import Daemon, Problem
from guest import Guest, wait_for
from testlib import main


def reset(g):
    g.qmp.command("system_reset")
    g.wait_ready(120)


def check(append):
    with Guest("cloud-6.1", reboot=True, append=append) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", [])["id"]
        d.wait_trace(t, lambda x: x["records"] > 1000)
        reset(g)
        # seen by itself
        info = d.wait_trace(t, lambda x: x["state"] != "running", 60)
        assert info["state"] == "failed", info
        try:
            d.trace("g", ["vfs_read"])
            raise AssertionError("traced with the tables of another kernel")
        except Problem as e:
            assert e.body["code"] == "guest.rebooted", e
        d.stop_trace(t)
        d.request("DELETE", "/v1/guests/g")
        assert d.get("/v1/guests")["items"] == []
        assert not d.journals(), d.journals()
        # the kernel that runs now: untouched, and traced like any other
        d.attach(g, "again")
        t = d.trace("again", ["vfs_*"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        d.stop_trace(t)
        # agent loaded, nothing armed, reset
        reset(g)
        d.request("DELETE", "/v1/guests/again")
        assert not d.journals(), d.journals()
        d.attach(g, "third")
        # armed, the daemon dies, reset, next start
        d.trace("third", ["vfs_*"])
        state = d.state_dir
        d.kill9()
        reset(g)
        with Daemon(state_dir=state) as d2:
            wait_for("the journal is done", lambda: not d2.journals(), 60)
        g.assert_alive()
        g.assert_no_warnings()


def test_reset():
    check("")


def test_reset_without_kaslr():
    """The kernel after looks the same to the byte: same addresses, same vmcoreinfo."""
    check("nokaslr")


if __name__ == "__main__":
    main()
