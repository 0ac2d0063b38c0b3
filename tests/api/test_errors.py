# SPDX-License-Identifier: Apache-2.0
"""Every stable error code reaches a client, with its status, hint and address."""

import re
import unittest

from harness import TOP, DaemonCase


def codes():
    text = (TOP / "base/err_codes.h").read_text()
    return re.findall(r'X\(ERR_\w+,\s*"([^"]+)",\s*(\d+),\s*"([^"]+)"\)', text)


class Codes(DaemonCase):
    def test_the_list_is_read(self):
        self.assertGreater(len(codes()), 30)

    def test_those_that_only_http_knows_are_asked_for(self):
        """Each is what some test expects of a request."""
        known = re.findall(r'X\(PROBLEM_\w+,\s*"([^"]+)"', (TOP / "api/problem.h").read_text())
        self.assertGreater(len(known), 8)
        tests = "".join(p.read_text() for p in (TOP / "tests/api").glob("test_*.py"))
        for code in known:
            self.assertTrue(re.search(rf'[0-9]{{3}},\s+"{code}"\)', tests), code)
        document = (TOP / "api/openapi.yaml").read_text()
        for code in known:
            self.assertTrue(f"`{code}`" in document or code in ("not_acceptable", "unsupported_media_type",
                                                               "method_not_allowed", "not_found"), code)

    def test_each_comes_of_what_it_says(self):
        """Beside the engine here, which fails as it is told to: a test that has the cause, and looks at
        the code that comes of it."""
        files = [p for place in ("unit", "guest", "api") for p in (TOP / "tests" / place).rglob("*.[cp]*")]
        tests = "\n".join(p.read_text() for p in files if p.suffix in (".py", ".c")
                          and p.name != "test_errors.py" and "fake" not in p.name)
        lines = [x for x in tests.splitlines() if "err_set(" not in x and "err/" not in x]
        said = re.findall(r"X\((ERR_\w+),", (TOP / "base/err_codes.h").read_text())
        for (code, _, _), name in zip(codes(), said, strict=True):
            asked = re.compile(rf'"{re.escape(code)}"|\b{name}\b')
            self.assertTrue(any(asked.search(x) for x in lines), code)

    def test_each_from_attaching(self):
        for code, status, hint in codes():
            p = self.problem(self.d.request("POST", "/v1/guests", {"target": f"qemu:/err/{code}"}),
                             int(status), code)
            self.assertEqual(p["hint"], hint)
            self.assertIn(code, p["detail"])
            self.assertEqual("address" in p, code == "guest.text_changed")

    def test_each_from_starting(self):
        self.d.attach()
        for code, status, _ in codes():
            self.problem(self.d.request("POST", "/v1/guests/g/traces",
                                        {"tracer": "function", "filter": [f"err:{code}", "vfs_*"]}),
                         int(status), code)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])
        self.assertEqual(self.d.get("/v1/guests/g")["armed"], 0)

    def test_each_from_the_command(self):
        for code, _, hint in codes():
            p = self.d.cli("attach", f"qemu:/err/{code}")
            self.assertEqual((p.returncode, p.stdout), (1, b""))
            self.assertEqual(p.stderr.decode(), f"hvftrace: asked to fail with {code} ({code}): {hint}\n")

    def test_targets(self):
        for target, status, code in (("qemu:/nosuch", 404, "target.no_socket"),
                                     ("pid:1", 404, "target.no_process"),
                                     ("qemu:fake", 400, "target.syntax"),
                                     ("qemu:./fake", 400, "target.syntax"),
                                     ("nonsense", 400, "target.syntax"), ("xen:1", 400, "target.syntax")):
            self.problem(self.d.request("POST", "/v1/guests", {"target": target}), status, code)


if __name__ == "__main__":
    unittest.main()
