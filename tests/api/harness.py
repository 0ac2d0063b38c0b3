# SPDX-License-Identifier: Apache-2.0
"""Starts the daemon over its engine without guests, and speaks HTTP to it. Standard library only.

The build gives $HVFTRACED (hvftraced_fake) and $HVFTRACE (the command).
"""

import ctypes
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: ThreadSanitizer|SUMMARY: \w+Sanitizer")
SLOW = float(os.environ.get("HVF_TEST_SLOW", "1"))  # a factor on all deadlines


def until(what, condition, timeout=10):
    """Polls until condition() is true, and returns what it gave."""
    end = time.monotonic() + timeout * SLOW
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.005)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=20):
        super().__init__("localhost", timeout=timeout * SLOW)
        self.unix_path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


class Reply:
    def __init__(self, response, text):
        self.status = response.status
        self.headers = response.headers
        self.text = text
        self.type = (response.getheader("Content-Type") or "").split(";")[0]
        self.body = json.loads(text) if self.type.endswith("json") and text else None


class Daemon:
    """args: further options; gate: slow operations wait until open_gate()"""

    def __init__(self, *args, env=None, listen=None, state_dir=None):
        self.tmp = tempfile.TemporaryDirectory(prefix="hvf-api-")
        self.dir = pathlib.Path(self.tmp.name)
        self.state_dir = pathlib.Path(state_dir) if state_dir else self.dir / "state"
        self.socket = self.dir / "api.sock"
        self.gate = self.dir / "gate"
        self.log_path = self.dir / "log"
        self.listen = listen if listen is not None else [f"unix:{self.socket}"]
        self.args = list(args)
        self.env = dict(os.environ, HVFTRACE_FAKE_GATE=str(self.gate), **(env or {}))
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        self.open_gate()
        try:
            self.stop(check=kind is None)
        finally:
            self.tmp.cleanup()

    def spawn(self):
        command = [os.environ["HVFTRACED"], "--state-dir", str(self.state_dir)] + self.args
        for place in self.listen:
            command += ["--listen", place]
        if any(x.startswith("tcp:") for x in self.listen) and not {"--allow", "--tokens"} & set(self.args):
            command += ["--allow", "admin=loopback"]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.env, preexec_fn=die_with_parent)

    def start(self):
        before = len(self.log()) if self.log_path.exists() else 0
        self.spawn()

        def up():
            if self.process.poll() is not None:
                raise AssertionError(f"hvftraced ended with {self.process.returncode}: {self.log()}")
            return self.log()[before:].count("listening on") == len(self.listen)
        until("hvftraced listens", up)
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self, check=True, sig=signal.SIGTERM):
        p, self.process = self.process, None
        if not p:
            return
        early = p.poll()
        p.send_signal(sig)
        try:
            status = p.wait(30 * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            if check:
                raise AssertionError("hvftraced did not end: " + self.log()) from None
            return
        if check:
            assert not SANITIZER.search(self.log()), self.log()
            assert early is None, f"hvftraced had ended with {early}: {self.log()}"
            assert status == 0, f"hvftraced ended with {status}: {self.log()}"

    def open_gate(self):
        self.gate.touch()

    def until_it_waits(self):
        """Until an operation is at the gate."""
        waiting = self.gate.with_name("gate.waiting")
        until("an operation is at the gate", waiting.exists)
        waiting.unlink()

    def connection(self, timeout=20):
        return UnixConnection(self.socket, timeout)

    def request(self, method, path, body=None, headers=None, raw=None):
        c = self.connection()
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            head = {"Content-Type": "application/json"} if data is not None else {}
            head.update(headers or {})
            c.request(method, path, data, {k: v for k, v in head.items() if v is not None})
            r = c.getresponse()
            return Reply(r, r.read())
        finally:
            c.close()

    def good(self, method, path, body=None, status=None):
        r = self.request(method, path, body)
        assert r.status == (status or 200), f"{method} {path}: {r.status} {r.text}"
        return r.body

    def get(self, path):
        return self.good("GET", path)

    def attach(self, kind="fake", name="g"):
        return self.good("POST", "/v1/guests", {"target": f"qemu:/{kind}", "name": name}, 201)

    def trace(self, name="g", **more):
        return self.good("POST", f"/v1/guests/{name}/traces", {"tracer": "function", **more}, 201)["id"]

    def stream(self, trace, query="", accept=None, timeout=20):
        return Stream(self, f"/v1/traces/{trace}/stream{query}", accept, timeout)

    def until_more(self, trace, n=30):
        """Until there are @n more records."""
        before = self.get(f"/v1/traces/{trace}")["records"]
        until("more records", lambda: self.get(f"/v1/traces/{trace}")["records"] > before + n)

    def engine(self):
        """The options of the last trace, as the engine got them."""
        return [x for x in self.log().splitlines() if x.startswith("engine: ")][-1].removeprefix("engine: ")

    def cli(self, *args, timeout=30, env=None, cwd=None, stdin=b""):
        return subprocess.run([os.environ["HVFTRACE"], "-s", str(self.socket)] + [str(a) for a in args],
                              input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=timeout * SLOW, env=dict(self.env, **(env or {})), cwd=cwd,
                              check=False)


class Stream:
    """An open stream; iterate for the lines of NDJSON."""

    def __init__(self, daemon, path, accept, timeout):
        self.connection = daemon.connection(timeout)
        self.connection.request("GET", path, headers={"Accept": accept} if accept else {})
        self.response = self.connection.getresponse()
        self.type = self.response.getheader("Content-Type")

    def __enter__(self):
        assert self.response.status == 200, self.response.read()
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def close(self):
        self.response.close()
        self.connection.close()

    def __iter__(self):
        for line in self.response:
            yield json.loads(line)

    def raw(self):
        return self.response.read()


class TestCase(unittest.TestCase):
    def problem(self, reply, status, code):
        """Checks that @reply is the problem document with this code, and returns it."""
        self.assertEqual(reply.type, "application/problem+json", reply.text)
        p = reply.body
        self.assertEqual((reply.status, p["code"]), (status, code), p)
        self.assertEqual(p["status"], status)
        self.assertEqual(p["type"], "urn:hvftrace:problem:" + code)
        for key in ("title", "detail", "hint", "request_id"):
            self.assertTrue(p[key], key)
        self.assertEqual(reply.headers["X-Request-Id"], p["request_id"])
        return p

    def pointers(self, problem):
        return [e["pointer"] for e in problem["errors"]]


class DaemonCase(TestCase):
    """A daemon for each test."""

    args = ()
    daemon_env = None

    def setUp(self):
        self.d = Daemon(*self.args, env=self.daemon_env)
        self.d.__enter__()

    def tearDown(self):
        self.d.__exit__(None, None, None)


class CliCase(DaemonCase):
    def run_ok(self, *args, **more):
        p = self.d.cli(*args, **more)
        self.assertEqual(p.returncode, 0, p.stderr)
        return p

    def out(self, *args):
        p = self.run_ok(*args)
        self.assertEqual(p.stderr, b"")
        return p.stdout.decode()

    def fails(self, *args, status=1, words=(), stdin=b""):
        p = self.d.cli(*args, stdin=stdin)
        self.assertEqual((p.returncode, p.stdout), (status, b""), p.stderr)
        if status == 1:
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
        self.assertTrue(p.stderr.startswith(b"hvftrace: "), p.stderr)
        for w in words:
            self.assertIn(w, p.stderr.decode())

    def start(self, *args, **more):
        return subprocess.Popen([os.environ["HVFTRACE"], "-s", str(self.d.socket), *args],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=die_with_parent, bufsize=0, **more)

    def running(self):
        return [t for t in self.d.get("/v1/traces")["items"] if t["state"] == "running"]
