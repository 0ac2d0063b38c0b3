# SPDX-License-Identifier: Apache-2.0
"""Guests that stand still: processes that answer QMP as a real QEMU did, and have its RAM mapped. To whom
looks from outside they are so many running guests; they cost a few hundred KiB each. Nothing in them runs, so
they can be attached, looked at and let go, not traced. Standard library only.

    with Guest("cloud-6.1", mem=256) as g, Frozen(g, 32) as f:
        f.targets
"""

import json
import mmap
import os
import pathlib
import re
import signal
import socket

from guest import die_with_parent

FIXED = ("query-status", "query-memdev", "query-migrate", "query-chardev", "query-sev")


class Frozen:
    def __init__(self, guest, n):
        self.g, self.n, self.pids, self.targets = guest, n, [], []

    def __enter__(self):
        g = self.g
        self.answers = {"query-kvm": {"enabled": True, "present": True}}
        for name in FIXED:
            try:
                self.answers[name] = g.qmp.command(name)
            except Exception:  # what this QEMU does not know it does not know then either
                pass
        self.cpus = g.qmp.command("query-cpus-fast")
        g.qmp.command("stop")  # nothing changes from here on
        self.hmp = {"info mtree -f": g.qmp.hmp("info mtree -f")}
        self.regs = [g.qmp.command("human-monitor-command",
                                   **{"command-line": "info registers", "cpu-index": i})
                     for i in range(len(self.cpus))]
        self.ram = self._ram_fd(g.pid)
        for i in range(self.n):
            path = g.dir / f"frozen-{i}"
            self.targets.append(f"qemu:{path}")
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(path))
            server.listen(4)
            pid = os.fork()
            if not pid:
                die_with_parent()
                try:
                    self._serve(server)
                finally:
                    os._exit(1)
            server.close()
            self.pids.append(pid)
        return self

    def __exit__(self, *exc):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(self.ram)
        self.g.qmp.command("cont")

    @staticmethod
    def _ram_fd(pid):
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if "memory-backend-memfd" in os.readlink(fd):
                    return os.open(fd, os.O_RDWR)
            except FileNotFoundError:
                pass
        raise AssertionError("QEMU's RAM is no memfd")

    # in the child

    def _serve(self, server):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.map = mmap.mmap(self.ram, self.g.mem << 20)
        # where it lies only the kernel says; the memfd is mapped once here
        maps = pathlib.Path("/proc/self/maps").read_text()
        self.at = int(re.search(r"^([0-9a-f]+)-\S+ rw-s .*memory-backend-memfd", maps, re.M).group(1), 16)
        while True:
            client, _ = server.accept()
            try:
                self._talk(client)
            except (OSError, ValueError):
                pass
            client.close()

    def _talk(self, client):
        client.sendall(b'{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, '
                       b'"capabilities": []}}\r\n')
        buf = b""
        while True:
            part = client.recv(65536)
            if not part:
                return
            buf += part
            while buf.strip():
                try:  # requests need no line each
                    request, end = json.JSONDecoder().raw_decode(buf.decode().lstrip())
                except ValueError:
                    break
                buf = buf.decode().lstrip()[end:].encode()
                reply = self._answer(request["execute"], request.get("arguments") or {})
                if "id" in request:
                    reply["id"] = request["id"]
                client.sendall(json.dumps(reply).encode() + b"\r\n")

    def _answer(self, name, args):
        if name == "qmp_capabilities":
            return {"return": {}}
        if name == "query-cpus-fast":
            return {"return": [dict(c, **{"thread-id": os.getpid()}) for c in self.cpus]}
        if name == "query-status":
            return {"return": {"running": True, "singlestep": False, "status": "running"}}
        if name == "human-monitor-command":
            return {"return": self._hmp(args["command-line"], args.get("cpu-index", 0))}
        if name in self.answers:
            return {"return": self.answers[name]}
        return {"error": {"class": "CommandNotFound", "desc": f"The command {name} has not been found"}}

    def _hmp(self, line, cpu):
        if line == "info registers":
            return self.regs[cpu]
        if line.startswith("gpa2hva "):
            addr = int(line.split()[1], 0)
            return f"Host virtual address for {addr:#x} (ram) is {self.at + addr:#x}\r\n"
        return self.hmp.get(line, f"unknown command: '{line}'\r\n")
