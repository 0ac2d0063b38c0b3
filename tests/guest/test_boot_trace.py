# SPDX-License-Identifier: Apache-2.0
"""Tracing from boot: the guest is held before its first initcall, and every one of them is seen."""

import collections
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import time

from daemon import Daemon, binary
from guest import GuestError, Skip, die_with_parent, wait_for
from small import LINKED_AT, Control, RunGuest, SmallGuest, boot_line, need_kvm, small_kernel
from testlib import LONG, main

BOOT_TIMEOUT = 240  # a nested KVM on a busy host; on an idle one it takes 20 s


def elf_bytes(path, addr, size):
    """Bytes of an ELF file by virtual address."""
    data = path.read_bytes()
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for i in range(phnum):
        kind, _, off, vaddr, _, filesz = struct.unpack_from("<IIQQQQ", data, phoff + 56 * i)
        if kind == 1 and vaddr <= addr and addr + size <= vaddr + filesz:
            return data[off + addr - vaddr:off + addr - vaddr + size]
    raise AssertionError(f"{addr:#x} is not in {path}")


def initcalls(symbols, kind=None, offset=0):
    """Addresses of the kernel's initcalls in the order of their being called: relative pointers (PREL32)."""
    start, end = symbols["__initcall_start"], symbols["__initcall_end"]
    raw = elf_bytes(small_kernel(kind) / "vmlinux", start, end - start)
    return [offset + start + 4 * i + rel for i, (rel,) in enumerate(struct.iter_unpack("<i", raw))]


class TracedBoot(RunGuest):
    """`hvftrace run --trace-from-boot` with these options; the command runs on until stop_trace()."""

    def __init__(self, daemon, name, *options, **more):
        super().__init__(daemon, name, **more)
        self.options, self.command = options, None

    def _start(self, kernel, initrd):
        self.errors = open(self.dir / "errors", "wb")
        self.command = subprocess.Popen(
            [binary("hvftrace"), "-s", self.daemon.socket, "run", "--kernel", kernel, "--initrd", initrd,
             "--accel", "kvm", "--name", self.name, "--cpus", str(self.cpus), "--memory", f"{self.mem}M",
             "--append", boot_line(self.append), "--timeout", str(self.timeout), "--trace-from-boot",
             *self.options], stdin=subprocess.DEVNULL, stderr=self.errors, preexec_fn=die_with_parent,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.dir)})
        folder = self.dir / "hvftrace/guests" / self.name
        self.console_path, self.log_path = folder / "console.log", folder / "vmm.log"
        self.socket_path, self.control_path = folder / "input", folder / "control"
        self.wait_said("held before its first initcall")
        self.pid = int((folder / "pid").read_text())

    def said(self):
        return (self.dir / "errors").read_text(errors="replace")

    def wait_said(self, text):
        def look():
            if self.command.poll() is not None:
                raise GuestError(f"run ended: {self.said()}")
            return text in self.said()
        wait_for(f"run says: {text}", look, self.timeout)

    def stop_trace(self):
        self.command.send_signal(signal.SIGINT)
        return self.command.wait(timeout=120)

    def _end(self):
        if self.command.poll() is None:
            self.command.kill()
            self.command.wait()
        super()._end()


def test_every_initcall():
    need_kvm()
    with tempfile.TemporaryDirectory(prefix="hvf-boot-") as folder, Daemon() as d:
        out = pathlib.Path(folder) / "boot.hvft"
        begin = time.monotonic()
        with TracedBoot(d, "boot", "-p", "function_graph", "-l", "do_one_initcall", "-l", "vfs_read",
                        "--args", "--retval", "-o", out, timeout=BOOT_TIMEOUT) as g:
            print(f"held after {time.monotonic() - begin:.1f} s")
            g.wait_console(r"^HVF-READY", BOOT_TIMEOUT)
            print(f"up after {time.monotonic() - begin:.1f} s, traced from its first initcall on")
            assert "held by a breakpoint at proc_caches_init before its first initcall" in d.log(), d.log()
            assert d.get("/v1/guests/boot")["state"] == "running"
            assert g.stop_trace() == 0, g.said()
            assert ", 0 lost" in g.said() and "restored" in g.said(), g.said()
            check_initcalls(d, out, initcalls(g.symbols))
            check_report(d, out, g.symbols)
            check_given_back(d, g)
            g.assert_no_warnings()


