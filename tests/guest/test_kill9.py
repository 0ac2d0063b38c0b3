# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at any moment: the guest runs on, the next start cleans up or goes on."""

import os
import random
import signal
import threading
import time

from daemon import Daemon, Problem
from guest import Guest, wait_for
from testlib import LONG, first_kernel, last_kernel, main
from truth import Truth, attach

MOMENTS = 40 if LONG else 4


def clean_up(g, truth, sites, state):
    """Starts the next daemon and has everything given back, whichever way it does that."""
    with Daemon(state_dir=state) as d:
        listed = d.get("/v1/guests")["items"]
        for guest in listed:
            d.delete(f"/v1/guests/{guest['name']}")
        wait_for("the journal is done", lambda: not d.journals(), 60)
        truth.assert_untouched(sites, quiet=True)
        g.assert_alive()
        g.assert_no_warnings()
        # and it works again
        d.attach(g, "again")
        t = d.trace("again", ["do_sys_openat2"])["id"]
        pid = int(g.run("open1000 100").split()[0])
        d.stop_trace(t)
        n = sum(r["type"] == "function" and r["pid"] == pid for r in d.records(t)[0])
        assert n == 100, f"{n} records, not 100"
        d.delete("/v1/guests/again")
    truth.assert_untouched(sites, quiet=True)


def stopped_daemon(g, d, t):
    """SIGSTOP: the guest does not notice, and what nobody reads is counted."""
    seconds = 60 if LONG else 4
    os.kill(d.process.pid, signal.SIGSTOP)
    try:
        out = g.run(f"mixload {seconds}", seconds * 4 + 60)
        assert "mixload: ok" in out, out
    finally:
        os.kill(d.process.pid, signal.SIGCONT)
    info = d.wait_trace(t, lambda x: x["lost_ring"] > 0 or x["state"] != "running", 60)
    assert info["state"] == "running", info
    print(f"stopped for {seconds} s and more: {info['lost_ring']} records lost, told")


@last_kernel
def test_while_all_is_armed(flavour, tmp="state"):
    with Guest(flavour) as g:
        state = g.dir / tmp
        d = Daemon(state_dir=state).start()
        truth, sites = attach(g, d)
        t = d.trace("g", [])["id"]
        d.wait_trace(t, lambda x: x["records"] > 1000)
        agent_text = int(d.get("/v1/guests/g")["agent"]["text"], 16)
        stopped_daemon(g, d, t)
        d.kill9()
        bad, _, _ = truth.changed(sites)
        assert bad, "nothing is armed: this test shows nothing"
        # on its own, with the agent writing into its ring
        assert "mixload: ok" in g.run("mixload 5", 120)
        g.assert_alive()
        g.assert_no_warnings()
        clean_up(g, truth, sites, state)
        assert truth.walk(agent_text) is None, "the agent's memory is still there"


@first_kernel
def test_at_any_moment(flavour):
    """While it attaches, borrows, arms, disarms, gives back: the delay is drawn, and printed."""
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    print(f"seed {seed}")
    with Guest(flavour) as g:
        truth = Truth(g)
        state = g.dir / "state"
        sites = None
        for i in range(MOMENTS):
            d = Daemon(state_dir=state).start()
            if sites is None:
                d.attach(g, "g")
                sites = [int(f["ip"], 16) for f in d.functions("g")]
                truth.note_module_sites(sites)
                d.delete("/v1/guests/g")

            def life():
                try:
                    d.attach(g, "g")
                    t = d.trace("g", [])["id"]
                    d.stop_trace(t)
                    d.delete("/v1/guests/g")
                except (OSError, Problem, ValueError, AssertionError):
                    pass  # it dies under us: that is the point

            worker = threading.Thread(target=life)
            worker.start()
            delay = draw.uniform(0.0, 3.0)
            time.sleep(delay)  # not a wait for anything: the moment of death
            d.kill9()
            worker.join(60)
            g.assert_alive(60)
            print(f"killed after {delay:.3f} s")
            clean_up(g, truth, sites, state)


@first_kernel
def test_stopped_at_the_next_start(flavour):
    """What cannot be put back now is tried again, with nobody asking."""
    with Guest(flavour) as g:
        state = g.dir / "state"
        d = Daemon(state_dir=state).start()
        truth, sites = attach(g, d)
        d.trace("g", ["vfs_*"])
        d.kill9()
        g.qmp.command("stop")
        with Daemon(state_dir=state) as d:
            assert d.journals(), "put back in a guest that stands still?"
            g.qmp.command("cont")
            wait_for("the journal is done", lambda: not d.journals(), 60)
            truth.assert_untouched(sites, quiet=True)
            g.assert_alive()


if __name__ == "__main__":
    main()
