# SPDX-License-Identifier: Apache-2.0
"""/v1/guests: attaching, names, functions and modules, detaching."""

import unittest
import urllib.parse

from harness import DaemonCase


class Guests(DaemonCase):
    def test_attach_show_detach(self):
        r = self.d.request("POST", "/v1/guests", {"target": "qemu:/fake", "name": "web1"})
        self.assertEqual((r.status, r.headers["Location"]), (201, "/v1/guests/web1"))
        g = self.d.get(r.headers["Location"])
        self.assertEqual(g, r.body)
        self.assertEqual((g["name"], g["target"], g["release"], g["vcpus"]),
                         ("web1", "qemu:/fake", "6.1.0-fake", 2))
        self.assertEqual(g["kaslr_offset"], "0x1e000000")
        self.assertEqual(g["agent"], {"loaded": False, "text": None, "data": None, "bytes": 0})
        self.assertEqual(g["traces"], [])
        self.assertRegex(g["attached"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")
        self.assertIn("\ufffd", g["banner"])  # what the guest wrote there was not UTF-8
        self.assertEqual(self.d.get("/v1/guests")["items"], [g])
        gone = self.d.good("DELETE", "/v1/guests/web1")
        self.assertEqual(gone, {"name": "web1", "restore": {"sites_restored": 0, "sites_changed": 0,
                                                            "returns_restored": 0, "returns_left": 0,
                                                            "memory_freed": True, "verified": True}})
        self.problem(self.d.request("GET", "/v1/guests/web1"), 404, "not_found")
        self.problem(self.d.request("DELETE", "/v1/guests/web1"), 404, "not_found")

    def test_window_limit(self):
        for ns in (10**6 - 1, 10**9 + 1, "10ms", None):
            r = self.d.request("POST", "/v1/guests", {"target": "qemu:/fake", "window_limit_ns": ns})
            self.problem(r, 400, "bad_request")
        for name, more, limit in (("a", {}, 10**7), ("b", {"window_limit_ns": 10**6}, 10**6)):
            r = self.d.request("POST", "/v1/guests", {"target": f"qemu:/{name}/fake", "name": name, **more})
            self.assertEqual((r.status, r.body["windows"]["limit_ns"]), (201, limit))

    def test_held_at_boot(self):
        for ns in (1, "1s", 3601 * 10**9):
            r = self.d.request("POST", "/v1/guests", {"target": "qemu:/fake", "boot_timeout_ns": ns})
            self.problem(r, 400, "bad_request")
        r = self.d.request("POST", "/v1/guests", {"target": "qemu:/fake", "name": "b",
                                                  "boot_timeout_ns": 5 * 10**9})
        self.assertEqual((r.status, r.body["state"]), (201, "held"))
        for _ in range(2):
            self.assertEqual(self.d.good("POST", "/v1/guests/b/release")["state"], "running")
        self.problem(self.d.request("POST", "/v1/guests/nosuch/release"), 404, "not_found")

    def test_names(self):
        for target, name in (("qemu:/run/vm/fake", "fake"), ("qemu:/run/vm/fake-a.qmp", None),
                             ("qemu:/vm/fake-b/qmp", "fake-b"), ("qemu:/1/fake", "fake-2"),
                             ("qemu:/2/fake", "fake-3"), ("qemu:/fake-\u00e4!", "fake----")):
            r = self.d.request("POST", "/v1/guests", {"target": target})
            if name:
                self.assertEqual((r.status, r.body["name"]), (201, name), r.text)
            else:  # the engine knows only its own kinds; the name is what counts here
                self.assertEqual(r.body.get("name", "fake-a"), "fake-a")
        self.problem(self.d.request("POST", "/v1/guests", {"target": "qemu:/3/fake", "name": "fake"}), 409,
                     "conflict")
        self.problem(self.d.request("POST", "/v1/guests", {"target": "qemu:/1/fake", "name": "other"}), 409,
                     "guest.already_attached")

    def test_a_failed_attach_leaves_nothing(self):
        for _ in range(2):
            self.problem(self.d.request("POST", "/v1/guests", {"target": "qemu:/nosuch", "name": "x"}), 404,
                         "target.no_socket")
        self.assertEqual(self.d.get("/v1/guests")["items"], [])

    def test_detach_with_traces(self):
        self.d.attach()
        t = self.d.trace()
        p = self.problem(self.d.request("DELETE", "/v1/guests/g"), 409, "conflict")
        self.assertIn(t, p["detail"])
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")
        self.d.good("DELETE", "/v1/guests/g?force=true")
        self.problem(self.d.request("GET", f"/v1/traces/{t}"), 404, "not_found")
        # a stopped one is in nobody's way
        self.d.attach()
        t = self.d.trace()
        self.assertEqual(self.d.get("/v1/guests/g")["traces"], [t])
        self.d.good("POST", f"/v1/traces/{t}/stop")
        self.d.good("DELETE", "/v1/guests/g")
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_detach_that_fails(self):
        self.d.attach("fake-detach")
        p = self.problem(self.d.request("DELETE", "/v1/guests/g"), 409, "guest.text_changed")
        self.assertEqual(p["address"], "0xffffffff81000004")
        self.problem(self.d.request("GET", "/v1/guests/g"), 404, "not_found")


class Functions(DaemonCase):
    def pages(self, **query):
        items, n, cursor = [], 0, None
        while True:
            q = dict(query)
            if cursor is not None:
                q["cursor"] = cursor
            page = self.d.get("/v1/guests/g/functions?" + urllib.parse.urlencode(q, doseq=True))
            items += page["items"]
            n += 1
            cursor = page["next_cursor"]
            if cursor is None:
                return items, n

    def test_all_of_them_page_by_page(self):
        self.d.attach()
        items, n = self.pages(limit=7)
        self.assertEqual((len(items), n), (1000, 143))
        self.assertEqual(len({f["ip"] for f in items}), 1000)
        self.assertEqual(items, self.pages(limit=10000)[0])
        self.assertEqual(items, self.pages(limit=1000)[0])  # exactly full: no empty page after it
        self.assertEqual(self.pages(limit=1000)[1], 1)
        self.assertEqual(items[0], {"name": "vfs_fn_000", "module": None, "ip": "0xffffffff81000004",
                                    "state": "traceable"})
        self.assertEqual(items[998]["name"], "bad_\ufffd\x1b[31m_name")

    def test_choosing(self):
        self.d.attach()
        self.assertEqual([f["name"] for f in self.pages(glob="vfs_read")[0]], ["vfs_read"])
        both = self.pages(glob=["vfs_*", "tcp_*"], limit=9)[0]
        self.assertEqual(len(both), 501)
        self.assertEqual(len(self.pages(module="fakemod")[0]), 100)
        self.assertEqual(len(self.pages(module="kernel")[0]), 900)
        self.assertEqual(len(self.pages(state="disabled")[0]), 10)
        self.assertEqual({f["state"] for f in self.pages(state="in_use")[0]}, {"in_use"})
        self.assertEqual(self.pages(glob="no_such")[0], [])
        self.assertEqual(self.pages(module="none")[0], [])
        self.assertEqual([f["name"] for f in self.pages(glob="*_fn_00[12]")[0]],
                         ["tcp_fn_001", "ext4_fn_002"])

    def test_a_glob_chooses_what_a_trace_of_it_would(self):
        self.d.attach()
        for glob, n in ((":mod:fakemod", 100), (":mod:f*", 100), ("vfs_*:mod:fakemod", 25), (":mod:none", 0),
                        ("[!v]*", 749), ("[^v]fs_read", 1), ("\\vfs_read", 1), ("[vfs_read", 0)):
            found = self.pages(glob=glob)[0]
            self.assertEqual(len(found), n, glob)
            r = self.d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "filter": [glob]})
            if not n:
                self.problem(r, 422, "filter.no_match")
                continue
            self.assertEqual(r.body["functions"], len([f for f in found if f["state"] == "traceable"]), glob)
            self.d.good("DELETE", f"/v1/traces/{r.body['id']}")

    def test_cursors(self):
        self.d.attach()
        # a place that moved is found by its address; one that is gone is not
        page = self.d.get("/v1/guests/g/functions?limit=1&cursor=77-ffffffff81000004")
        self.assertEqual(page["items"][0]["name"], "tcp_fn_001")
        self.problem(self.d.request("GET", "/v1/guests/g/functions?cursor=3-ffffffff8fffffff"), 409,
                     "conflict")
        self.assertEqual(self.d.get("/v1/guests/g/functions?cursor=999-ffffffff8100f9c4")["items"], [])

    def test_modules(self):
        self.d.attach()
        mods = self.d.get("/v1/guests/g/modules")["items"]
        self.assertEqual(mods[0], {"name": "fakemod", "base": "0xffffffffc0000000", "text_bytes": 8192,
                                   "symbols": 120, "functions": 100})
        self.assertEqual(mods[1]["name"], "e\ufffdvil")

    def test_of_no_guest(self):
        for path in ("functions", "modules", "traces"):
            self.problem(self.d.request("GET", f"/v1/guests/none/{path}"), 404, "not_found")
        self.problem(self.d.request("POST", "/v1/guests/none/traces", {"tracer": "function"}), 404,
                     "not_found")

    def test_symbols(self):
        self.d.attach()
        page = self.d.get("/v1/guests/g/symbols?limit=1500")
        self.assertEqual(page["items"][10], {"name": "vfs_read", "module": None,
                                             "address": "0xffffffff81000280", "bytes": 64, "type": "t"})
        rest = self.d.get(f"/v1/guests/g/symbols?limit=1500&cursor={page['next_cursor']}")
        self.assertEqual((len(page["items"]), len(rest["items"]), rest["next_cursor"]), (1500, 500, None))
        found = self.d.get("/v1/guests/g/symbols?glob=vfs_read&glob=:mod:fakemod&module=kernel")["items"]
        self.assertEqual([(x["name"], x["type"]) for x in found], [("vfs_read", "t"), ("vfs_read", "d")])
        at = self.d.get("/v1/guests/g/symbols?address=0xffffffff82000054")["items"]
        self.assertEqual([(x["name"], x["type"], x["offset"]) for x in at], [("vfs_read", "d", 4)])
        self.assertEqual(self.d.get("/v1/guests/g/symbols?address=0x1000")["items"], [])
        for query in ("address=x", "address=0x", "address=0x0", "address=12", "address=0x11111111111111111",
                      "limit=0", "cursor=x", "what=1"):
            self.problem(self.d.request("GET", f"/v1/guests/g/symbols?{query}"), 400, "bad_request")
        self.problem(self.d.request("GET", "/v1/guests/none/symbols"), 404, "not_found")


if __name__ == "__main__":
    unittest.main()
