# SPDX-License-Identifier: Apache-2.0
"""Starts hvftraced of a build on a private socket and speaks HTTP to it. Standard library only.

    with Daemon() as d:
        status, body = d.post("/v1/guests", {"target": g.target})
"""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.parse

from guest import TOP, GuestTimeout, die_with_parent, wait_for

SANITIZER = re.compile(r"ERROR: (?:Address|Leak|Thread|Memory)Sanitizer|runtime error:|SUMMARY: \w+Sanitizer")


def build_dir():
    """Where the binaries are: $HVF_BUILD, or the release build, or the first one that has them."""
    if os.environ.get("HVF_BUILD"):
        return pathlib.Path(os.environ["HVF_BUILD"])
    for preset in ("release", "dev", "asan"):
        d = TOP / "build" / preset
        if (d / "CMakeCache.txt").exists():
            return d
    raise AssertionError("nothing is built: cmake --preset release && cmake --build --preset release")


def binary(name, build=None):
    build = pathlib.Path(build) if build else build_dir()
    for where in (build / "api" / name, build / name, build / "guest-agent" / name,
                  build / "tests" / name, build / "tests/bench" / name):
        if where.is_file():
            return where
    found = [p for p in build.rglob(name) if p.is_file() and os.access(p, os.X_OK)]
    if not found:
        raise AssertionError(f"{name} is not in {build}")
    return found[0]


def is_release(build=None):
    """True for an optimised build without sanitizers: only such are held to their times."""
    cache = ((pathlib.Path(build) if build else build_dir()) / "CMakeCache.txt").read_text()
    return "CMAKE_BUILD_TYPE:STRING=Rel" in cache and not re.search(r"^HVF_SANITIZE:\w+=.+", cache, re.M)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Problem(AssertionError):
    """A reply that is not 2xx, where the test expected one."""

    def __init__(self, method, path, status, body):
        super().__init__(f"{method} {path}: {status} {json.dumps(body)}")
        self.status, self.body = status, body


