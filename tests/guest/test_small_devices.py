# SPDX-License-Identifier: Apache-2.0
"""A real Linux in our own VMM, found by ACPI: network card, sockets, overlay, panic, reboot, power button."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time

from guest import Skip
from small import Control, SmallGuest
from test_small_kvm import make_disk
from testlib import LONG, main

PORT = 7


class Tap:
    """A tap with an address of its own, up."""

    def __init__(self):
        self.name = f"hvf{os.getpid()}"
        a, b = os.getpid() >> 8 & 255, os.getpid() & 255
        self.host, self.guest = f"10.{a}.{b}.1", f"10.{a}.{b}.2"

    def ip(self, *args):
        try:
            p = subprocess.run(["ip", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError as e:
            raise Skip("no ip command") from e
        if p.returncode:
            raise Skip(f"ip {' '.join(args)}: {p.stdout.strip()}")

    def __enter__(self):
        self.ip("tuntap", "add", "dev", self.name, "mode", "tap")
        self.ip("addr", "add", f"{self.host}/30", "dev", self.name)
        self.ip("link", "set", self.name, "up")
        return self

    def __exit__(self, *exc):
        self.ip("link", "del", self.name)

    def counters(self):
        base = f"/sys/class/net/{self.name}/statistics"
        return {n: int(open(f"{base}/{n}", encoding="ascii").read()) for n in ("tx_dropped", "rx_packets")}


def echoed(s, data):
    """Sends all, then no more; returns what comes back."""
    s.settimeout(60)
    got = b""
    sent = 0
    s.setblocking(False)
    end = time.monotonic() + 60
    while len(got) < len(data) and time.monotonic() < end:
        try:
            sent += s.send(data[sent:]) if sent < len(data) else 0
        except BlockingIOError:
            pass
        try:
            got += s.recv(65536)
        except BlockingIOError:
            time.sleep(0.005)
    return got


def check_network(g, tap):
    assert g.do(f"echo {PORT}").endswith("HVF-DONE echo\n")
    data = os.urandom(300 << 10)
    start = time.monotonic()
    with socket.create_connection((tap.guest, PORT), timeout=30) as s:
        assert echoed(s, data) == data
    print(f"network: {len(data) >> 10} KiB there and back in {time.monotonic() - start:.1f} s")


def ask(path, line):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(str(path))
    s.sendall(line.encode())
    return s


def read_line(s):
    line = b""
    while not line.endswith(b"\n"):
        byte = s.recv(1)
        if not byte:
            break
        line += byte
    return line.decode()


def check_sockets(g, path):
    assert g.do("vecho 5").endswith("HVF-DONE echo\n")
    data = os.urandom(300 << 10)
    start = time.monotonic()
    with ask(path, "CONNECT 5\n") as s:
        assert read_line(s).startswith("OK 1073741")
        assert echoed(s, data) == data
    print(f"vsock: {len(data) >> 10} KiB there and back in {time.monotonic() - start:.1f} s")
    with ask(path, "CONNECT 6\n") as s:
        assert read_line(s) == "", "nobody listens there"
    # the guest to a program that waits for it, and to none
    assert g.do("vsay 99 hello").endswith("HVF-DONE vsay failed\n")
    with ask(path, "LISTEN 99\n") as s:
        g.type("vsay 99 to the host")
        assert read_line(s).startswith("OK ")
        got = b""
        while True:
            part = s.recv(100)
            if not part:
                break
            got += part
        assert got == b"to the host", got
        before = len(g.console())
        s.sendall(b"from the host")
        s.shutdown(socket.SHUT_WR)
        g.wait_console("^from the host\nHVF-DONE vsay", 30, before)


def check_overlay(g, disk):
    assert "on the disk" in g.do("read /dev/vda")
    assert "HVF-DONE write\n" in g.do("write /dev/vda from the guest")
    assert "from the guest" in g.do("read /dev/vda")
    disk.seek(0)
    assert disk.read(11) == b"on the disk", "an overlay's base was written to"


def check_control(control):
    said = control.ask("status")
    print(said)
    words = [w for w in said.split()[1:] if w != "net0"]
    status = dict(zip(words[::2], words[1::2]))
    return status


def test_devices_and_lives():
    if not LONG:
        raise Skip("boots twice, minutes where KVM emulates kernel code; HVF_LONG=1 asks for it")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvf-vsock-"))
        vsock = f"{folder}/vsock"
        tap, disk = stack.enter_context(Tap()), stack.enter_context(make_disk())
        g = stack.enter_context(SmallGuest(
            append=f"ip={tap.guest}::{tap.host}:255.255.255.252::eth0:off", reboot=True,
            kind="devices", timeout=900,
            extra=("--net", f"tap={tap.name}", "--disk", f"{disk.name},cow", "--vsock", vsock)))
        print(f"up after {g.boot_seconds:.1f} s, with ACPI")
        control = Control(g.control_path)
        assert "\tACPI" in g.do("read /proc/interrupts") or "acpi" in g.do("read /proc/interrupts")
        assert g.do("read /proc/cpuinfo").count("processor\t") == g.cpus
        check_network(g, tap)
        check_sockets(g, vsock)
        check_overlay(g, disk)
        status = check_control(control)
        assert int(status["rx"]) > 10 and int(status["tx"]) > 10, status
        assert (status["rx_dropped"], status["tx_dropped"], status["vsock_refused"]) == ("0", "0", "0")
        g.assert_no_warnings()
        # a panic is told; then the kernel resets the machine, and is back
        before = len(g.console())
        start = time.monotonic()
        g.type("write /proc/sysrq-trigger c")
        assert control.event() == "the guest's kernel panics (life 1)"
        assert control.event() == "the guest reset itself: life 2"
        g.wait_console("^HVF-READY", g.timeout, before)
        print(f"back {time.monotonic() - start:.1f} s after it panicked")
        check_overlay_after(g)
        check_network(g, tap)
        assert g.do("button").endswith("HVF-DONE button\n")
        assert control.ask("power") == "ok"
        g.wait_end()
        assert "HVF-BUTTON" in g.console()
        assert g.log().endswith("hvftrace-vmm: the guest powered itself off\n"), g.log()


def check_overlay_after(g):
    """The overlay is the machine's, as a disk is: a reset leaves it."""
    assert "from the guest" in g.do("read /dev/vda")


if __name__ == "__main__":
    main()
