# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a traced guest are taken and loaded. Whoever does that asks nobody: what is in the guest's
memory afterwards is found out by proof, and given back."""

from daemon import Daemon
from guest import Guest, Skip, wait_for
from snapshot import Snapshots
from testlib import LONG, first_kernel, main
from truth import attach

# QEMU under TCG does not put the TSC back (cpu_get_ticks_locked(): it only grows), so a clock that is made of
# it jumps over all the time since the snapshot, and the guest's watchdogs complain of that
CLOCK = "tsc=unstable"
SLEEPERS = ["vfs_*", "hrtimer_nanosleep", "do_wait"]  # some tasks are always inside


def lent(truth):
    return {a for a, _, line in truth.vmallocinfo() if "module_alloc" in line or "execmem" in line}


def restored(d, t):
    """The trace has found out that the memory is another time's."""
    info = d.wait_trace(t, lambda x: x["state"] != "running", 60)
    assert info["state"] == "failed" and info["error"]["code"] == "guest.restored", info
    return info


def untouched(g, truth, sites, areas):
    truth.assert_untouched(sites, quiet=True)
    wait_for("its memory is back", lambda: lent(truth) == areas, 30)
    g.assert_alive(60)
    g.assert_no_warnings()


def traces(d, name):
    """It can be traced like any other."""
    t = d.trace(name, ["vfs_*"])["id"]
    d.wait_trace(t, lambda x: x["records"] > 100)
    d.stop_trace(t)
    d.delete(f"/v1/traces/{t}")


@first_kernel
def test_loaded_while_traced(flavour):
    """One from before we came: nothing of ours is there, and nothing is written to where it was."""
    with Guest(flavour, mem=256, append=CLOCK) as g, Daemon() as d:
        snapshots = Snapshots(g)
        truth, sites = attach(g, d)
        areas = lent(truth)
        snapshots.save("clean")
        t = d.trace("g", ["vfs_*"], persistent=True)["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        snapshots.load("clean")
        restored(d, t)
        # a persistent one goes on by itself
        now = d.wait_trace(t, lambda x: x["continued_by"], 60)["continued_by"]
        d.wait_trace(now, lambda x: x["records"] > 100)
        d.stop_trace(now)
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        assert not d.journals(), d.journals()
        untouched(g, truth, sites, areas)


@first_kernel
def test_taken_while_traced(flavour):
    """One with armed sites, loaded when nobody is attached, when one is, and while a trace runs."""
    if not LONG:
        raise Skip("loads several snapshots; HVF_LONG=1 asks for it")
    with Guest(flavour, mem=256, append=CLOCK) as g, Daemon() as d:
        snapshots = Snapshots(g)
        truth, sites = attach(g, d)
        areas = lent(truth)
        g.run("(while :; do sleep 0.3; done) > /dev/null & true")
        t = d.trace("g", SLEEPERS, tracer="function_graph", mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        snapshots.save("armed")
        # into the very trace that it was taken of: its rings are of an earlier time
        d.wait_trace(t, lambda x, n=d.trace_info(t)["records"]: x["records"] > n + 1000)
        snapshots.load("armed")
        restored(d, t)
        wait_for("given back", lambda: not truth.changed(sites)[0], 60, 1)
        wait_for("its memory is back", lambda: lent(truth) == areas, 60, 1)
        d.delete("/v1/guests/g")
        untouched(g, truth, sites, areas)

        # nobody is attached: it runs on by itself, and the next one to come takes it out
        snapshots.load("armed")
        assert truth.changed(sites)[0], "the snapshot has no armed sites: this test shows nothing"
        assert "mixload: ok" in g.run("mixload 2", 120)
        d.attach(g, "g")
        untouched(g, truth, sites, areas)
        traces(d, "g")

        # one is attached, with no trace, and an agent of its own
        snapshots.load("armed")
        assert truth.changed(sites)[0]
        traces(d, "g")
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        untouched(g, truth, sites, areas)

        # at the detach
        d.attach(g, "g")
        traces(d, "g")
        snapshots.load("armed")
        assert truth.changed(sites)[0]
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        assert not d.journals(), d.journals()
        untouched(g, truth, sites, areas)


@first_kernel
def test_loaded_while_no_daemon_lives(flavour):
    """What the journal tells of is not there any more: it is dropped; what the snapshot brought is found."""
    if not LONG:
        raise Skip("loads several snapshots; HVF_LONG=1 asks for it")
    with Guest(flavour, mem=256, append=CLOCK) as g:
        state = g.dir / "state"
        snapshots = Snapshots(g)
        with Daemon(state_dir=state) as d:
            truth, sites = attach(g, d)
            areas = lent(truth)
            snapshots.save("clean")
            d.trace("g", ["vfs_open"])
            snapshots.save("armed")
            d.delete("/v1/guests/g?force=true")
        for tag in ("clean", "armed"):
            d = Daemon(state_dir=state).start()
            d.attach(g, "g")
            t = d.trace("g", ["vfs_*"])["id"]
            d.wait_trace(t, lambda x: x["records"] > 100)
            d.kill9()
            snapshots.load(tag)
            with Daemon(state_dir=state) as d:
                wait_for("the journal is done", lambda d=d: not d.journals(), 60)
                d.attach(g, "g")
                untouched(g, truth, sites, areas)
                traces(d, "g")
                assert d.delete("/v1/guests/g")["restore"]["verified"]


def test_taken_when_more_was_armed():
    """One of a time when the very agent that the journal has was called from sites that it has no more."""
    if not LONG:
        raise Skip("loads several snapshots; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1", mem=256) as g:
        state = g.dir / "state"
        snapshots = Snapshots(g)
        truth = sites = None
        areas = None
        for tag, later in (("none", None), ("less", ["vfs_open"])):
            d = Daemon(state_dir=state).start()
            if truth is None:
                truth, sites = attach(g, d)
                areas = lent(truth)
            else:
                d.attach(g, "g")
            g.run("(while :; do sleep 0.3; done) > /dev/null & true")
            t = d.trace("g", SLEEPERS, tracer="function_graph", mode="overwrite")["id"]
            d.wait_trace(t, lambda x: x["records"] > 100)
            snapshots.save(tag)
            d.stop_trace(t)
            if later:
                d.trace("g", later)
            d.kill9()
            assert d.journals(), "nothing is outstanding: this test shows nothing"
            snapshots.load(tag)
            assert truth.changed(sites)[0], "the snapshot has no armed sites: this test shows nothing"
            with Daemon(state_dir=state) as d:
                wait_for("the journal is done", lambda d=d: not d.journals(), 60)
                untouched(g, truth, sites, areas)
                assert "mixload: ok" in g.run("mixload 2", 120)
                assert "though no journal told of them" in d.log(), d.log()
                d.attach(g, "g")
                traces(d, "g")
                assert d.delete("/v1/guests/g")["restore"]["verified"]
            untouched(g, truth, sites, areas)


if __name__ == "__main__":
    main()
