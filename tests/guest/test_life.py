# SPDX-License-Identifier: Apache-2.0
"""What a guest does, or has done to it, while it is traced: memory and CPUs come, it panics, it jumps into
another kernel, it sleeps, it is paused. Each time it goes on, or what runs then is found out by proof."""

import pathlib
import re
import tempfile

from daemon import Daemon, problem
from guest import Guest, Skip, initramfs, kernel_dir, wait_for
from testlib import LONG, first_kernel, main
from truth import Truth, attach

SLEEPERS = ["vfs_*", "hrtimer_nanosleep", "do_wait"]  # some tasks are always inside


def long_only():
    if not LONG:
        raise Skip("boots a guest of its own; HVF_LONG=1 asks for it")


def goes_on(d, t, want=200):
    """Records are still coming."""
    n = d.trace_info(t)["records"]
    info = d.wait_trace(t, lambda x: x["state"] != "running" or x["records"] > n + want)
    assert info["state"] == "running", info
    return info


def given_back(g, d, truth, sites, name="g"):
    restore = d.delete(f"/v1/guests/{name}")["restore"]
    assert restore["verified"] and restore["memory_freed"], restore
    assert not d.journals(), d.journals()
    truth.assert_untouched(sites)
    g.assert_alive(60)
    g.assert_no_warnings()


