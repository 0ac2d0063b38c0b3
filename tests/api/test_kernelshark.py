# SPDX-License-Identifier: Apache-2.0
"""trace.dat in KernelShark, by the library that it reads files with: every event where and when it was."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import test_export as exports
from harness import TestCase

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = exports.NPM.parents[1] / "lib"  # where scripts/setup puts what no package is installed for


class KernelShark(TestCase):
    def events(self, kind, name):
        places = ":".join(filter(None, [str(LIBRARIES), os.environ.get("LD_LIBRARY_PATH")]))
        file = pathlib.Path(exports.WORK.name, f"{kind}-{name}-shown.dat")  # it goes by the ending
        if not file.exists():
            file.symlink_to(exports.export(kind, name))
        p = subprocess.run([sys.executable, "-B", HERE / "kshark.py", file],
                           capture_output=True, text=True, timeout=120, check=False,
                           env=dict(os.environ, LD_LIBRARY_PATH=places))
        if p.returncode == 77:
            self.skipTest(f"no libkshark; scripts/setup --tests gets it: {p.stderr.strip()}")
        self.assertEqual(p.returncode, 0, p.stderr)
        return [json.loads(x) for x in p.stdout.splitlines()]

    def same_events(self, kind, name):
        got = [e for e in self.events(kind, name) if e["event"] not in ("missed_events", "hvftrace/lost")]
        wanted = exports.truth(kind)
        self.assertEqual(len(got), len(wanted))
        types = exports.TraceDat.NAMES
        for cpu in (0, 1):
            self.assertEqual([(e["ts"], e["event"].split("/")[1]) for e in got if e["cpu"] == cpu],
                             [(r["ts_ns"], types[r["type"]]) for r in wanted if r["cpu"] == cpu])

    def test_calls(self):
        for name in ("trace.dat", "trace.dat.v7"):
            self.same_events("graph", name)
        events = self.events("graph", "trace.dat")
        names = {r["function"] for r in exports.truth("graph") if r["type"] == "graph_entry"}
        shown = {e["info"].split("|")[1].strip().split("(")[0] for e in events
                 if e["event"] == "ftrace/funcgraph_entry"}
        self.assertEqual(shown, names)
        missed = [int(e["info"].split("=")[1]) for e in events if e["event"] == "missed_events"]
        self.assertEqual(sum(missed), exports.LOST)

    def test_functions(self):
        self.same_events("function", "trace.dat")


def tearDownModule():
    exports.WORK.cleanup()


if __name__ == "__main__":
    unittest.main()
