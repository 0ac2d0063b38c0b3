# SPDX-License-Identifier: Apache-2.0
"""libvirt's domains as `virsh define` made them: found, traced, given back; ends and restarts survived."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

from daemon import Daemon, binary, build_dir, problem
from graphlib import graph
from guest import Guest, GuestError, Skip, die_with_parent, wait_for
from libvirt import PREFIX, URI, Domain, Libvirtd, answers, virsh
from testlib import LONG, first_kernel, main
from truth import attach

CALLS = 1000
SLEEPERS = ["vfs_*", "hrtimer_nanosleep", "do_wait"]  # some tasks are always inside


def need_libvirt():
    """The sanitizer's functions of XDR call those that were there when it started: none, and it crashes."""
    cache = (build_dir() / "CMakeCache.txt").read_text()
    if re.search(r"^HVF_SANITIZE:\w+=.*address", cache, re.M):
        raise Skip("libvirt, loaded later, crashes under AddressSanitizer (its xdr_*() interceptors)")


def others(d):
    """{name: what ls says of it}; nothing on stderr."""
    p = d.cli("--json", "ls")
    assert p.returncode == 0 and not p.stderr, (p.returncode, p.stderr)
    found = json.loads(p.stdout)["others"]
    for key in ("pid", "target"):
        values = [o[key] for o in found if o[key]]
        assert len(set(values)) == len(values), f"listed twice: {values}"
    return {o["name"]: o for o in found}


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def maps_libvirt(d):
    return "libvirt.so" in pathlib.Path(f"/proc/{d.pid}/maps").read_text()


def refused(d, target, status, code):
    body = problem(d.request("POST", "/v1/guests", {"target": target}), status, code)
    print(f"{target[:60]}: {body['detail']}")


def trace_exactly(g, d, name):
    """function, then function_graph: each call of a program once."""
    t = d.trace(name, ["do_sys_openat2"])["id"]
    pid = int(g.run("open1000").split()[0])
    d.stop_trace(t)
    records, _ = d.records(t)
    assert sum(r["type"] == "function" and r["pid"] == pid for r in records) == CALLS
    assert d.trace_info(t)["lost"] == 0
    t = d.trace(name, ["do_sys_openat2", "do_filp_open"], tracer="function_graph")["id"]
    pid = int(g.run("open1000").split()[0])
    d.stop_trace(t)
    records, _ = d.records(t)
    for kind in ("graph_entry", "graph_return"):
        n = sum(r["type"] == kind and r["pid"] == pid and r["function"] == "do_sys_openat2"
                for r in records)
        assert n == CALLS, f"{n} {kind}"
    info = d.trace_info(t)
    assert info["lost"] == 0, info


def no_stub_left(g):
    """QEMU has no gdbstub any more, and its directory is gone."""
    labels = [c["label"] for c in g.qmp.command("query-chardev")]
    assert "gdb" not in labels, labels


@first_kernel
def test_a_domain(flavour):
    """Untouched: listed, refused while off, traced by name and by UUID, paused and resumed, detached."""
    need_libvirt()
    with Libvirtd() as v, Domain(v, flavour).define() as g, Daemon() as d:
        truth, sites = attach(g, d)
        assert maps_libvirt(d)
        row = d.get("/v1/guests/g")
        assert (row["target"], row["vmm_pid"], row["state"]) == (g.target, g.pid, "running"), row
        assert g.name not in others(d), "an attached domain is listed again"
        refused(d, f"libvirt:{URI}/{g.uuid}", 409, "guest.already_attached")
        trace_exactly(g, d, "g")
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        truth.assert_untouched(sites)
        no_stub_left(g)
        assert g.state() == "running"

        idle = threads(d.pid)
        listed = others(d)[g.name]
        assert listed["traceable"] and listed["pid"] == g.pid and listed["target"] == g.target, listed
        row = d.attach(f"libvirt:{URI}/{g.uuid}", "by-uuid")
        assert row["vmm_pid"] == g.pid, row
        virsh("suspend", g.name)
        wait_for("paused", lambda: d.get("/v1/guests/by-uuid")["state"] == "stopped", 10)
        body = {"tracer": "function", "filter": ["vfs_read"]}
        problem(d.request("POST", "/v1/guests/by-uuid/traces", body), 409, "guest.stopped")
        virsh("resume", g.name)
        wait_for("resumed", lambda: d.get("/v1/guests/by-uuid")["state"] == "running", 10)
        d.delete("/v1/guests/by-uuid")
        wait_for("no thread is left over", lambda: threads(d.pid) <= idle, 10)
        truth.assert_untouched(sites)
        assert not d.journals(), d.journals()
        g.assert_alive()
        g.assert_no_warnings()


