# SPDX-License-Identifier: Apache-2.0
"""The daemon's options, sockets, locks and signals."""

import concurrent.futures
import http.client
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from harness import SLOW, Daemon, Reply, TestCase, until


def run(*args):
    return subprocess.run([os.environ["HVFTRACED"], *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=30 * SLOW, check=False)


class Options(TestCase):
    def test_help_and_version(self):
        p = run("--help")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertIn("--listen", p.stdout)
        self.assertRegex(run("--version").stdout, r"^hvftraced \d+\.\d+\.\d+\n$")

    def test_usage(self):
        for args in (["--nonsense"], ["word"], ["--heartbeat", "0"], ["--heartbeat", "x"], ["--listen"],
                     ["--listen", "unix:/x"] * 9):
            p = run(*args)
            self.assertEqual((p.returncode, p.stdout), (2, ""), args)
            self.assertTrue(p.stderr)

    def test_places_that_are_refused(self):
        with tempfile.TemporaryDirectory() as d:
            pathlib.Path(d, "file").touch()
            for place, words in (("tcp:0.0.0.0:1", "only loopback"), ("tcp:192.0.2.1:80", "only loopback"),
                                 ("tcp:[::]:80", "only loopback"), ("tcp:127.0.0.1", "no address and port"),
                                 ("tcp:127.0.0.1:x", "no address and port"),
                                 ("tcp:127.0.0.1:65536", "no address"),
                                 ("tcp:example.org:80", "no address"), ("udp:1", "no place to listen"),
                                 ("unix:", "1 to 107 bytes"), ("unix:/" + "x" * 200, "1 to 107 bytes"),
                                 (f"unix:{d}/file", "is no socket"), (f"unix:{d}/file/x", "Not a directory")):
                p = run("--state-dir", d + "/state", "--allow", "admin=loopback", "--listen", place)
                self.assertEqual(p.returncode, 1, place)
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
                self.assertIn(words, p.stderr)
            self.assertTrue(pathlib.Path(d, "file").exists())


class Stopping(TestCase):
    def test_requests_meanwhile(self):
        """Who is still connected is told; what is under way is finished."""
        with Daemon() as d:
            c = d.connection()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                attach = pool.submit(d.attach, "fake-gate")
                d.until_it_waits()

                def ask():
                    c.request("GET", "/v1/guests")
                    r = c.getresponse()
                    return Reply(r, r.read())
                self.assertEqual(ask().status, 200)
                d.process.send_signal(signal.SIGTERM)
                reply = until("it is told", lambda: (lambda r: r if r.status != 200 else None)(ask()))
                self.problem(reply, 503, "shutting_down")
                d.open_gate()
                self.assertEqual(attach.result()["name"], "g")
            c.close()
            self.assertEqual(d.process.wait(20), 0)
            d.process = None


class OneThatHangs(TestCase):
    def test_others_are_not_kept(self):
        """A guest whose VMM hangs: lists and numbers come all the same, and others are detached."""
        with Daemon() as d, concurrent.futures.ThreadPoolExecutor(4) as pool:
            d.attach("fake")
            asked = pool.submit(d.good, "POST", "/v1/guests", {"target": "qemu:/fake-hung", "name": "h"}, 201)
            d.until_it_waits()  # its document is wanted, and it has the guest's lock
            try:
                got = [pool.submit(d.get, path) for path in ("/v1/guests", "/v1/machines")]
                numbers = pool.submit(d.request, "GET", "/metrics")
                names = [x["name"] for x in got[0].result(10 * SLOW)["items"]]
                self.assertEqual(names, ["g", "h"])
                self.assertIn("items", got[1].result(10 * SLOW))
                self.assertIn(b'hvftrace_armed_functions{guest="h"} 0', numbers.result(10 * SLOW).text)
                self.assertEqual(pool.submit(d.good, "DELETE", "/v1/guests/g").result(10 * SLOW)["name"], "g")
            finally:
                d.open_gate()
            self.assertEqual(asked.result()["name"], "h")


class Sockets(TestCase):
    def test_modes_and_folders(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = pathlib.Path(tmp, "a/b/api.sock")
            with Daemon(listen=[f"unix:{path}"]) as d:
                d.socket = path
                self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o660)
                self.assertEqual(stat.S_IMODE(d.state_dir.stat().st_mode), 0o700)
                self.assertEqual(d.get("/healthz")["status"], "ok")
            self.assertFalse(path.exists())

    def test_one_that_was_left_is_replaced(self):
        d = Daemon()
        old = socket.socket(socket.AF_UNIX)
        old.bind(str(d.socket))
        old.close()
        with d:
            self.assertEqual(d.get("/healthz")["status"], "ok")

    def test_one_that_is_served_is_not(self):
        with Daemon() as d:
            p = run("--state-dir", str(d.dir / "other"), "--listen", f"unix:{d.socket}")
            self.assertEqual(p.returncode, 1)
            self.assertIn("another daemon serves", p.stderr)
            self.assertEqual(d.get("/healthz")["status"], "ok")

    def test_several(self):
        d = Daemon()
        d.listen = [f"unix:{d.socket}", f"unix:{d.dir}/second", "tcp:127.0.0.1:0"]
        with d:
            d.attach()
            d.socket = d.dir / "second"
            self.assertEqual(len(d.get("/v1/guests")["items"]), 1)


class StateDir(TestCase):
    def test_two_daemons_do_not_share_one(self):
        with Daemon() as d:
            p = run("--state-dir", str(d.state_dir), "--listen", f"unix:{d.dir}/other")
            self.assertEqual(p.returncode, 1)
            self.assertIn(f"another hvftraced (pid {d.process.pid}) uses", p.stderr)
            d.process.kill()
            d.process.wait()
            d.start()  # one that was killed has not locked it for good
            self.assertEqual(d.get("/healthz")["status"], "ok")

    def test_one_that_cannot_be_made(self):
        p = run("--state-dir", "/dev/null/x", "--listen", "unix:/tmp/unused")
        self.assertEqual((p.returncode, len(p.stderr.splitlines())), (1, 1))


class Signals(TestCase):
    def test_each_ends_it_in_order(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with Daemon() as d:
                d.attach()
                d.trace()
                d.attach("1/fake", "h")
                d.stop(sig=sig)
                self.assertIn("trace t1 of guest g: deleted", d.log())
                self.assertIn("guest g: detached", d.log())
                self.assertIn("guest h: detached", d.log())
                self.assertFalse(d.socket.exists())

    def test_nohup(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the child inherits it
        try:
            d = Daemon()
            with d:
                d.attach()
                d.process.send_signal(signal.SIGHUP)
                until("it is delivered", lambda: "ShdPnd:\t0000000000000000" in
                      pathlib.Path(f"/proc/{d.process.pid}/status").read_text())
                self.assertEqual(len(d.get("/v1/guests")["items"]), 1)
                self.assertNotIn("SIGHUP", d.log())
                self.assertIsNone(d.process.poll())
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_a_guest_that_cannot_be_put_back_is_told(self):
        with Daemon() as d:
            d.attach("fake-detach")
            p, d.process = d.process, None
            p.terminate()
            self.assertEqual(p.wait(30), 1)
            self.assertIn("guest g: site vfs_fn_000: found cc, expected e8 (guest.text_changed)", d.log())
            self.assertIn("1 guests could not be put back", d.log())

    def test_while_work_is_on_the_way(self):
        with Daemon() as d, concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(d.request, "POST", "/v1/guests", {"target": "qemu:/fake-gate"})
            d.until_it_waits()
            c = d.connection()
            c.request("GET", "/healthz")
            c.getresponse().read()
            d.process.terminate()
            until("it stops", lambda: "SIGTERM" in d.log())

            def refused():
                c.request("GET", "/healthz")
                r = c.getresponse()
                r.read()
                return r.status == 503
            until("requests are refused", refused)
            d.open_gate()
            self.assertEqual(slow.result().status, 201)  # what was begun is finished, and undone
            p, d.process = d.process, None
            self.assertEqual(p.wait(30), 0)
            self.assertIn("guest fake-gate: detached", d.log())
            c.close()

    def test_a_slow_attach_keeps_no_other_guest(self):
        """Guests are put back while one is still being attached, however long that takes."""
        with Daemon() as d, concurrent.futures.ThreadPoolExecutor(1) as pool:
            d.attach("fake")
            slow = pool.submit(d.request, "POST", "/v1/guests", {"target": "qemu:/fake-gate"})
            d.until_it_waits()
            d.process.terminate()
            until("the other is detached", lambda: "guest g: detached" in d.log())
            self.assertIsNone(d.process.poll())
            d.open_gate()
            self.assertEqual(slow.result().status, 201)
            p, d.process = d.process, None
            self.assertEqual(p.wait(30), 0)
            self.assertIn("guest fake-gate: detached", d.log())

    def test_guests_are_put_back_beside_each_other(self):
        """Each of them takes until the others are at it, too; one after another they would fail."""
        with Daemon() as d:
            for i in range(8):
                d.attach(f"{i}/fake-together", f"g{i}")
            d.stop()
            self.assertEqual(len(re.findall(r"guest g\d: detached", d.log())), 8)

    def test_guests_do_not_wait_for_what_others_left(self):
        """A guest that a dead daemon left and that hangs: those attached go back before it is waited for."""
        with tempfile.TemporaryDirectory() as tmp:
            gate = pathlib.Path(tmp, "gate")
            with Daemon(env={"HVFTRACE_FAKE_RECOVERY": str(gate)}) as d:
                d.attach()
                d.process.send_signal(signal.SIGTERM)
                until("it is detached", lambda: "guest g: detached" in d.log())
                self.assertIsNone(d.process.poll(), "what others left is waited for")
                gate.touch()
                p, d.process = d.process, None
                self.assertEqual(p.wait(30), 0)

    @unittest.skipUnless(os.environ.get("HVF_LONG") == "1", "it is given 20 s; HVF_LONG=1 asks for it")
    def test_an_attach_that_never_ends_is_given_up(self):
        with Daemon() as d, concurrent.futures.ThreadPoolExecutor(1) as pool:
            d.attach("fake")
            stuck = pool.submit(d.request, "POST", "/v1/guests", {"target": "qemu:/fake-gate"})
            d.until_it_waits()
            p, d.process = d.process, None
            p.terminate()
            self.assertEqual(p.wait(60), 1)
            self.assertIn("guest g: detached", d.log())
            self.assertIn("attaching to qemu:/fake-gate does not end", d.log())
            self.assertIn("1 guests could not be put back", d.log())
            self.assertIsInstance(stuck.exception(30), (OSError, http.client.HTTPException))


if __name__ == "__main__":
    unittest.main()
