# SPDX-License-Identifier: Apache-2.0
"""A real Linux in our own VMM on KVM: started by the command, traced, given back, shut down."""

import collections
import os
import re
import subprocess
import tempfile
import time

from daemon import Daemon, Problem, binary
from faults import OWN_VMM, Table, die, flat, recover
from guest import Skip
from small import AROUND_HOLE, Control, RunGuest, SmallGuest
from testlib import LONG, main
from ways import SmallWay, check_kill9

CALLS = 40
OPEN = "__x64_sys_open"
TREE = [OPEN, "do_sys_openat2", "do_filp_open"]


def traced(d, g, tracer, filters):
    """While init opens a file CALLS times: (records, init's pid, the host's clock before and after)."""
    times = [time.monotonic()]
    t = d.trace("small", filters, tracer=tracer)["id"]
    times.append(time.monotonic())
    out = g.do(f"open {CALLS}")
    times.append(time.monotonic())
    d.stop_trace(t)
    times.append(time.monotonic())
    print(f"{tracer}: started, {CALLS} calls, stopped in " +
          ", ".join(f"{b - a:.1f}" for a, b in zip(times, times[1:])) + " s")
    records, end = d.records(t)
    assert end is not None
    info = d.trace_info(t)
    assert info["lost"] == 0, info
    return records, int(out.split("pid ")[1]), times[1], times[2]


def check_function(d, g):
    """Returns (the host's clock before, a record's time, the host's clock after), all in seconds."""
    records, pid, begin, end = traced(d, g, "function", [OPEN, "do_sys_openat2"])
    calls = [r for r in records if r["type"] == "function"]
    mine = collections.Counter(r["function"] for r in calls if r["pid"] == pid)
    assert mine == {OPEN: CALLS, "do_sys_openat2": CALLS}, mine
    # init's child works in the background
    others = {r["pid"] for r in calls} - {pid}
    assert len(others) == 1, others
    times = [r["ts_ns"] for r in calls if r["pid"] == pid]
    assert times == sorted(times)
    return begin, times[0] / 1e9, end


def check_graph(d, g):
    """As check_function()."""
    records, pid, begin, end = traced(d, g, "function_graph", TREE)
    mine = [r for r in records if r.get("pid") == pid and r["type"] in ("graph_entry", "graph_return")]
    entries = [r for r in mine if r["type"] == "graph_entry"]
    assert collections.Counter(r["function"] for r in entries) == {f: CALLS for f in TREE}
    for r in entries:
        assert r["depth"] == TREE.index(r["function"]), r
    returns = [r for r in mine if r["type"] == "graph_return"]
    assert len(returns) == len(entries), (len(returns), len(entries))
    assert all(r["duration_ns"] > 0 for r in returns)
    return begin, entries[0]["ts_ns"] / 1e9, end


def check_clock(a, b):
    """Between two calls as much time has passed by the guest's records as by the host's clock."""
    apart, least, most = b[1] - a[1], b[0] - a[2], b[2] - a[0]
    print(f"{apart:.3f} s apart by the guest's clock, {least:.3f} to {most:.3f} s by the host's")
    assert least <= apart <= most, "the guest's clock goes wrong"


def check_everything(d, g):
    """All functions at once, by both tracers, while the guest works."""
    for tracer in ("function", "function_graph"):
        before = d.get("/v1/guests/small")["windows"]
        t = d.trace("small", [], tracer=tracer)["id"]
        after = d.get("/v1/guests/small")["windows"]
        n, ns, wrote = (after[k] - before[k] for k in ("count", "total_ns", "write_total_ns"))
        print(f"{tracer}: armed in {n} stop windows, {ns / 1e6:.1f} ms together, "
              f"{wrote / 1e6:.2f} ms of it for writing")
        g.do("open 5", 300)  # every function traced, each emulated, on a busy host
        d.stop_trace(t)
        info = d.trace_info(t)
        print(f"{tracer}: {info['functions']} functions, {info['records']} records, {info['lost']} lost")
        assert info["functions"] > 10000 and info["records"] > 100, info


def check_limit(d, g):
    """The limit of a stop window is the user's: so many sites at a time."""
    n = {}
    for limit in (10**6, 10**9):
        r = d.request("POST", "/v1/guests", {"target": g.target, "name": "limit", "window_limit_ns": limit})
        assert r[0] == 201, r
        d.stop_trace(d.trace("limit", [])["id"])
        n[limit] = d.get("/v1/guests/limit")["windows"]["count"]
        d.delete("/v1/guests/limit")
    print(f"stop windows to arm and disarm all: {n[10**6]} of 1 ms, {n[10**9]} of 1 s")
    assert n[10**6] >= n[10**9] + 20, n


