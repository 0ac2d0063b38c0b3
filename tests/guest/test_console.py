# SPDX-License-Identifier: Apache-2.0
"""The console of a real Linux over the API: in our own VMM, and in QEMU, as `hvftrace run` starts them."""

import os
import pathlib
import signal
import struct
import subprocess
import tempfile

from bare import ECHOES, Bare, Vmm
from daemon import Daemon, binary
from guest import Skip, die_with_parent, wait_for
from small import RunGuest, boot_line, make_initrd, need_kvm, small_kernel
from testlib import LONG, main


class Follower(subprocess.Popen):
    """The command, of an attached guest."""

    def __init__(self, d, name):
        super().__init__([binary("hvftrace"), "-s", d.socket, "console", "--attached", name],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                         preexec_fn=die_with_parent)

    def until(self, words):
        got = b""
        while words not in got:
            piece = self.stdout.read(4096)
            assert piece, (words, got[-2000:], self.stderr.read())
            got += piece
        return got

    def ends(self):
        self.stdin.close()
        rest = self.stdout.read()
        assert (self.wait(30), self.stderr.read()) == (0, b""), self.returncode
        return rest


class Offered:
    """What a VMM's process offers, by its files, without the product."""

    def __init__(self, pid):
        self.pid = pid
        wait_for("it is there", self.find)
        self.ring = self.find().open("rb", buffering=0)

    def find(self):
        for fd in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            if os.readlink(fd) == "/memfd:hvftrace-console (deleted)":
                return fd
        return None

    def head(self):
        return struct.unpack("<QQQi", os.pread(self.ring.fileno(), 28, 0))

    def said(self):
        n = self.head()[2]
        return os.pread(self.ring.fileno(), n, 4096)

    def type(self, text):
        with open(f"/proc/{self.pid}/fd/{self.head()[3]}", "wb", buffering=0) as f:
            assert f.write(text) == len(text)


def test_a_guest_of_a_few_instructions():
    """Typed to and shown without any other input, and without a place for its output; confined as ever."""
    need_kvm()
    with Bare(ECHOES) as g, Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--console", "/dev/null"],
                                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                preexec_fn=die_with_parent) as p:
        o = Offered(p.pid)
        wait_for("it takes what is typed", lambda: o.head()[3] >= 0)
        o.type(b"typed " * 500)  # more than the port holds
        wait_for("it says that", lambda: o.said() == b"typed " * 500, 60)
        o.type(b"q")
        assert p.wait(60) == 9, p.stderr.read()


def test_own_vmm():
    """Also while somebody types at its own socket, over a reset, and up to its end."""
    if not LONG:
        raise Skip("boots twice where KVM emulates kernel code; HVF_LONG=1 asks for it")
    with Daemon() as d, RunGuest(d, "small", reboot=True) as g:
        g.wait_ready()
        assert d.get("/v1/guests/small")["console"] == "write"
        with Follower(d, "small") as p:
            p.until(b"HVF-READY")
            p.stdin.write(b"open 2\n")
            p.until(b"HVF-DONE open")
            g.do("open 3")  # by the socket, whose client stays
            p.until(b"HVF-DONE open")
            p.stdin.write(b"reset\n")
            p.until(b"HVF-READY")
            # and the file has the same
            status, text = d.request("GET", "/v1/guests/small/console?tail=1048576")
            assert status == 200 and text.replace("\r", "") == g.console(), (text[-500:], g.console()[-500:])
            os.kill(g.pid, signal.SIGTERM)
            p.ends()


def test_qemu():
    """Shown, and that is said."""
    with Daemon() as d, tempfile.TemporaryDirectory() as run:
        os.chmod(run, 0o700)
        folder = pathlib.Path(run)
        p = d.cli("run", "--kernel", small_kernel() / "vmlinuz", "--initrd", make_initrd(folder),
                  "--accel", "tcg", "--name", "q", "--append", boot_line("acpi=off"),
                  "--timeout", "200", timeout=240,
                  env={"XDG_RUNTIME_DIR": run})
        assert p.returncode == 0, p
        guest = folder / "hvftrace/guests/q"
        pid = int((guest / "pid").read_text())
        try:
            assert d.get("/v1/guests/q")["console"] == "read"
            with Follower(d, "q") as p:
                p.until(b"HVF-READY")
                status, text = d.request("GET", "/v1/guests/q/console?tail=1048576")
                file = (guest / "console.log").read_bytes()
                assert status == 200 and text.encode() == file, (text[-500:], file[-500:])
                os.kill(pid, signal.SIGKILL)
                p.stdin.close()
                assert p.wait(30) == 0
                err = p.stderr.read()
                assert b"only shown" in err and b"takes nothing typed" in err, err
        finally:
            if pathlib.Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        wait_for("it ends", lambda: not pathlib.Path(f"/proc/{pid}/cwd").exists())


if __name__ == "__main__":
    main()
