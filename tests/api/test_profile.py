# SPDX-License-Identifier: Apache-2.0
"""/v1/traces/{t}/profile: functions of a trace, added up in the daemon."""

import collections
import concurrent.futures
import json
import time
import unittest

from harness import SLOW, DaemonCase, until

KEYS = ("total_ns", "self_ns", "hits", "avg_ns", "min_ns", "max_ns", "stddev_ns")


class Profile(DaemonCase):
    def stopped(self, kind="fake", n=300, **more):
        self.d.attach(kind)
        t = self.d.trace(**more)
        until("records", lambda: self.d.get(f"/v1/traces/{t}")["records"] > n)
        return t, self.d.good("POST", f"/v1/traces/{t}/stop")

    def records(self, t):
        return self.d.get(f"/v1/traces/{t}/records?limit=10000")["items"]

    def test_sums(self):
        """As whoever reads the records would add them up."""
        t, doc = self.stopped(tracer="function_graph")
        p = self.d.get(f"/v1/traces/{t}/profile")
        returns = [r for r in self.records(t) if r["type"] == "graph_return"]
        times = collections.defaultdict(list)
        for r in returns:
            times[r["function"]].append(r["duration_ns"])
        self.assertEqual({x["function"]: (x["hits"], x["total_ns"], x["min_ns"], x["max_ns"])
                          for x in p["items"] if x["hits"]},
                         {f: (len(ns), sum(ns), min(ns), max(ns)) for f, ns in times.items()})
        self.assertEqual((p["records"], p["lost"], p["unnamed"], p["functions"]),
                         (doc["records"], 0, 0, len(p["items"])))
        for x in p["items"]:
            self.assertLessEqual(x["self_ns"], x["total_ns"])
        own = self.d.get(f"/v1/traces/{t}/profile?graph_time=false")["items"]
        alone = {x["function"]: x["self_ns"] for x in own}
        self.assertEqual(alone, {x["function"]: x["total_ns"] for x in own})
        self.assertEqual(alone, {x["function"]: x["self_ns"] for x in p["items"]})
        # the command adds up the same
        with self.d.stream(t, accept="application/vnd.hvftrace.recording") as s:
            (self.d.dir / "rec").write_bytes(s.raw())
        shown = json.loads(self.d.cli("--json", "profile", self.d.dir / "rec").stdout)
        self.assertEqual(shown["items"], p["items"])

    def test_order_and_limit(self):
        t, _ = self.stopped(tracer="function_graph")
        for key in KEYS:
            items = self.d.get(f"/v1/traces/{t}/profile?sort={key.removesuffix('_ns')}")["items"]
            values = [x[key] + (x["untimed"] if key == "hits" else 0) for x in items]
            self.assertEqual(values, sorted(values, reverse=True), key)
        page = self.d.get(f"/v1/traces/{t}/profile?sort=name&limit=1")
        self.assertEqual([x["function"] for x in page["items"]], [min(x["function"] for x in items)])
        self.assertEqual(page["functions"], len(items))
        for query in ("sort=x", "sort=", "limit=0", "limit=10001", "limit=x", "graph_time=1", "after=1"):
            self.problem(self.d.request("GET", f"/v1/traces/{t}/profile?{query}"), 400, "bad_request")
        self.problem(self.d.request("GET", "/v1/traces/t99/profile"), 404, "not_found")

    def test_of_function_there_are_hits(self):
        t, doc = self.stopped()
        items = self.d.get(f"/v1/traces/{t}/profile?sort=hits")["items"]
        self.assertEqual(sum(x["untimed"] for x in items), doc["records"])
        self.assertFalse(any(x[k] for x in items for k in KEYS))

    def test_what_is_missing_is_told(self):
        t, doc = self.stopped("fake-fast", 5000, buffer_records=1024)
        p = self.d.get(f"/v1/traces/{t}/profile")
        self.assertEqual(p["lost"], doc["oldest_seq"] - 1)
        self.assertEqual(sum(x["untimed"] for x in p["items"]) + p["lost"], doc["records"])
        self.d.good("DELETE", "/v1/guests/g")
        t, doc = self.stopped("fake-lossy")
        self.assertEqual(self.d.get(f"/v1/traces/{t}/profile")["lost"], doc["lost"])
        self.assertGreater(doc["lost"], 0)

    def test_of_system_calls_there_is_none(self):
        t, _ = self.stopped(tracer="syscalls")
        p = self.problem(self.d.request("GET", f"/v1/traces/{t}/profile"), 400, "bad_request")
        self.assertIn("is of syscalls", p["detail"])

    def test_so_many_at_a_time_and_nobody_waits_for_them(self):
        t, doc = self.stopped("fake-reads", 50000)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(self.d.request, "GET", f"/v1/traces/{t}/profile") for _ in range(8)]
            until("those that are too many are told", lambda: sum(f.done() for f in asked) >= 4)
            began = time.monotonic()
            self.d.good("DELETE", f"/v1/traces/{t}")
            self.assertLess(time.monotonic() - began, 3 * SLOW)
            got = sorted(f.result().status for f in asked)
        self.assertEqual(got, [404] * 4 + [503] * 4)
        for f in asked:
            if f.result().status == 503:
                self.problem(f.result(), 503, "streams.limit")
        self.assertGreater(doc["records"], 50000)


if __name__ == "__main__":
    unittest.main()
