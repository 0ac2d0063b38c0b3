# SPDX-License-Identifier: Apache-2.0
"""A guest's console over the API: shown, followed, typed to, by whom, and what is not kept for anybody."""

import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import termios
import threading
import time
import unittest

from harness import SLOW, CliCase, Daemon, DaemonCase, TestCase, die_with_parent, until
from test_access import Remote, add_token, port_of

BYTES = {"Content-Type": "application/octet-stream"}
BEGINS = b"Linux version 6.1.0-fake\r\nfake login: "
RING = 1 << 20


class Follower:
    """A client that reads what it is asked to, and no more."""

    def __init__(self, d, query="?follow=true&tail=0", headers=None):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20 * SLOW)
        self.sock.connect(str(d.socket))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.sendall(f"GET /v1/guests/g/console{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.raw, self.text, self.ended = b"", b"", False
        while b"\r\n\r\n" not in self.raw:
            self.raw += self.sock.recv(4096)
        self.head, self.raw = self.raw.split(b"\r\n\r\n", 1)
        self.decode()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.sock.close()

    def decode(self):
        """Whole chunks (RFC 9112, 7.1)."""
        while b"\r\n" in self.raw:
            size, rest = self.raw.split(b"\r\n", 1)
            n = int(size, 16)
            if len(rest) < n + 2:
                return
            self.text += rest[:n]
            self.raw = rest[n + 2:]
            self.ended = self.ended or n == 0

    def until(self, words):
        while words not in self.text:
            assert not self.ended, self.text[-200:]
            self.raw += self.sock.recv(65536)
            self.decode()
        return self.text

    def rest(self, within=20):
        end = time.monotonic() + within * SLOW
        while not self.ended:
            assert time.monotonic() < end, "it goes on"
            got = self.sock.recv(65536)
            assert got, "the stream was cut"
            self.raw += got
            self.decode()
        return self.text


class ConsoleCase(DaemonCase):
    kind = "fake-console"

    def setUp(self):
        super().setUp()
        self.d.attach(self.kind)

    def show(self, query=""):
        r = self.d.request("GET", f"/v1/guests/g/console{query}")
        self.assertEqual(r.status, 200, r.text)
        return r.text

    def type(self, text, headers=None):
        return self.d.request("POST", "/v1/guests/g/console", raw=text, headers={**BYTES, **(headers or {})})

    def typed(self, text):
        r = self.type(text)
        self.assertEqual((r.status, r.body), (200, {"guest": "g", "bytes": len(text)}))

    def until_says(self, words):
        until(f"the guest says {words}", lambda: words in self.show("?tail=1048576"))


class Shown(ConsoleCase):
    def test_bytes_that_no_browser_shows(self):
        r = self.d.request("GET", "/v1/guests/g/console")
        self.assertEqual((r.status, r.text), (200, BEGINS))
        for name, value in (("Content-Type", "application/octet-stream"),
                            ("X-Content-Type-Options", "nosniff"),
                            ("Content-Security-Policy", "default-src 'none'; sandbox"),
                            ("Cache-Control", "no-store")):
            self.assertEqual(r.headers[name], value)
        evil = b"<script>alert(1)</script>\x1b]0;x\x07\x00\xff\r\n"
        self.typed(evil)
        self.until_says(evil)
        with Follower(self.d, "?follow=true") as f:
            f.until(evil)
            self.assertIn(b"Content-Type: application/octet-stream\r\n", f.head + b"\r\n")
            self.assertIn(b"X-Content-Type-Options: nosniff\r\n", f.head + b"\r\n")
            self.assertIn(b"Content-Security-Policy: default-src 'none'; sandbox\r\n", f.head + b"\r\n")
        r = self.d.request("HEAD", "/v1/guests/g/console?follow=true")
        self.assertEqual((r.status, r.text), (200, b""))

    def test_how_much_of_before(self):
        self.typed(b"a line\n" * 10)
        self.until_says(b"a line\n" * 10)
        self.assertEqual(self.show("?tail=0"), b"")
        self.assertEqual(self.show("?tail=7"), b"a line\n")
        self.assertEqual(self.show("?tail=20"), b"a line\n" * 2)
        self.assertEqual(self.show("?tail=1048576"), BEGINS + b"a line\n" * 10)
        self.assertEqual(self.show("?tail=72"), b"a line\n" * 9)  # the first has the login before it

    def test_what_is_no_query(self):
        for query in ("tail=x", "tail=-1", "tail=1048577", "tail=", "follow=1", "follow=", "more=1"):
            p = self.problem(self.d.request("GET", f"/v1/guests/g/console?{query}"), 400, "bad_request")
            self.assertEqual(self.pointers(p), [f"?{query.split('=')[0]}"])
        self.problem(self.d.request("GET", "/v1/guests/none/console"), 404, "not_found")
        self.problem(self.d.request("DELETE", "/v1/guests/g/console"), 405, "method_not_allowed")

    def test_guests_say_what_they_have(self):
        self.d.attach("fake-shown", "shown")
        self.d.attach("fake", "none")
        self.assertEqual({g["name"]: g["console"] for g in self.d.get("/v1/guests")["items"]},
                         {"g": "write", "shown": "read", "none": "none"})
        for method, headers, raw in (("GET", {}, None), ("POST", BYTES, b"x")):
            p = self.problem(self.d.request(method, "/v1/guests/none/console", raw=raw, headers=headers), 422,
                             "console.not_offered")
            self.assertIn("virsh console", p["hint"])
        r = self.d.request("POST", "/v1/guests/shown/console", raw=b"x", headers=BYTES)
        self.problem(r, 422, "console.read_only")
        self.assertEqual(self.d.request("GET", "/v1/guests/shown/console").text, BEGINS)

    def test_more_than_is_kept(self):
        self.typed(b"flood 3000000\nbehind\n")
        self.until_says(b"behind\n")
        text = self.show("?tail=1048576")
        self.assertTrue(RING - 100 < len(text) <= RING, len(text))
        self.assertTrue(text.startswith(b"0123456789abcdef0123"), text[:80])  # a line from its beginning


class Typed(ConsoleCase):
    def test_what_is_taken(self):
        self.typed(b"")
        self.typed(b"hello\x03\x00\xff")
        self.until_says(b"hello\x03\x00\xff")
        self.typed(b"y" * 4096)
        self.problem(self.type(b"x" * 4097), 413, "console.input_size")
        for kind in (None, "application/json", "text/plain", "application/x-www-form-urlencoded"):
            p = self.problem(self.type(b"xyz", {"Content-Type": kind}), 415, "unsupported_media_type")
            self.assertEqual(p["hint"], "send Content-Type: application/octet-stream")
        self.until_says(b"y" * 4096)
        self.assertNotIn(b"x", self.show("?tail=1048576").replace(b"Linux", b""))

    def test_a_guest_that_takes_nothing(self):
        self.typed(b"deaf\n")
        until("it has no more room", lambda: self.type(b"z" * 4096).status == 409)
        self.problem(self.type(b"z" * 4096), 409, "console.full")
        self.assertNotIn(b"z", self.show())

    def test_the_audit_log_says_who_and_how_much_and_never_what(self):
        # such as would be JSON, too: a password of digits, a string, a document
        for text in (b"12345678", b'"secret12345678"', b'{"secret": 12345678}', b"12345678\r"):
            self.typed(text)
        self.type(b"12345678" * 513)
        self.type(b"12345678", {"Content-Type": "application/json"})
        self.d.request("POST", "/v1/guests/none/console", raw=b"12345678", headers=BYTES)
        log = (self.d.state_dir / "audit.jsonl").read_text()
        self.assertNotIn("12345678", log)
        self.assertNotIn("12345678", self.d.log())
        lines = [e for e in map(json.loads, log.splitlines())
                 if e["operation"] == "POST /v1/guests/{g}/console"]
        self.assertEqual([(e["body"], e["status"]) for e in lines],
                         [({"bytes": n}, status) for n, status in
                          ((8, 200), (16, 200), (20, 200), (9, 200), (4104, 413), (8, 415), (8, 404))])
        self.assertTrue(all(e["who"] == f"uid:{os.getuid()}" for e in lines))


class Followed(ConsoleCase):
    def test_what_comes_is_there_at_once(self):
        with Follower(self.d) as f:
            for i in range(20):
                self.typed(b"word %d\n" % i)
                begin = time.monotonic()
                f.until(b"word %d\n" % i)
                self.assertLess(time.monotonic() - begin, 2 * SLOW)
            self.assertEqual(f.text, b"".join(b"word %d\n" % i for i in range(20)))

    def test_from_before_and_on(self):
        with Follower(self.d, "?follow=true") as f:
            self.typed(b"more\n")
            self.assertEqual(f.until(b"more\n"), BEGINS + b"more\n")

    def test_the_vmm_ends(self):
        with Follower(self.d) as f:
            self.typed(b"end\n")
            self.assertEqual(f.rest(), b"end\nlast words\r\n")
        # what it said stays as long as it is attached, and who comes now has the end at once
        self.assertEqual(self.show(), BEGINS + b"end\nlast words\r\n")
        with Follower(self.d, "?follow=true&tail=12") as f:
            self.assertEqual(f.rest(), b"last words\r\n")
        self.problem(self.type(b"x"), 410, "vmm.gone")

    def test_the_guest_is_let_go(self):
        with Follower(self.d) as f:
            self.d.good("DELETE", "/v1/guests/g")
            self.assertEqual(f.rest(), b"")
        self.problem(self.type(b"x"), 404, "not_found")

    def test_the_daemon_stops(self):
        with Follower(self.d) as f:
            begin = time.monotonic()
            self.d.stop()
            self.assertEqual(f.rest(), b"")
            self.assertLess(time.monotonic() - begin, 5 * SLOW)

    def test_the_daemon_stops_while_nobody_reads(self):
        with Follower(self.d):
            self.typed(b"flood 500000\n")
            begin = time.monotonic()
            self.d.stop()
            self.assertLess(time.monotonic() - begin, 10 * SLOW)

    def test_a_guest_that_does_not_pause_is_let_go(self):
        with Follower(self.d) as f:
            self.typed(b"talk\n")
            f.until(b"abcd\r\n" + b"0123456789abcdef" * 3)
            self.d.good("DELETE", "/v1/guests/g")
            f.rest(5)

    def test_the_daemon_stops_while_a_guest_does_not_pause(self):
        with Follower(self.d) as f:
            self.typed(b"talk\n")
            f.until(b"abcd\r\n" + b"0123456789abcdef" * 3)
            begin = time.monotonic()
            stop = threading.Thread(target=self.d.stop)
            stop.start()
            f.rest(10)
            stop.join()
            self.assertLess(time.monotonic() - begin, 10 * SLOW)

    def test_a_client_that_left_is_noticed(self):
        def streams():
            return int(self.d.request("GET", "/metrics").text.decode()
                       .split("\nhvftrace_streams ")[1].split()[0])
        with Follower(self.d):
            self.assertEqual(streams(), 1)
        until("its stream is closed", lambda: streams() == 0)


def rss(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:"))


class Slow(ConsoleCase):
    def test_who_does_not_read_costs_nothing_and_is_told(self):
        """Nothing is kept beyond the last MiB, whoever reads; and 64 MiB are no limit here."""
        with Follower(self.d) as slow, Follower(self.d) as quick:
            self.typed(b"begins\n")
            slow.until(b"begins\n")
            quick.until(b"begins\n")
            before = rss(self.d.process.pid)
            total = 0
            for _ in range(72):
                self.typed(b"flood %d\n" % RING)
                total += RING
            self.typed(b"behind\n")
            quick.until(b"behind\n")
            self.assertLess(rss(self.d.process.pid) - before, (8 << 20) * SLOW)  # of 72 that were said
            text = slow.until(b"behind\n")
            self.assertRegex(text, rb"\r\n\[hvftrace: [0-9]+ bytes were not read in time\]\r\n")
            self.assertLess(len(text), 16 << 20)
            # and after that all of it, in order
            self.typed(b"after that\n")
            self.assertTrue(slow.until(b"after that\n").endswith(b"behind\nafter that\n"))
        self.assertGreater(total, 64 << 20)


class Command(CliCase):
    """hvftrace console of a guest that the daemon has attached."""

    def setUp(self):
        super().setUp()
        self.d.attach("fake-console")
        self.env = {"XDG_RUNTIME_DIR": str(self.d.dir)}

    def console(self, *args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, name="g", env=None):
        place = args or ("-s", str(self.d.socket))
        return subprocess.Popen([os.environ["HVFTRACE"], *place, "console", name], stdin=stdin,
                                stdout=stdout, stderr=subprocess.PIPE, bufsize=0,
                                env={**os.environ, **self.env, **(env or {})}, preexec_fn=die_with_parent)

    def read_until(self, p, words, got=b""):
        while words not in got:
            piece = p.stdout.read(4096)
            self.assertTrue(piece, (got, p.poll() is not None and p.stderr.read()))
            got += piece
        return got

    def post(self, raw):
        return self.d.request("POST", "/v1/guests/g/console", raw=raw, headers=BYTES)

    def ends(self, p, status, stderr=b""):
        self.assertEqual((p.wait(20 * SLOW), p.stderr.read()), (status, stderr))

    def test_follows_and_sends(self):
        with self.console() as p:
            self.read_until(p, BEGINS)
            p.stdin.write(b"hello\x1d\n")  # which leaves on a terminal alone
            self.assertEqual(self.read_until(p, b"\n"), b"hello\x1d\n")
            p.stdin.close()
            self.d.request("POST", "/v1/guests/g/console", raw=b"more\n", headers=BYTES)
            self.assertEqual(self.read_until(p, b"\n"), b"more\n")
            self.d.request("POST", "/v1/guests/g/console", raw=b"end\n", headers=BYTES)
            self.assertEqual(self.read_until(p, b"words\r\n"), b"end\nlast words\r\n")
            self.ends(p, 0)
        with self.console() as p:
            self.assertEqual(p.stdout.read(), BEGINS + b"hello\x1d\nmore\nend\nlast words\r\n")
            self.ends(p, 1, b"hvftrace: the guest does not run any more (vmm.gone): that was its console\n")

    def test_much_at_once(self):
        much = b"".join(b"line %07d\n" % i for i in range(20000))
        with self.console() as p:
            self.read_until(p, BEGINS)
            threading.Thread(target=lambda: (p.stdin.write(much), p.stdin.close())).start()
            self.assertEqual(self.read_until(p, b"line 0019999\n"), much)
            p.terminate()
            self.ends(p, 0)

    def test_a_terminal(self):
        ours, terminal = os.openpty()
        before = termios.tcgetattr(terminal)
        with self.console(stdin=terminal) as p:
            until("keys come as they are", lambda: termios.tcgetattr(terminal) != before)
            os.write(ours, b"\x03a")
            self.read_until(p, b"\x03a")
            os.write(ours, b"b\x1dc")
            self.ends(p, 0, b"(Ctrl-] leaves)\r\n")
        self.assertEqual(termios.tcgetattr(terminal), before)
        until("what was typed before is there", lambda: self.d.request(
            "GET", "/v1/guests/g/console").text.endswith(b"\x03ab"))
        os.close(ours)
        os.close(terminal)

    def on_terminal(self, terminal):
        before = termios.tcgetattr(terminal)
        p = self.console(stdin=terminal)
        until("keys come as they are", lambda: termios.tcgetattr(terminal) != before)
        return p

    def leaves(self, p):
        try:
            return p.wait(10 * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            raise

    def test_a_terminal_of_a_guest_that_takes_nothing(self):
        ours, terminal = os.openpty()
        self.post(b"deaf\n")
        until("it has no more room", lambda: self.post(b"z" * 4096).status == 409)
        until("nor for one more", lambda: self.post(b"z").status == 409)
        for keys in (b"\x1d", b"a\x1d", b"a" * 4000 + b"\x1d"):
            with self.on_terminal(terminal) as p:
                os.write(ours, b"x" * 100)
                time.sleep(0.3)  # in which it is told that there is no room
                os.write(ours, keys)
                self.assertEqual(self.leaves(p), 1)
                self.assertIn(b"(console.full)", p.stderr.read())
        os.close(ours)
        os.close(terminal)

    def test_a_terminal_while_the_daemon_does_not_answer(self):
        ours, terminal = os.openpty()
        for sig, keys, status, words in ((signal.SIGTERM, b"", 0, b""),
                                         (None, b"\x1d", 1, b"(daemon.protocol)")):
            before = termios.tcgetattr(terminal)
            with self.on_terminal(terminal) as p:
                self.read_until(p, BEGINS)
                self.d.process.send_signal(signal.SIGSTOP)
                os.write(ours, b"x")
                time.sleep(2)  # until that is sent, on a busy host too; it waits 5 s for its answer
                os.write(ours, keys)
                if sig:
                    self.answer(ours, terminal)
                    p.send_signal(sig)
                try:
                    self.assertEqual(self.leaves(p), status)
                finally:
                    self.d.process.send_signal(signal.SIGCONT)
                self.assertIn(words, p.stderr.read())
            self.assertEqual(termios.tcgetattr(terminal), before)
            self.nothing_is_left(terminal)
        os.close(ours)
        os.close(terminal)

    def answer(self, ours, terminal):
        """As a terminal does that was asked for its state; the kernel passes it on when it likes."""
        os.write(ours, b"\x1b[0n\n")
        until("the answer is there", lambda: fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)) != bytes(4))

    def nothing_is_left(self, terminal):
        """The shell is not given what the terminal answered."""
        os.set_blocking(terminal, False)
        with self.assertRaises(BlockingIOError):
            os.read(terminal, 100)
        os.set_blocking(terminal, True)

    def test_only_shown_on_a_terminal(self):
        self.d.attach("fake-shown", "shown")
        ours, terminal = os.openpty()
        with self.console(stdin=terminal, stdout=terminal, name="shown") as p:
            got = b""
            while b"fake login: " not in got:
                got += os.read(ours, 4096)
            self.answer(ours, terminal)
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(20 * SLOW), 0)
        self.nothing_is_left(terminal)
        os.close(ours)
        os.close(terminal)

    def test_only_shown(self):
        self.d.attach("fake-shown", "shown")
        ours, terminal = os.openpty()
        before = termios.tcgetattr(terminal)
        with self.console(stdin=terminal, name="shown") as p:
            self.read_until(p, BEGINS)
            self.assertEqual(termios.tcgetattr(terminal), before)
            p.send_signal(signal.SIGINT)
            self.ends(p, 0, b"(only shown, Ctrl-C leaves: process %d shows its guest's console, and takes "
                            b"nothing typed)\n" % self.vmm("shown"))
        os.close(ours)
        os.close(terminal)

    def vmm(self, name):
        detail = self.d.request("POST", f"/v1/guests/{name}/console", raw=b"", headers=BYTES).body["detail"]
        return int(detail.split()[1])

    def test_which_guest(self):
        self.d.attach("fake", "none")
        for name, words in (("none", "(console.not_offered): virsh console"),
                            ("nosuch", "has run no guest nosuch here, nor is one attached (run.not_found)")):
            p = self.d.cli("console", name, env=self.env)
            self.assertEqual((p.returncode, p.stdout), (1, b""))
            self.assertIn(words, p.stderr.decode().splitlines()[-1])
        p = self.d.cli("console", "-s", self.d.dir / "nobody", "nosuch", env=self.env)
        self.assertEqual((p.returncode, p.stdout), (1, b""))
        self.assertIn(b"(daemon.unreachable)", p.stderr)
        self.fails("console", "--attached", "nosuch", words=["there is no guest nosuch (not_found)"])
        # one of this user's own run counts for more, unless it is said otherwise
        for folder in ("hvftrace", "hvftrace/guests", "hvftrace/guests/g"):
            (self.d.dir / folder).mkdir(mode=0o700)
        (self.d.dir / "hvftrace/guests/g/console.log").write_text("from its file\n")
        p = self.d.cli("console", "g", env=self.env)
        self.assertEqual((p.returncode, p.stdout), (1, b"from its file\n"))
        self.d.request("POST", "/v1/guests/g/console", raw=b"end\n", headers=BYTES)
        p = self.d.cli("console", "--attached", "g", env=self.env)
        self.assertIn(b"last words\r\n", p.stdout)

    def test_the_daemon_or_the_guest_goes(self):
        with self.console() as p:
            self.read_until(p, BEGINS)
            self.d.good("DELETE", "/v1/guests/g")
            self.assertEqual(p.wait(20 * SLOW), 1)
            self.assertRegex(p.stderr.read(), rb"no guest g \(not_found\)|being detached \(conflict\)")
        self.d.attach("fake-console")
        with self.console() as p:
            self.read_until(p, BEGINS)
            self.d.stop()
            self.assertEqual(p.wait(20 * SLOW), 1)
            self.assertEqual(len(p.stderr.read().splitlines()), 1)


