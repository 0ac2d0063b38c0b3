# SPDX-License-Identifier: Apache-2.0
"""/v1/events: what happened, in order, to any number of readers."""

import json
import unittest

from harness import CliCase, Daemon, DaemonCase, Stream, TestCase, until


class Events(DaemonCase):
    args = ("--heartbeat", "0.05")

    def events(self, after=0):
        return self.d.get(f"/v1/events?after={after}&limit=4096")["items"]

    def kinds(self):
        return [x["type"] for x in self.events()]

    def stream(self, query="", accept=None):
        return Stream(self.d, f"/v1/events/stream{query}", accept, 20)

    def test_a_life(self):
        self.d.attach()
        t = self.d.trace(filter=["vfs_*"])
        self.d.good("PATCH", f"/v1/traces/{t}", {"tracer": "function_graph"})
        self.d.good("POST", f"/v1/traces/{t}/stop")
        self.d.good("POST", f"/v1/traces/{t}/stop")  # nothing happens any more
        self.d.good("DELETE", f"/v1/traces/{t}")
        self.d.good("DELETE", "/v1/guests/g")
        events = self.events()
        self.assertEqual([x["type"] for x in events], [
            "daemon_started", "guest_attached", "trace_started", "trace_changed", "trace_stopped",
            "trace_deleted", "guest_detached"])
        seqs = [x["seq"] for x in events]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))))
        self.assertEqual((events[1]["guest"], events[1]["target"]), ("g", "qemu:/fake"))
        self.assertEqual((events[2]["guest"], events[2]["trace"], events[2]["functions"]), ("g", t, 251))
        self.assertEqual((events[4]["tracer"], events[4]["verified"]), ("function_graph", True))
        self.assertTrue(events[6]["restore"]["verified"])
        self.assertIsNone(events[6]["code"])

    def test_what_nobody_asked_for(self):
        self.d.attach("fake-dies", "d")
        self.d.attach("fake-lossy", "l")
        self.d.attach("fake-detach", "x")
        t, u = self.d.trace("d"), self.d.trace("l")
        until("it has failed and lost", lambda: {"trace_failed", "records_lost"} <= set(self.kinds()))
        failed = next(x for x in self.events() if x["type"] == "trace_failed")
        self.assertEqual((failed["guest"], failed["trace"], failed["code"]), ("d", t, "vmm.gone"))
        until("captures, too", lambda: self.d.get(f"/v1/traces/{u}")["lost_captures"])
        info = self.d.good("POST", f"/v1/traces/{u}/stop")
        lost = info["lost"]
        self.assertEqual(info["missed"], ["forks", "switches"])
        unheeded = [x for x in self.events() if x["type"] == "functions_unheeded"]
        self.assertEqual([(x["trace"], x["count"]) for x in unheeded], [(u, 2)])
        missed = [x for x in self.events() if x["type"] == "tasks_missed"]
        self.assertEqual([(x["trace"], x["missed"]) for x in missed], [(u, ["forks", "switches"])])
        until("all losses are told", lambda: sum(
            x["count"] for x in self.events() if x["type"] == "records_lost") == lost)
        until("those of captures, too", lambda: sum(
            x["count"] for x in self.events() if x["type"] == "captures_lost") == info["lost_captures"])
        self.d.request("DELETE", "/v1/guests/x")
        self.assertEqual(self.events()[-1]["code"], "guest.text_changed")
        self.assertEqual(self.kinds().count("trace_failed"), 1)

    def test_a_monitor_that_does_not_answer(self):
        self.d.attach("fake-silent", "s")
        self.d.gate.touch()
        until("it is said", lambda: self.kinds()[-1] == "vmm_silent", 20)
        self.assertEqual(self.d.get("/v1/guests/s")["state"], "unknown")
        self.d.gate.unlink()
        until("that it answers, too", lambda: self.kinds()[-1] == "vmm_answers", 20)
        self.assertEqual(self.kinds()[-2:], ["vmm_silent", "vmm_answers"])
        self.assertEqual(self.d.get("/v1/guests/s")["state"], "running")

    def test_streams(self):
        with self.stream() as s:
            items = (x for x in s if x["type"] != "heartbeat")
            first = next(items)
            self.assertEqual((s.type, first["type"]), ("application/x-ndjson", "daemon_started"))
            self.d.attach()
            self.assertEqual(next(items)["type"], "guest_attached")
            with self.stream(f"?after={first['seq']}", "text/event-stream") as e:
                self.assertEqual(e.type, "text/event-stream")
                lines = [e.response.readline().decode() for _ in range(4)]
                event = json.loads(lines[3].removeprefix("data: "))
                self.assertEqual(lines[:3], ["retry: 1000\n", "\n", f"id: {event['seq']}\n"])
                self.assertEqual(event["type"], "guest_attached")
            self.d.stop()
            self.assertEqual([x["type"] for x in items], ["daemon_stopping", "guest_detached", "end"])

    def test_heartbeats(self):
        with self.stream() as s:
            items = iter(s)
            first = next(items)
            self.assertEqual(next(items), {"type": "heartbeat", "seq": first["seq"]})

    def test_what_is_not_kept(self):
        first = self.events()[0]["seq"]
        for path in ("/v1/events", "/v1/events/stream"):
            for after in (first - 1000000, first + 1000):  # of an earlier run, and of none
                p = self.problem(self.d.request("GET", f"{path}?after={after}"), 410, "records.gone")
                self.assertEqual(p["oldest_seq"], first)
            self.assertIn(self.d.request("GET", f"{path}?after=x").status, (400,))
        self.problem(self.d.request("GET", "/v1/events?limit=0"), 400, "bad_request")
        self.problem(self.d.request("GET", "/v1/events/stream", headers={"Accept": "text/plain"}), 406,
                     "not_acceptable")

    def test_pages(self):
        self.d.attach()
        slow = self.stream()
        next(iter(slow))
        for _ in range(20):
            t = self.d.trace()
            self.d.good("DELETE", f"/v1/traces/{t}")
        page = self.d.get("/v1/events?limit=10")
        self.assertEqual(len(page["items"]), 10)
        more = self.d.get(f"/v1/events?after={page['next_after']}")
        self.assertEqual(more["items"][0]["seq"], page["items"][-1]["seq"] + 1)
        slow.close()


