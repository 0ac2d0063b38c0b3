# SPDX-License-Identifier: Apache-2.0
"""What streams cost the daemon: a million records a second to one reader, five million to a recording, 200
readers at once, one that does not read.

A writer in the daemon fills an agent's rings at a steady rate, the real drain empties them. What a record
costs is taken as CPU time of the threads that carry it, which other programs on this machine cannot spoil;
the rates themselves are asked for where the machine has the time. Fails also when a reader that stopped costs
others, or when memory grows. HVF_LONG=1 measures longer.
"""

import json
import os
import pathlib
import re
import resource
import select
import socket
import subprocess
import tempfile
import time

LONG = os.environ.get("HVF_LONG") == "1"
SECONDS = 20 if LONG else 2
RATES = (200000, 500000, 1000000, 2000000) if LONG else (1000000,)
# ns of CPU a record: half of what the rates leave on two cores, of one thread and of all together
STREAM_NS = 500
RECORD_NS = 200


def threads_of(pid):
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name = task.joinpath("comm").read_text().strip()
            if name != "writer":
                found[name, task.name] = int(task.joinpath("schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
    return found


def spent(after, before):
    return {k: v - before.get(k, 0) for k, v in after.items()}


def ns_each(cpu, drained, read):
    """A record's part of each thread's time: the drain carries those too that a reader was too late for."""
    return {k: v * 1e9 / max(drained if k[0] == "drain" else read, 1) for k, v in cpu.items()}


class Host:
    """Whether others took the machine's time while something was measured."""

    def __init__(self):
        self.before = self.look()

    @staticmethod
    def look():
        n = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(n), n[3] + n[4]

    def had_time(self):
        total, idle = (a - b for a, b in zip(self.look(), self.before))
        return idle > 0.15 * total


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
        """Seconds of each thread, but the writer's, which plays the guest."""
        return threads_of(self.p.pid)

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


def must_reach(got, rate, host):
    if got >= 0.98 * rate:
        return
    assert not host.had_time(), f"{got:.0f} of {rate} records/s, though the machine had time"
    print("    others took the machine's time: the rate says nothing", flush=True)


def one_reader(d, rate):
    t = d.trace(rate, buffer_records=1 << 20)
    r = Reader(d.socket, t)
    read_for([r], 1)
    before = d.ask("GET", f"/v1/traces/{t}")["records"]
    lines, size, cpu, began, rss, host = r.lines, r.bytes, d.cpu(), time.monotonic(), d.rss_mib(), Host()
    read_for([r], SECONDS)
    took, cpu = time.monotonic() - began, spent(d.cpu(), cpu)
    info = d.ask("GET", f"/v1/traces/{t}")
    n = r.lines - lines
    ns = ns_each(cpu, info["records"] - before, n)
    print(f"one reader, {rate} records/s written: {n / took:.0f} records/s, "
          f"{(r.bytes - size) / took / 1e6:.0f} MB/s, {sum(ns.values()):.0f} ns of CPU a record, "
          f"{max(ns.values()):.0f} of one thread, "
          f"lost in rings {info['lost']}, to the reader {info['lost_readers']}, "
          f"memory {rss:.0f} -> {d.rss_mib():.0f} MiB", flush=True)
    assert d.rss_mib() < rss + 48, "memory grows"
    assert max(ns.values()) < STREAM_NS or rate < 1000000, f"{max(ns.values()):.0f} ns a record"
    if rate <= 1000000:
        must_reach(n / took, rate, host)
    r.s.close()
    d.ask("DELETE", f"/v1/traces/{t}")
    return n / took


def recording(d, rate):
    """The whole way: rings, drain, stream, and the command that compresses it into a file."""
    d.ask("POST", "/v1/guests", {"target": f"qemu:/fake-{rate}", "name": "rec"})
    path = pathlib.Path(d.tmp.name, "recording")
    with subprocess.Popen([os.environ["HVFTRACE"], "-s", d.socket, "record", "rec", "-o", path],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as command:
        end = time.monotonic() + 20
        while not path.exists() or path.stat().st_size < 100000:
            assert command.poll() is None and time.monotonic() < end, command.stdout.read()
            time.sleep(0.01)
        t = d.ask("GET", "/v1/traces")["items"][0]["id"]

        def state():
            i = d.ask("GET", f"/v1/traces/{t}")
            return (time.monotonic(), i["records"] - i["lost_readers"], d.cpu(), threads_of(command.pid),
                    i["records"])

        before, rss, host = state(), d.rss_mib(), Host()
        time.sleep(SECONDS)
        after = state()
        took, n = after[0] - before[0], after[1] - before[1]
        cpu = {**spent(after[2], before[2]), **spent(after[3], before[3])}
        ns = ns_each(cpu, after[4] - before[4], n)
        print(f"a recording, {rate} records/s written: {n / took:.0f} records/s, "
              f"{sum(ns.values()):.0f} ns of CPU a record, {max(ns.values()):.0f} of one thread, "
              f"memory {rss:.0f} -> {d.rss_mib():.0f} MiB", flush=True)
        assert d.rss_mib() < rss + 48, "memory grows"
        assert sum(ns.values()) < RECORD_NS, f"{sum(ns.values()):.0f} ns a record"
        must_reach(n / took, rate, host)
        command.terminate()
        out = command.communicate(timeout=60)[0].decode()
    counts = dict((k, int(v)) for v, k in re.findall(r"(\d+) (records|lost)", out))
    print(f"    {out.strip()}; {path.stat().st_size / counts['records']:.2f} bytes a record", flush=True)
    assert counts["records"] >= n


def many_readers(d, n, rate):
    t = d.trace(rate)
    stopped = Reader(d.socket, t)
    readers = [Reader(d.socket, t) for _ in range(n)]
    read_for(readers, 1)
    lines, cpu, began, rss = [r.lines for r in readers], d.cpu(), time.monotonic(), d.rss_mib()
    read_for(readers, SECONDS)
    took, cpu = time.monotonic() - began, sum(spent(d.cpu(), cpu).values())
    got = [(r.lines - k) / took for r, k in zip(readers, lines)]
    answer = time.monotonic()
    d.ask("GET", "/version")
    answer = time.monotonic() - answer
    print(f"{n} readers and one that stopped reading, {rate} records/s written: slowest {min(got):.0f}, "
          f"all together {sum(got):.0f} records/s, daemon {100 * cpu / took:.0f} % of a core, "
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
        recording(d, 5000000)
        many_readers(d, 200, 1000)
        print(f"most to one reader: {best:.0f} records/s")


if __name__ == "__main__":
    main()
