# SPDX-License-Identifier: Apache-2.0
"""Every fault point of the engine is hit by a test: it is in one of the tables of tests/lib/faults.py."""

import pathlib
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/lib"))
import faults  # noqa: E402


class Tables(unittest.TestCase):
    def test_each_point_is_in_one(self):
        known = {*faults.ATTACHED, *faults.OWN_VMM}
        self.assertEqual(faults.in_sources() - known, set(), "in no table of tests/lib/faults.py")
        self.assertEqual(known - faults.in_sources(), set(), "in a table, but in no source")
        self.assertEqual(set(faults.ONLY_OLD) - set(faults.ATTACHED), set())
        for table in faults.ATTACHED, faults.OWN_VMM:
            for name, times in table.items():
                self.assertTrue(times and min(times) > 0, name)

    def test_none_is_outside(self):
        """They are looked for in patcher/ alone."""
        for folder in ("api", "tracers", "symbols", "vmm", "machine", "guest-agent"):
            sources = list((TOP / folder).rglob("*.c"))
            self.assertTrue(sources, folder)
            for path in sources:
                self.assertNotIn("fault_point(", path.read_text(), path)

    def test_what_is_found(self):
        with tempfile.TemporaryDirectory() as tmp:
            source = pathlib.Path(tmp) / "a.c"
            source.write_text('\tfault_point("a.b");\n\tif (x)\n\t\tfault_point("c");\n')
            self.assertEqual(faults.in_sources(pathlib.Path(tmp)), {"a.b", "c"})
            source.write_text("\tfault_point(name);\n")
            with self.assertRaises(AssertionError):
                faults.in_sources(pathlib.Path(tmp))


if __name__ == "__main__":
    unittest.main()