class Command(CliCase):
    def test_list(self):
        self.d.attach()
        t = self.d.trace()
        self.run_ok("mark", t, "load \x1b[31m begins")
        lines = self.out("events").splitlines()
        self.assertEqual([x.split()[1] for x in lines],
                         ["daemon_started", "guest_attached", "trace_started", "marker"])
        self.assertRegex(lines[1], r"^20\S+Z guest_attached guest=g target=qemu:/fake$")
        self.assertTrue(lines[3].endswith(f"guest=g trace={t} text=load ?[31m begins"), lines[3])
        self.assertEqual([json.loads(x) for x in self.out("--json", "events").splitlines()],
                         self.d.get("/v1/events")["items"])
        self.assertEqual(json.loads(self.out("--json", "mark", t, "x"))["text"], "x")
        self.fails("mark", "t99", "x", words=("not_found",))
        self.fails("mark", t, status=2)
        self.fails("events", "x", status=2)

    def test_follow(self):
        p = self.start("events", "-f")
        self.assertIn(b"daemon_started", p.stdout.readline())
        self.d.attach()
        self.assertIn(b" guest_attached guest=g ", p.stdout.readline())
        self.d.stop()
        rest = p.stdout.read().decode()
        self.assertEqual([x.split()[1] for x in rest.splitlines()],
                         ["daemon_stopping", "guest_detached", "end"])
        self.assertIn("verified=yes", rest)
        self.assertEqual((p.wait(10), p.stderr.read()), (0, b""))
        p.stdout.close()
        p.stderr.close()


class Restarts(TestCase):
    def test_numbers_grow(self):
        d = Daemon()
        with d:
            last = d.get("/v1/events")["items"][-1]["seq"]
            d.stop()
            d.start()
            p = self.problem(d.request("GET", f"/v1/events?after={last}"), 410, "records.gone")
            self.assertGreater(p["oldest_seq"], last)


if __name__ == "__main__":
    unittest.main()
