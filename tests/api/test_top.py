# SPDX-License-Identifier: Apache-2.0
"""The verb top: what is new since it last showed, on a terminal, through a pipe and as JSON."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import CliCase, die_with_parent, until

CLOSING = r"\d+ records \(.*\), 0 lost, \d+ functions patched, restored\n"


class Top(CliCase):
    def setUp(self):
        super().setUp()
        self.d.attach()

    def rows(self, text):
        head, blank, columns, *rows = text.splitlines()
        self.assertEqual((blank, columns.split()),
                         ("", ["HITS", "HITS/s", "TOTAL", "us", "SELF", "us", "AVG", "us", "FUNCTION"]))
        return head, [(int(r[0]), float(r[1]), float(r[2]), float(r[3]), float(r[4]), r[5])
                      for r in (x.split(None, 5) for x in rows)]

    def test_once_without_a_terminal(self):
        interval = 200
        rows = []
        while not rows or min(r[0] for r in rows) <= 10:  # on a busy host it takes longer
            interval *= 2
            self.assertLess(interval, 60000)
            p = self.run_ok("top", "g", "-l", "vfs_fn_00?", "--interval", f"{interval}ms")
            head, rows = self.rows(p.stdout.decode())
        self.assertRegex(head, r"^g: 2 functions called, \d+ records/s, 0 lost; by total$")
        self.assertNotIn(b"\033", p.stdout)
        self.assertRegex(p.stderr.decode(), CLOSING)
        self.assertEqual({x[5] for x in rows}, {"vfs_fn_000", "vfs_fn_004"})
        for hits, rate, total, self_us, avg, _ in rows:
            self.assertTrue(rate > 0 and (hits < rate < 10 * hits or interval > 400))
            self.assertGreaterEqual(total, self_us)
            self.assertAlmostEqual(avg, total / hits, delta=0.002)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])  # and it is gone

    def test_sorted(self):
        for key, at in (("total", 2), ("self", 3), ("hits", 0), ("avg", 4), ("name", 5)):
            tracer = "function" if key == "hits" else "function_graph"
            p = self.run_ok("top", "g", "-l", "vfs_*", "-p", tracer, "--sort", key, "--interval", "200ms",
                            "--lines", "7")
            values = [r[at] for r in self.rows(p.stdout.decode())[1]]
            self.assertTrue(0 < len(values) <= 7)
            self.assertEqual(values, sorted(values, reverse=key != "name"), key)

    def test_json_counts_each_call_once(self):
        p = self.run_ok("--json", "top", "g", "-p", "function", "--interval", "100ms", "--iterations", "5")
        docs = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual(len(docs), 5)
        hits = [sum(x["hits"] for x in d["items"]) for d in docs]
        for before, d, n in zip([{"records": 0}, *docs], docs, hits):
            self.assertGreaterEqual(d["interval_ns"], 10**8)
            self.assertEqual(d["records"] - before["records"], n)
        self.assertGreater(sum(hits), 100)

    def test_losses(self):
        self.d.attach("fake-lossy", "l")
        until("losses", lambda: json.loads(self.run_ok("--json", "top", "l", "-p", "function", "--interval",
                                                       "500ms").stdout)["lost"], 30)

    def test_a_guest_without_calls(self):
        self.d.attach("fake-quiet", "q")
        began = time.monotonic()
        p = self.run_ok("top", "q", "--interval", "200ms", "--iterations", "2")
        self.assertEqual(p.stdout.decode().count("q: 0 functions called, 0 records/s, 0 lost"), 2)
        self.assertLess(time.monotonic() - began, 15)

    def test_wrong_usage(self):
        for args, words in ((("--sort", "max"), "--sort takes total, self, hits, avg or name"),
                            (("--sort", "x"), "--sort takes"), (("--interval", "1ms"), "--interval takes"),
                            (("--iterations", "-1"), "--iterations takes"),
                            (("--lines", "x"), "--lines takes"),
                            (("-p", "syscalls"), "-p takes"), (("--persistent",), "no --persistent")):
            self.fails("top", "g", *args, status=2, words=[words])
        self.fails("top", status=2, words=["which guest?"])
        self.fails("top", "none", words=["not_found"])
        self.fails("top", "g", "-l", "no_such*", words=["filter.no_match"])
        self.d.trace()
        self.fails("top", "g", words=["trace.limit"])

    def on_a_terminal(self, *args):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 100, 0, 0))
        before = termios.tcgetattr(slave)
        p = subprocess.Popen([os.environ["HVFTRACE"], "-s", str(self.d.socket), "top", "g", *args],
                             stdin=slave, stdout=slave, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        os.set_blocking(master, False)
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        return p, master, slave, before

    def test_a_terminal_with_keys(self):
        p, master, slave, before = self.on_a_terminal("--interval", "100ms")
        shown = b""

        def has(words):
            nonlocal shown
            try:
                shown += os.read(master, 1 << 16)
            except BlockingIOError:
                pass
            return words in shown

        for key, word in ((b"", b"by total"), (b"h", b"by hits"), (b"n", b"by name"), (b"?", b"by name"),
                          (b"s", b"by self")):
            os.write(master, key)
            shown = b""
            until(word, lambda word=word: has(word))
        screens = shown.split(b"\033[H\033[J")
        self.assertTrue(all(x.count(b"\n") <= 12 for x in screens))  # what there is room for
        os.write(master, b"q")
        _, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 0, err)
        self.assertRegex(err.decode(), CLOSING)
        self.assertEqual(termios.tcgetattr(slave), before)

    def test_ended_by_a_signal(self):
        p, master, slave, before = self.on_a_terminal()
        until("it traces", self.running)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 0, err)
        self.assertTrue(re.search(CLOSING, err.decode()), err)
        self.assertEqual(termios.tcgetattr(slave), before)
        self.assertEqual(self.running(), [])
        self.assertIsNotNone(master)


if __name__ == "__main__":
    unittest.main()
