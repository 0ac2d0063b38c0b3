# SPDX-License-Identifier: Apache-2.0
"""/v1/traces/{t}/stream: formats, ends, losses, slow and rude clients."""

import concurrent.futures
import json
import re
import threading
import time
import unittest

from harness import DaemonCase, until


class Streams(DaemonCase):
    args = ("--heartbeat", "0.05")

    def stop(self, t):
        return self.d.good("POST", f"/v1/traces/{t}/stop")

    def test_ndjson_from_first_to_last(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        with self.d.stream(t) as s:
            self.assertEqual(s.type, "application/x-ndjson")
            first = next(iter(s))
            self.assertEqual((first["seq"], first["type"], first["function"]), (1, "function", "vfs_fn_004"))
            doc = self.stop(t)
            items = [x for x in s if x["type"] != "heartbeat"]
        self.assertEqual([x["seq"] for x in items[:-1]], list(range(2, doc["records"] + 1)))
        self.assertEqual(items[-1], {"type": "end", "seq": doc["records"], "reason": "stopped",
                                     "records": doc["records"], "lost": 0, "functions": 251, "restored": 251,
                                     "verified": True, "missed": []})

    def test_going_on_after_a_break(self):
        self.d.attach()
        t = self.d.trace()
        with self.d.stream(t) as s:
            last = [next(iter(s)) for _ in range(1)][-1]["seq"]
        until("more records", lambda: self.d.get(f"/v1/traces/{t}")["records"] > last + 50)
        total = self.stop(t)["records"]
        with self.d.stream(t, f"?after={last}") as s:
            seqs = [x["seq"] for x in s if x["type"] == "function"]
        self.assertEqual(seqs, list(range(last + 1, total + 1)))

    def events(self, t, query="", headers=None):
        """A whole stream of server-sent events, as [(id, object)]."""
        r = self.d.request("GET", f"/v1/traces/{t}/stream{query}",
                           headers={"Accept": "text/event-stream", **(headers or {})})
        self.assertEqual((r.status, r.type), (200, "text/event-stream"), r.text)
        blocks = r.text.decode().split("\n\n")
        self.assertEqual((blocks[0], blocks[-1]), ("retry: 1000", ""))
        got = []
        for block in blocks[1:-1]:
            m = re.fullmatch(r"(?:id: (\S+)\n)?data: (\{.*\})", block)
            self.assertTrue(m, block)
            got.append((m.group(1), json.loads(m.group(2))))
        return got

    def test_server_sent_events(self):
        self.d.attach("fake-lossy")
        t = self.d.trace()
        until("losses", lambda: self.d.get(f"/v1/traces/{t}")["lost"])
        doc = self.stop(t)
        events = self.events(t)
        with self.d.stream(t) as s:
            self.assertEqual([x for _, x in events], list(s))  # the same objects
        for id_, x in events[:-1]:
            self.assertEqual(id_, str(x["seq"]))
        self.assertEqual(events[-1][0], f"{doc['records']}.end")
        # a browser that comes back asks the same URL, with the last id it saw
        self.assertEqual(self.events(t, "?after=1", {"Last-Event-ID": "7"})[0][1]["seq"], 8)
        r = self.d.request("GET", f"/v1/traces/{t}/stream",
                           headers={"Accept": "text/event-stream", "Last-Event-ID": events[-1][0]})
        self.assertEqual((r.status, r.text), (204, b""))
        for bad in ("x", "-1", "1x", "1.ending", "99999999999999999999", ""):
            self.problem(self.d.request("GET", f"/v1/traces/{t}/stream", headers={"Last-Event-ID": bad}),
                         400, "bad_request")

    def test_heartbeats_as_events(self):
        self.d.attach("fake-quiet")
        t = self.d.trace()
        with self.d.stream(t, accept="text/event-stream") as s:
            lines = [s.response.readline().decode() for _ in range(6)]
        self.assertEqual(lines, ["retry: 1000\n", "\n"] +
                         ['data: {"type":"heartbeat","seq":0}\n', "\n"] * 2)

    def test_going_on_where_nothing_is_any_more(self):
        self.d.attach("fake-fast")
        t = self.d.trace(buffer_records=1024)
        until("the buffer goes round", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 5000)
        oldest = self.stop(t)["oldest_seq"]
        for query, headers in (("?after=1", {}), ("", {"Last-Event-ID": "1"}),
                               (f"?after={oldest - 2}", {"Accept": "text/event-stream"})):
            p = self.problem(self.d.request("GET", f"/v1/traces/{t}/stream{query}", headers=headers), 410,
                             "records.gone")
            self.assertEqual(p["oldest_seq"], oldest)
        for query in ("", f"?after={oldest - 1}"):
            with self.d.stream(t, query) as s:
                self.assertEqual(next(x for x in s if x["type"] == "function")["seq"], oldest)

    def test_going_on_where_nothing_has_been_yet(self):
        """The number is of another run of the daemon, or of another trace."""
        self.d.attach()
        t = self.d.trace()
        self.d.until_more(t, 10)
        doc = self.stop(t)
        for more, headers in ((1, {}), (1000, {}), (1000, {"Accept": "text/event-stream"}),
                              (2, {"Accept": "application/vnd.hvftrace.recording"})):
            for path, query, head in (("stream", f"?after={doc['records'] + more}", {}),
                                      ("stream", "?after=1", {"Last-Event-ID": str(doc["records"] + more)}),
                                      ("records", f"?after={doc['records'] + more}", {})):
                r = self.d.request("GET", f"/v1/traces/{t}/{path}{query}", headers={**headers, **head})
                self.assertEqual(self.problem(r, 410, "records.gone")["oldest_seq"], 1)
        with self.d.stream(t, f"?after={doc['records']}") as s:
            self.assertEqual([x["type"] for x in s], ["end"])
        page = self.d.get(f"/v1/traces/{t}/records?after={doc['records']}")
        self.assertEqual((page["items"], page["next_after"]), ([], doc["records"]))
        self.d.attach("fake-quiet", "q")
        t = self.d.trace("q")
        for path in ("stream", "records"):
            p = self.problem(self.d.request("GET", f"/v1/traces/{t}/{path}?after=1"), 410, "records.gone")
            self.assertNotIn("oldest_seq", p)

    def test_heartbeats(self):
        self.d.attach("fake-quiet")
        t = self.d.trace()
        with self.d.stream(t) as s:
            items = iter(s)
            for _ in range(3):
                self.assertEqual(next(items), {"type": "heartbeat", "seq": 0})
            self.stop(t)
            kinds = [x["type"] for x in items]
        self.assertEqual([k for k in kinds if k != "heartbeat"], ["end"])

    def test_text_layout(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_read"])
        until("records", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 3)
        total = self.stop(t)["records"]
        with self.d.stream(t, accept="text/plain") as s:
            self.assertTrue(s.type.startswith("text/plain"))
            lines = s.raw().decode().splitlines()
        self.assertEqual(lines[0], "# tracer: function")
        self.assertEqual(len([x for x in lines if x[0] != "#"]), total)
        self.assertRegex(lines[-1], r" \[00[01]\] \.{5} +5\.\d{6}: vfs_read <-vfs_fn_000$")
        self.assertNotIn("\x1b", "".join(lines))

    def test_graph_as_text(self):
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        until("calls", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 30)
        doc = self.stop(t)
        g = doc["graph"]
        self.assertEqual(g["entries"], g["returns"] + g["never_returned"] + g["lost_returns"] + g["inside"])
        self.assertEqual((doc["tracer"], g["lost_frames"], g["frame_errors"]), ("function_graph", 0, 0))
        with self.d.stream(t, accept="text/plain") as s:
            text = s.raw().decode()
        self.assertTrue(text.startswith("# tracer: function_graph\n#\n# CPU  DURATION "), text[:200])
        self.assertEqual(text.count("() {\n") + text.count("();\n"), g["entries"])
        self.assertEqual(text.count("}\n") + text.count("();\n"), g["returns"])
        self.assertEqual(text.count(" never returned: sh-"), g["never_returned"])
        self.assertIsNone(self.d.get(f"/v1/traces/{t}/records?limit=3")["items"][2]["parent"])

    def test_values(self):
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"], args=True, retval=True)
        self.d.until_more(t)
        self.stop(t)
        items = self.d.get(f"/v1/traces/{t}/records?limit=3")["items"]
        file = "0xffff888100bd2a00"
        self.assertEqual(items[0]["args"], [
            {"name": "file", "type": "file *", "value": file, "text": file},
            {"name": "count", "type": "size_t", "value": "0x1", "text": "0x1"}])
        self.assertEqual(items[2]["retval"], {"type": "int", "value": "0xfffffffe", "text": "-2 (ENOENT)"})
        with self.d.stream(t, accept="text/plain") as s:
            text = s.raw().decode()
        self.assertIn(f" vfs_fn_000(file={file}, count=0x1) {{\n", text)
        self.assertIn(" /* vfs_fn_000 ret=-2 */\n", text)

    def test_a_call_that_goes_on_is_shown(self):
        """Whether it has callees is not known, and may not be for long."""
        self.d.attach("fake-one")
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        with self.d.stream(t, accept="text/plain") as s:
            lines = [s.response.readline().decode() for _ in range(5)]
            self.assertEqual(lines[4], " 0)               |  vfs_fn_000() {\n")
            self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
            self.assertEqual(self.stop(t)["graph"]["inside"], 1)
            self.assertEqual(s.raw(), b"")

    def switched(self):
        """A stopped trace of function, function_graph, function."""
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        for tracer in ("function_graph", "function"):
            self.d.until_more(t)
            self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": tracer})
        self.d.until_more(t)
        return self.stop(t)

    def check_switched(self, text, doc):
        parts = re.split(r"^# tracer: (\w+)\n", text, flags=re.MULTILINE)
        self.assertEqual((parts[0], parts[1::2]), ("", ["function", "function_graph", "function"]))
        self.assertEqual(parts[4].count("() {\n") + parts[4].count("();\n"), doc["graph"]["entries"])
        calls = [x for x in (parts[2] + parts[6]).splitlines() if x[0] != "#"]
        told = [doc["graph"][x] for x in ("entries", "returns", "never_returned")]
        self.assertEqual(doc["records"], len(calls) + sum(told) + 2)

    def test_text_of_a_switched_trace(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        with self.d.stream(t, accept="text/plain") as s:
            text = ""
            for tracer in ("function_graph", "function"):
                text += "".join(s.response.readline().decode() for _ in range(50))
                self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": tracer})
                self.d.until_more(t)
            doc = self.stop(t)
            self.check_switched(text + s.raw().decode(), doc)

    def test_text_of_a_trace_that_was_switched(self):
        doc = self.switched()
        with self.d.stream(doc["id"], accept="text/plain") as s:
            self.check_switched(s.raw().decode(), doc)

    def test_streams_that_begin_after_a_switch(self):
        doc = self.switched()
        items = self.d.get(f"/v1/traces/{doc['id']}/records?limit=10000")["items"]
        turns = [x["seq"] for x in items if x["type"] == "tracer"]
        for after, first in ((0, "function"), (turns[0] - 1, "function"), (turns[0], "function_graph"),
                             (turns[1] - 1, "function_graph"), (turns[1], "function"),
                             (items[-1]["seq"], "function")):
            with self.d.stream(doc["id"], f"?after={after}", "text/plain") as s:
                self.assertEqual(s.raw().decode().splitlines()[0], f"# tracer: {first}", (after, turns))

    def test_recording_of_a_switched_trace(self):
        doc = self.switched()
        with self.d.stream(doc["id"], accept="application/vnd.hvftrace.recording") as s:
            path = self.d.dir / "rec"
            path.write_bytes(s.raw())
        p = self.d.cli("report", path, "--format", "json")
        items = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual([x["seq"] for x in items[:-1]], list(range(1, doc["records"] + 1)), p.stderr)
        self.assertEqual([x["tracer"] for x in items if x["type"] == "tracer"],
                         ["function_graph", "function"])
        p = self.d.cli("report", path)
        self.check_switched(p.stdout.decode(), doc)

    def test_recording(self):
        self.d.attach()
        t = self.d.trace()
        until("records", lambda: self.d.get(f"/v1/traces/{t}")["records"] > 30)
        total = self.stop(t)["records"]
        with self.d.stream(t, accept="application/vnd.hvftrace.recording") as s:
            path = self.d.dir / "rec"
            path.write_bytes(s.raw())
        p = self.d.cli("report", path, "--format", "json")
        items = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual([x["seq"] for x in items[:-1]], list(range(1, total + 1)), p.stderr)
        self.assertEqual((items[-1]["type"], items[-1]["records"]), ("end", total))

    def test_accept(self):
        self.d.attach("fake-quiet")
        t = self.d.trace()
        self.stop(t)
        for accept, kind in (("*/*", "application/x-ndjson"), ("application/jsonl", "application/x-ndjson"),
                             ("application/*", "application/x-ndjson"), ("text/*;q=0.5", "text/plain"),
                             ("image/png, text/plain;q=0.1", "text/plain"),
                             ("text/event-stream", "text/event-stream"),
                             ("application/vnd.hvftrace.recording", "application/vnd.hvftrace.recording")):
            r = self.d.request("GET", f"/v1/traces/{t}/stream", headers={"Accept": accept})
            self.assertEqual((r.status, r.headers["Content-Type"].split(";")[0]), (200, kind), accept)
        for accept in ("image/png", "text/html", "application/json", ",;,"):
            self.problem(self.d.request("GET", f"/v1/traces/{t}/stream", headers={"Accept": accept}), 406,
                         "not_acceptable")
        self.problem(self.d.request("GET", "/v1/traces/t99/stream"), 404, "not_found")
        self.problem(self.d.request("GET", f"/v1/traces/{t}/stream?after=-1"), 400, "bad_request")
        self.problem(self.d.request("GET", f"/v1/traces/{t}/stream?on_close=x"), 400, "bad_request")
        self.assertEqual(self.d.request("HEAD", f"/v1/traces/{t}/stream").status, 200)

    def test_losses_in_the_guest_are_told(self):
        self.d.attach("fake-lossy")
        t = self.d.trace()
        until("losses", lambda: self.d.get(f"/v1/traces/{t}")["lost"] >= 3)
        doc = self.stop(t)
        with self.d.stream(t) as s:
            items = list(s)
        self.assertEqual(sum(x["count"] for x in items if x["type"] == "lost"), doc["lost"])
        self.assertEqual(items[-1]["lost"], doc["lost"])
        with self.d.stream(t, accept="text/plain") as s:
            self.assertIn(f"[LOST {doc['lost']} EVENTS]\n", s.raw().decode())

    def test_going_on_tells_of_later_losses_only(self):
        self.d.attach("fake-lossy")
        t = self.d.trace()
        before = until("losses", lambda: self.d.get(f"/v1/traces/{t}")["lost"])
        with self.d.stream(t, "?after=1") as s:
            items = iter(s)
            seen = [next(items)]
            until("more", lambda: self.d.get(f"/v1/traces/{t}")["lost"] >= before + 3)
            doc = self.stop(t)
            seen += items
        told = sum(x["count"] for x in seen if x["type"] == "lost")
        self.assertGreaterEqual(told, 3)
        self.assertLessEqual(told, doc["lost"] - before)
        self.assertEqual((seen[-1]["type"], seen[-1]["lost"]), ("end", doc["lost"]))
        with self.d.stream(t, "?after=1") as s:
            seen = list(s)
        self.assertEqual([x for x in seen if x["type"] == "lost"], [])
        self.assertEqual(seen[-1]["lost"], doc["lost"])

    def test_head(self):
        """It answers at once as GET would, and is no client that comes and goes."""
        for kind in ("fake", "fake-quiet"):
            self.d.attach(kind, kind)
            t = self.d.trace(kind)
            if kind == "fake":
                self.d.until_more(t, 5)
            for accept in ("application/x-ndjson", "text/plain", "application/vnd.hvftrace.recording"):
                for query in ("", "?on_close=stop", "?on_close=delete", f"?after={5 * (kind == 'fake')}"):
                    r = self.d.request("HEAD", f"/v1/traces/{t}/stream{query}", headers={"Accept": accept})
                    self.assertEqual((r.status, r.type, r.text), (200, accept, b""), query)
            until("their connections are gone",
                  lambda: "hvftrace_http_connections 1\n" in self.d.request("GET", "/metrics").text.decode())
            self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
            for path, accept, status in ((f"{t}/stream", "image/png", 406), ("t99/stream", "*/*", 404),
                                         (f"{t}/stream?after=x", "*/*", 400)):
                r = self.d.request("HEAD", f"/v1/traces/{path}", headers={"Accept": accept})
                self.assertEqual((r.status, r.text), (status, b""), path)
            with self.d.stream(t) as s:
                self.d.good("DELETE", f"/v1/traces/{t}")
                kinds = [x["type"] for x in s if x["type"] not in ("function", "heartbeat")]
            self.assertEqual(kinds, ["end"])

    def test_many_streams_of_one_trace(self):
        self.d.attach()
        t = self.d.trace()
        ready = threading.Barrier(13)

        def read(_):
            with self.d.stream(t) as s:
                items = iter(s)
                seqs = [next(items)["seq"]]
                ready.wait(20)
                seqs += [x["seq"] for x in items if x["type"] == "function"]
            return seqs
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            futures = [pool.submit(read, n) for n in range(12)]
            ready.wait(20)
            total = self.stop(t)["records"]
            for f in futures:
                self.assertEqual(f.result(), list(range(1, total + 1)))


class SlowAndRude(DaemonCase):
    args = ("--heartbeat", "0.05")

    def records(self, t):
        return self.d.get(f"/v1/traces/{t}")["records"]

    def test_slow_reader_is_told_what_it_lost(self):
        self.d.attach("fake-fast")
        t = self.d.trace(buffer_records=1024)
        with self.d.stream(t) as s:
            items = iter(s)
            seen = [next(items)]
            # it reads nothing while the buffer goes round many times; the drain does not wait for it
            start = self.records(t)
            until("the drain goes on", lambda: self.records(t) > start + 200000, 30)
            doc = self.d.good("POST", f"/v1/traces/{t}/stop")
            seen += items
        total, at = doc["records"], 0
        for x in seen[:-1]:
            if x["type"] == "lost":
                self.assertEqual(x["after"], at)
                at += x["count"]
            elif x["type"] == "function":
                at += 1
                self.assertEqual(x["seq"], at)  # nothing is missing that was not told
        self.assertEqual(at, total)
        lost = sum(x["count"] for x in seen if x["type"] == "lost")
        self.assertGreater(lost, 0)
        self.assertEqual(seen[-1]["lost"], lost)
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["lost_readers"], lost)
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["lost"], 0)

    def test_abrupt_close(self):
        self.d.attach("fake-fast")
        t = self.d.trace()
        for kind in (None, "text/plain", "application/vnd.hvftrace.recording"):
            for _ in range(5):
                s = self.d.stream(t, accept=kind)
                s.response.read(100)
                s.close()
        self.d.good("DELETE", f"/v1/traces/{t}")
        until("their connections are gone",
              lambda: "hvftrace_http_connections 1\n" in self.d.request("GET", "/metrics").text.decode())

    def test_what_becomes_of_the_trace(self):
        for kind in ("fake", "fake-quiet"):
            self.d.attach(kind, kind)
            t = self.d.trace(kind)
            for accept in ("application/x-ndjson", "text/plain"):
                self.d.stream(t, accept=accept).close()
                self.d.stream(t, "?on_close=keep", accept).close()
            self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
            # also where nothing is written that would show that nobody reads
            self.d.stream(t, "?on_close=stop", "text/plain").close()
            until("it is stopped", lambda t=t: self.d.get(f"/v1/traces/{t}")["state"] == "stopped")
            self.d.good("DELETE", f"/v1/traces/{t}")
            t = self.d.trace(kind)
            self.d.stream(t, "?on_close=delete", "text/plain").close()
            until("it is gone", lambda t=t: self.d.request("GET", f"/v1/traces/{t}").status == 404)
            until("its sites are back", lambda k=kind: self.d.get(f"/v1/guests/{k}")["armed"] == 0)

    def test_deleted_under_a_stream(self):
        self.d.attach()
        t = self.d.trace()
        with self.d.stream(t) as s:
            items = [next(iter(s))]
            doc = self.d.good("DELETE", f"/v1/traces/{t}")
            items += [x for x in s if x["type"] != "heartbeat"]
        self.assertEqual(items[-1]["type"], "end")
        self.assertEqual(items[-2]["seq"], doc["records"])

    def test_text_of_a_trace_that_is_deleted(self):
        """What the layout holds back, to see what comes next, must not be named by tables that are gone."""
        self.d.attach()
        for _ in range(12):  # a call is held back in some of them
            t = self.d.trace("g", tracer="function_graph", filter=["vfs_*"])
            with self.d.stream(t, accept="text/plain") as s:
                while not s.response.readline().endswith(b"{\n"):
                    pass
                self.d.good("DELETE", "/v1/traces/" + t)
                lines = s.raw().decode().splitlines()
            self.assertEqual([x for x in lines if "0xffff" in x], [])

    def test_deleted_under_a_stream_that_does_not_read(self):
        self.d.attach("fake-fast")
        t = self.d.trace()
        with self.d.stream(t) as s:
            next(iter(s))
            until("more than fits in its socket", lambda: self.records(t) > 100000)
            started = time.monotonic()
            self.d.good("DELETE", "/v1/guests/g?force=true")
            self.assertLess(time.monotonic() - started, 10)
            items = list(s)
        self.assertEqual(items[-1]["type"], "end")
        self.assertEqual(items[-1]["reason"], "deleted")
        lost = sum(x["count"] for x in items if x["type"] == "lost")
        got = len([x for x in items if x["type"] == "function"]) + 1
        self.assertEqual(got + lost, items[-1]["records"])

    def test_vmm_that_goes_ends_the_stream(self):
        self.d.attach("fake-dies")
        t = self.d.trace()
        with self.d.stream(t) as s:
            items = [x for x in s if x["type"] != "heartbeat"]
        self.assertEqual((items[-1]["type"], items[-1]["reason"]), ("end", "vmm.gone"))
        self.assertEqual(items[-2]["seq"], 200)
        self.assertEqual(items[-1]["verified"], False)

    def test_stopping_daemon_ends_streams_well(self):
        self.d.attach()
        t = self.d.trace()
        with self.d.stream(t) as s:
            items = iter(s)
            next(items)
            self.d.stop()
            rest = [x for x in items if x["type"] != "heartbeat"]
        self.assertEqual((rest[-1]["type"], rest[-1]["reason"]), ("end", "stopped"))
        self.assertTrue(rest[-1]["verified"])


if __name__ == "__main__":
    unittest.main()
