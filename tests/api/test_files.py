# SPDX-License-Identifier: Apache-2.0
"""hvftrace functions FILE: call sites of objects that are compiled here."""

import json
import subprocess
import unittest

from harness import CliCase

SOURCE = ("static int __attribute__((noinline)) one(int a) { return a * 3; }\n"
          "int two(int a) { return one(a) + 1; }\n")


class Files(CliCase):
    def compile(self, *flags):
        source, path = self.d.dir / "a.c", self.d.dir / "a.o"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-O1", "-fno-pic", *flags, "-c", source, "-o", path], check=True)
        return path

    def test_recorded_or_not(self):
        for flags, what in ((("-mrecord-mcount",), "recorded in __mcount_loc: 0 nops, 2 calls"),
                            ((), "found in its text, as nothing is recorded: 0 nops, 2 calls"),
                            (("-mnop-mcount",),
                             "found in its text, as nothing is recorded: 2 nops, 0 calls")):
            path = self.compile("-pg", "-mfentry", *flags)
            p = self.d.cli("functions", path)
            self.assertEqual((p.returncode, p.stdout.decode().split()), (0, ["one", "two"]))
            self.assertIn(f"{path}: 2 call sites, {what}", p.stderr.decode())
        p = self.d.cli("--json", "functions", path, "t*")
        doc = json.loads(p.stdout)
        self.assertEqual((doc["name"], doc["kind"]), ("two", "nop"))

    def test_several_nops(self):
        p = self.d.cli("functions", self.compile("-fpatchable-function-entry=5"))
        self.assertEqual(p.stdout.decode(), "one (several nops: cannot be traced)\n"
                                            "two (several nops: cannot be traced)\n")

    def test_no_such_file(self):
        for path, code in (("/nosuch", "No such file"), ("/dev/null", "is no file"),
                           (self.d.dir / "a.c", "file.format")):
            if path == self.d.dir / "a.c":
                path.write_text(SOURCE)
            p = self.d.cli("functions", path)
            self.assertEqual((p.returncode, p.stdout), (1, b""))
            self.assertIn(code, p.stderr.decode())


if __name__ == "__main__":
    unittest.main()