def check_writing(g):
    """All sites of the kernel in one stop window: so long takes writing, stopping and verifying aside."""
    with tempfile.TemporaryDirectory(prefix="hvf-state-") as state:
        p = subprocess.run([binary("attach_cycle"), g.target, state, "*", "2", "100", "2000"],
                           capture_output=True, text=True, timeout=120, check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    n, ms = re.findall(r"at most (\d+) pieces written in one, ([0-9.]+) ms", p.stdout)[-1]
    armed = re.findall(r"armed (\d+) in", p.stdout)[-1]
    print(f"{n} sites written in one stop window, in {ms} ms")
    assert n == armed and int(n) > 10000, p.stdout
    assert float(ms) <= 5, p.stdout


def make_disk():
    f = tempfile.NamedTemporaryFile(prefix="hvf-disk-")
    f.write(b"on the disk" + bytes(64 << 10))
    f.flush()
    return f


def check_disk(g, disk):
    assert "on the disk" in g.do("read /dev/vda")
    assert "HVF-DONE write\n" in g.do("write /dev/vda from the guest")
    disk.seek(0)
    assert disk.read(14) == b"from the guest", "written and synced, but not there"


def differ(before, after):
    """Where two texts do."""
    return [] if before == after else [i for i in range(len(before)) if before[i] != after[i]]


def check_untouched(g, before):
    changed = [hex(g.symbols["_text"] + i) for i in differ(before, g.kernel_text())]
    assert not changed, f"{len(changed)} bytes of kernel text differ: {changed[:10]}"
    g.assert_given_back()


def check_faults(g, before):
    """Killed while memory is lent, or given back: the next one takes everything away, the VM's slot too."""
    program, table = binary("attach_cycle_faults"), Table("our own VMM")
    points = flat(OWN_VMM)
    with tempfile.TemporaryDirectory(prefix="hvf-state-") as state:
        for point in points if LONG else points[1::6]:
            die(program, g.target, state, OPEN, point, 100)
            lent, changed = g.is_lent(), differ(before, g.kernel_text())
            records = recover(program, state, point)
            check_untouched(g, before)
            assert g.do("open 5").count("HVF-DONE") == 1
            assert records or point != "arm.done:1", "no word on records"
            table.add(point, f"{len(changed)} bytes", "given back" if lent else "not lent", records)
    table.show()


def test_run_trace_and_shut_down():
    with make_disk() as disk, Daemon() as d, RunGuest(d, "small", extra=("--disk", disk.name)) as g:
        print(f"up and attached after {g.boot_seconds:.1f} s")
        g.wait_ready()
        before = g.kernel_text()
        g.assert_given_back()
        info = d.get("/v1/guests/small")
        assert info["target"] == g.target and info["vcpus"] == g.cpus, info
        check_clock(check_function(d, g), check_graph(d, g))
        check_everything(d, g)
        w = d.get("/v1/guests/small")["windows"]
        print(f"{w['count']} stop windows, {w['total_ns'] / w['count'] / 1e6:.2f} ms each, "
              f"{w['max_ns'] / 1e6:.2f} ms the longest")
        assert len(g.agent_entries()) >= 2 and len(g.slots()) == 2 and g.is_lent(), g.slots()
        d.delete("/v1/guests/small")
        check_untouched(g, before)
        check_writing(g)
        if LONG:
            check_limit(d, g)
        check_untouched(g, before)
        check_faults(g, before)
        check_kill9(SmallWay(g), ("function", "function_graph") if LONG else ("function_graph",))
        check_disk(g, disk)
        g.assert_no_warnings()
        check_console(d, g)
        g.wait_end()
        assert g.log().endswith("hvftrace-vmm: the guest reset itself\n"), g.log()


def check_console(d, g):
    """What is typed to it by the command, and what it says, up to its end."""
    g.input.close()
    p = subprocess.run([binary("hvftrace"), "-s", d.socket, "console", "small"], input="open 2\nreset\n",
                       capture_output=True, text=True, timeout=120, check=False,
                       env={**os.environ, "XDG_RUNTIME_DIR": str(g.dir)})
    assert p.returncode == 0, p
    assert re.search(r"HVF-DONE open.*\n(.*\n)*reset", p.stdout.replace("\r", "")), p.stdout[-500:]


def test_another_life_is_noticed():
    """Reset in the same process, the same kernel at the same addresses: it is not taken for the first."""
    if not LONG:
        raise Skip("boots three times; HVF_LONG=1 asks for it")
    with Daemon() as d, RunGuest(d, "small", reboot=True) as g:
        control = Control(g.control_path)
        g.wait_ready()
        untouched = g.kernel_text()
        t = d.trace("small", [OPEN])["id"]
        g.do("open 5")
        before = len(g.console())
        g.type("reset")
        assert control.event() == "the guest reset itself: life 2"
        g.wait_console("^HVF-READY", g.timeout, before)
        info = d.wait_trace(t, lambda x: x["state"] != "running", 60)
        assert info["state"] == "failed", info
        try:
            d.trace("small", [OPEN])
            raise AssertionError("traced with the tables of another kernel")
        except Problem as e:
            assert e.body["code"] == "guest.rebooted", e
        d.stop_trace(t)
        d.request("DELETE", "/v1/guests/small")
        assert not d.journals(), d.journals()
        assert g.kernel_text() == untouched, "text of the second life differs from the first's"
        # traced like any other
        assert d.request("POST", "/v1/guests", {"target": g.target, "name": "again"})[0] == 201
        t = d.trace("again", [OPEN])["id"]
        g.do("open 5")
        d.stop_trace(t)
        assert d.trace_info(t)["records"] >= 5
        # a persistent one goes on in the third life
        t = d.trace("again", [OPEN], persistent=True)["id"]
        g.do("open 5")
        before = len(g.console())
        g.type("reset")
        assert control.event() == "the guest reset itself: life 3"
        g.wait_console("^HVF-READY", g.timeout, before)
        old = d.wait_trace(t, lambda x: x["continued_by"], 60)
        assert old["error"]["code"] == "guest.rebooted" and old["records"] >= 5, old
        g.do("open 5")
        d.wait_trace(old["continued_by"], lambda x: x["records"] >= 5, 60)
        d.stop_trace(old["continued_by"])
        d.delete("/v1/guests/again")
        assert g.kernel_text() == untouched
        g.assert_no_warnings()


def test_entered_by_pvh():
    """In 32-bit mode; its devices by ACPI tables, whose address is told in another way, too."""
    if not LONG:
        raise Skip("boots once more; HVF_LONG=1 asks for it")
    with Daemon() as d, SmallGuest(append="", extra=("--protocol", "pvh")) as g:
        print(f"up after {g.boot_seconds:.1f} s")
        assert g.do("read /proc/cpuinfo").count("processor\t") == g.cpus
        d.attach(g, "small")
        before = g.kernel_text()
        check_function(d, g)
        d.delete("/v1/guests/small")
        check_untouched(g, before)
        g.assert_no_warnings()


def test_ram_around_the_hole():
    """RAM above 4 GiB, of a process of which nothing is known: it lies where the kernel was told."""
    if not LONG:
        raise Skip("boots two more; HVF_LONG=1 asks for it")
    for protocol in ("linux", "pvh"):
        with Daemon() as d, SmallGuest(mem=6144, append=AROUND_HOLE,
                                       extra=("--protocol", protocol)) as g:
            d.attach(g, "small")
            before = g.kernel_text()
            check_function(d, g)
            d.delete("/v1/guests/small")
            check_untouched(g, before)
            g.assert_no_warnings()


def test_bzimage_and_virtio_console():
    """The kernel unpacks itself, and speaks by virtio."""
    if not LONG:
        raise Skip("takes minutes where KVM emulates kernel code; HVF_LONG=1 asks for it")
    with make_disk() as disk, SmallGuest(image="vmlinuz", append="acpi=off console=hvc0",
                                         extra=("--disk", disk.name), timeout=900) as g:
        print(f"up after {g.boot_seconds:.1f} s")
        assert g.do("read /proc/cpuinfo").count("processor\t") == g.cpus
        check_disk(g, disk)
        assert "virtio_rng" in g.do("read /sys/class/misc/hw_random/rng_current")
        g.assert_no_warnings()
        g.type("reset")
        g.wait_end()
        assert g.log().endswith("hvftrace-vmm: the guest reset itself\n"), g.log()


if __name__ == "__main__":
    main()
