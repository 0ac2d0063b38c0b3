# SPDX-License-Identifier: Apache-2.0
"""Functions have the names of the time when they were traced, wherever they are told: modules come and go."""

import json
import re
import threading
import time
import unittest

from harness import DaemonCase, until

GONE = 40  # so many records are of a module that another has taken the place of


class Names(DaemonCase):
    def setUp(self):
        super().setUp()
        self.d.attach("fake-renames")

    def begin(self, **more):
        t = self.d.trace(**more)
        self.d.until_more(t, 4 * GONE)
        return t, self.d.good("POST", f"/v1/traces/{t}/stop")["records"]

    def right(self, items):
        items = [x for x in items if x["type"] not in ("end", "heartbeat")]
        self.assertGreater(len(items), 2 * GONE)
        for x in items:
            was = x["seq"] <= GONE
            self.assertEqual(x["function"] == "gone_function", was, x)
            self.assertEqual(x["module"] == "gone", was, x)
            if x["parent"]:
                self.assertEqual(x["parent"].startswith("gone_function+"), was, x)
        # the same addresses before and after, or this would say little
        self.assertTrue({x["ip"] for x in items[:GONE]} & {x["ip"] for x in items[GONE:]})

    def test_in_records_and_streams(self):
        for tracer in ("function", "function_graph"):
            t, n = self.begin(tracer=tracer, filter=["vfs_fn_00?"])
            self.right(self.d.get(f"/v1/traces/{t}/records?limit={n}")["items"])
            for after in (0, GONE // 2):
                with self.d.stream(t, f"?after={after}") as s:
                    items = list(s)
                self.assertEqual(items[0]["seq"], after + 1)
                self.right(items)
            self.d.good("DELETE", f"/v1/traces/{t}")

    def test_in_text(self):
        t, n = self.begin(filter=["vfs_fn_00?"])
        with self.d.stream(t, accept="text/plain") as s:
            lines = [x for x in s.raw().decode().splitlines() if not x.startswith("#")]
        self.assertEqual(len(lines), n)
        for i, line in enumerate(lines):
            self.assertEqual(line.count("gone_function"), 2 if i < GONE else 0, line)

    def test_in_recordings(self):
        for tracer in ("function", "function_graph"):
            t, _ = self.begin(tracer=tracer, filter=["vfs_fn_00?"])
            with self.d.stream(t, accept="application/vnd.hvftrace.recording") as s:
                raw = s.raw()
            self.d.good("DELETE", f"/v1/traces/{t}")
            for store in (False, True):  # as it came, and in blocks, where definitions go before records
                path = self.d.dir / "rec"
                path.write_bytes(raw)
                if store:
                    p = self.d.cli("record", "g", "-p", tracer, "-l", "vfs_fn_00?", "--duration", "500ms",
                                   "-o", path)
                    self.assertEqual(p.returncode, 0, p.stderr)
                out = self.d.cli("report", path, "--json").stdout
                self.right([json.loads(x) for x in out.splitlines()])

    def test_in_profiles(self):
        t, n = self.begin(tracer="function_graph", filter=["vfs_fn_00?"])
        with self.d.stream(t, accept="application/vnd.hvftrace.recording") as s:
            path = self.d.dir / "rec"
            path.write_bytes(s.raw())
        items = [json.loads(x) for x in self.d.cli("report", path, "--json").stdout.splitlines()]
        want = {}
        for x in items:
            if x["type"] == "graph_return":
                key = x["function"], x["module"], x["ip"]
                want[key] = want.get(key, 0) + 1
        rows = json.loads(self.d.cli("profile", path, "--json").stdout)["items"]
        self.assertEqual({(x["function"], x["module"], x["ip"]): x["hits"] for x in rows if x["hits"]}, want)
        both = [x["ip"] for x in rows if x["function"] == "gone_function"]
        self.assertTrue(set(both) & {x["ip"] for x in rows if x["function"] != "gone_function"})
        lines = self.d.cli("report", path, "--format", "folded").stdout.decode().splitlines()
        for word in ("gone_function", "vfs_fn_"):
            self.assertTrue([x for x in lines if word in x], lines)
        self.assertFalse([x for x in lines if "gone_function" in x and "vfs_fn_" in x], lines)

    def test_in_exports(self):
        t, n = self.begin(filter=["vfs_fn_00?"])
        got = self.d.request("GET", f"/v1/traces/{t}/export?format=chrome").body["traceEvents"]
        names = [x["name"] for x in sorted((x for x in got if "ts" in x), key=lambda x: x["ts"])]
        self.assertEqual(len(names), n)
        for i, name in enumerate(names):
            self.assertEqual(name == "gone_function", i < GONE, (i, name))
        self.d.good("DELETE", f"/v1/traces/{t}")
        t, n = self.begin(tracer="function_graph", filter=["vfs_fn_00?"])
        for name in ("folded", "speedscope", "ctf", "perfetto"):
            text = self.d.request("GET", f"/v1/traces/{t}/export?format={name}").text
            self.assertIn(b"gone_function", text, name)
            self.assertTrue(re.search(rb"vfs_fn_|vfs_", text), name)


class LongExports(DaemonCase):
    def test_a_delete_does_not_wait_for_one_that_is_being_built(self):
        self.d.attach("fake-reads")
        t = self.d.trace()
        self.d.until_more(t, 60000)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        got = []
        whole = threading.Thread(target=lambda: got.append(
            self.d.request("GET", f"/v1/traces/{t}/export?format=trace.dat")))
        began = time.monotonic()
        whole.start()  # 230 readings of 20 ms each
        until("it is being built", lambda: "hvftrace_streams 1\n" in
              self.d.request("GET", "/metrics").text.decode())
        self.d.good("DELETE", f"/v1/traces/{t}")
        self.assertTrue(whole.is_alive() or time.monotonic() - began < 3)
        whole.join()
        self.assertEqual(got[0].status, 200)
        self.assertLess(time.monotonic() - began, 4)


if __name__ == "__main__":
    unittest.main()