class WaitingGuest(SmallGuest):
    """A VMM that waits, stopped, before its guest's first instruction."""

    def __init__(self, **more):
        super().__init__(extra=["--wait"], **more)

    def wait_ready(self):
        wait_for("it waits", lambda: ") T " in pathlib.Path(f"/proc/{self.pid}/stat").read_text())

    def hold(self, daemon):
        """Has the daemon start it and hold it."""
        info = daemon.post("/v1/guests", {"target": self.target, "name": "boot",
                                          "boot_timeout_ns": BOOT_TIMEOUT * 10**9}, timeout=BOOT_TIMEOUT + 20)
        assert info["state"] == "held", info

    def number(self, name, size=4):
        return int.from_bytes(self.read_kernel(self.symbols[name], size), "little")


def test_held_at_one_instruction():
    """Behind fork_init() and not an instruction further. If the daemon dies then, it runs on."""
    need_kvm()
    with Daemon() as d, WaitingGuest() as g:
        g.hold(d)
        assert "held by a breakpoint at proc_caches_init" in d.log(), d.log()
        c = Control(g.control_path)
        held = c.registers("registers 0")
        assert held["rip"] == g.symbols["proc_caches_init"], hex(held["rip"])
        assert c.registers("registers 1")["rip"] == 0xfff0  # it waits to be started
        assert g.number("max_threads") and g.number("ftrace_enabled") == 1 and not g.number("system_state")
        # the VMM keeps it no more, the daemon does; nothing is set
        assert c.ask("status") == "ok life 1 console_lost 0"
        events = [e for e in c.events if "breakpoint" in e]
        assert not events, events
        time.sleep(1)
        assert dict(c.registers("registers 0"), window_ns=0) == dict(held, window_ns=0)
        d.kill9()
        wait_for("it runs on", lambda: c.registers("registers 0")["rip"] != held["rip"])


def test_held_without_a_breakpoint():
    """None is to be had: the log says why, and the guest is held by looking at it."""
    if not LONG:
        raise Skip("boots once more; HVF_LONG=1 asks for it")
    need_kvm()
    with Daemon() as d, WaitingGuest() as g:
        # all that the CPU has are somebody else's, where nothing comes by: it reads this when it is started
        c = Control(g.control_path)
        c.socket.sendall(b"".join(b"break %x\n" % (0xffffffff00000000 + at) for at in range(4)))
        g.hold(d)
        assert [c.line() for _ in range(4)] == ["ok"] * 4
        said = re.search("polled, not stopped at proc_caches_init: .*", d.log())
        assert said and "the debug registers are all in use" in said[0], d.log()
        assert "held by polling before its first initcall" in d.log(), d.log()
        assert g.number("max_threads") and not g.number("system_state")
        # its vCPUs are in the guest, where a window holds them
        assert "did not leave the guest in time" in c.ask("registers 0")
        assert d.post("/v1/guests/boot/release")["state"] == "running"
        before = c.registers("registers 0")["rip"]
        wait_for("it runs on", lambda: c.registers("registers 0")["rip"] != before)


def test_every_initcall_by_function():
    """The function tracer, and a kernel that unpacks itself first: what is found is looked at again."""
    if not LONG:
        raise Skip("boots twice, minutes where KVM emulates kernel code; HVF_LONG=1 asks for it")
    need_kvm()
    for image in ("vmlinux", "vmlinuz"):
        with tempfile.TemporaryDirectory(prefix="hvf-boot-") as folder, Daemon() as d:
            out = pathlib.Path(folder) / "boot.hvft"
            begin = time.monotonic()
            with TracedBoot(d, "boot", "-p", "function", "-l", "do_one_initcall", "-l", "vfs_read", "--args",
                            "-o", out, image=image, timeout=3 * BOOT_TIMEOUT) as g:
                print(f"{image}: held after {time.monotonic() - begin:.1f} s")
                g.wait_console(r"^HVF-READY", 3 * BOOT_TIMEOUT)
                assert g.stop_trace() == 0, g.said()
                assert ", 0 lost" in g.said() and "restored" in g.said(), g.said()
                check_calls(d, out, initcalls(g.symbols))
                check_given_back(d, g)
                g.assert_no_warnings()


def check_calls(d, path, want):
    calls = [r for r in records_of(d, path) if r.get("function") == "do_one_initcall"]
    assert [r["type"] for r in calls] == ["function"] * len(want), len(calls)
    assert [int(r["args"][0]["value"], 16) for r in calls] == want