class Daemon:
    """
    user:      run as this uid
    state_dir: shared by several daemons one after another
    linger:    the daemon may outlive this process
    tcp:       it listens on a port of this host, too; see url()
    """

    def __init__(self, build=None, user=None, state_dir=None, env=None, linger=False, tcp=False):
        self.build, self.user, self.env, self.linger, self.tcp = build, user, env or {}, linger, tcp
        binary("hvftraced", build)  # before anything is made
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hvf-daemon-"))
        self.state_dir = pathlib.Path(state_dir) if state_dir else self.dir / "state"
        self.socket = self.dir / "api.sock"
        self.log_path = self.dir / "hvftraced.log"
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if kind is not None and self.log_path.exists():
            print(f"hvftraced's log:\n{self.log()}", flush=True)
        try:
            self.stop(check=kind is None)
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, timeout=30):
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        if self.user is not None:
            os.chmod(self.dir, 0o755)
            for p in (self.dir, self.state_dir):
                os.chown(p, self.user, self.user)
        program = binary("hvftraced", self.build)
        env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:abort_on_error=0", **self.env)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [program, "--listen", f"unix:{self.socket}", "--state-dir", str(self.state_dir)] +
                (["--listen", "tcp:127.0.0.1:0", "--allow", "admin=loopback"] if self.tcp else []),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                user=self.user, env=env,
                preexec_fn=None if self.linger else die_with_parent)

        try:
            self._wait_up(timeout)
        except BaseException:
            self.kill9()
            shutil.rmtree(self.dir, ignore_errors=True)
            raise
        return self

    def _wait_up(self, timeout):
        def up():
            if self.process.poll() is not None:
                raise AssertionError(f"hvftraced ended with {self.process.returncode}: {self.log()}")
            try:
                return self.request("GET", "/healthz", timeout=5)[0] == 200
            except OSError:
                return False
        try:
            wait_for("hvftraced answers", up, timeout)
        except GuestTimeout as e:
            raise AssertionError(f"{e}: {self.log()}") from e

    def log(self, n=4000):
        try:
            return self.log_path.read_bytes()[-n:].decode(errors="replace")
        except OSError:
            return ""

    def url(self):
        """Where a browser finds it."""
        return "http://" + re.search(r"listening on tcp:(\S+)", self.log_path.read_text()).group(1)

    def stop(self, check=True, timeout=60):
        """Asks it to end; with check, an exit status or a sanitizer's report is a failure."""
        p, self.process = self.process, None
        if not p:
            return
        was_running = p.poll() is None
        if was_running:
            p.terminate()
        try:
            status = p.wait(timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            if check:
                raise AssertionError(f"hvftraced did not end within {timeout} s: {self.log()}")
            return
        keep = os.environ.get("HVF_KEEP_LOGS")
        if keep and self.log_path.exists():
            os.makedirs(keep, exist_ok=True)
            shutil.copy(self.log_path, os.path.join(keep, f"{self.dir.name}.log"))
        text = self.log_path.read_text(errors="replace")
        if check:
            assert not SANITIZER.search(text), "sanitizer report:\n" + text[-6000:]
            assert was_running, f"hvftraced had ended by itself with {status}: {self.log()}"
            assert status == 0, f"hvftraced ended with {status}: {self.log()}"

    def kill9(self):
        p, self.process = self.process, None
        p.kill()
        p.wait()

    @property
    def pid(self):
        return self.process.pid

    def rss_kib(self):
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", text, re.M).group(1))

    # HTTP

    def request(self, method, path, body=None, timeout=120, raw=None):
        """(status, parsed body). raw: bytes to send instead of JSON."""
        c = _Connection(self.socket, timeout)
        try:
            data = raw if raw is not None else (json.dumps(body) if body is not None else None)
            headers = {"Content-Type": "application/json"} if data is not None else {}
            c.request(method, path, data, headers)
            r = c.getresponse()
            text = r.read()
            kind = (r.getheader("Content-Type") or "").split(";")[0].strip()
        finally:
            c.close()
        if kind in ("application/json", "application/problem+json"):
            return r.status, json.loads(text)
        return r.status, text.decode(errors="replace")

    def _good(self, method, path, body=None, timeout=120):
        status, reply = self.request(method, path, body, timeout)
        if not 200 <= status < 300:
            raise Problem(method, path, status, reply)
        return reply

    def get(self, path, timeout=120):
        return self._good("GET", path, timeout=timeout)

    def post(self, path, body=None, timeout=120):
        return self._good("POST", path, body if body is not None else {}, timeout)

    def delete(self, path, timeout=120):
        return self._good("DELETE", path, timeout=timeout)

    def stream(self, path, timeout=60):
        """The lines of an NDJSON stream, parsed, as they come."""
        c = _Connection(self.socket, timeout)
        try:
            c.request("GET", path)
            r = c.getresponse()
            if r.status != 200:
                raise Problem("GET", path, r.status, r.read().decode(errors="replace"))
            for line in r:
                if line.strip():
                    yield json.loads(line)
        finally:
            c.close()

    # what most tests do

    def attach(self, guest, name=None, timeout=120):
        """Attaches; returns the guest's resource."""
        body = {"target": guest if isinstance(guest, str) else guest.target}
        if name:
            body["name"] = name
        return self.post("/v1/guests", body, timeout)

    def functions(self, name, glob=None, limit=5000):
        """All functions of a guest, page by page."""
        out, cursor = [], None
        while True:
            q = {"limit": limit}
            if glob:
                q["glob"] = glob
            if cursor is not None:
                q["cursor"] = cursor
            page = self.get(f"/v1/guests/{name}/functions?" + urllib.parse.urlencode(q))
            out += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return out

    def trace(self, name, filter=(), timeout=120, **more):
        body = {"tracer": "function", "filter": list(filter)}
        body.update(more)
        return self.post(f"/v1/guests/{name}/traces", body, timeout)

    def trace_info(self, trace):
        return self.get(f"/v1/traces/{trace}")

    def stop_trace(self, trace, timeout=120):
        return self.post(f"/v1/traces/{trace}/stop", {}, timeout)

    def records(self, trace, timeout=120):
        """(records, end line) of a trace that is stopped or will be."""
        records, end = [], None
        for line in self.stream(f"/v1/traces/{trace}/stream", timeout):
            if line["type"] == "end":
                end = line
                break
            records.append(line)
        return records, end

    def wait_trace(self, trace, condition, timeout=60):
        """Polls a trace's resource until condition(resource)."""
        return wait_for("trace", lambda: (lambda i: i if condition(i) else None)(
            self.trace_info(trace)), timeout)

    def journals(self):
        """Notes of changes in guests that are left in the state directory: files that are not empty."""
        return [p for p in self.state_dir.rglob("*")
                if p.is_file() and p.stat().st_size and p.name not in ("audit.jsonl", "last-trace")]

    # the command

    def cli(self, *args, timeout=120, env=None):
        return subprocess.run([str(binary("hvftrace", self.build)), "-s", str(self.socket)] +
                              [str(a) for a in args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, env=dict(os.environ, **(env or {})))


def problem(reply, status, code):
    """Checks (status, body) to be the problem document with this code."""
    got, body = reply
    assert isinstance(body, dict), f"not a problem document: {got} {body!r}"
    assert body.get("code") == code, f"expected {code}, got {got} {json.dumps(body)}"
    assert got == status, f"expected status {status}, got {got}: {json.dumps(body)}"
    assert body.get("status") == status and body.get("title"), json.dumps(body)
    return body

