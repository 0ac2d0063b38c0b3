# SPDX-License-Identifier: Apache-2.0
"""-l, -n and -P of the verbs that read a recording: what is chosen of it, and that nothing else changes."""

import fnmatch
import json
import re
import unittest

import test_export as exports
from harness import CliCase


class Choose(CliCase):
    def shown(self, kind, *options):
        p = self.run_ok("report", exports.recording(kind), "--json", *options)
        lines = [json.loads(x) for x in p.stdout.splitlines()]
        return [x for x in lines if x["type"] not in ("lost", "end")], p.stderr.decode()

    def wanted(self, kind, globs=("*",), but=(), pids=None):
        def is_any(name, patterns):
            return any(fnmatch.fnmatchcase(name, g) for g in patterns)
        return [r for r in exports.truth(kind) if r["type"] in ("switch", "marker", "tracer") or
                (is_any(r["function"], globs) and not is_any(r["function"], but) and
                 (pids is None or r["pid"] in pids))]

    def test_report(self):
        for kind in ("graph", "function"):
            pid = next(r["pid"] for r in exports.truth(kind) if r["pid"])
            other = next(r["pid"] for r in exports.truth(kind) if r["pid"] not in (0, pid))
            for options, of in ((("-l", "fn_1*"), {"globs": ["fn_1*"]}),
                                (("-l", "fn_1*", "-l", "fn_2*", "-n", "fn_11*"),
                                 {"globs": ["fn_1*", "fn_2*"], "but": ["fn_11*"]}),
                                (("-P", pid), {"pids": [pid]}),
                                (("-P", pid, "-P", other), {"pids": [pid, other]}),
                                (("-l", "fn_3*", "-P", other), {"globs": ["fn_3*"], "pids": [other]}),
                                (("-l", "nothing"), {"globs": []})):
                got, said = self.shown(kind, *options)
                wanted = self.wanted(kind, **of)
                self.assertEqual(got, wanted, options)
                n = len(exports.truth(kind))
                self.assertRegex(said, rf"^{len(wanted)} of {n} records, {exports.LOST} lost, ")
                self.assertLess(len(wanted), n, options)
                self.assertTrue("nothing" in options or wanted)
        got, said = self.shown("graph")
        self.assertEqual(got, exports.truth("graph"))
        self.assertNotIn(" of ", said)

    def test_of_a_file_of_names(self):
        path = self.d.dir / "names"
        path.write_text("fn_100\nfn_2?? # some\n")
        got, _ = self.shown("graph", "-l", f"@{path}")
        self.assertEqual(got, self.wanted("graph", ["fn_100", "fn_2??"]))

    def test_text_of_calls(self):
        text = self.run_ok("report", exports.recording("graph"), "-l", "fn_1*").stdout.decode()
        self.assertEqual(set(re.findall(r"fn_(\d)", text)), {"1"})

    def test_system_calls(self):
        pid = exports.truth("syscalls")[0]["pid"]
        got, _ = self.shown("syscalls", "-P", pid)
        wanted = [r for r in exports.truth("syscalls") if r["pid"] == pid]
        self.assertEqual([r["seq"] for r in got], [r["seq"] for r in wanted])
        self.assertLess(len(got), len(exports.truth("syscalls")))
        for verb in (("report",), ("export", "-f", "chrome", "-o", self.d.dir / "x")):
            self.fails(*verb, exports.recording("syscalls"), "-l", "open*",
                       words=["only tasks can be chosen"])

    def test_stacks(self):
        pid = next(r["pid"] for r in exports.truth("graph") if r["pid"])
        p = self.run_ok("report", exports.recording("graph"), "--format", "folded", "-P", pid)
        comms = {re.sub("[;\n]", ":", r["comm"]) for r in exports.truth("graph") if r["pid"] == pid}
        lines = p.stdout.decode().splitlines()
        self.assertEqual({x.rsplit(" ", 1)[0].split(";fn_")[0] for x in lines}, comms)
        self.fails("report", exports.recording("graph"), "--format", "folded", "-n", "fn_1",
                   words=["of stacks only tasks"])

    def test_profile(self):
        def items(*options):
            p = self.run_ok("--json", "profile", exports.recording("graph"), *options)
            return json.loads(p.stdout)["items"]
        every = items()
        self.assertEqual(items("-l", "fn_1*", "-n", "fn_12*"),
                         [x for x in every if re.match("fn_1(?!2)", x["function"])])
        pid = next(r["pid"] for r in exports.truth("graph") if r["pid"])
        hits = sum(r["type"] == "graph_return" and r["pid"] == pid for r in exports.truth("graph"))
        self.assertEqual(sum(x["hits"] for x in items("-P", pid)), hits)
        self.assertLess(hits, sum(x["hits"] for x in every))
        for option in (("-g", "x"), ("--duration", "1"), ("--args",)):
            self.fails("profile", exports.recording("graph"), *option, status=2,
                       words=["-l, -n and -P alone"])

    def test_export(self):
        out = self.d.dir / "x.json"
        p = self.run_ok("export", exports.recording("graph"), "-f", "chrome", "-o", out, "-l", "fn_1*")
        names = {e["name"] for e in json.loads(out.read_text())["traceEvents"] if e["ph"] in "BX"}
        entries = {r["function"] for r in self.wanted("graph", ["fn_1*"]) if r["type"] == "graph_entry"}
        self.assertEqual({x for x in names if not x.startswith("task;")}, entries)  # those are switches
        self.assertRegex(p.stderr.decode(), rf"^{len(self.wanted('graph', ['fn_1*']))} records, ")
        self.fails("export", "t1", "-f", "chrome", "-P", "1", status=2, words=["t1 is none"])


def tearDownModule():
    exports.WORK.cleanup()


if __name__ == "__main__":
    unittest.main()
