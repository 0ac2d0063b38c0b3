# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong: each a problem document with a stable code, one line from the command,
and nothing changed in the guest."""

import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading

from daemon import Daemon, problem
from guest import Guest, Skip, wait_for
from testlib import main
from truth import Truth

NOBODY = 65534


def attach_fails(d, target, status, code):
    """By HTTP and by the command; the same code, and no guest left in the list."""
    problem(d.request("POST", "/v1/guests", {"target": target}), status, code)
    p = d.cli("attach", target)
    assert p.returncode == 1, f"exit status {p.returncode}: {p.stdout}{p.stderr}"
    lines = p.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0], f"not one line: {p.stderr!r}"
    assert d.get("/v1/guests")["items"] == []


def test_targets_that_are_none():
    with Daemon() as d, tempfile.TemporaryDirectory() as tmp:
        attach_fails(d, "qemu:" + tmp + "/no-such-socket", 404, "target.no_socket")
        attach_fails(d, "", 400, "bad_request")
        for target in ("qemu", "qemu:", "nonsense:1", "pid:", "pid:x", "pid:-1", "pid:0"):
            attach_fails(d, target, 400, "target.syntax")
        dead = subprocess.Popen(["true"])
        dead.wait()
        attach_fails(d, f"pid:{dead.pid}", 404, "target.no_process")
        sleeper = subprocess.Popen(["sleep", "600"])
        try:
            attach_fails(d, f"pid:{sleeper.pid}", 422, "target.not_a_vmm")
        finally:
            sleeper.kill()
            sleeper.wait()


def test_bodies_that_are_none():
    with Daemon() as d:
        for raw in (b"", b"{", b"[]", b"null", b'{"target": 1}', b'{"target": null}', b"\xff\xfe",
                    b'{"target":"' + b"a" * 100000 + b'"}'):
            status, body = d.request("POST", "/v1/guests", raw=raw)
            assert 400 <= status < 500 and body.get("code"), (raw[:20], status, body)
        problem(d.request("GET", "/v1/guests/none"), 404, "not_found")
        problem(d.request("GET", "/v1/traces/none"), 404, "not_found")
        problem(d.request("DELETE", "/v1/guests/none"), 404, "not_found")
        assert d.request("GET", "/healthz")[0] == 200


def test_socket_that_is_no_qmp():
    """Something listens but does not speak, or speaks nonsense."""
    with Daemon() as d, tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(8)

        def nonsense():
            while True:
                try:
                    c, _ = listener.accept()
                    c.sendall(b"SSH-2.0-nonsense\r\n" * 10)
                    c.close()
                except OSError:
                    return
        threading.Thread(target=nonsense, daemon=True).start()
        status, body = d.request("POST", "/v1/guests", {"target": f"qemu:{path}"})
        assert body.get("code") in ("vmm.protocol", "vmm.timeout", "target.not_a_vmm"), (status, body)
        listener.close()


def test_firmware():
    """QEMU without a kernel stays in its firmware."""
    with Guest(None, mem=128, extra=["-boot", "menu=on"]) as g, Daemon() as d:
        attach_fails(d, g.target, 409, "guest.not_booted")
        attach_fails(d, f"pid:{g.pid}", 422, "target.tcg_needs_qmp")
        g.qmp.hmp(f"gdbserver unix:{g.dir}/debugger,server=on,wait=off")  # somebody debugs it
        attach_fails(d, g.target, 409, "target.gdbstub_busy")
        g.qmp.hmp("gdbserver none")
        attach_fails(d, g.target, 409, "guest.not_booted")
        assert g.status() == "running"


def test_not_linux():
    """A boot sector that loops in protected mode: booted, but no Linux."""
    # cli; lgdt [gdt]; cr0.PE = 1; jmp 8:pm; pm: load ds; write to 16 MiB; loop
    code = bytes.fromhex("fa31c08ed80f0116407c0f20c00c010f22c0ea187c0800"
                         "90" "66b810008ed8c7050000000178563412ebfe")
    sector = bytearray(512)
    sector[:len(code)] = code
    sector[0x40:0x46] = (23).to_bytes(2, "little") + (0x7c48).to_bytes(4, "little")
    sector[0x48:0x60] = bytes(8) + bytes.fromhex("ffff0000009acf00") + bytes.fromhex("ffff00000092cf00")
    sector[510:] = b"\x55\xaa"
    with tempfile.NamedTemporaryFile(suffix=".img") as f, Daemon() as d:
        f.write(sector)
        f.flush()
        with Guest(None, mem=128, extra=["-drive", f"file={f.name},format=raw,if=ide"]) as g:
            wait_for("the boot sector ran", lambda: g.read_phys(0x1000000, 4) == b"\x78\x56\x34\x12")
            status, body = d.request("POST", "/v1/guests", {"target": g.target})
            assert body.get("code") in ("guest.not_linux", "guest.not_booted"), (status, body)
            assert g.status() == "running"


def test_stopped_and_gone():
    with Guest("cloud-6.1") as g, Daemon() as d:
        truth = Truth(g)
        g.qmp.command("stop")
        status, body = d.request("POST", "/v1/guests", {"target": g.target, "name": "g"})
        # finding out needs no running guest; tracing does
        if status == 201:
            problem(d.request("POST", "/v1/guests/g/traces", {"tracer": "function",
                                                              "filter": ["vfs_read"]}),
                    409, "guest.stopped")
            d.delete("/v1/guests/g")
        else:
            problem((status, body), 409, "guest.stopped")
        assert g.status() == "paused", "the guest does not stay as it was"
        g.qmp.command("cont")
        g.assert_alive()
        truth.assert_untouched([], quiet=True)

        d.attach(g, "g")
        t = d.trace("g", ["vfs_*"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 0)
        g.signal()  # the VMM dies half-way
        d.wait_trace(t, lambda x: x["state"] != "running")
        status, body = d.request("POST", "/v1/guests/g/traces", {"tracer": "function",
                                                                 "filter": ["vfs_read"]})
        problem((status, body), 410, "vmm.gone")
        assert d.request("GET", "/healthz")[0] == 200
        d.request("DELETE", "/v1/guests/g")
        assert d.get("/v1/guests")["items"] == []


def test_filters_and_second_attach():
    with Guest("cloud-6.1") as g, Daemon() as d:
        truth = Truth(g)
        d.attach(g, "g")
        problem(d.request("POST", "/v1/guests", {"target": g.target, "name": "h"}), 409,
                "guest.already_attached")
        with Daemon(state_dir=None) as other:
            status, body = other.request("POST", "/v1/guests", {"target": g.target})
            assert not 200 <= status < 300 and body.get("code"), (status, body)
        traces = "/v1/guests/g/traces"
        for body, status, code in (
                ({"tracer": "function", "filter": ["no_such_function_*"]}, 422, "filter.no_match"),
                ({"tracer": "function", "filter": ["vfs_read", "nope"]}, 422, "filter.no_match"),
                ({"tracer": "function", "filter": ["vfs_read"], "pids": [4000000]}, 422,
                 "filter.no_such_pid"),
                ({"tracer": "nonsense"}, 400, "bad_request"),
                ({"tracer": "function", "filter": "vfs_read"}, 400, "bad_request"),
                ({"tracer": "function", "pids": ["x"]}, 400, "bad_request"),
                ({"tracer": "function", "pids": [-1]}, 400, "bad_request"),
                ({"tracer": "function", "mode": "nonsense"}, 400, "bad_request")):
            problem(d.request("POST", traces, body), status, code)
        truth.assert_untouched([], quiet=True)
        t = d.trace("g", ["vfs_read"])["id"]
        problem(d.request("POST", traces, {"tracer": "function", "filter": ["vfs_write"]}), 409,
                "trace.limit")
        d.stop_trace(t)
        p = d.cli("trace", "g", "-l", "no_such_function_*", "--duration", "1")
        assert p.returncode == 1 and len(p.stderr.strip().splitlines()) == 1, p.stderr
        assert d.cli("trace").returncode == 2
        assert d.cli("nonsense").returncode == 2
        d.delete("/v1/guests/g")
        truth.assert_untouched([], quiet=True)
        g.assert_alive()
        g.assert_no_warnings()
        check_kernels_that_cannot(g, d, truth)  # which it warns of
        g.assert_alive()


def poke(g, truth, name, data):
    """Writes into a variable of the guest's kernel. Returns what was there."""
    at = truth.walk(g.symbols(name)[name][0])["phys"]
    old = g.read_phys(at, len(data))
    for fd in pathlib.Path(f"/proc/{g.pid}/fd").iterdir():
        if "/memfd:" in os.readlink(fd) and fd.stat().st_size >= at:
            with open(fd, "r+b", buffering=0) as ram:
                os.pwrite(ram.fileno(), data, at)
            return old
    raise Skip("QEMU's memory is no memfd")


