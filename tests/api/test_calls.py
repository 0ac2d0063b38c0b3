# SPDX-License-Identifier: Apache-2.0
"""The tracer syscalls over HTTP: each call takes some records, and is told when the last of them has come."""

import json
import unittest

from harness import DaemonCase

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


if __name__ == "__main__":
    unittest.main()