def test_what_cannot_be_attached():
    need_libvirt()
    with Libvirtd() as v, Daemon() as d:
        assert not maps_libvirt(d), "libvirt is loaded though nobody asked for it"
        g = Domain(v)
        try:
            g.define()
            row = others(d)[g.name]
            assert not row["traceable"] and row["reason"] == "the domain is shut off", row
            text = d.cli("ls").stdout
            assert [x for x in text.splitlines() if g.name in x and "no: the domain is shut off" in x], text
            refused(d, g.target, 409, "target.not_running")
            refused(d, f"libvirt:{URI}/{g.uuid}", 409, "target.not_running")
        finally:
            g.stop()
        refused(d, f"libvirt:{URI}/no-such-domain", 404, "target.no_domain")
        refused(d, f"libvirt:{URI}/00000000-0000-4000-8000-000000000000", 404, "target.no_domain")
        for target in ("libvirt:", "libvirt:vm", f"libvirt:{URI}", "libvirt:test:///default/test",
                       "libvirt:qemu+ssh://host/system/vm",
                       "libvirt:qemu+ext:///system/vm?command=/bin/true"):
            refused(d, target, 400, "target.syntax")
        refused(d, "libvirt:qemu+unix:///system/vm?socket=/nonexistent", 503, "libvirt.unreachable")
        assert d.get("/v1/guests")["items"] == []


@first_kernel
def test_libvirtd_goes_and_comes_back(flavour):
    """While it is away the state is told, records go on, and a window under TCG is one clear error. What
    could not be put back then is when it is there again. In the end the traced domain is destroyed."""
    need_libvirt()
    with Libvirtd() as v:
        if not v.ours:
            raise Skip("a libvirtd runs here that is not ours to stop")
        with Domain(v, flavour) as g, Daemon() as d:
            truth, sites = attach(g, d)
            t = d.trace("g", ["vfs_*"])["id"]
            d.wait_trace(t, lambda x: x["records"] > 100)
            v.kill()
            assert not answers()
            assert d.get("/v1/guests/g")["state"] == "running"
            assert g.name not in others(d)
            n = d.trace_info(t)["records"]
            d.wait_trace(t, lambda x: x["records"] > n + 100)
            start = time.monotonic()
            problem(d.request("POST", f"/v1/traces/{t}/stop", {}), 503, "libvirt.unreachable")
            assert time.monotonic() - start < 10
            v.start()
            wait_for("the trace can be stopped",
                     lambda: d.request("POST", f"/v1/traces/{t}/stop", {})[0] == 200, 30, 0.2)
            truth.assert_untouched(sites)
            assert "connected to libvirt again" in d.log(100000)

            # let go of meanwhile: the daemon finishes by itself
            t = d.trace("g", ["vfs_*"])["id"]
            v.kill()
            problem(d.request("DELETE", "/v1/guests/g?force=true"), 503, "libvirt.unreachable")
            v.start()
            wait_for("all is put back", lambda: not d.journals(), 60, 0.2)
            truth.assert_untouched(sites)
            no_stub_left(g)
            g.assert_alive()
            g.assert_no_warnings()

            d.attach(g, "g")
            t = graph(d, ["vfs_*"])
            d.wait_trace(t, lambda x: x["records"] > 100)
            virsh("destroy", g.name)
            lines = list(d.stream(f"/v1/traces/{t}/stream"))
            assert lines[-1]["type"] == "end" and lines[-1]["reason"] == "vmm.gone", lines[-1]
            assert d.get("/v1/guests/g")["state"] == "gone"
            d.request("DELETE", "/v1/guests/g")
            assert d.get("/v1/guests")["items"] == [] and not d.journals()
            refused(d, g.target, 409, "target.not_running")


