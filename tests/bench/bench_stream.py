# SPDX-License-Identifier: Apache-2.0
"""What streams cost the daemon: records a second to one reader, 200 readers at once, one that does not read.

A writer in the daemon fills an agent's rings at a steady rate, the real drain empties them. Prints numbers;
fails when a reader that stopped costs others, or when memory grows. HVF_LONG=1 measures longer.
"""

import json
import os
import pathlib
import resource
import select
import socket
import subprocess
import tempfile
import time

LONG = os.environ.get("HVF_LONG") == "1"
SECONDS = 20 if LONG else 2
RATES = (200000, 500000, 1000000, 2000000) if LONG else (1000000,)


class Reader:
    """A raw connection that counts lines."""

    def __init__(self, path, trace, query=""):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(str(path))
        self.s.sendall(f"GET /v1/traces/{trace}/stream{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.lines = self.bytes = 0
        self.buf = bytearray(1 << 20)

    def take(self):
        n = self.s.recv_into(self.buf)
        if not n:
            return False
        self.bytes += n
        self.lines += self.buf.count(b'{"seq":', 0, n)  # begins records, and nothing else
        return True


class Daemon:
    def __init__(self, binary):
        self.tmp = tempfile.TemporaryDirectory(prefix="hvf-bench-")
        self.socket = pathlib.Path(self.tmp.name, "s")
        self.p = subprocess.Popen([binary, "--state-dir", self.tmp.name + "/state", "--listen",
                                   f"unix:{self.socket}"], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not self.socket.exists() and time.monotonic() < end:
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.terminate()
        self.p.wait(30)
        self.tmp.cleanup()

    def ask(self, method, path, body=None):
        out = subprocess.run(["curl", "-s", "--unix-socket", self.socket, "-X", method, "-H",
                              "Content-Type: application/json", *(["-d", json.dumps(body)] if body else []),
                              "http://localhost" + path], capture_output=True, check=True).stdout
        return json.loads(out)

    def trace(self, rate, **more):
        self.ask("POST", "/v1/guests", {"target": f"qemu:/fake-{rate}", "name": f"g{rate}"})
        return self.ask("POST", f"/v1/guests/g{rate}/traces", {"tracer": "function", **more})["id"]

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.p.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self):
        text = pathlib.Path(f"/proc/{self.p.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024


def read_for(readers, seconds):
    poll = select.epoll()
    by_fd = {r.s.fileno(): r for r in readers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for fd, _ in poll.poll(0.1):
            by_fd[fd].take()
    poll.close()


def one_reader(d, rate):
    t = d.trace(rate, buffer_records=1 << 20)
    r = Reader(d.socket, t)
    read_for([r], 1)
    lines, size, cpu, began, rss = r.lines, r.bytes, d.cpu(), time.monotonic(), d.rss_mib()
    read_for([r], SECONDS)
    took = time.monotonic() - began
    info = d.ask("GET", f"/v1/traces/{t}")
    got = (r.lines - lines) / took
    rate_mb = (r.bytes - size) / took / 1e6
    print(f"one reader, {rate} records/s written: {got:.0f} records/s, {rate_mb:.0f} MB/s, "
          f"daemon {100 * (d.cpu() - cpu) / took:.0f} % of a core, lost in rings {info['lost']}, "
          f"to the reader {info['lost_readers']}, memory {rss:.0f} -> {d.rss_mib():.0f} MiB", flush=True)
    assert d.rss_mib() < rss + 48, "memory grows"
    r.s.close()
    d.ask("DELETE", f"/v1/traces/{t}")
    return got


def many_readers(d, n, rate):
    t = d.trace(rate)
    stopped = Reader(d.socket, t)
    readers = [Reader(d.socket, t) for _ in range(n)]
    read_for(readers, 1)
    lines, cpu, began, rss = [r.lines for r in readers], d.cpu(), time.monotonic(), d.rss_mib()
    read_for(readers, SECONDS)
    took = time.monotonic() - began
    got = [(r.lines - k) / took for r, k in zip(readers, lines)]
    answer = time.monotonic()
    d.ask("GET", "/version")
    answer = time.monotonic() - answer
    print(f"{n} readers and one that stopped reading, {rate} records/s written: slowest {min(got):.0f}, "
          f"all together {sum(got):.0f} records/s, daemon {100 * (d.cpu() - cpu) / took:.0f} % of a core, "
          f"another request answered in {answer * 1000:.0f} ms, memory {rss:.0f} -> {d.rss_mib():.0f} MiB",
          flush=True)
    assert min(got) > 0.5 * rate, "a reader falls behind"
    assert d.rss_mib() < rss + 48, "memory grows"
    for r in readers + [stopped]:
        r.s.close()
    d.ask("DELETE", f"/v1/traces/{t}")


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with Daemon(os.environ["HVFTRACED_BENCH"]) as d:
        best = max(one_reader(d, rate) for rate in RATES)
        many_readers(d, 200, 1000)
        print(f"most to one reader: {best:.0f} records/s")


if __name__ == "__main__":
    main()
