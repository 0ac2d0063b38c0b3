# SPDX-License-Identifier: Apache-2.0
"""/metrics is what Prometheus reads: judged by its text format, and by promtool."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import DaemonCase, until

SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\S+)')
UNITS = ("seconds", "bytes", "total", "info")


class Metrics(DaemonCase):
    def text(self):
        r = self.d.request("GET", "/metrics")
        self.assertEqual((r.status, r.headers["Content-Type"]),
                         (200, "text/plain; version=0.0.4; charset=utf-8"))
        return r.text.decode()

    def judge(self, text):
        """{(name, labels): value}; every line is as it should be."""
        helped, types, samples = set(), {}, {}
        self.assertTrue(text.endswith("\n"))
        for line in text.splitlines():
            kind = re.fullmatch(r"# (HELP|TYPE) (\S+) (.+)", line)
            if kind:
                name = kind.group(2)
                self.assertFalse([k for k in samples if k[0] == name], f"{name}: told after its samples")
                if kind.group(1) == "HELP":
                    self.assertNotIn(name, helped)
                    helped.add(name)
                else:
                    self.assertIn(kind.group(3), ("counter", "gauge"))
                    self.assertNotIn(name, types)
                    types[name] = kind.group(3)
                continue
            sample = SAMPLE.fullmatch(line)
            self.assertTrue(sample, line)
            name, labels, value = sample.groups()
            self.assertIn(name, helped)
            self.assertEqual(types[name] == "counter", name.endswith("_total"), name)
            self.assertRegex(name, r"^(hvftrace|process)_")
            self.assertFalse(re.search(r"_(ms|ns|us|kb|mb|milliseconds)(_|$)", name), name)
            self.assertNotIn((name, labels), samples)
            samples[name, labels] = float(value)
        self.assertEqual(helped, set(types))
        return samples

    def test_format(self):
        self.judge(self.text())
        self.d.attach("fake-lossy", "a")
        self.d.attach("fake-dies", "b.c-d_e")
        t = self.d.trace("a")
        self.d.trace("b.c-d_e")
        until("losses and a failure", lambda: self.d.get(f"/v1/traces/{t}")["lost_captures"] and any(
            x["state"] == "failed" for x in self.d.get("/v1/traces")["items"]))
        doc = self.d.good("POST", f"/v1/traces/{t}/stop")
        m = self.judge(self.text())
        self.assertEqual(m["hvftrace_guests", None], 2)
        self.assertEqual(m["hvftrace_traces", 'state="failed"'], 1)
        self.assertEqual(m["hvftrace_records_total", None], doc["records"] + 200)
        self.assertEqual(m["hvftrace_lost_records_total", None], doc["lost"])
        self.assertEqual(m["hvftrace_lost_captures_total", None], doc["lost_captures"])
        self.assertGreater(m["hvftrace_stop_window_max_seconds", 'guest="a"'], 0)
        self.d.good("DELETE", f"/v1/traces/{t}")
        after = self.judge(self.text())
        for key, value in m.items():  # counters do not go back
            if key[0].endswith("_total"):
                self.assertGreaterEqual(after[key], value, key)

    def test_promtool(self):
        cache = os.environ.get("HVF_CACHE") or pathlib.Path.home() / ".cache/hvftrace"
        promtool = shutil.which("promtool") or shutil.which("promtool", path=pathlib.Path(cache) / "bin")
        if not promtool:
            self.skipTest("promtool is not there; scripts/setup --tests gets it")
        self.d.attach()
        self.d.trace()
        p = subprocess.run([promtool, "check", "metrics"], input=self.text(), capture_output=True, text=True,
                           check=False)
        self.assertEqual((p.returncode, p.stdout, p.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