@first_kernel
def test_hotplug(flavour):
    """Memory, in which stacks and the agent come to lie; a CPU, whose calls are recorded."""
    long_only()
    # Where they know no hypervisor, and they do not know TCG, new kernels have no room for CPUs that are not
    # enabled in firmware's tables: Linux v6.12.117 arch/x86/kernel/acpi/boot.c acpi_is_processor_usable().
    # That of VMware is found by a port that QEMU has, too. Then it is as under KVM.
    extra = ["-m", "slots=2,maxmem=2G", "-smp", "maxcpus=4", "-smbios", "type=1,serial=VMware-1"]
    # 6.12 would take it into use by itself, in a zone of its choice
    offline = "memhp_default_state=offline"
    with Guest(flavour, mem=256, cpu="max,-hypervisor", extra=extra, append=offline) as g, Daemon() as d:
        truth, sites = attach(g, d)
        ram = d.get("/v1/guests/g")["ram_bytes"]
        t = d.trace("g", SLEEPERS, tracer="function_graph", mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        plug_memory(g)
        # stacks of tasks that begin now lie in it: the allocator takes from the highest zone first
        g.run("for i in 1 2 3 4 5 6 7 8 9 10; do (while :; do sleep 0.4; done) > /dev/null & done; true")
        goes_on(d, t)
        info = d.stop_trace(t)
        assert info["restore"]["verified"], info
        assert info["graph"]["inside"] == 0 or info["restore"]["returns_left"] == 0, info
        assert d.delete("/v1/guests/g")["restore"]["memory_freed"]
        # the agent's own memory, too
        assert d.attach(g, "g")["ram_bytes"] == ram + (256 << 20)
        t = d.trace("g", SLEEPERS, tracer="function_graph", mode="overwrite")["id"]
        data = int(d.get("/v1/guests/g")["agent"]["data"], 16)
        new = [p for p in truth.pages_of(data, 1 << 20) if p >= 1 << 32]
        assert new, "no page of the agent's lies in the new memory: this test shows less than it could"
        possible = g.run("cat /sys/devices/system/cpu/possible").strip()
        if possible == g.run("cat /sys/devices/system/cpu/present").strip():
            d.stop_trace(t)
            given_back(g, d, truth, sites)
            raise Skip(f"memory was plugged; a CPU cannot be: this kernel holds {possible} for possible")
        cpu = plug_cpu(g)
        d.wait_trace(t, lambda x: x["records"] > 1000)
        g.run(f"taskset {1 << cpu:x} cat /proc/uptime /proc/version; taskset {1 << cpu:x} sleep 0.1")
        goes_on(d, t)
        d.stop_trace(t)
        cpus = {r["cpu"] for r in d.records(t)[0]}
        assert cpu in cpus, f"CPU {cpu} is not among {cpus}"
        print(f"{len(new)} of 256 pages of the agent lie in plugged memory; records of CPUs {sorted(cpus)}")
        given_back(g, d, truth, sites)


def plug_memory(g):
    g.qmp.command("object-add", **{"qom-type": "memory-backend-memfd", "id": "more", "size": 256 << 20,
                                   "share": True})
    g.qmp.command("device_add", driver="pc-dimm", id="dimm", memdev="more")
    blocks = wait_for("the guest sees it", lambda: g.run(
        "grep -l offline /sys/devices/system/memory/memory*/state || true").split(), 30)
    for path in blocks:
        g.run(f"echo online_kernel > {path}")
    wait_for("it is in use", lambda: int(re.search(
        r"MemTotal:\s+(\d+)", g.run("cat /proc/meminfo")).group(1)) > 400 << 10, 30)


def plug_cpu(g):
    """Its number in the guest."""
    free = [c for c in g.qmp.command("query-hotpluggable-cpus") if "qom-path" not in c]
    free.sort(key=lambda c: (c["props"].get("socket-id", 0), c["props"].get("core-id", 0)))
    g.qmp.command("device_add", driver=free[0]["type"], id="cpu-more", **free[0]["props"])
    path = wait_for("the guest sees it", lambda: g.run(
        "grep -l 0 /sys/devices/system/cpu/cpu[0-9]*/online || true").split(), 30)[0]
    g.run(f"echo 1 > {path}")
    return int(re.search(r"cpu(\d+)/online", path).group(1))


def cpio(files):
    """A newc archive of {name: bytes}; directories by a name that ends in /."""
    out = b""
    for name, data in [*files.items(), ("TRAILER!!!", b"")]:
        mode = 0o040755 if name.endswith("/") else 0o100644
        name = name.rstrip("/").encode() + b"\0"
        fields = [1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        head = b"070701" + b"".join(b"%08x" % v for v in fields) + name
        out += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return out + b"\0" * (-len(out) % 512)


def kexec(g, append):
    """Into the same kernel once more."""
    g.sh(f"kexecfile /again/vmlinuz /again/initrd 'console=ttyS0 loglevel=5 panic=-1 {append}' "
         "> /dev/console 2>&1 & true")
    g.wait_ready(120)


@first_kernel
def test_kexec(flavour):
    """Another kernel in the same memory, and no reset: a trace ends, a persistent one goes on in it."""
    long_only()
    kernel = kernel_dir(flavour)
    small = initramfs().read_bytes()  # without modules
    with tempfile.TemporaryDirectory() as folder:
        both = pathlib.Path(folder) / "initrd"
        both.write_bytes(small + b"\0" * (-len(small) % 512) + cpio({
            "again/": b"", "again/vmlinuz": (kernel / "vmlinuz").read_bytes(), "again/initrd": small}))
        with Guest(flavour, mem=768, initrd=both) as g, Daemon() as d:
            truth = Truth(g)
            d.attach(g, "g")
            t = d.trace("g", SLEEPERS, tracer="function_graph", persistent=True)["id"]
            d.wait_trace(t, lambda x: x["records"] > 100)
            before = d.get("/v1/guests/g")["kaslr_offset"]
            kexec(g, g.append)
            old = d.wait_trace(t, lambda x: x["continued_by"], 120)
            assert old["error"]["code"] == "guest.rebooted", old
            now = old["continued_by"]
            d.wait_trace(now, lambda x: x["records"] > 100, 120)
            row = d.get("/v1/guests/g")
            d.stop_trace(now)
            assert d.delete("/v1/guests/g")["restore"]["verified"]
            g.assert_alive()
            g.assert_no_warnings()
            again = Truth(g)
            assert again.sym("_text") != truth.sym("_text") or before == row["kaslr_offset"]
            print(f"KASLR offset {before} before, {row['kaslr_offset']} after")


def crash(g):
    g.send("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger")


@first_kernel
def test_panic(flavour):
    """What ran before is readable; the trace ends when the guest has come back, or is gone with QEMU."""
    long_only()
    with Guest(flavour, reboot=True) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["vfs_*", "panic"], tracer="function_graph", persistent=True)["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        crash(g)
        g.wait_ready(120)
        old = d.wait_trace(t, lambda x: x["continued_by"], 120)
        assert old["error"]["code"] == "guest.rebooted", old
        records, _ = d.records(t)
        assert "panic" in {r.get("function") for r in records}, "the last records are not there"
        d.wait_trace(old["continued_by"], lambda x: x["records"] > 100, 120)
        d.stop_trace(old["continued_by"])
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        g.assert_alive()
        g.assert_no_warnings()


@first_kernel
def test_panic_that_stays(flavour):
    """It panics and stays there: its rings are read to the end, and letting go says that it cannot."""
    long_only()
    with Guest(flavour, append="panic=0", reboot=True) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["vfs_*", "panic"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        crash(g)
        wait_for("the last records", lambda: has_panic(d, t), 60)
        info = d.stop_trace(t)
        assert info["restore"]["verified"], info
        print(f"{info['records']} records up to the panic; sites put back: {info['restore']}")
        # memory can only go back by the guest's own doing, and it does nothing any more
        status, body = d.request("DELETE", "/v1/guests/g", timeout=180)
        assert status != 200 and body["code"] in ("guest.gate_timeout", "guest.text_busy"), (status, body)
        assert d.journals(), "nothing is left?"
        g.qmp.command("system_reset")
        g.wait_ready(120)
        wait_for("the journal is done", lambda: not d.journals(), 60)
        g.assert_alive()
        g.assert_no_warnings()


def need_module(flavour, name):
    order = (kernel_dir(flavour) / "modules/order").read_text()
    if not re.search(rf"^{name} ", order, re.M):
        raise Skip(f"{name} was not fetched with this kernel (tests/kernels/fetch --refresh {flavour})")


def has_panic(d, t):
    n = d.trace_info(t)["records"]
    return "panic" in {r.get("function") for r in
                       d.get(f"/v1/traces/{t}/records?limit=1000&after={max(0, n - 1000)}")["items"]}


@first_kernel
def test_panic_that_is_told(flavour):
    """Its VMM hears of it (pvpanic) and keeps it as it is: the last records are there, and all else goes
    with the reset."""
    long_only()
    need_module(flavour, "pvpanic_pci")
    extra = ["-device", "pvpanic-pci", "-action", "panic=pause"]
    with Guest(flavour, modules=["pvpanic_pci"], extra=extra, reboot=True) as g, Daemon() as d:
        d.attach(g, "g")
        t = d.trace("g", ["vfs_*", "panic"], tracer="function_graph", persistent=True)["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        crash(g)
        wait_for("QEMU keeps it", lambda: g.status() == "guest-panicked", 60)
        wait_for("the last records", lambda: has_panic(d, t), 30)
        wait_for("it is told", lambda: d.get("/v1/guests/g")["state"] == "stopped", 20)
        problem(d.request("POST", f"/v1/traces/{t}/stop", {}), 409, "guest.stopped")
        g.qmp.command("system_reset")
        if g.status() != "running":
            g.qmp.command("cont")
        g.wait_ready(120)
        old = d.wait_trace(t, lambda x: x["continued_by"], 120)
        assert old["error"]["code"] == "guest.rebooted", old
        d.wait_trace(old["continued_by"], lambda x: x["records"] > 100, 120)
        d.stop_trace(old["continued_by"])
        assert d.delete("/v1/guests/g")["restore"]["verified"]
        g.assert_alive()
        g.assert_no_warnings()


def actual(g):
    return g.qmp.command("query-balloon")["actual"]


@first_kernel
def test_balloon(flavour):
    """Memory is taken from it and given again while all its calls are followed. The agent's is never taken:
    it is the guest's own allocator's to give."""
    long_only()
    need_module(flavour, "virtio_balloon")
    extra = ["-device", "virtio-balloon-pci"]
    with Guest(flavour, modules=["virtio_pci", "virtio_balloon"], extra=extra) as g, Daemon() as d:
        truth, sites = attach(g, d)
        t = d.trace("g", [], tracer="function_graph", mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 1000)
        full = actual(g)
        for size in (full // 2, full, full // 2):
            g.qmp.command("balloon", value=size)
            wait_for("the balloon", lambda n=size: abs(actual(g) - n) < 1 << 20, 120)
            goes_on(d, t, 1000)
            assert "mixload: ok" in g.run("mixload 2", 120)
        d.stop_trace(t)
        d.delete(f"/v1/traces/{t}")
        # and borrowed from what is left
        assert d.delete("/v1/guests/g")["restore"]["memory_freed"]
        d.attach(g, "g")
        t = d.trace("g", SLEEPERS)["id"]
        goes_on(d, t)
        d.stop_trace(t)
        given_back(g, d, truth, sites)
        print(f"{full >> 20} MiB, {full >> 21} of them taken, given and taken")


@first_kernel
def test_paused_and_asleep(flavour):
    """Paused by its owner, then in its own sleep: traced on, and given back as ever."""
    long_only()
    with Guest(flavour, extra=["-rtc", "base=utc"]) as g, Daemon() as d:
        truth, sites = attach(g, d)
        t = d.trace("g", SLEEPERS, tracer="function_graph", mode="overwrite")["id"]
        d.wait_trace(t, lambda x: x["records"] > 100)
        g.qmp.command("stop")
        wait_for("it is told", lambda: d.get("/v1/guests/g")["state"] == "stopped", 20)
        n = d.trace_info(t)["records"]
        g.qmp.command("cont")
        d.wait_trace(t, lambda x: x["records"] > n + 100)
        if "mem" in g.run("cat /sys/power/state").split():
            g.send("echo mem > /sys/power/state")
            wait_for("it sleeps", lambda: g.status() == "suspended", 60)
            g.qmp.command("system_wakeup")
            wait_for("it is awake", lambda: g.status() == "running", 60)
            g.assert_alive(15)
            goes_on(d, t)
        else:
            print("this guest has no sleep of its own")
        d.stop_trace(t)
        given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
