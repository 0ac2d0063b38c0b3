# SPDX-License-Identifier: Apache-2.0
"""What can be changed about a trace that runs: pause, filters, markers; and snapshots of it."""

import json
import unittest

from harness import DaemonCase, until


class Control(DaemonCase):
    def setUp(self):
        super().setUp()
        self.d.attach()
        self.t = self.d.trace(filter=["vfs_*"])
        self.path = f"/v1/traces/{self.t}"

    def records(self):
        return self.d.get(self.path)["records"]

    def patch(self, **body):
        return self.d.request("PATCH", self.path, body)

    def test_pause(self):
        self.assertTrue(self.d.get(self.path)["tracing_on"])
        doc = self.patch(tracing_on=False).body
        self.assertEqual((doc["tracing_on"], doc["state"], doc["functions"]), (False, "running", 251))
        before = self.records()
        self.assertFalse(self.patch(tracing_on=False).body["tracing_on"])  # which it is
        self.d.get("/v1/guests/g")
        self.assertEqual(self.records(), before)
        self.assertTrue(self.patch(tracing_on=True).body["tracing_on"])
        self.d.until_more(self.t)
        self.d.good("POST", self.path + "/stop")
        self.assertFalse(self.d.get(self.path)["tracing_on"])
        self.problem(self.patch(tracing_on=True), 409, "conflict")

    def test_filters(self):
        doc = self.patch(filter=["tcp_*", "ext4_*"], notrace=["ext4_*"], pids=[1]).body
        self.assertEqual((doc["filter"], doc["notrace"], doc["pids"]), (["tcp_*", "ext4_*"], ["ext4_*"], [1]))
        self.assertEqual(doc["functions"], 250)
        doc = self.patch(pids=[]).body  # the others stay
        self.assertEqual((doc["filter"], doc["pids"], doc["functions"]), (["tcp_*", "ext4_*"], [], 250))
        for body, status, code in (({"filter": ["nothing"]}, 422, "filter.no_match"),
                                   ({"pids": [99999]}, 422, "filter.no_such_pid"), ({}, 400, "bad_request"),
                                   ({"filter": "x"}, 400, "bad_request"),
                                   ({"mode": "discard"}, 400, "bad_request")):
            self.problem(self.patch(**body), status, code)
        self.assertEqual(self.d.get(self.path)["functions"], 250)
        self.assertEqual([x["type"] for x in self.d.get("/v1/events")["items"]].count("trace_changed"), 2)

    def test_markers(self):
        until("records", lambda: self.records() > 3)
        text = 'load "begins" \u00e4\x1b[31m'
        r = self.d.request("POST", self.path + "/markers", {"text": text})
        self.assertEqual((r.status, r.body["text"]), (201, text))
        self.assertRegex(r.body["time"], r"^20\d\d-.*Z$")
        self.d.until_more(self.t)
        total = self.d.good("POST", self.path + "/stop")["records"]
        items = self.d.get(self.path + "/records?limit=10000")["items"]
        marker = next(x for x in items if x["type"] == "marker")
        self.assertEqual((marker["text"], [x["seq"] for x in items]), (text, list(range(1, total + 1))))
        self.assertEqual(set(marker), {"seq", "type", "ts_ns", "text"})
        with self.d.stream(self.t, accept="text/plain") as s:
            lines = s.raw().decode().splitlines()
        self.assertEqual([x.split("tracing_mark_write: ")[1] for x in lines if "tracing_mark_write" in x],
                         ['load "begins" \u00e4?[31m'])
        with self.d.stream(self.t, accept="application/vnd.hvftrace.recording") as s:
            path = self.d.dir / "rec"
            path.write_bytes(s.raw())
        p = self.d.cli("report", path, "--format", "json")
        again = [json.loads(x) for x in p.stdout.splitlines()][:-1]
        self.assertEqual(again, items)
        event = next(x for x in self.d.get("/v1/events")["items"] if x["type"] == "marker")
        self.assertEqual((event["trace"], event["text"]), (self.t, text))
        self.problem(self.d.request("POST", self.path + "/markers", {"text": "late"}), 409, "conflict")

    def test_markers_that_are_refused(self):
        for body in ({}, {"text": ""}, {"text": "x" * 256}, {"text": 1}, {"text": "a", "time": "now"},
                     {"text": "a", "time": "2999-01-01T00:00:00Z"}, {"text": "a", "x": 1}):
            self.problem(self.d.request("POST", self.path + "/markers", body), 400, "bad_request")
        for _ in range(64):
            self.d.good("POST", self.path + "/markers", {"text": "m"}, 201)
        self.problem(self.d.request("POST", self.path + "/markers", {"text": "m"}), 409, "trace.markers")

    def head(self, t):
        with self.d.stream(t, accept="text/plain") as s:
            return s.response.readline().decode()

    def test_markers_say_nothing_of_the_tracer(self):
        self.d.attach("fake-quiet", "q")
        for tracer, other in (("function", "function_graph"), ("function_graph", "function")):
            t = self.d.trace("q", tracer=tracer)
            self.d.good("POST", f"/v1/traces/{t}/markers", {"text": "first"}, 201)
            self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": tracer})  # which it is
            self.assertEqual(self.head(t), f"# tracer: {tracer}\n")
            self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": other})
            self.assertEqual(self.head(t), f"# tracer: {tracer}\n")  # it begins as that
            self.d.good("DELETE", f"/v1/traces/{t}")

    def test_calls_that_could_not_be_followed(self):
        """They look as those of function."""
        self.d.attach("fake-frames", "f")
        t = self.d.trace("f", tracer="function_graph", max_graph_depth=2)
        self.d.until_more(t)
        self.problem(self.d.request("PATCH", f"/v1/traces/{t}", {"tracer": "function"}), 400, "bad_request")
        self.assertEqual(self.head(t), "# tracer: function_graph\n")
        self.d.good("DELETE", f"/v1/traces/{t}")
        t = self.d.trace("f", tracer="function_graph")
        self.d.until_more(t)
        self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": "function"})
        self.assertEqual(self.d.get(f"/v1/traces/{t}/records?limit=1")["items"][0]["type"], "function")
        self.assertEqual(self.head(t), "# tracer: function_graph\n")

    def test_snapshots_have_a_limit(self):
        until("records", lambda: self.records() > 3)
        made = [self.d.good("POST", self.path + "/snapshot", status=201)["id"] for _ in range(16)]
        self.problem(self.d.request("POST", self.path + "/snapshot"), 409, "trace.snapshots")
        self.d.attach("fake-lossy", "other")  # which has its own
        t = self.d.trace("other")
        self.d.until_more(t, 3)
        self.d.good("POST", f"/v1/traces/{t}/snapshot", status=201)
        self.d.good("DELETE", f"/v1/traces/{made[3]}")
        self.d.good("POST", self.path + "/snapshot", status=201)
        self.problem(self.d.request("POST", self.path + "/snapshot"), 409, "trace.snapshots")

    def test_snapshots(self):
        until("records", lambda: self.records() > 50)
        self.d.good("POST", self.path + "/markers", {"text": "here"}, 201)
        r = self.d.request("POST", self.path + "/snapshot")
        doc = r.body
        self.assertEqual((r.status, r.headers["Location"]), (201, f"/v1/traces/{doc['id']}"))
        self.assertEqual((doc["snapshot_of"], doc["state"], doc["tracer"], doc["filter"]),
                         (self.t, "stopped", "function", ["vfs_*"]))
        self.assertTrue(doc["restore"]["verified"])
        self.d.until_more(self.t)  # it goes on
        with self.d.stream(doc["id"]) as s:
            items = list(s)
        self.assertEqual([x["seq"] for x in items[:-1]], list(range(1, doc["records"] + 1)))
        self.assertIn("here", [x.get("text") for x in items])
        self.d.good("POST", f"/v1/traces/{doc['id']}/stop")  # which it is
        self.problem(self.d.request("PATCH", f"/v1/traces/{doc['id']}", {"tracing_on": False}), 409,
                     "conflict")
        self.d.good("DELETE", self.path)
        self.assertEqual(self.d.get(f"/v1/traces/{doc['id']}")["records"], doc["records"])
        t = self.d.trace()  # a copy does not count as a trace of the guest
        self.d.good("DELETE", f"/v1/traces/{t}")
        self.d.good("DELETE", "/v1/guests/g")
        self.problem(self.d.request("GET", f"/v1/traces/{doc['id']}"), 404, "not_found")


if __name__ == "__main__":
    unittest.main()