def test_kaslr():
    """A bzImage that moves to addresses of its choice, as stock kernels do: found as it boots, and later."""
    if not LONG:
        raise Skip("takes minutes where KVM emulates kernel code; HVF_LONG=1 asks for it")
    need_kvm()
    with tempfile.TemporaryDirectory(prefix="hvf-boot-") as folder, Daemon() as d:
        out = pathlib.Path(folder) / "boot.hvft"
        begin = time.monotonic()
        with TracedBoot(d, "boot", "-p", "function", "-l", "do_one_initcall", "-l", "vfs_read", "--args",
                        "-o", out, image="vmlinuz", kind="kaslr", mem=256, timeout=3 * BOOT_TIMEOUT) as g:
            print(f"held after {time.monotonic() - begin:.1f} s")
            g.wait_console(r"^HVF-READY", 3 * BOOT_TIMEOUT)
            assert g.stop_trace() == 0, g.said()
            assert ", 0 lost" in g.said() and "restored" in g.said(), g.said()
            offset = int(d.get("/v1/guests/boot")["kaslr_offset"], 16)
            g.find_image()
            print(f"KASLR: {offset:#x} further on, the image at {g.image_at:#x}")
            assert offset or g.image_at != LINKED_AT, "it is where it was linked"
            check_calls(d, out, initcalls(g.symbols, "kaslr", offset))
            check_given_back(d, g)
            # found again while it runs
            d.attach(g, "again")
            assert int(d.get("/v1/guests/again")["kaslr_offset"], 16) == offset
            t = d.trace("again", ["__x64_sys_open"])["id"]
            g.do("open 20")
            d.stop_trace(t)
            assert d.trace_info(t)["records"] >= 20, d.trace_info(t)
            d.delete("/v1/guests/again")
            g.assert_given_back()
            g.assert_no_warnings()


def records_of(d, path):
    p = d.cli("report", path, "--format", "json")
    assert p.returncode == 0, p.stderr
    return [json.loads(line) for line in p.stdout.splitlines()]


def check_initcalls(d, path, want):
    records = records_of(d, path)
    calls = [r for r in records if r.get("function") == "do_one_initcall"]
    entries = [r for r in calls if r["type"] == "graph_entry"]
    returns = [r for r in calls if r["type"] == "graph_return"]
    got = [int(r["args"][0]["value"], 16) for r in entries]
    assert got == want, f"{len(got)} initcalls of {len(want)}, the first {got[:1]}, not {want[:1]}"
    assert len(returns) == len(want) and all(r["duration_ns"] > 0 for r in returns)
    assert all(r["pid"] == 1 for r in calls)


def check_report(d, path, symbols):
    p = d.cli("report", path, "--format", "initcalls")
    assert p.returncode == 0, p.stderr
    lines = re.findall(r"^\[ *\d+\.\d{6}\] initcall (\w+)\+0x0/0x[0-9a-f]+ returned (-?\d+) after "
                       r"(\d+) usecs$", p.stdout, re.M)
    names = collections.defaultdict(set)  # static functions of one name are several
    for line in (small_kernel() / "System.map").read_text().splitlines():
        addr, _, name = line.split()
        names[int(addr, 16)].add(name)
    want = initcalls(symbols)
    assert len(lines) == len(want), f"{len(lines)} lines, {len(want)} initcalls: {p.stdout[:2000]}"
    for (name, _, _), addr in zip(lines, want):
        assert name in names[addr], (name, hex(addr), names[addr])
    # those that the command line keeps out return -EPERM
    assert ("blake2s_mod_init", "-1") in {(n, r) for n, r, _ in lines}, lines
    assert p.stdout.count("calling  ") == len(want)
    for name, ret, us in sorted(lines, key=lambda l: -int(l[2]))[:3]:
        print(f"initcall {name} returned {ret} after {us} usecs")


def check_given_back(d, g):
    """Call sites are nops, and after the detach nothing of ours is mapped."""
    for name in ("do_one_initcall", "vfs_read"):
        assert g.read_kernel(g.symbols[name], 5) == b"\x0f\x1f\x44\x00\x00", name
    assert len(g.agent_entries()) >= 2 and g.is_lent(), "where was the agent?"
    d.delete("/v1/guests/boot")
    g.assert_given_back()


if __name__ == "__main__":
    main()
