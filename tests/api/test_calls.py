# SPDX-License-Identifier: Apache-2.0
"""The tracer syscalls over HTTP: each call takes some records, and is told when the last of them has come."""

import json
import unittest

from harness import DaemonCase, until

PARTS = 4  # records of each call, of the engine without guests
RECORDING = "application/vnd.hvftrace.recording"
FALCO = "application/vnd.hvftrace.falco"


class Calls(DaemonCase):
    args = ("--heartbeat", "0.05")

    def start(self, kind="fake"):
        self.d.attach(kind)
        return self.d.trace(tracer="syscalls")

    def stop(self, t):
        return self.d.good("POST", f"/v1/traces/{t}/stop")

    def check_calls(self, t):
        """Whatever form it is asked for in, it is one of system calls."""
        n = self.d.get(f"/v1/traces/{t}")["records"] // PARTS
        self.assertGreater(n, 3)
        with self.d.stream(t) as s:
            items = [x for x in s if x["type"] != "heartbeat"]
        self.assertEqual([(x["type"], x["seq"], x["syscall"]) for x in items[:-1]],
                         [("syscall", PARTS * (i + 1), "openat") for i in range(n)])
        with self.d.stream(t, accept=FALCO) as s:
            self.assertEqual(len(s.raw().splitlines()), n)
        with self.d.stream(t, accept=RECORDING) as s:
            path = self.d.dir / "rec"
            path.write_bytes(s.raw())
        p = self.d.cli("report", path, "--format", "json")
        self.assertEqual([json.loads(x) for x in p.stdout.splitlines()][:-1], items[:-1], p.stderr)
        doc = self.d.request("GET", f"/v1/traces/{t}/export?format=chrome").body
        self.assertEqual(sum(e["ph"] == "X" for e in doc["traceEvents"]), n)

    def test_the_closing_line(self):
        """What the command says last of a trace, to the last word: its calls, and the forgotten ones."""
        for kind, calls in (("fake", r"12 system calls"),
                            ("fake-forgets", r"12 system calls \(3 forgotten: too many at once\)")):
            self.d.attach(kind, kind)
            p = self.d.cli("syscalls", kind, "--duration", "200ms")
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertRegex(p.stderr.decode().splitlines()[-1],
                             rf"^{calls} \(\d+ calls: \d+ returned, \d+ never will, \d+ inside\), "
                             r"0 lost, \d+ functions patched, restored$")

    def test_one_that_was_to_be_switched_stays_one(self):
        t = self.start()
        self.d.until_more(t)
        for tracer in ("function", "function_graph"):
            self.problem(self.d.request("PATCH", f"/v1/traces/{t}", {"tracer": tracer}), 400, "bad_request")
        self.d.until_more(t)
        snapshot = self.d.good("POST", f"/v1/traces/{t}/snapshot", status=201)["id"]
        self.stop(t)
        self.check_calls(t)
        self.check_calls(snapshot)

    def test_where_one_goes_on_is_between_calls(self):
        """Whatever comes with a number: going on after it misses no call."""
        t = self.start("fake-one")
        for accept in ("application/x-ndjson", "text/event-stream"):
            with self.d.stream(t, accept=accept) as s:
                lines = (x.decode().removeprefix("data: ") for x in s.response if b"{" in x)
                self.assertEqual(json.loads(next(lines)), {"type": "heartbeat", "seq": 0})
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["records"], 1)

    def test_a_stream_that_has_nothing_to_say(self):
        """Thousands of records of which nothing can be told, of a trace that brings no more: it ends."""
        self.d.attach("fake-mute")
        t = self.d.trace(tracer="syscalls", buffer_records=65536)
        self.d.until_more(t, 20000)
        self.stop(t)
        for accept in ("text/plain", "application/x-ndjson"):
            with self.d.stream(t, accept=accept, timeout=10) as s:
                self.assertNotIn("openat", s.raw().decode())

    def test_losses_leave_one_between_calls(self):
        t = self.start("fake-lossy")
        losses, ids = [], []
        with self.d.stream(t, accept="text/event-stream") as s:
            id_ = None
            while len(losses) < 4:
                line = s.response.readline().decode()
                if line.startswith("id: "):
                    id_ = line[4:-1]
                elif line.startswith('data: {"type":"lost"'):
                    losses.append(json.loads(line[6:]))
                    ids.append(id_)
        self.assertEqual([x["seq"] % PARTS for x in losses], [0] * len(losses))
        self.assertEqual(ids, [str(x["seq"]) for x in losses])
        total = until("more", lambda: self.stop(t)["records"])
        with self.d.stream(t, f"?after={losses[0]['seq']}") as s:
            seqs = [x["seq"] for x in s if x["type"] == "syscall"]
        self.assertEqual(seqs, list(range(losses[0]["seq"] + PARTS, total + 1, PARTS)))


if __name__ == "__main__":
    unittest.main()
