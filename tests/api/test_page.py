# SPDX-License-Identifier: Apache-2.0
"""The page's files: bytes of the tree, compressed for who takes it, not sent twice, under a strict policy."""

import gzip
import re
import unittest

from harness import TOP, DaemonCase

DIST = TOP / "web/dist"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain",
         ".svg": "image/svg+xml", ".woff2": "font/woff2"}
LIMIT = 400 << 10  # of all that a browser loads, compressed


def where(path):
    return "/" if path.name == "index.html" else f"/assets/{path.name}"


class Files(DaemonCase):
    def test_bytes_are_those_of_the_tree(self):
        files = sorted(DIST.iterdir())
        self.assertGreater(len(files), 8)
        sizes = 0
        for path in files:
            plain = self.d.request("GET", where(path))
            packed = self.d.request("GET", where(path), headers={"Accept-Encoding": "br, gzip"})
            self.assertEqual((plain.status, plain.type), (200, TYPES[path.suffix]), path)
            self.assertEqual(plain.text, path.read_bytes(), path)
            self.assertIsNone(plain.headers["Content-Encoding"])
            shrinks = path.suffix not in (".svg", ".woff2")
            self.assertEqual(packed.headers["Content-Encoding"], "gzip" if shrinks else None)
            self.assertEqual(packed.headers["Vary"], "Accept-Encoding" if shrinks else None)
            got = gzip.decompress(packed.text) if shrinks else packed.text
            self.assertEqual(got, path.read_bytes(), path)
            sizes += len(packed.text)
        self.assertLess(sizes, LIMIT)

    def test_not_sent_twice(self):
        tags = set()
        for encoding in ("identity", "gzip"):
            r = self.d.request("GET", "/assets/page.js", headers={"Accept-Encoding": encoding})
            tags.add(r.headers["ETag"])
            again = self.d.request("GET", "/assets/page.js", headers={
                "Accept-Encoding": encoding, "If-None-Match": f'"x", W/{r.headers["ETag"]}'})
            self.assertEqual((again.status, again.text), (304, b""))
            self.assertEqual(again.headers["ETag"], r.headers["ETag"])
            other = self.d.request("GET", "/assets/page.js", headers={
                "Accept-Encoding": encoding, "If-None-Match": '"0000000000000000"'})
            self.assertEqual(other.status, 200)
        self.assertEqual(len(tags), 2, "one tag for two encodings")
        self.assertEqual(self.d.request("GET", "/").headers["Cache-Control"], "no-cache")

    def test_policy(self):
        for path in ("/", "/assets/page.js"):
            r = self.d.request("GET", path)
            policy = dict(p.strip().split(" ", 1) for p in r.headers["Content-Security-Policy"].split(";"))
            self.assertEqual(policy["default-src"], "'none'")
            self.assertEqual((policy["script-src"], policy["style-src"]), ("'self'", "'self'"))
            self.assertEqual(policy["frame-ancestors"], "'none'")
            self.assertEqual(policy["require-trusted-types-for"], "'script'")
            self.assertNotRegex(r.headers["Content-Security-Policy"], r"unsafe|http|\*")
            self.assertEqual(r.headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(r.headers["Referrer-Policy"], "no-referrer")
        for path in DIST.glob("*.html"):
            self.assertNotRegex(path.read_text(), r"<script(?![^>]*src=)|<style|\son\w+=|style=")

    def test_nothing_from_elsewhere(self):
        """Addresses in the files are names of things (an XML namespace, a licence), none is loaded."""
        for name in ("index.html", "page.js", "page.css", "icon.svg"):
            for url in re.findall(r"https?://[^\s\"'`)]+", (DIST / name).read_text()):
                self.assertRegex(url, r"^http://www\.w3\.org/", name)

    def test_other_files(self):
        for name in ("x", "page.js.gz", "..", "%2e%2e", "index.html"):
            self.problem(self.d.request("GET", f"/assets/{name}"), 404, "not_found")
        self.problem(self.d.request("GET", "/?x=1"), 400, "bad_request")
        self.problem(self.d.request("POST", "/", {}), 405, "method_not_allowed")
        head = self.d.request("HEAD", "/")
        self.assertEqual((head.status, head.text), (200, b""))


class Machines(DaemonCase):
    def test_attached_ones_have_their_name(self):
        """The fake guest says that its VMM is process 4242; what this host runs is looked at, too."""
        self.d.attach("fake", "g")
        doc = self.d.get("/v1/machines")
        self.assertEqual(set(doc), {"items", "note"})
        for m in doc["items"]:
            self.assertEqual(m["traceable"], m["reason"] is None, m)
            self.assertEqual(m["guest"], "g" if m["pid"] == 4242 else None, m)
            self.assertRegex(m["target"], r"^(qemu:/|pid:\d+$|libvirt:)")


if __name__ == "__main__":
    unittest.main()
