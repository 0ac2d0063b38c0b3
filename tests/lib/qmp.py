# SPDX-License-Identifier: Apache-2.0
"""A small QMP client for the harness's own monitor. The product has another one, in C."""

import json
import socket
import time


class QmpError(Exception):
    pass


class Qmp:
    def __init__(self, path, timeout=20):
        self.buf = b""
        self.events = []
        self.sock = _connect(path, timeout)
        self.sock.settimeout(timeout)
        self._message()  # greeting
        self.command("qmp_capabilities")

    def close(self):
        self.sock.close()

    def _message(self):
        while b"\n" not in self.buf:
            part = self.sock.recv(65536)
            if not part:
                raise QmpError("QEMU closed its monitor")
            self.buf += part
        line, self.buf = self.buf.split(b"\n", 1)
        return json.loads(line)

    def command(self, name, **args):
        request = {"execute": name}
        if args:
            request["arguments"] = args
        self.sock.sendall(json.dumps(request).encode() + b"\n")
        while True:
            reply = self._message()
            if "event" in reply:
                self.events.append(reply)
            elif "error" in reply:
                raise QmpError(f"{name}: {reply['error']['desc']}")
            elif "return" in reply:
                return reply["return"]

    def hmp(self, line):
        return self.command("human-monitor-command", **{"command-line": line})


def _connect(path, timeout):
    """QEMU makes the socket some time after it starts."""
    end = time.monotonic() + timeout
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            s.connect(path)
            return s
        except OSError:
            s.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
