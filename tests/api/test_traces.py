# SPDX-License-Identifier: Apache-2.0
"""/v1/traces: starting, records, stopping, deleting, metrics."""

import concurrent.futures
import signal
import unittest

from harness import DaemonCase, until


class Traces(DaemonCase):
    def test_life_of_a_trace(self):
        self.d.attach()
        r = self.d.request("POST", "/v1/guests/g/traces",
                           {"tracer": "function", "filter": ["vfs_*", "tcp_*"], "notrace": ["tcp_fn_001"],
                            "pids": [1, 77], "mode": "overwrite"})
        self.assertEqual((r.status, r.headers["Location"]), (201, "/v1/traces/t1"))
        t = r.body
        self.assertEqual((t["id"], t["guest"], t["tracer"], t["state"]), ("t1", "g", "function", "running"))
        self.assertEqual((t["filter"], t["notrace"], t["pids"], t["mode"]),
                         (["vfs_*", "tcp_*"], ["tcp_fn_001"], [1, 77], "overwrite"))
        self.assertEqual((t["stopped"], t["restore"], t["error"]), (None, None, None))
        self.assertGreater(t["functions"], 400)
        g = self.d.get("/v1/guests/g")
        self.assertEqual((g["armed"], g["traces"], g["agent"]["loaded"]), (t["functions"], ["t1"], True))
        until("records", lambda: self.d.get("/v1/traces/t1")["records"] > 20)
        self.assertEqual([x["id"] for x in self.d.get("/v1/guests/g/traces")["items"]], ["t1"])

        t = self.d.good("POST", "/v1/traces/t1/stop")
        self.assertEqual((t["state"], t["restore"]["sites_restored"]), ("stopped", t["functions"]))
        self.assertGreaterEqual(t["stopped"], t["started"])
        self.assertEqual(self.d.good("POST", "/v1/traces/t1/stop"), t)
        self.assertEqual(self.d.get("/v1/guests/g")["armed"], 0)
        self.assertEqual(self.d.get("/v1/traces/t1"), t)
        self.assertEqual(self.d.good("DELETE", "/v1/traces/t1"), t)
        self.problem(self.d.request("GET", "/v1/traces/t1"), 404, "not_found")
        self.assertEqual(self.d.trace(), "t2")

    def start(self):
        return self.d.request("POST", "/v1/guests/g/traces", {"tracer": "function"})

    def test_ids_are_of_one_trace_for_ever(self):
        """What a client kept of a trace leads nowhere else, however the daemon ended."""
        self.d.attach()
        t = self.d.trace()
        self.d.until_more(t)
        self.problem(self.start(), 409, "trace.limit")
        copy = self.d.good("POST", f"/v1/traces/{t}/snapshot", status=201)["id"]
        self.assertEqual((t, copy), ("t1", "t2"))  # a refusal uses up none
        for sig, new in ((signal.SIGKILL, "t3"), (signal.SIGTERM, "t4")):
            self.d.stop(check=False, sig=sig)
            self.d.start()
            self.d.attach()
            self.assertEqual(self.d.trace(), new)
            self.d.until_more(new)
            for what in ("stream", "records"):
                self.problem(self.d.request("GET", f"/v1/traces/{t}/{what}?after=1"), 404, "not_found")

    def test_ids_that_cannot_be_kept(self):
        self.d.attach()
        (self.d.state_dir / "last-trace").mkdir()
        p = self.problem(self.start(), 500, "journal.failed")
        self.assertIn(str(self.d.state_dir / "last-trace"), p["detail"])
        self.assertEqual(self.d.get("/v1/guests/g")["armed"], 0)
        (self.d.state_dir / "last-trace").rmdir()
        self.assertEqual(self.d.trace(), "t1")

    def test_those_that_have_ended_have_a_limit(self):
        self.d.attach()
        self.d.attach("fake-fast", "other")  # which has its own
        for _ in range(32):
            t = self.d.trace()
            self.d.good("POST", f"/v1/traces/{t}/stop")
        p = self.problem(self.start(), 409, "trace.ended")
        self.assertIn("32 traces that have ended", p["detail"])
        self.d.trace("other")
        self.d.good("POST", f"/v1/traces/{t}/snapshot", status=201)  # as they have
        self.d.good("DELETE", f"/v1/traces/{t}")
        t = self.d.trace()
        self.problem(self.start(), 409, "trace.limit")
        p = self.d.cli("trace", "g", "--duration", "50ms")
        self.assertIn(b"trace.limit", p.stderr)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        p = self.d.cli("trace", "g", "--duration", "50ms")
        self.assertEqual((p.returncode, len(p.stderr.splitlines())), (1, 1))
        self.assertIn(b"trace.ended", p.stderr)

    def test_records_by_pages(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        total = until("records", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 100)
        self.assertTrue(total)
        total = self.d.good("POST", f"/v1/traces/{t}/stop")["records"]
        seqs, after = [], 0
        while True:
            page = self.d.get(f"/v1/traces/{t}/records?after={after}&limit=17")
            self.assertEqual((page["state"], page["records"], page["lost"]), ("stopped", total, 0))
            if not page["items"]:
                self.assertEqual(page["next_after"], after)
                break
            after = page["next_after"]
            seqs += [r["seq"] for r in page["items"]]
        self.assertEqual(seqs, list(range(1, total + 1)))
        r = self.d.get(f"/v1/traces/{t}/records?limit=1")["items"][0]
        self.assertEqual((r["type"], r["pid"], r["function"], r["module"]),
                         ("function", 101, "vfs_fn_004", None))

    def test_records_that_are_gone(self):
        self.d.attach("fake-fast")
        t = self.d.trace(buffer_records=1024)
        until("the buffer went round", lambda: self.d.get(f"/v1/traces/{t}")["oldest_seq"] > 2)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        p = self.problem(self.d.request("GET", f"/v1/traces/{t}/records?after=1"), 410, "records.gone")
        page = self.d.get(f"/v1/traces/{t}/records?after={p['oldest_seq'] - 1}&limit=1")
        self.assertEqual(page["items"][0]["seq"], p["oldest_seq"])
        self.assertEqual(self.d.get(f"/v1/traces/{t}/records")["items"][0]["seq"], p["oldest_seq"])

    def test_refused_starts_leave_nothing(self):
        self.d.attach()
        traces = "/v1/guests/g/traces"
        self.problem(self.d.request("POST", traces, {"tracer": "function", "filter": ["nope_*"]}), 422,
                     "filter.no_match")
        self.problem(self.d.request("POST", traces, {"tracer": "function", "pids": [99999]}), 422,
                     "filter.no_such_pid")
        self.assertEqual(self.d.get("/v1/traces")["items"], [])
        self.d.trace()
        self.problem(self.d.request("POST", traces, {"tracer": "function"}), 409, "trace.limit")
        self.assertEqual(len(self.d.get("/v1/traces")["items"]), 1)

    def test_options_of_function_graph(self):
        self.d.attach()
        asked = {"graph": ["vfs_read", "vfs_w*"], "graph_notrace": ["ext4_*"], "max_graph_depth": 3,
                 "threshold_ns": 100000, "irqs": False, "sleep_time": False, "retval": True, "args": True,
                 "switches": True}
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"], **asked)
        self.assertEqual(self.d.engine(),
                         "function_graph filter:vfs_* n_filter:1 n_notrace:0 graph:vfs_read graph:vfs_w* "
                         "n_graph:2 graph_notrace:ext4_* n_graph_notrace:1 max_depth:3 threshold_ns:100000 "
                         "no_irqs:1 no_sleep_time:1 retval:1 args:1 switches:1")
        doc = self.d.get(f"/v1/traces/{t}")
        self.assertEqual((doc["options"], doc["filter"]), (asked, ["vfs_*"]))
        self.assertEqual(self.d.good("DELETE", f"/v1/traces/{t}")["options"], asked)
        # only what was asked for is shown, also where it is what there is without asking
        for asked in ({}, {"irqs": True}, {"threshold_ns": 0, "graph": []},
                      {"sleep_time": True, "args": False}):
            t = self.d.trace(tracer="function_graph", **asked)
            self.assertIn(" n_graph:0 n_graph_notrace:0 max_depth:0 threshold_ns:0 no_irqs:0 no_sleep_time:0 "
                          "retval:0 args:0 switches:0", self.d.engine())
            self.assertEqual(self.d.good("DELETE", f"/v1/traces/{t}")["options"], asked)

    def test_options_that_the_tracer_function_has_no_use_for(self):
        self.d.attach()
        traces = "/v1/guests/g/traces"
        for name, value in (("graph", ["vfs_*"]), ("graph_notrace", ["vfs_*"]), ("max_graph_depth", 1),
                            ("threshold_ns", 1), ("irqs", False), ("sleep_time", False), ("retval", True)):
            p = self.problem(self.d.request("POST", traces, {"tracer": "function", name: value}), 400,
                             "bad_request")
            self.assertEqual(p["detail"], f"{name} is for the tracer function_graph")
        self.assertEqual(self.d.get("/v1/traces")["items"], [])
        t = self.d.trace(args=True, switches=True, irqs=True, threshold_ns=0, graph=[])
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["options"],
                         {"args": True, "switches": True, "irqs": True, "threshold_ns": 0, "graph": []})

    def test_persistent(self):
        self.d.attach()
        t = self.d.trace(persistent=True)
        doc = self.d.get(f"/v1/traces/{t}")
        self.assertEqual((doc["options"], doc["continued_by"], doc["taken"]), ({"persistent": True}, None, 0))
        for verb, *more in (("record", "-o", self.d.dir / "x"), ("profile",)):
            p = self.d.cli(verb, "g", "--persistent", *more)
            self.assertEqual(p.returncode, 2, p)
            self.assertIn("no --persistent", p.stderr if isinstance(p.stderr, str) else p.stderr.decode())

    def test_20000_names(self):
        self.d.attach()
        names = ["*"] + [f"a_function_with_a_rather_long_name_that_the_compiler_split_{n}.constprop.0"
                         for n in range(19999)]
        t = self.d.trace(tracer="function_graph", filter=names)
        self.assertIn(" n_filter:20000 ", self.d.engine())
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["filter"], names)
        self.assertEqual(self.d.good("DELETE", f"/v1/traces/{t}")["filter"], names)
        t = self.d.trace(tracer="function_graph", graph=names)
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["options"]["graph"], names)

    def change(self, t, tracer):
        return self.d.request("PATCH", f"/v1/traces/{t}", {"tracer": tracer})

    def test_switched_while_it_runs(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        started = self.d.get(f"/v1/traces/{t}")
        self.assertIsNone(started["graph"])
        self.d.until_more(t)
        for tracer in ("function_graph", "function_graph", "function", "function_graph", "function"):
            doc = self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": tracer})
            self.assertEqual((doc["id"], doc["tracer"], doc["state"]), (t, tracer, "running"))
            self.d.until_more(t)
            doc = self.d.get(f"/v1/traces/{t}")
            self.assertEqual((doc["tracer"], doc["started"]), (tracer, started["started"]))
            self.assertGreater(doc["graph"]["entries"], 0)
        self.assertEqual(self.d.get("/v1/guests/g")["armed"], started["functions"])
        self.d.good("POST", f"/v1/traces/{t}/stop")
        items = self.d.get(f"/v1/traces/{t}/records?limit=10000")["items"]
        self.assertEqual([x["seq"] for x in items], list(range(1, len(items) + 1)))
        kinds = [x.get("tracer", x["type"].split("_")[0]) for x in items]
        self.assertEqual([a for a, b in zip(kinds, kinds[1:] + [None]) if a != b],
                         ["function", "function_graph", "graph", "function", "function_graph", "graph",
                          "function"])

    def test_switches_that_are_refused(self):
        self.d.attach("fake-dies")
        self.problem(self.change("t1", "function"), 404, "not_found")
        t = self.d.trace()
        for body, where in (({}, ""), ({"tracer": "x"}, "/tracer"), ({"tracer": None}, "/tracer"),
                            ({"tracer": "function", "state": "stopped"}, "/state")):
            p = self.problem(self.d.request("PATCH", f"/v1/traces/{t}", body), 400, "bad_request")
            self.assertEqual(self.pointers(p), [where])
        self.problem(self.d.request("PATCH", f"/v1/traces/{t}", raw=b'{"tracer":"function"}',
                                    headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type")
        until("it failed", lambda: self.d.get(f"/v1/traces/{t}")["state"] == "failed")
        self.problem(self.change(t, "function_graph"), 409, "conflict")
        self.d.attach(name="h")
        t = self.d.trace("h")
        self.d.good("POST", f"/v1/traces/{t}/stop")
        p = self.problem(self.change(t, "function_graph"), 409, "conflict")
        self.assertEqual(p["detail"], f"trace {t} is not running any more")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["tracer"], "function")
        self.d.good("DELETE", f"/v1/traces/{t}")
        # what was asked of it would not be done any more
        t = self.d.trace("h", tracer="function_graph", max_graph_depth=2)
        p = self.problem(self.change(t, "function"), 400, "bad_request")
        self.assertEqual(p["detail"], "max_graph_depth is for the tracer function_graph")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["tracer"], "function_graph")

    def test_64_pids(self):
        self.d.attach()
        traces = "/v1/guests/g/traces"
        p = self.problem(self.d.request("POST", traces, {"tracer": "function", "pids": list(range(1, 66))}),
                         400, "bad_request")
        self.assertEqual(self.pointers(p), ["/pids"])
        self.assertIn("64", p["errors"][0]["detail"])
        self.assertEqual(self.d.get("/v1/traces")["items"], [])
        most = list(range(1, 65))
        t = self.d.trace(pids=most)
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["pids"], most)
        self.d.good("DELETE", f"/v1/traces/{t}")
        args = [w for n in range(1, 66) for w in ("-P", str(n))]
        p = self.d.cli("trace", "g", "--duration", "50ms", *args)
        self.assertEqual((p.returncode, len(p.stderr.splitlines())), (1, 1), p.stderr)
        self.assertIn(b"/pids", p.stderr)
        p = self.d.cli("trace", "g", "--duration", "50ms", *args[2:])
        self.assertEqual(p.returncode, 0, p.stderr)

    def test_one_start_of_many_wins(self):
        self.d.attach()
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            got = list(pool.map(lambda _: self.d.request("POST", "/v1/guests/g/traces",
                                                         {"tracer": "function"}).status, range(10)))
        self.assertEqual(sorted(got), [201] + [409] * 9)

    def test_detach_waits_for_a_start(self):
        self.d.attach("fake-slow")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            start = pool.submit(self.d.request, "POST", "/v1/guests/g/traces", {"tracer": "function"})
            self.d.until_it_waits()
            gone = pool.submit(self.d.request, "DELETE", "/v1/guests/g?force=true")
            until("the detach is on its way", lambda: self.d.request("GET", "/v1/guests/g").status == 409)
            self.problem(self.d.request("GET", "/v1/guests/g"), 409, "conflict")
            self.assertFalse(gone.done())
            self.d.open_gate()
            self.assertEqual(start.result().status, 201)
            self.assertEqual(gone.result().status, 200)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])
        self.assertEqual(self.d.get("/v1/guests")["items"], [])

    def test_stop_that_fails_can_be_tried_again(self):
        self.d.attach("fake-stop")
        t = self.d.trace()
        self.problem(self.d.request("POST", f"/v1/traces/{t}/stop"), 500, "journal.failed")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
        self.assertEqual(self.d.good("POST", f"/v1/traces/{t}/stop")["state"], "stopped")

    def test_delete_keeps_what_cannot_be_stopped(self):
        self.d.attach("fake-stop")
        t = self.d.trace()
        self.problem(self.d.request("DELETE", f"/v1/traces/{t}"), 500, "journal.failed")
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
        self.d.good("DELETE", f"/v1/traces/{t}")
        self.d.good("DELETE", "/v1/guests/g")
        self.d.attach("fake-stop", "h")
        t = self.d.trace("h")
        self.d.good("DELETE", f"/v1/traces/{t}?force=true")

    def test_vmm_that_goes(self):
        self.d.attach("fake-dies")
        t = self.d.trace()
        until("it failed", lambda: self.d.get(f"/v1/traces/{t}")["state"] == "failed")
        doc = self.d.get(f"/v1/traces/{t}")
        self.assertEqual((doc["error"]["code"], doc["error"]["status"]), ("vmm.gone", 410))
        self.problem(self.d.request("POST", f"/v1/traces/{t}/stop"), 410, "vmm.gone")
        self.assertEqual(self.d.good("DELETE", f"/v1/traces/{t}")["state"], "failed")
        self.d.good("DELETE", "/v1/guests/g")

    def test_two_delete_at_once(self):
        self.d.attach()
        for _ in range(20):
            t = self.d.trace()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                got = list(pool.map(lambda _, t=t: self.d.request("DELETE", f"/v1/traces/{t}").status,
                                    range(4)))
            self.assertEqual(sorted(got), [200, 404, 404, 404])

    def test_metrics(self):
        def metric(name):
            lines = self.d.request("GET", "/metrics").text.decode().splitlines()
            return [float(x.split(" ")[1]) for x in lines if x.split(" ")[0] == name][0]
        self.d.attach("fake-lossy")
        t = self.d.trace()
        self.assertEqual(metric("hvftrace_guests"), 1)
        self.assertEqual(metric('hvftrace_traces{state="running"}'), 1)
        self.assertEqual(metric('hvftrace_stop_windows_total{guest="g"}'), 1)
        self.assertEqual(metric('hvftrace_stop_window_max_seconds{guest="g"}'), 0.003)
        until("losses", lambda: metric("hvftrace_lost_records_total") >= 2)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        records, lost = metric("hvftrace_records_total"), metric("hvftrace_lost_records_total")
        self.assertEqual(lost, records // 100)
        self.d.good("DELETE", "/v1/guests/g")
        # totals only ever grow, also when what they count is gone
        self.assertEqual(metric("hvftrace_records_total"), records)
        self.assertEqual(metric("hvftrace_lost_records_total"), lost)
        self.assertEqual(metric("hvftrace_guests"), 0)
        text = self.d.request("GET", "/metrics").text.decode()
        names = {x.split("{")[0].split(" ")[0] for x in text.splitlines() if x and x[0] != "#"}
        for name in names:
            self.assertIn(f"# HELP {name} ", text)
            self.assertIn(f"# TYPE {name} ", text)


if __name__ == "__main__":
    unittest.main()
