# SPDX-License-Identifier: Apache-2.0
"""Who may do what: roles of every route, tokens, client certificates, local users, the audit log."""

import http.client
import json
import os
import pathlib
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tempfile
import unittest

from harness import SLOW, TOP, Daemon, DaemonCase, Reply, TestCase, until

ROLES = ("anybody", "viewer", "operator", "admin")
HVFTRACE = os.environ["HVFTRACE"]


def routes():
    """(method, path, least role) of every route, as the code has it."""
    code = (TOP / "api/router.c").read_text().replace("FUNCTIONS,", '"/v1/guests/{g}/functions",')
    table = re.search(r"static const struct route routes\[\] = \{(.*?)\n\};", code, re.S).group(1)
    found = re.findall(r'\{\s*"([A-Z]+)",\s*"([^"]+)",[^{}]*\{[^{}]*\}\s*(?:,\s*ROLE_(\w+))?', table)
    return [(m, p, r.lower()) for m, p, r in found]


def add_token(path, name, role):
    p = subprocess.run([HVFTRACE, "token", "add", name, "--role", role, "--file", str(path)],
                       capture_output=True, text=True, check=True)
    return p.stdout.strip()


class Remote:
    """A client on TCP, with or without TLS."""

    def __init__(self, port, context=None):
        self.port, self.context = port, context

    def request(self, method, path, body=None, token=None, headers=None):
        if self.context:
            c = http.client.HTTPSConnection("localhost", self.port, timeout=20 * SLOW, context=self.context)
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20 * SLOW)
        head = dict(headers or {})
        if body is not None:
            head["Content-Type"] = "application/json"
        if token:
            head["Authorization"] = f"Bearer {token}"
        try:
            c.request(method, path, json.dumps(body) if body is not None else None, head)
            r = c.getresponse()
            return Reply(r, r.read() if "stream" not in path or r.status != 200 else b"")
        finally:
            c.close()


def port_of(d, scheme="tcp"):
    return int(re.search(rf"listening on {scheme}:127\.0\.0\.1:(\d+)", d.log()).group(1))