@contextlib.contextmanager
def poked(g, truth, name, data):
    old = poke(g, truth, name, data)
    try:
        yield
    finally:
        poke(g, truth, name, old)


def check_kernels_that_cannot(g, d, truth):
    """Each is refused before anything is changed, or all that was is put back."""
    def refused(status, code):
        problem(d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": ["vfs_read"]}),
                status, code)

    d.attach(g, "g")
    # somebody in the guest changes its text, and does not come to an end with it
    with poked(g, truth, "ftrace_lock", struct.pack("<Q", g.symbols("init_task")["init_task"][0])):
        refused(409, "guest.text_busy")
    # it has 4 MiB, it thinks: it lends no more
    with poked(g, truth, "_totalram_pages", struct.pack("<Q", 1024)):
        refused(507, "guest.alloc_failed")
    d.delete("/v1/guests/g")
    truth.assert_untouched([], quiet=True)
    # a note so long that its page has no room for the gate's mailbox
    with poked(g, truth, "vmcoreinfo_size", struct.pack("<Q", 4000)):
        d.attach(g, "g")
        refused(422, "guest.no_room")
        d.delete("/v1/guests/g")
    truth.assert_untouched([], quiet=True)


def test_no_permission():
    if os.getuid():
        raise Skip("needs root, to run a daemon as another user")
    with Guest("cloud-6.1") as g, Daemon(user=NOBODY) as d:
        attach_fails(d, f"pid:{g.pid}", 403, "target.permission")
        os.chmod(g.dir, 0o755)
        attach_fails(d, g.target, 403, "target.permission")
        g.assert_alive()


if __name__ == "__main__":
    main()
