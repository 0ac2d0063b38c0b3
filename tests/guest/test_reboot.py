# SPDX-License-Identifier: Apache-2.0
"""A guest that is reset under us: nothing is written into the kernel that comes after."""

import signal
import subprocess

from daemon import Daemon, Problem, binary
from guest import Guest, Skip, wait_for
from testlib import LONG, first_kernel, main
from truth import Truth


def reset(g):
    g.qmp.command("system_reset")
    g.wait_ready(120)


def check(flavour, append):
    with Guest(flavour, reboot=True, append=append) as g, Daemon() as d:
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


@first_kernel
def test_persistent(flavour):
    """A persistent trace goes on in each kernel that comes after a reset: by the API, then by the command."""
    rounds = 50 if LONG else 3
    with Guest(flavour, reboot=True) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["vfs_*"], persistent=True)["id"]
        d.wait_trace(t, lambda x: x["records"] > 100, 120)
        reset(g)
        old = d.wait_trace(t, lambda x: x["continued_by"], 120)
        assert old["state"] == "failed" and old["error"]["code"] == "guest.rebooted", old
        # its records keep the names of the kernel they were made in
        names = {r["function"] for r in d.get(f"/v1/traces/{t}/records")["items"]}
        assert len(names) > 3 and all(n.startswith("vfs_") for n in names), names
        d.wait_trace(old["continued_by"], lambda x: x["records"] > 100, 120)
        d.stop_trace(old["continued_by"])

        with open(g.dir / "out", "w+") as out, open(g.dir / "err", "w+") as err:
            p = subprocess.Popen([binary("hvftrace"), "-s", d.socket, "trace", "g", "-l", "vfs_*",
                                  "--persistent"], stdout=out, stderr=err)
            for _ in range(rounds - 1):
                now = wait_for("it records", lambda: running(d), 120)
                reset(g)
                wait_for("it goes on", lambda now=now: running(d) not in (None, now), 120)
            info = d.wait_trace(running(d), lambda x: x["records"] > 100, 120)
            truth = Truth(g)  # while it is traced: what is armed differs afterwards
            p.send_signal(signal.SIGINT)
            assert p.wait(60) == 0, (g.dir / "err").read_text()
        said = (g.dir / "err").read_text()
        assert said.count("the guest was rebooted; going on") == rounds - 1 and "restored" in said, said
        heads = (g.dir / "out").read_text().count("# tracer: function")
        assert heads == rounds, f"output of {heads} kernels"
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        assert g.kernel_text()[1] != truth.text, "nothing was armed"
        assert not d.journals(), d.journals()
        g.assert_alive()
        g.assert_no_warnings()
        print(f"{flavour}: {rounds} resets, {info['functions']} functions armed again each time")


def running(d):
    """The trace that runs and records, or None."""
    ids = [t["id"] for t in d.get("/v1/traces")["items"] if t["state"] == "running" and t["records"] > 10]
    return ids[0] if ids else None


@first_kernel
def test_reset(flavour):
    check(flavour, "")


@first_kernel
def test_reset_without_kaslr(flavour):
    """The kernel after looks the same to the byte: same addresses, same vmcoreinfo."""
    if not LONG:
        raise Skip("test_reset is the same but for that; HVF_LONG=1 asks for it")
    check(flavour, "nokaslr")


if __name__ == "__main__":
    main()