class Tokens(TestCase):
    def setUp(self):
        self.d = Daemon()
        self.tokens = self.d.dir / "tokens"
        self.of = {r: add_token(self.tokens, f"for-{r}", r) for r in ROLES[1:]}
        self.d.listen.append("tcp:127.0.0.1:0")
        self.d.args = ["--tokens", str(self.tokens)]  # and no rule for loopback
        self.d.__enter__()
        self.remote = Remote(port_of(self.d))
        self.opened = []

    def tearDown(self):
        for c in self.opened:  # the daemon would wait for them
            c.close()
        self.d.__exit__(None, None, None)

    def test_the_table_is_read(self):
        self.assertGreaterEqual(len(routes()), 20)
        for method, path, role in routes():
            self.assertIn(role, ROLES, f"{method} {path} does not say who may")
            if method != "GET":
                self.assertIn(role, ("operator", "admin"), path)

    def test_the_document_says_the_same(self):
        found, path, method = [], None, None
        for line in (TOP / "api/openapi.yaml").read_text().split("\ncomponents:")[0].splitlines():
            path = m.group(1) if (m := re.fullmatch(r"  (/\S*):", line)) else path
            verb = re.fullmatch(r"    (get|post|patch|delete|put):", line)
            method = verb.group(1).upper() if verb else method
            if m := re.fullmatch(r"      x-role: (\w+)", line):
                found.append((method, path, m.group(1)))
        self.assertEqual(sorted(found), sorted(routes()))

    def test_every_route_asks_for_its_role(self):
        """One role less is refused, and nothing happens; the role itself comes past the question."""
        for method, path, least in routes():
            real = path.replace("{g}", "none").replace("{t}", "t999")
            body = {} if method in ("POST", "PATCH") else None
            for role in ROLES:
                r = self.remote.request(method, real, body, self.of.get(role))
                what = f"{method} {path} by {role}: {r.status}"
                if ROLES.index(role) >= ROLES.index(least):
                    self.assertNotIn(r.status, (401, 403), what)
                elif role == "anybody":
                    self.problem(r, 401, "unauthorized")
                    self.assertIn("Bearer", r.headers["WWW-Authenticate"])
                else:
                    p = self.problem(r, 403, "forbidden")
                    self.assertIn(f"for the role {least}", p["detail"])
            for bad in ("x", "hvft_" + "0" * 64, self.of["admin"][:-1], self.of["admin"] + "0"):
                r = self.remote.request(method, real, body, bad)
                self.assertEqual(r.status == 401, least != "anybody", what)

    def test_a_stream_that_stops_is_for_operators(self):
        self.d.attach()
        t = self.d.trace()
        for what in ("stop", "delete"):
            path = f"/v1/traces/{t}/stream?on_close={what}"
            self.problem(self.remote.request("GET", path, token=self.of["viewer"]), 403, "forbidden")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
        r = self.remote.request("GET", f"/v1/traces/{t}/stream", token=self.of["viewer"])
        self.assertEqual(r.status, 200)
        r = self.remote.request("GET", f"/v1/traces/{t}/stream?on_close=stop", token=self.of["operator"])
        self.assertEqual(r.status, 200)
        until("it is stopped", lambda: self.d.get(f"/v1/traces/{t}")["state"] == "stopped")
        line = until("it is told", lambda: [x for x in self.audit() if x["operation"] == "on_close=stop"])[0]
        self.assertEqual((line["who"], line["role"], line["status"]), ("token:for-operator", "operator", 200))

    def stream_of(self, token, path, accept):
        c = http.client.HTTPConnection("127.0.0.1", self.remote.port, timeout=20 * SLOW)
        c.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": accept})
        s = c.getresponse()
        self.assertEqual(s.status, 200)
        s.path = path
        self.addCleanup(c.close)
        return s

    def audit(self):
        return [json.loads(x) for x in (self.d.state_dir / "audit.jsonl").read_text().splitlines()]

    def test_tokens_come_and_go(self):
        new = add_token(self.tokens, "new", "viewer")
        self.assertRegex(new, r"^hvft_[0-9a-f]{64}$")
        self.assertNotIn(new.removeprefix("hvft_"), self.tokens.read_text())
        self.assertEqual(stat.S_IMODE(self.tokens.stat().st_mode), 0o600)
        self.assertEqual(self.remote.request("GET", "/v1/guests", token=new).status, 200)
        p = subprocess.run([HVFTRACE, "token", "add", "new", "--role", "admin", "--file", self.tokens],
                           capture_output=True, text=True, check=False)
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        out = subprocess.run([HVFTRACE, "token", "list", "--file", self.tokens], capture_output=True,
                             text=True, check=True).stdout
        self.assertEqual(re.findall(r"^(\S+) +(\S+)$", out, re.M)[1:],
                         [(f"for-{r}", r) for r in ROLES[1:]] + [("new", "viewer")])
        subprocess.run([HVFTRACE, "token", "remove", "new", "--file", self.tokens], check=True)
        self.assertEqual(self.remote.request("GET", "/v1/guests", token=new).status, 401)
        self.assertEqual(self.remote.request("GET", "/v1/guests", token=self.of["viewer"]).status, 200)

    def test_a_file_that_others_can_read_is_not_taken(self):
        self.tokens.chmod(0o644)
        self.assertEqual(self.remote.request("GET", "/v1/guests", token=self.of["admin"]).status, 401)
        self.assertIn("chmod 600", self.d.log())
        self.tokens.chmod(0o600)
        self.assertEqual(self.remote.request("GET", "/v1/guests", token=self.of["admin"]).status, 200)
        for text, words in (("x admin 00\n", "line 1"), ("# a\nx root " + "0" * 64 + "\n", "line 2")):
            bad = self.d.dir / "bad"
            bad.write_text(text)
            bad.chmod(0o600)
            p = subprocess.run([os.environ["HVFTRACED"], "--tokens", bad], capture_output=True, text=True,
                               check=False)
            self.assertEqual(p.returncode, 2)
            self.assertIn(words, p.stderr)

    def test_cookies_are_nothing(self):
        """A browser would send them to whoever listens on another port of this host."""
        for method, path, body in (("GET", "/", None), ("GET", "/v1/guests", None),
                                   ("POST", "/v1/guests", {})):
            r = self.remote.request(method, path, body, self.of["admin"])
            self.assertNotIn("Set-Cookie", r.headers)
        for name in ("hvftrace", "token", "Authorization"):
            r = self.remote.request("GET", "/v1/guests", headers={"Cookie": f"{name}={self.of['admin']}"})
            self.problem(r, 401, "unauthorized")
        r = self.remote.request("POST", "/v1/session", {"token": self.of["admin"]})
        self.problem(r, 404, "not_found")

    def test_other_sites_pages_reach_nothing(self):
        """What a browser says of whose page asks: not even another port's of this host."""
        for site in ("cross-site", "same-site"):
            for method, path, body in (("GET", "/v1/guests", None), ("GET", "/v1/events/stream", None),
                                       ("POST", "/v1/guests", {"target": "qemu:/fake"})):
                r = self.remote.request(method, path, body, self.of["admin"], {"Sec-Fetch-Site": site})
                self.problem(r, 403, "forbidden_origin")
            self.assertEqual(self.remote.request("GET", "/", headers={"Sec-Fetch-Site": site}).status, 200)
        for site in ("same-origin", "none"):
            self.assertEqual(self.remote.request("GET", "/v1/guests", None, self.of["admin"],
                                                 {"Sec-Fetch-Site": site}).status, 200)
        self.assertEqual(self.d.get("/v1/guests")["items"], [])

    def test_a_removed_token_ends_its_streams(self):
        self.d.attach("fake-quiet")
        t = self.d.trace()
        new = add_token(self.tokens, "new", "operator")
        open_streams = [(self.stream_of(token, path, accept), token)
                        for path in (f"/v1/traces/{t}/stream", "/v1/events/stream")
                        for accept in ("application/x-ndjson", "text/event-stream")
                        for token in (new, self.of["operator"])]
        stops = self.stream_of(new, f"/v1/traces/{t}/stream?on_close=stop", "text/plain")
        subprocess.run([HVFTRACE, "token", "remove", "new", "--file", self.tokens], check=True)
        for s, token in open_streams:
            if token == new:
                self.assertIn(b'"reason":"token_removed"', s.read())  # to its end
        stops.read()
        until("what it was to stop is", lambda: self.d.get(f"/v1/traces/{t}")["state"] == "stopped")
        for s, token in open_streams:
            if token != new and "traces" in s.path:
                self.assertIn(b'"reason":"stopped"', s.read())
            s.close()

    def export_of(self, token, trace):
        """An export of more than sockets hold; its head was read."""
        c = http.client.HTTPConnection("127.0.0.1", self.remote.port, timeout=20 * SLOW)
        self.opened.append(c)
        c.request("GET", f"/v1/traces/{trace}/export?format=chrome",
                  headers={"Authorization": f"Bearer {token}"})
        return c.getresponse()

    def much(self):
        self.d.attach("fake-fast")
        t = self.d.trace(buffer_records=1 << 18)
        until("much is recorded", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 100000, 30)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        return t

    def test_exports_of_one_who_does_not_read(self):
        """They leave some for others."""
        t = self.much()
        new = add_token(self.tokens, "new", "operator")
        n = 0
        while (r := self.export_of(new, t)).status == 200:
            n += 1
            self.assertLess(n, 8)
        self.assertEqual((r.status, json.loads(r.read())["code"]), (503, "streams.limit"))
        self.assertGreater(n, 1)
        self.assertEqual(self.export_of(self.of["viewer"], t).status, 200)

    def test_a_removed_token_ends_its_exports(self):
        t = self.much()
        new = add_token(self.tokens, "new", "operator")
        theirs, ours = self.export_of(new, t), self.export_of(self.of["viewer"], t)
        self.assertEqual((theirs.status, ours.status), (200, 200))
        subprocess.run([HVFTRACE, "token", "remove", "new", "--file", self.tokens], check=True)
        until("the daemon has seen it",
              lambda: self.remote.request("GET", "/v1/guests", token=new).status == 401)
        with self.assertRaises(http.client.IncompleteRead):
            theirs.read()
        self.assertTrue(json.loads(ours.read())["traceEvents"], "it is whole")

    def test_a_role_that_is_another_ends_streams_too(self):
        self.d.attach("fake-fast")
        t = self.d.trace()
        s = self.stream_of(self.of["operator"], f"/v1/traces/{t}/stream", "application/x-ndjson")
        s.readline()
        text = self.tokens.read_text().replace("for-operator operator", "for-operator viewer")
        self.tokens.write_text(text)
        self.assertIn(b'"reason":"token_removed"', s.read().splitlines()[-1])
        s.close()

    def test_the_audit_log(self):
        ask, admin, operator = self.remote.request, self.of["admin"], self.of["operator"]
        ask("POST", "/v1/guests", {"target": "qemu:/fake", "name": "g"}, admin)
        ask("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": ["vfs_*"]}, operator)
        ask("GET", "/v1/guests", token=admin)  # changes nothing
        ask("POST", "/v1/traces/t1/stop", token=operator)
        ask("DELETE", "/v1/guests/g", token=operator)
        ask("DELETE", "/v1/guests/g")
        ask("DELETE", "/v1/guests/g", token=admin)
        self.d.good("POST", "/v1/guests", {"target": "qemu:/fake", "name": "h"}, 201)
        lines = self.audit()
        self.assertEqual([(x["who"], x["role"], x["operation"], x["status"], x.get("code")) for x in lines], [
            ("token:for-admin", "admin", "POST /v1/guests", 201, None),
            ("token:for-operator", "operator", "POST /v1/guests/{g}/traces", 201, None),
            ("token:for-operator", "operator", "POST /v1/traces/{t}/stop", 200, None),
            ("token:for-operator", "operator", "DELETE /v1/guests/{g}", 403, "forbidden"),
            ("?", "nobody", "DELETE /v1/guests/{g}", 401, "unauthorized"),
            ("token:for-admin", "admin", "DELETE /v1/guests/{g}", 200, None),
            (f"uid:{os.getuid()}", "admin", "POST /v1/guests", 201, None)])
        self.assertEqual(lines[1]["body"], {"tracer": "function", "filter": ["vfs_*"]})
        self.assertEqual((lines[1]["path"], lines[1]["id"]), ("/v1/guests/g/traces", "t1"))
        self.assertEqual(lines[-1]["pid"], os.getpid())
        for x in lines:
            self.assertRegex(x["time"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
            self.assertIsInstance(x["duration_ns"], int)
            self.assertRegex(x["request_id"], r"^[0-9a-f]{16}$")
        log = self.d.state_dir / "audit.jsonl"
        self.assertEqual(stat.S_IMODE(log.stat().st_mode), 0o600)
        log.rename(self.d.dir / "moved")  # as logrotate does
        self.d.request("DELETE", "/v1/guests/h")
        self.assertEqual([x["operation"] for x in self.audit()], ["DELETE /v1/guests/{g}"])

    def test_who_is_not_known_cannot_fill_memory_or_disk(self):
        for _ in range(60):
            r = self.remote.request("POST", "/v1/guests", {"target": "x" * 9000})
            self.problem(r, 401, "unauthorized")
        self.assertLess(len(self.audit()), 60)
        self.assertEqual(self.remote.request("POST", "/v1/guests", {"target": "x" * 9000},
                                             self.of["admin"]).status, 400)

    def test_bodies_in_the_audit_log(self):
        """Whatever comes, a line is one JSON object."""
        for raw in (b"\xff\x00{", b"{" * 5000, b'{"a": "\n"}'):
            self.d.request("POST", "/v1/guests", raw=raw)
        self.assertEqual([x["body"] for x in self.audit()], [{"bytes": 3}, {"bytes": 5000}, {"bytes": 10}])


class Places(TestCase):
    def test_plain_tcp_must_be_asked_for(self):
        p = subprocess.run([os.environ["HVFTRACED"], "--listen", "tcp:127.0.0.1:0"], capture_output=True,
                           text=True, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertIn("--allow ROLE=loopback", p.stderr)

    def test_loopback_has_the_role_it_was_given(self):
        with Daemon("--allow", "viewer=loopback", listen=["tcp:127.0.0.1:0"]) as d:
            remote = Remote(port_of(d))
            self.assertEqual(remote.request("GET", "/v1/guests").status, 200)
            p = self.problem(remote.request("POST", "/v1/guests", {}), 403, "forbidden")
            self.assertIn("loopback has viewer", p["detail"])

    def test_rules_that_are_none(self):
        for rule in ("", "admin", "root=local", "admin=", "admin=user:", "admin=user:no such user", "=local",
                     "admin=uid:-1", "admin=uid:x", "admin=uid:4294967295", "viewer=everybody",
                     "admin=cert:"):
            p = subprocess.run([os.environ["HVFTRACED"], "--allow", rule], capture_output=True, text=True,
                               check=False)
            self.assertEqual(p.returncode, 2, rule)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)

    def test_a_file_of_options(self):
        d = Daemon()
        conf = d.dir / "conf"
        conf.write_text(f"# comment\n[hvftraced]\nlisten = unix:{d.dir}/two\n\n allow=viewer=loopback \n"
                        f"heartbeat = 0.5\naudit-log = {d.dir}/audit\nlisten = tcp:127.0.0.1:0\n")
        d.args = ["--config", str(conf)]
        d.spawn()
        until("both listen", lambda: d.log().count("listening on") == 3)
        self.assertEqual(Remote(port_of(d)).request("GET", "/v1/guests").status, 200)
        self.assertTrue((d.dir / "audit").exists())
        d.__exit__(None, None, None)
        for text, words in (("what = 1\n", "line 1 of"), ("\nlisten\n", "line 2 of"),
                            ("heartbeat = x\n", "line 1"),
                            ("config = x\n", "no option config in a file")):
            bad = pathlib.Path(d.tmp.name + ".conf")
            bad.write_text(text)
            p = subprocess.run([os.environ["HVFTRACED"], "--config", bad], capture_output=True, text=True,
                               check=False)
            bad.unlink()
            self.assertEqual(p.returncode, 2)
            self.assertIn(words, p.stderr)


@unittest.skipUnless(os.getuid() == 0, "not root: cannot be another user")
class LocalUsers(TestCase):
    ASK = ("import os, sys, socket\n"
           "path, uid, gid, groups = sys.argv[1:5]\n"
           "os.setgroups([int(g) for g in groups.split(',') if g])\n"
           "os.setgid(int(gid)); os.setuid(int(uid))\n"
           "for line in sys.argv[5:]:\n"
           "    s = socket.socket(socket.AF_UNIX); s.connect(path)\n"
           "    s.sendall((line + ' HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n').encode())\n"
           "    print(s.recv(4096).split()[1].decode())\n")

    def ask(self, d, who, *lines):
        uid, gid, groups = who
        command = [sys.executable, "-S", "-c", self.ASK, str(d.socket), str(uid), str(gid), groups, *lines]
        p = subprocess.run(command, capture_output=True, text=True, check=True)
        return [int(x) for x in p.stdout.split()]

    def daemon(self, *args):
        d = Daemon(*args)
        d.dir.chmod(0o755)
        d.__enter__()
        self.addCleanup(d.__exit__, None, None, None)
        d.socket.chmod(0o666)
        return d

    def test_rules(self):
        d = self.daemon("--allow", "operator=uid:12345", "--allow", "viewer=gid:23456", "--allow",
                        "admin=uid:34567")
        for who, may in (((12345, 1, ""), "operator"), ((99, 23456, ""), "viewer"),
                         ((99, 1, "7,23456"), "viewer"), ((12345, 23456, ""), "operator"),
                         ((34567, 1, ""), "admin"), ((99, 1, "7"), "anybody"),
                         ((0, 0, ""), "admin")):
            got = self.ask(d, who, "GET /version", "GET /v1/guests", "POST /v1/traces/t9/stop",
                           "POST /v1/guests")
            self.assertEqual([s != 403 for s in got], [ROLES.index(may) >= n for n in range(4)], who)

    def test_without_rules_whom_the_socket_lets_in_is_admin(self):
        d = self.daemon()
        self.assertEqual(self.ask(d, (99, 1, ""), "POST /v1/guests"), [415])
        d = self.daemon("--allow", "viewer=local")
        self.assertEqual(self.ask(d, (99, 1, ""), "GET /v1/guests", "POST /v1/guests"), [200, 403])


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


def make_ca(d, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN=CA {name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", cwd=d)


def make_cert(d, name, cn, ca, extension):
    pathlib.Path(d, "ext").write_text(extension + "\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={cn}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", cwd=d)
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}.pem", cwd=d)


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed: no certificates")
class Tls(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certs = tempfile.TemporaryDirectory()
        d = cls.certs.name
        make_ca(d, "ca")
        make_ca(d, "other")
        make_cert(d, "server", "localhost", "ca", "subjectAltName=DNS:localhost")
        make_cert(d, "op", "ops", "ca", "extendedKeyUsage=clientAuth")
        make_cert(d, "nobody", "somebody", "ca", "extendedKeyUsage=clientAuth")
        make_cert(d, "forged", "ops", "other", "extendedKeyUsage=clientAuth")
        make_cert(d, "web", "ops", "ca", "extendedKeyUsage=serverAuth")

    @classmethod
    def tearDownClass(cls):
        cls.certs.cleanup()

    def setUp(self):
        self.d = Daemon(listen=["tls:127.0.0.1:0"])
        d = self.d.dir
        shutil.copytree(self.certs.name, d, dirs_exist_ok=True)
        self.token = add_token(d / "tokens", "t", "admin")
        self.d.args = ["--tls-cert", f"{d}/server.pem", "--tls-key", f"{d}/server.key", "--tls-client-ca",
                       f"{d}/ca.pem", "--allow", "operator=cert:ops", "--tokens", f"{d}/tokens"]
        self.d.__enter__()
        self.port = port_of(self.d, "tls")

    def tearDown(self):
        self.d.__exit__(None, None, None)

    def remote(self, cert=None):
        context = ssl.create_default_context(cafile=str(self.d.dir / "ca.pem"))
        if cert:
            context.load_cert_chain(self.d.dir / f"{cert}.pem", self.d.dir / f"{cert}.key")
        return Remote(self.port, context)

    def test_certificates(self):
        for cert, status in ((None, 401), ("op", 404), ("nobody", 403), ("forged", 401), ("web", 401)):
            r = self.remote(cert).request("POST", "/v1/traces/t9/stop")
            self.assertEqual(r.status, status, cert)
        self.problem(self.remote("op").request("POST", "/v1/guests", {}), 403, "forbidden")
        self.assertEqual(self.remote().request("GET", "/healthz").status, 200)

    def test_tokens_and_streams(self):
        ask = self.remote().request
        r = ask("POST", "/v1/guests", {"target": "qemu:/fake", "name": "g"}, self.token)
        self.assertEqual(r.status, 201)
        # a certificate does not make a wrong token good
        self.assertEqual(self.remote("op").request("GET", "/v1/guests", token="x").status, 401)
        self.assertEqual(ask("GET", "/v1/guests", headers={
            "Origin": f"https://localhost:{self.port}"}, token=self.token).status, 200)
        self.assertEqual(ask("GET", "/v1/guests", headers={
            "Origin": f"http://localhost:{self.port}"}, token=self.token).status, 403)
        t = ask("POST", "/v1/guests/g/traces", {"tracer": "function"}, self.token).body["id"]
        c = http.client.HTTPSConnection("localhost", self.port, timeout=20 * SLOW,
                                        context=self.remote().context)
        c.request("GET", f"/v1/traces/{t}/stream", headers={"Authorization": f"Bearer {self.token}"})
        lines = (json.loads(x) for x in c.getresponse())
        seqs = [next(lines)["seq"] for _ in range(500)]  # longer than what is there at once
        ask("POST", f"/v1/traces/{t}/stop", token=self.token)
        rest = list(lines)
        c.close()
        seqs += [x["seq"] for x in rest if x["type"] == "function"]
        self.assertEqual((seqs, rest[-1]["type"]), (list(range(1, rest[-1]["records"] + 1)), "end"))
        env = {"HVFTRACE_TOKEN": self.token, "HVFTRACE_CA": str(self.d.dir / "ca.pem")}
        url = f"https://localhost:{self.port}"
        p = self.d.cli("-s", url, "info", "g", env=env)
        self.assertEqual(p.returncode, 0, p.stderr)
        p = self.d.cli("-s", url, "info", "g", env={**env, "HVFTRACE_TOKEN": "x"})
        self.assertIn(b"(unauthorized)", p.stderr)
        p = self.d.cli("-s", url, "info", "g", env={**env, "HVFTRACE_CA": str(self.d.dir / "other.pem")})
        self.assertEqual(p.returncode, 1)
        p = self.d.cli("-s", url, "info", "g", env={"HVFTRACE_CERT": str(self.d.dir / "op.pem"),
                                                    "HVFTRACE_KEY": str(self.d.dir / "op.key"),
                                                    "HVFTRACE_CA": str(self.d.dir / "ca.pem")})
        self.assertEqual(p.returncode, 0, p.stderr)

    def test_old_versions_are_refused(self):
        context = ssl.create_default_context(cafile=str(self.d.dir / "ca.pem"))
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises(OSError):
            Remote(self.port, context).request("GET", "/healthz")

    def test_files_that_are_refused(self):
        d = self.d.dir
        (d / "open.key").write_bytes((d / "server.key").read_bytes())
        (d / "open.key").chmod(0o644)
        for cert, key, words in (("server.pem", "open.key", "chmod 600"), ("server.pem", "op.key", "server"),
                                 ("ext", "server.key", "ext"), ("none", "server.key", "cannot read")):
            p = subprocess.run([os.environ["HVFTRACED"], "--state-dir", d / "s", "--listen",
                                "tls:127.0.0.1:0", "--tls-cert", d / cert, "--tls-key", d / key],
                               capture_output=True, text=True, check=False)
            self.assertEqual(p.returncode, 1)
            self.assertIn(words, p.stderr)
        p = subprocess.run([os.environ["HVFTRACED"], "--listen", "tls:127.0.0.1:0"], capture_output=True,
                           text=True, check=False)
        self.assertEqual(p.returncode, 2)


class Limits(DaemonCase):
    def test_streams(self):
        """Those there are leave room for requests that stop something."""
        self.d.attach("fake-quiet")
        t = self.d.trace()
        streams = [self.d.stream(t) for _ in range(256)]
        self.problem(self.d.request("GET", f"/v1/traces/{t}/stream"), 503, "streams.limit")
        self.assertIn("\nhvftrace_streams 256\n", self.d.request("GET", "/metrics").text.decode())
        streams.pop().close()
        until("there is room", lambda: self.d.request("HEAD", f"/v1/traces/{t}/stream").status == 200)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        for s in streams:
            self.assertEqual([x["type"] for x in s], ["end"])
            s.close()


if __name__ == "__main__":
    unittest.main()