class Elsewhere(Command):
    """The same by TCP, with tokens."""

    def setUp(self):
        TestCase.setUp(self)
        self.d = Daemon()
        self.tokens = self.d.dir / "tokens"
        self.of = {r: add_token(self.tokens, r, r) for r in ("viewer", "operator", "admin")}
        self.d.listen.append("tcp:127.0.0.1:0")
        self.d.args = ["--tokens", str(self.tokens)]
        self.d.__enter__()
        self.d.attach("fake-console")
        self.env = {"XDG_RUNTIME_DIR": str(self.d.dir), "HVFTRACE_TOKEN": self.of["admin"]}

    def console(self, *args, env=None, **more):
        return super().console("-s", f"http://127.0.0.1:{port_of(self.d)}", env=env, **more)

    def test_an_operator_looks(self):
        with self.console(env={"HVFTRACE_TOKEN": self.of["operator"]}) as p:
            self.read_until(p, BEGINS)
            p.stdin.write(b"hello\n")
            p.terminate()
            self.ends(p, 0, b"(only shown, Ctrl-C leaves: POST /v1/guests/{g}/console is for the role admin; "
                            b"token:operator has operator)\n")
        self.assertEqual(self.d.request("GET", "/v1/guests/g/console").text, BEGINS)
        with self.console(env={"HVFTRACE_TOKEN": self.of["viewer"]}) as p:
            self.assertEqual((p.stdout.read(), p.wait()), (b"", 1))
            self.assertIn(b"is for the role operator; token:viewer has viewer (forbidden)", p.stderr.read())

    def test_a_quiet_stream_is_asked_for(self):
        """By both sides within a minute: else none finds out that the other has gone, or a NAT forgot it."""
        with self.console() as p:
            self.read_until(p, BEGINS)
            here = f"0100007F:{port_of(self.d):04X}"

            def timers():
                with open("/proc/net/tcp") as f:
                    lines = [x.split() for x in f]
                # local, remote, state (01: established), timer (02: keepalive) and hundredths of a second
                return {x[1] == here: x[5] for x in lines if here in x[1:3] and x[3] == "01"}

            def both():
                got = timers()
                return len(got) == 2 and all(x.startswith("02:") for x in got.values()) and got
            for timer in until("both have a timer", both).values():
                self.assertLessEqual(int(timer[3:], 16), 6000)
            p.terminate()
            self.ends(p, 0)

    def test_no_local_guest_is_taken_for_it(self):
        for folder in ("hvftrace", "hvftrace/guests", "hvftrace/guests/nosuch"):
            (self.d.dir / folder).mkdir(mode=0o700)
        with self.console(name="nosuch") as p:
            self.assertEqual((p.stdout.read(), p.wait()), (b"", 1))
            self.assertIn(b"there is no guest nosuch (not_found)", p.stderr.read())