@first_kernel
def test_managed_save(flavour):
    """Saved while it is traced, by somebody who asks nobody: what comes back has an agent that no journal
    tells of. The daemon takes it out once it runs again; without one, the next attach does."""
    if not LONG:
        raise Skip("saves and restores a domain; HVF_LONG=1 asks for it")
    need_libvirt()
    with Libvirtd() as v, Domain(v, flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        t = graph(d, SLEEPERS)
        d.wait_trace(t, lambda x: x["records"] > 100)
        g.save()
        info = d.wait_trace(t, lambda x: x["state"] != "running", 60)
        assert info["error"]["code"] in ("vmm.gone", "guest.migrating"), info["error"]
        d.request("DELETE", "/v1/guests/g")
        assert d.get("/v1/guests")["items"] == []
        refused(d, g.target, 409, "target.not_running")
        g.restore()
        bad = truth.changed(sites)[0]
        g.assert_alive(60)
        wait_for("it is taken out", lambda: not d.journals(), 60)
        truth.assert_untouched(sites, quiet=True)
        g.assert_no_warnings()

        d.attach(g, "g")
        t = graph(d, SLEEPERS)
        d.wait_trace(t, lambda x: x["records"] > 100)
        g.save()
        d.wait_trace(t, lambda x: x["state"] != "running", 60)
        d.request("DELETE", "/v1/guests/g")
        for note in d.journals():  # as if there had been no daemon
            note.unlink()
        g.restore()
        assert truth.changed(sites)[0], "no site is armed: this test shows nothing"
        d.attach(g, "g")
        truth.assert_untouched(sites, quiet=True)
        trace_exactly(g, d, "g")
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
        truth.assert_untouched(sites)
        g.assert_alive()
        g.assert_no_warnings()
        print(f"saved with {len(bad)} call sites armed")


def lent(truth):
    return {a for a, _, line in truth.vmallocinfo() if "module_alloc" in line or "execmem" in line}


@first_kernel
def test_snapshots(flavour):
    """virsh snapshot-create-as and snapshot-revert while it is traced. Nobody is asked before either, so
    memory is copied with armed sites in it, and the trace goes on; a revert has a QEMU of its own. What came
    back is found by proof and taken out: by the daemon that was there, else at the next attach."""
    if not LONG:
        raise Skip("takes and loads snapshots of a domain; HVF_LONG=1 asks for it")
    need_libvirt()
    with Libvirtd() as v, Domain(v, flavour, disk=True) as g, Daemon() as d:
        truth, sites = attach(g, d)
        areas = lent(truth)
        g.snapshot("clean")
        t = graph(d, SLEEPERS)
        d.wait_trace(t, lambda x: x["records"] > 100)
        g.snapshot("armed")
        d.wait_trace(t, lambda x, n=d.trace_info(t)["records"]: x["records"] > n + 100)

        def reverted(tag):
            g.revert(tag)
            info = d.wait_trace(t, lambda x: x["state"] != "running", 60)
            assert info["error"]["code"] == "vmm.gone", info["error"]

        def untouched():
            truth.assert_untouched(sites, quiet=True)
            wait_for("its memory is back", lambda: lent(truth) == areas, 60)
            g.assert_alive(60)
            g.assert_no_warnings()

        reverted("armed")
        d.request("DELETE", "/v1/guests/g")
        wait_for("it is taken out", lambda: not d.journals(), 60)
        untouched()

        # from before we came: nothing of ours is there, nor written to where it was
        d.attach(g, "g")
        t = graph(d, SLEEPERS)
        d.wait_trace(t, lambda x: x["records"] > 100)
        reverted("clean")
        d.request("DELETE", "/v1/guests/g")
        wait_for("it was looked at", lambda: not d.journals(), 60)
        untouched()

        # nobody is attached, and nobody notes it: it runs on by itself until somebody comes
        g.revert("armed")
        assert truth.changed(sites)[0], "no site is armed: this test shows nothing"
        g.assert_alive(60)
        d.attach(g, "g")
        untouched()
        trace_exactly(g, d, "g")
        restore = d.delete("/v1/guests/g")["restore"]
        assert restore["verified"] and restore["memory_freed"] and not d.journals(), restore
        untouched()


KVM_XML = """<domain type='kvm'>
  <name>{name}</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>
  <os><type arch='x86_64'>hvm</type></os><features><acpi/></features>
</domain>
"""


@contextlib.contextmanager
def kvm_domain(folder):
    """A domain on KVM that runs its firmware; its name."""
    name = f"{PREFIX}{os.getpid()}-0"
    xml = pathlib.Path(folder) / "kvm.xml"
    xml.write_text(KVM_XML.format(name=name))
    virsh("define", str(xml))
    try:
        virsh("start", name)
        yield name
    except GuestError as e:
        raise Skip(f"no domain on KVM: {e}") from e
    finally:
        virsh("destroy", name, check=False)
        virsh("undefine", name, check=False)


def lifecycle(events):
    return [x for x in events.read_text().splitlines() if x.startswith("event ")]


def listen(events, name):
    """Suspends and resumes until the listener has heard it."""
    def heard():
        virsh("suspend", name)
        virsh("resume", name)
        return wait_for("an event", lambda: lifecycle(events) and "Resumed" in lifecycle(events)[-1], 5)
    wait_for("virsh hears of events", heard, 30)


def test_kvm():
    """Stop windows are no events to libvirt, and need none; the state follows its events."""
    need_libvirt()
    if not os.path.exists("/dev/kvm"):
        raise Skip("no /dev/kvm")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        v = stack.enter_context(Libvirtd(kvm=True))
        name = stack.enter_context(kvm_domain(folder))
        events = pathlib.Path(folder) / "events"
        with open(events, "wb") as out:
            listener = subprocess.Popen(["stdbuf", "-oL", "virsh", "-c", URI, "event", "--domain", name,
                                         "--all", "--loop"], stdin=subprocess.DEVNULL, stdout=out,
                                        stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        stack.callback(listener.wait)
        stack.callback(listener.kill)
        listen(events, name)
        windows = subprocess.Popen([binary("vm_windows"), f"libvirt:{URI}/{name}"], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   preexec_fn=die_with_parent)
        stack.callback(windows.wait)
        stack.callback(windows.kill)

        def ask(n):
            windows.stdin.write(f"{n}\n")
            windows.stdin.flush()
            return windows.stdout.readline().strip()

        assert windows.stdout.readline().strip() == "kvm 2"
        before = lifecycle(events)
        assert ask(50) == "50 running -"
        virsh("suspend", name)
        wait_for("paused", lambda: ask(0) == "0 stopped -", 10)
        assert ask(1) == "0 stopped guest.stopped"
        virsh("resume", name)
        wait_for("resumed", lambda: ask(0) == "0 running -", 10)
        heard = wait_for("both events", lambda: lifecycle(events)[len(before) + 1:] and lifecycle(events), 10)
        assert len(heard) == len(before) + 2, heard[len(before):]
        if v.ours:
            v.kill()
            for when in ("while libvirtd is away", "when it is back"):
                # meanwhile those threads stop that were vCPUs when it was asked last
                said = ask(20)
                assert said == "20 running -", f"{when}: {said}"
                if not answers():
                    v.start()
        virsh("destroy", name)
        wait_for("gone", lambda: ask(0) == "0 gone -", 10)
        assert ask(1) == "0 gone vmm.gone"


def test_without_the_library():
    """One clear sentence; a plain QEMU is looked into all the same."""
    with tempfile.TemporaryDirectory() as broken:
        (pathlib.Path(broken) / "libvirt.so.0").touch()  # which the loader finds first, and cannot load
        with Guest(None) as g, Daemon(env={"LD_LIBRARY_PATH": broken}) as d:
            refused(d, f"libvirt:{URI}/vm", 422, "target.no_libvirt")
            refused(d, g.target, 409, "guest.not_booted")  # so far, without a kernel in it
            assert not maps_libvirt(d)


def test_without_libvirtd():
    """Nothing breaks: ls has nothing to say of it, a target is refused."""
    if answers():
        raise Skip("a libvirtd runs on this machine")
    with Daemon() as d:
        others(d)
        refused(d, f"libvirt:{URI}/vm", 503, "libvirt.unreachable")
        assert d.get("/v1/guests")["items"] == []


if __name__ == "__main__":
    main()
