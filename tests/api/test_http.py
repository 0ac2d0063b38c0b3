# SPDX-License-Identifier: Apache-2.0
"""HTTP itself: routes, methods, bodies, limits, other sites, many clients."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import subprocess
import unittest

from harness import Daemon, DaemonCase, TestCase, UnixConnection, until

LARGEST = 2 << 20


class Routes(DaemonCase):
    def test_plain_resources(self):
        self.assertEqual(self.d.get("/healthz"), {"status": "ok"})
        v = self.d.get("/version")
        self.assertEqual(v["name"], "hvftraced")
        self.assertRegex(v["version"], r"^\d+\.\d+\.\d+$")
        r = self.d.request("GET", "/openapi.yaml")
        self.assertEqual((r.status, r.type), (200, "application/yaml"))
        self.assertTrue(r.text.startswith(b"openapi: 3.1.0\n"))
        self.assertTrue(r.text.endswith(b"\n"))

    def test_nothing_there(self):
        for path in ("/v1", "/v1/", "/assets/", "/v1/guests/", "/v1/guests/a/b", "/v2/guests", "/healthz/",
                     "//healthz",
                     "/v1/guests/" + "x" * 65, "/v1/guests//functions"):
            self.problem(self.d.request("GET", path), 404, "not_found")

    def test_wrong_method_names_the_right_ones(self):
        for path, allow in (("/healthz", "GET, HEAD"), ("/v1/guests", "GET, HEAD, POST"),
                            ("/v1/guests/g", "GET, HEAD, DELETE"), ("/v1/traces/t1/stop", "POST"),
                            ("/v1/guests/g/traces", "GET, HEAD, POST"),
                            ("/v1/traces/t1", "GET, HEAD, PATCH, DELETE")):
            for method in {"PUT", "PATCH", "OPTIONS", "BREW"} - set(allow.split(", ")):
                r = self.d.request(method, path)
                self.problem(r, 405, "method_not_allowed")
                self.assertEqual(r.headers["Allow"], allow)

    def test_head_has_no_body(self):
        r = self.d.request("HEAD", "/v1/guests")
        self.assertEqual((r.status, r.text), (200, b""))
        self.assertGreater(int(r.headers["Content-Length"]), 0)

    def test_unknown_query_is_refused(self):
        p = self.problem(self.d.request("GET", "/v1/guests?color=red"), 400, "bad_request")
        self.assertEqual(self.pointers(p), ["?color"])
        self.d.attach()
        for query, where in (("limit=0", "?limit"), ("limit=10001", "?limit"), ("limit=-1", "?limit"),
                             ("limit=", "?limit"), ("limit=99999999999999999999", "?limit"),
                             ("limit=1&limit=2", "?limit"), ("state=bad", "?state"),
                             ("cursor=zz", "?cursor"), ("cursor=1-", "?cursor"), ("cursor=1-2x", "?cursor")):
            p = self.problem(self.d.request("GET", "/v1/guests/g/functions?" + query), 400, "bad_request")
            self.assertEqual(self.pointers(p), [where], query)
        p = self.problem(self.d.request("DELETE", "/v1/guests/g?force=yes"), 400, "bad_request")
        self.assertEqual(self.pointers(p), ["?force"])
        many = "&".join(f"glob=a{i}" for i in range(33))
        self.problem(self.d.request("GET", "/v1/guests/g/functions?" + many), 400, "bad_request")

    def test_connection_is_kept_open(self):
        c = self.d.connection()
        for _ in range(3):
            c.request("GET", "/healthz")
            self.assertEqual(c.getresponse().read(), b'{"status":"ok"}\n')
            sock = c.sock
            c.request("GET", "/nothing")  # not even an error closes it
            self.assertEqual(c.getresponse().read()[:1], b"{")
            self.assertIs(c.sock, sock)
        c.close()

    def test_headers(self):
        r = self.d.request("GET", "/v1/guests")
        self.assertEqual(r.headers["Cache-Control"], "no-store")
        self.assertEqual(r.headers["X-Content-Type-Options"], "nosniff")
        other = self.d.request("GET", "/v1/guests")
        self.assertNotEqual(r.headers["X-Request-Id"], other.headers["X-Request-Id"])


class Bodies(DaemonCase):
    def post(self, raw, **more):
        return self.d.request("POST", "/v1/guests", raw=raw, **more)

    def test_not_json(self):
        for raw in (b"", b"{", b"{]", b"nonsense", b'{"target":"a"} x', b'{"target":"\xff"}', b"{'target':1}",
                    b'{"target":"a\\u0000b"}', b"\x00", b"[" * 5000, b'{"target":1e999}'):
            self.problem(self.post(raw), 400, "bad_request")

    def test_each_fault_has_a_pointer(self):
        for raw, where in ((b"[]", [""]), (b'"x"', None), (b"{}", ["/target"]),
                           (b'{"target":1}', ["/target"]), (b'{"target":null}', ["/target"]),
                           (b'{"target":""}', ["/target"]), (b'{"target":"%s"}' % (b"x" * 256), ["/target"]),
                           (b'{"target":"a","name":"b c"}', ["/name"]),
                           (b'{"target":"a","name":"../x"}', ["/name"]),
                           (b'{"target":"a","name":"-x"}', ["/name"]),
                           (b'{"target":"a","name":"%s"}' % (b"n" * 65), ["/name"]),
                           (b'{"target":"a","targt":"b"}', ["/targt"]),
                           (b'{"target":"a","a/b~c":"b"}', ["/a~1b~0c"]),
                           (b'{"target":"a","target":"b"}', ["/target"]),
                           (b'{"x":1,"y":2,"target":3,"name":[]}', ["/x", "/y", "/target", "/name"])):
            p = self.problem(self.post(raw), 400, "bad_request")
            if where:
                self.assertEqual(sorted(self.pointers(p)), sorted(where), raw)
        self.assertEqual(self.d.get("/v1/guests")["items"], [])

    def test_trace_bodies(self):
        self.d.attach()
        for body, where in (({}, "/tracer"), ({"tracer": "nonsense"}, "/tracer"), ({"tracer": 1}, "/tracer"),
                            ({"tracer": "function", "filter": "x"}, "/filter"),
                            ({"tracer": "function", "filter": ["a", 1]}, "/filter/1"),
                            ({"tracer": "function", "filter": [""]}, "/filter/0"),
                            ({"tracer": "function", "filter": ["x" * 512]}, "/filter/0"),
                            ({"tracer": "function", "filter": ["x"] * 65537}, "/filter"),
                            ({"tracer": "function", "notrace": {}}, "/notrace"),
                            ({"tracer": "function", "pids": 1}, "/pids"),
                            ({"tracer": "function", "pids": [1.5]}, "/pids/0"),
                            ({"tracer": "function", "pids": [1, 0]}, "/pids/1"),
                            ({"tracer": "function", "pids": [-1]}, "/pids/0"),
                            ({"tracer": "function", "pids": [4194305]}, "/pids/0"),
                            ({"tracer": "function", "pids": [1] * 1025}, "/pids"),
                            ({"tracer": "function", "mode": "nonsense"}, "/mode"),
                            ({"tracer": "function", "mode": None}, "/mode"),
                            ({"tracer": "function", "buffer_records": 0}, "/buffer_records"),
                            ({"tracer": "function", "buffer_records": "1"}, "/buffer_records"),
                            ({"tracer": "function", "depth": 1}, "/depth"),
                            ({"tracer": "function_graph", "graph": "x"}, "/graph"),
                            ({"tracer": "function_graph", "graph": ["a", ""]}, "/graph/1"),
                            ({"tracer": "function_graph", "graph": ["x"] * 65537}, "/graph"),
                            ({"tracer": "function_graph", "graph_notrace": [None]}, "/graph_notrace/0"),
                            ({"tracer": "function_graph", "graph_notrace": {}}, "/graph_notrace"),
                            ({"tracer": "function_graph", "max_graph_depth": -1}, "/max_graph_depth"),
                            ({"tracer": "function_graph", "max_graph_depth": 65536}, "/max_graph_depth"),
                            ({"tracer": "function_graph", "max_graph_depth": 1.0}, "/max_graph_depth"),
                            ({"tracer": "function_graph", "max_graph_depth": True}, "/max_graph_depth"),
                            ({"tracer": "function_graph", "threshold_ns": -1}, "/threshold_ns"),
                            ({"tracer": "function_graph", "threshold_ns": 3600 * 10**9 + 1}, "/threshold_ns"),
                            ({"tracer": "function_graph", "threshold_ns": "100us"}, "/threshold_ns"),
                            ({"tracer": "function_graph", "irqs": 0}, "/irqs"),
                            ({"tracer": "function_graph", "sleep_time": "no"}, "/sleep_time"),
                            ({"tracer": "function_graph", "retval": None}, "/retval"),
                            ({"tracer": "function_graph", "args": []}, "/args"),
                            ({"tracer": "function", "switches": 1}, "/switches"),
                            ({"tracer": "function", "persistent": "yes"}, "/persistent")):
            p = self.problem(self.d.request("POST", "/v1/guests/g/traces", body), 400, "bad_request")
            self.assertEqual(self.pointers(p), [where], body)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_media_type(self):
        body = b'{"target":"qemu:/fake"}'
        for kind in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
            self.problem(self.post(body, headers={"Content-Type": kind}), 415, "unsupported_media_type")
        r = self.post(body, headers={"Content-Type": "Application/JSON; charset=utf-8"})
        self.assertEqual(r.status, 201)

    def test_body_where_none_is_taken(self):
        self.d.attach()
        t = self.d.trace()
        self.problem(self.d.request("POST", f"/v1/traces/{t}/stop", {"x": 1}), 400, "bad_request")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
        self.assertEqual(self.d.request("POST", f"/v1/traces/{t}/stop", {}).status, 200)
        self.assertEqual(self.d.request("POST", f"/v1/traces/{t}/stop").status, 200)

    def test_largest_body(self):
        fits = b'{"target":"qemu:/fake"}'
        self.assertEqual(self.post(fits + b" " * (LARGEST - len(fits))).status, 201)

    def test_too_large_body(self):
        # announced: refused before it is sent
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect(str(self.d.socket))
        s.sendall(b"POST /v1/guests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % (LARGEST + 1))
        self.assertIn(b" 413 ", s.recv(65536))
        s.close()
        # chunked: refused at its end, in good order
        c = self.d.connection()
        c.request("POST", "/v1/guests", iter([b" " * 65536] * 33), {"Content-Type": "application/json"},
                  encode_chunked=True)
        r = c.getresponse()
        self.assertEqual((r.status, json.loads(r.read())["code"]), (413, "body_too_large"))
        c.close()
        # and one without an end is cut off
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect(str(self.d.socket))
        s.sendall(b"POST /v1/guests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1000):
                s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        s.close()
        self.assertEqual(self.d.get("/healthz")["status"], "ok")


class OtherSites(TestCase):
    def test_host_and_origin(self):
        with Daemon(listen=["tcp:127.0.0.1:0", "tcp:[::1]:0"]) as d:
            port = int(d.log().split("listening on tcp:127.0.0.1:")[1].split("\n")[0])

            def ask(headers, method="GET"):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                c.putrequest(method, "/v1/guests", skip_host=True)
                for k, v in headers:
                    c.putheader(k, v)
                c.endheaders()
                r = c.getresponse()
                status = r.status
                c.close()
                return status
            here = f"127.0.0.1:{port}"
            self.assertEqual(ask([("Host", here)]), 200)
            self.assertEqual(ask([("Host", "localhost")]), 200)
            self.assertEqual(ask([("Host", here), ("Origin", f"http://{here}")]), 200)
            self.assertEqual(ask([("Host", "evil.example")]), 403)
            self.assertEqual(ask([("Host", "localhost.evil.example")]), 403)
            self.assertEqual(ask([("Host", here), ("Origin", "http://evil.example")]), 403)
            self.assertEqual(ask([("Host", here), ("Origin", "null")]), 403)
            self.assertIn("every user of this host is admin there", d.log())

    def test_every_loopback_address_that_is_served(self):
        with Daemon(listen=["tcp:127.0.0.2:0", "tcp:localhost:0"]) as d:
            ports = re.findall(r"listening on tcp:(127\.0\.0\.[12]):(\d+)\n", d.log())
            self.assertEqual([a for a, _ in ports], ["127.0.0.2", "127.0.0.1"])
            for address, port in ports:
                for host, status in ((None, 200), ("localhost", 200), ("127.0.0.1", 200), ("[::1]:1", 200),
                                     ("127.0.0.2.evil.example", 403), ("192.0.2.1", 403), ("", 403)):
                    c = http.client.HTTPConnection(address, int(port), timeout=10)
                    c.request("GET", "/healthz", headers={} if host is None else {"Host": host})
                    self.assertEqual(c.getresponse().status, status, (address, host))
                    c.close()
            address, port = ports[0]
            p = subprocess.run([os.environ["HVFTRACE"], "-s", f"http://{address}:{port}", "ls"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
            self.assertEqual((p.returncode, p.stderr), (0, b""))

    def test_origin_on_the_unix_socket(self):
        with Daemon() as d:
            self.problem(d.request("GET", "/healthz", headers={"Origin": "http://evil.example"}), 403,
                         "forbidden_origin")
            self.assertEqual(d.request("GET", "/healthz", headers={"Host": "anything"}).status, 200)


class ManyClients(DaemonCase):
    def test_twenty_at_once(self):
        d = self.d

        def client(n):
            c = UnixConnection(d.socket)

            def ask(method, path, body=None, want=200):
                c.request(method, path, json.dumps(body) if body is not None else None,
                          {"Content-Type": "application/json"} if body is not None else {})
                r = c.getresponse()
                text = r.read()
                assert r.status == want, (n, method, path, r.status, text)
                return json.loads(text)
            for _ in range(5):
                ask("POST", "/v1/guests", {"target": f"qemu:/{n}/fake", "name": f"g{n}"}, 201)
                t = ask("POST", f"/v1/guests/g{n}/traces", {"tracer": "function", "filter": ["vfs_*"]},
                        201)["id"]
                assert any(g["name"] == f"g{n}" for g in ask("GET", "/v1/guests")["items"])
                seen = 0
                while not seen:
                    seen = len(ask("GET", f"/v1/traces/{t}/records?limit=5")["items"])
                ask("POST", f"/v1/traces/{t}/stop")
                assert ask("DELETE", f"/v1/traces/{t}")["state"] == "stopped"
                assert ask("DELETE", f"/v1/guests/g{n}")["restore"]["verified"]
            c.close()
            return n
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            self.assertEqual(sorted(pool.map(client, range(20))), list(range(20)))
        self.assertEqual(d.get("/v1/guests")["items"], [])
        self.assertIn('hvftrace_guests_attached_total 100', d.request("GET", "/metrics").text.decode())

    def test_same_name_and_same_target(self):
        d = self.d

        def attach(n):
            return d.request("POST", "/v1/guests", {"target": "qemu:/fake", "name": f"n{n}"}).status
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            statuses = list(pool.map(attach, range(20)))
        self.assertEqual(sorted(statuses), [201] + [409] * 19)

    def test_slow_operations_hold_nobody_up(self):
        d = self.d
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            slow = [pool.submit(d.request, "POST", "/v1/guests", {"target": f"qemu:/{n}/fake-gate"})
                    for n in range(10)]
            until("all are on their way",
                  lambda: "hvftrace_http_connections 11" in d.request("GET", "/metrics").text.decode())
            d.attach()
            self.assertEqual(len(d.get("/v1/guests")["items"]), 1)  # not those that are not there yet
            self.problem(d.request("GET", "/v1/guests/fake-gate"), 404, "not_found")
            self.problem(d.request("POST", "/v1/guests", {"target": "qemu:/x/fake", "name": "fake-gate"}),
                         409, "conflict")
            d.open_gate()
            self.assertEqual({f.result().status for f in slow}, {201})
        self.assertEqual(len(d.get("/v1/guests")["items"]), 11)

    def test_clients_that_hang_up(self):
        d = self.d
        for _ in range(50):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(d.socket))
            s.sendall(b"GET /v1/guests HTTP/1.1\r\nHost: x\r\n\r\n")
            s.close()
        for junk in (b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n",
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n"):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(d.socket))
            try:
                s.sendall(junk)
            except (BrokenPipeError, ConnectionResetError):
                pass
            s.close()
        until("all connections are gone",
              lambda: "hvftrace_http_connections 1\n" in d.request("GET", "/metrics").text.decode())


if __name__ == "__main__":
    unittest.main()