class Roles(TestCase):
    def setUp(self):
        self.d = Daemon()
        self.tokens = self.d.dir / "tokens"
        self.of = {r: add_token(self.tokens, f"for-{r}", r) for r in ("viewer", "operator", "admin")}
        self.d.listen.append("tcp:127.0.0.1:0")
        self.d.args = ["--tokens", str(self.tokens)]
        self.d.__enter__()
        self.d.attach("fake-console")
        self.remote = Remote(port_of(self.d))

    def tearDown(self):
        self.d.__exit__(None, None, None)

    def test_who_may(self):
        for role, read, write in ((None, 401, 401), ("viewer", 403, 403), ("operator", 200, 403),
                                  ("admin", 200, 200)):
            token = self.of.get(role)
            path = "/v1/guests/g/console"
            self.assertEqual(self.remote.request("GET", path, token=token).status, read, role)
            r = self.remote.request("GET", f"{path}?follow=true&tail=x", token=token)
            self.assertEqual(r.status, 400 if read == 200 else read)
            r = self.remote.request("POST", path, {}, token=token, headers=BYTES)
            self.assertEqual(r.status, 415 if write == 200 else write)  # it is JSON, but that is asked last

    def test_a_token_that_is_removed_ends_it(self):
        c = http.client.HTTPConnection("127.0.0.1", port_of(self.d), timeout=20 * SLOW)
        c.request("GET", "/v1/guests/g/console?follow=true",
                  headers={"Authorization": f"Bearer {self.of['operator']}"})
        r = c.getresponse()
        self.assertEqual((r.status, r.read1()), (200, BEGINS))
        self.tokens.write_text("".join(x for x in self.tokens.read_text().splitlines(True)
                                       if "for-operator" not in x))
        self.assertEqual(r.read(), b"")
        c.close()


if __name__ == "__main__":
    unittest.main()
