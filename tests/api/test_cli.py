# SPDX-License-Identifier: Apache-2.0
"""The command hvftrace, against a daemon without guests."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import unittest

from harness import SLOW, TOP, CliCase, until

LS_HEAD = ["NAME", "ACCEL", "VCPUS", "KERNEL", "FUNCTIONS", "STATE", "TARGET"]
LEFT_ALONE = ("{} left alone: in use by the guest's own tracing, disabled by its kernel, or not safe to "
              "trace\n")


def totals(err):
    return err.splitlines()[-1]


class Usage(CliCase):
    def test_help(self):
        text = self.out("help")
        for verb in ("ls", "doctor", "run", "attach", "info", "functions", "modules", "trace", "record",
                     "report", "profile", "detach"):
            self.assertIn(f"\n  {verb} ", text)
            self.assertTrue(self.out("help", verb).startswith(f"usage: hvftrace {verb}"))
            self.assertEqual(self.out(verb, "--help"), self.out("help", verb))
        self.assertEqual(self.out("--help"), text)
        self.assertRegex(self.out("--version"), r"^hvftrace \d+\.\d+\.\d+\n$")

    def test_every_command_is_described_with_an_example(self):
        """In its own help, in the manual's list and among the manual's examples."""
        verbs = re.findall(r"^  ([a-z]+)  ", self.out("help"), re.M)
        self.assertGreater(len(verbs), 18)
        manual = (TOP / "docs/man/hvftrace.1.scd").read_text()
        examples = manual.split("# EXAMPLES")[1]
        for verb in verbs:
            self.assertRegex(manual, rf"(?m)^\*{verb}\*", verb)
            run = rf"(?m)^(.*\s)?hvftrace (-\S+ |\S+:\S+ )*{verb}\b"
            self.assertRegex(examples, run, verb)
            if verb != "help":
                self.assertRegex(self.out("help", verb).split("\n\n", 1)[1], run.replace("^", "^ +"), verb)

    def test_json_of_every_command_that_answers(self):
        self.d.attach()
        t = self.d.trace()
        self.d.until_more(t)
        path = self.d.dir / "r"
        self.run_ok("events")
        for args in (["ls"], ["doctor"], ["info", "g"], ["functions", "g", "vfs_*"], ["modules", "g"],
                     ["events"], ["mark", t, "x"], ["detach", "g", "--force"],
                     ["attach", "qemu:/fake", "--name", "g"],
                     ["trace", "g", "--duration", "200ms"], ["record", "g", "-p", "function_graph",
                                                             "--duration", "200ms", "-o", path],
                     ["report", path], ["profile", path], ["top", "g", "--interval", "200ms"],
                     ["syscalls", "g", "--duration", "100ms"]):
            p = self.run_ok("--json", *args)
            try:
                docs = [json.loads(p.stdout or b"{}")]
            except json.JSONDecodeError:  # one a line
                docs = [json.loads(x) for x in p.stdout.splitlines()]
            for doc in docs:
                self.assertIsInstance(doc, dict, args)

    def test_wrong_usage(self):
        for args, words in (([], ["which command?"]), (["atach"], ['did you mean "attach"?']),
                            (["detahc"], ['did you mean "detach"?']), (["lss"], ['did you mean "ls"?']),
                            (["xyzzy"], ['no command "xyzzy"']), (["help", "rceord"], ['mean "record"?']),
                            (["attach"], ["which target?", "usage: hvftrace attach"]),
                            (["attach", "a", "b"], ["only one"]),
                            (["info"], ["which guest?"]), (["functions"], ["which guest?"]),
                            (["trace"], ["which guest?", "usage: hvftrace trace"]),
                            (["trace", "g", "vfs_*"], ["given with -l"]),
                            (["trace", "g", "-p", "nonsense"], ["-p takes function"]),
                            (["trace", "g", "-P", "x"], ["-P takes a pid"]),
                            (["trace", "g", "-P", "0"], ["-P takes a pid"]),
                            (["trace", "g", "--duration", "1d"], ["--duration takes"]),
                            (["trace", "g", "--duration", "0"], ["--duration takes"]),
                            (["trace", "g", "--format", "xml"], ["--format takes"]),
                            (["record", "g"], ["-o FILE is needed"]), (["report"], ["which file?"]),
                            (["run"], ["--kernel is needed"]),
                            (["run", "--kernel", "/dev/null", "--cpus", "0"], ["--cpus takes"]),
                            (["run", "--kernel", "/dev/null", "--memory", "1M"], ["--memory takes"]),
                            (["run", "--kernel", "/dev/null", "--accel", "xen"], ["--accel takes"]),
                            (["run", "--kernel", "/dev/null", "--name", "a/b"], ["--name takes"]),
                            (["run", "--kernel", "/dev/null", "word"], ['what is "word"?'])):
            self.fails(*args, status=2, words=words)
        p = self.d.cli("info", "--nonsense")
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertNotIn(b"did you mean", p.stderr)
        for args, meant in ((["trace", "g", "--threshhold", "1ms"], "threshold"),
                            (["syscalls", "g", "--faild"], "failed"), (["detach", "g", "--forse"], "force"),
                            (["record", "g", "--max-sise=1M"], "max-size"), (["ls", "--jsn"], "json")):
            p = self.d.cli(*args)
            self.assertEqual((p.returncode, p.stdout), (2, b""))
            self.assertIn(f'hvftrace: did you mean "--{meant}"?\nusage: hvftrace {args[0]}',
                          p.stderr.decode())
        p = self.d.cli("trace", "g", "--threshold")  # whose value is missing
        self.assertNotIn(b"did you mean", p.stderr)

    def test_every_option_is_in_the_manual(self):
        sources = "".join(p.read_text() for p in (TOP / "api").glob("cli*.[ch]"))
        options = set(re.findall(r'\{ "([a-z-]+)",\s*(?:no|required|optional)_argument', sources))
        self.assertGreater(len(options), 45)
        manual = "".join((TOP / "docs/man" / page).read_text()
                         for page in ("hvftrace.1.scd", "hvftrace-export.1.scd"))
        for option in options:
            self.assertRegex(manual, rf"--{option}\b", option)

    def test_colours_are_for_terminals_that_want_them(self):
        def doctor(**env):
            master, slave = pty.openpty()
            try:
                p = subprocess.Popen([os.environ["HVFTRACE"], "-s", str(self.d.socket), "doctor"],
                                     stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE,
                                     env=dict(os.environ, **env))
                os.close(slave)
                out = b""
                try:
                    while piece := os.read(master, 65536):
                        out += piece
                except OSError:  # its end
                    pass
                p.communicate()
            finally:
                os.close(master)
            return out.decode().replace("\r\n", "\n")
        plain = self.d.cli("doctor", env={"TERM": "xterm"}).stdout.decode()
        self.assertNotIn("\033", plain)
        coloured = doctor(TERM="xterm", NO_COLOR="")
        self.assertIn("\033[32mok  \033[0m  daemon", coloured)
        self.assertEqual(re.sub(r"\033\[\d+m", "", coloured).splitlines()[5:7], plain.splitlines()[5:7])
        for env in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}):
            self.assertNotIn("\033", doctor(**env))

    def test_no_daemon(self):
        self.fails("-s", "/nowhere/x.sock", "info", "g",
                   words=["no daemon answers at /nowhere/x.sock", "start it",
                          "hvftraced --listen unix:/nowhere/x.sock"])
        self.fails("-s", "http://127.0.0.1:1", "info", "g", words=["daemon.unreachable"])
        # something that is no daemon
        path = self.d.dir / "dumb.sock"
        s = socket.socket(socket.AF_UNIX)
        s.bind(str(path))
        s.listen(1)
        p = subprocess.Popen([os.environ["HVFTRACE"], "-s", str(path), "info", "g"], stderr=subprocess.PIPE)
        c, _ = s.accept()
        c.recv(4096)
        c.sendall(b"SSH-2.0-nonsense\r\n")
        c.close()
        s.close()
        _, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual((p.returncode, len(err.splitlines())), (1, 1), err)


class Guests(CliCase):
    def test_window_limit(self):
        self.out("attach", "qemu:/fake", "--name", "web1", "--window-limit", "2500us")
        self.assertIn("\nwindow limit  2.500 ms\n", self.out("info", "web1"))
        for bad in ("0", "999us", "1001ms", "soon"):
            for verb in (("attach", "qemu:/fake-2"), ("run", "--kernel", "/bin/sh")):
                self.fails(*verb, "--window-limit", bad, status=2,
                           words=(f'--window-limit takes 1ms to 1s, not "{bad}"',))

    def test_attach_info_detach(self):
        self.assertEqual(self.out("attach", "qemu:/fake", "--name", "web1"),
                         "web1: Linux 6.1.0-fake, 2 vCPUs (tcg), 980 functions, found in 34 ms\n")
        info = self.out("info", "web1")
        self.assertIn("release       6.1.0-fake\n", info)
        self.assertIn("functions     1000, 980 can be traced, 10 in use by the guest, 0 armed\n", info)
        self.assertIn("find time     34.000 ms\nlend time     no memory was lent yet\n"
                      "stop windows  0\nwindow limit  10.000 ms\n", info)
        self.d.trace("web1")
        self.assertIn("lend time     5.250 ms\n"
                      "stop windows  1, last 2.500 ms, longest 3.000 ms, 2.500 ms together\n",
                      self.out("info", "web1"))
        self.d.good("DELETE", "/v1/traces/t1")
        self.assertEqual(json.loads(self.out("--json", "info", "web1"))["name"], "web1")
        self.assertEqual(json.loads(self.out("info", "--json", "web1"))["name"], "web1")
        self.assertEqual(self.out("detach", "web1"), "web1: detached, 0 sites put back, verified\n")
        self.fails("info", "web1", words=["there is no guest web1 (not_found)"])
        self.fails("detach", "web1", words=["not_found"])
        self.fails("attach", "qemu:/fake", "--name", "a b", words=["/name", "bad_request"])

    def test_a_relative_path_is_the_callers(self):
        folder = self.d.dir.resolve() / "vm"
        folder.mkdir()
        (folder / "fake").touch()
        for target in ("qemu:fake", "qemu:../vm/./fake", f"qemu:{folder}/fake"):
            self.run_ok("attach", target, "--name", "g", cwd=folder)
            self.assertEqual(self.d.get("/v1/guests/g")["target"], f"qemu:{folder}/fake")
            self.d.good("DELETE", "/v1/guests/g")
        p = self.d.cli("attach", "qemu:none/fake", cwd=folder)
        self.assertEqual((p.returncode, p.stdout, p.stderr.decode()),
                         (1, b"", "hvftrace: none/fake: No such file or directory (target.no_socket)\n"))

    def test_ls(self):
        self.d.attach(name="web1")
        lines = self.out("ls").splitlines()
        self.assertEqual(lines[0].split(), LS_HEAD)
        self.assertEqual(lines[1].split(), ["web1", "tcg", "2", "6.1.0-fake", "980", "running", "qemu:/fake"])
        doc = json.loads(self.out("--json", "ls"))
        self.assertEqual(doc["guests"], self.d.get("/v1/guests")["items"])
        self.assertIsInstance(doc["others"], list)

    def test_functions(self):
        self.d.attach()
        lines = self.out("functions", "g").splitlines()
        self.assertEqual(len(lines), 1000)
        self.assertEqual((lines[0], lines[50], lines[51]),
                         ("vfs_fn_000", "ext4_fn_050 (disabled)", "sched_fn_051 (in use by the guest)"))
        self.assertEqual(lines[900], "vfs_fn_900 [fakemod]")
        self.assertEqual(lines[998], "bad_\ufffd?[31m_name [fakemod]")  # nothing that a terminal acts on
        self.assertEqual(self.out("functions", "g", "vfs_r*", "tcp_fn_00?"),
                         "tcp_fn_001\ntcp_fn_005\ntcp_fn_009\nvfs_read\n")
        self.assertEqual(self.out("functions", "g", "vfs_fn_90?:mod:fakemod"),
                         "".join(f"vfs_fn_{n} [fakemod]\n" for n in (900, 904, 908)))
        items = [json.loads(x) for x in self.out("functions", "--json", "g", "vfs_read").splitlines()]
        self.assertEqual(items, [{"name": "vfs_read", "module": None, "ip": "0xffffffff81000284",
                                  "state": "traceable"}])

    def test_modules(self):
        self.d.attach()
        lines = self.out("modules", "g").splitlines()
        self.assertEqual(lines[1].split(), ["fakemod", "0xffffffffc0000000", "8192", "100"])

    def test_detach_while_traced(self):
        self.d.attach()
        self.d.trace()
        self.fails("detach", "g", words=["trace t1 of guest g is running", "conflict"])
        self.out("detach", "g", "--force")

    def test_output_that_cannot_be_written(self):
        self.d.attach()
        for verb in ("functions", "info", "modules"):
            with open("/dev/full", "wb") as full:
                p = subprocess.run([os.environ["HVFTRACE"], "-s", str(self.d.socket), verb, "g"], stdout=full,
                                   stderr=subprocess.PIPE, timeout=20 * SLOW, check=False)
            self.assertEqual((p.returncode, p.stderr.decode()),
                             (1, "hvftrace: cannot write the output: No space left on device\n"))


class Traces(CliCase):
    def test_text(self):
        self.d.attach()
        p = self.run_ok("trace", "g", "-p", "function", "-l", "vfs_*", "-n", "vfs_read", "-P", "1",
                        "--duration", "300ms")
        lines = p.stdout.decode().splitlines()
        self.assertEqual(lines[0], "# tracer: function")
        records = [x for x in lines if not x.startswith("#")]
        self.assertGreater(len(records), 20)
        self.assertRegex(p.stderr.decode(),
                         rf"^{len(records)} records, 0 lost, 250 functions patched, restored\n$")
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_a_place_that_cannot_take_it(self):
        """A recording that cannot be kept where it is to go: no trace is started for it."""
        self.d.attach()
        p = self.d.cli("record", "g", "--max-size", "1M", "-o", "/dev/null")
        self.assertEqual(p.returncode, 1)
        self.assertEqual(p.stderr.decode(), "hvftrace: /dev/null: only a file can be kept within limits\n")
        self.assertNotIn("engine: ", self.d.log())

    def test_graph(self):
        self.d.attach()
        for verb in ("trace", "record"):
            more = ["-o", self.d.dir / "g.hvft"] if verb == "record" else []
            p = self.run_ok(verb, "g", "-p", "function_graph", "-l", "vfs_fn_*", "--duration", "300ms", *more)
            self.assertRegex(p.stderr.decode(),
                             r"^\d+ records \(\d+ calls: \d+ returned, \d+ never will, \d inside\), 0 lost, "
                             r"\d+ functions patched, restored\n$")
            if verb == "record":
                p = self.run_ok("report", more[1])
            text = p.stdout.decode()
            self.assertTrue(text.startswith("# tracer: function_graph\n#\n# CPU  DURATION "), text[:200])
            self.assertIn(" 0)               |  vfs_fn_000() {\n"
                          " 0)   1.000 us    |    vfs_fn_004();\n"
                          " 0)   3.000 us    |  }\n"
                          " 0)               |  vfs_fn_008() {\n"
                          " 0)               |  /* vfs_fn_008 never returned: sh-100 */\n", text)
            self.assertIn("  sh-100     =>     sh-102    \n", text)
        p = self.run_ok("report", more[1], "--format", "json")
        items = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual([x["type"] for x in items[:6]], ["graph_entry", "graph_entry", "graph_return",
                                                           "graph_return", "graph_entry", "graph_never"])
        self.assertEqual([x["depth"] for x in items[:6]], [0, 1, 1, 0, 0, 0])
        self.assertEqual((items[3]["duration_ns"], items[3]["parent"]), (3000, None))

    def test_profile(self):
        self.d.attach()
        path = self.d.dir / "p.hvft"
        self.run_ok("record", "g", "-p", "function_graph", "-l", "vfs_fn_*", "--duration", "300ms",
                    "-o", path)
        p = self.run_ok("profile", path)
        lines = p.stdout.decode().splitlines()
        self.assertRegex(lines[0], r"^HITS +TOTAL us +SELF us +AVG us +MIN us +MAX us +STDDEV us +FUNCTION$")
        self.assertRegex(lines[1], r"^(\d+) +\d+\.000 +\d+\.000 +3\.000 +3\.000 +3\.000 +0\.000 +vfs_fn_000$")
        self.assertEqual([x.split()[-1] for x in lines[1:]], ["vfs_fn_000", "vfs_fn_004"])
        for args in ([path], ["g", "-l", "vfs_fn_*", "--duration", "600ms"]):
            p = self.run_ok("--json", "profile", *args, "--sort", "hits")
            items = json.loads(p.stdout)["items"]
            outer, inner = sorted(items, key=lambda x: x["function"])
            self.assertEqual(outer["total_ns"], outer["hits"] * 3000)
            self.assertEqual(outer["self_ns"], outer["hits"] * 2000)
            self.assertEqual((inner["avg_ns"], inner["stddev_ns"], inner["module"]), (1000, 0, None))
            self.assertGreaterEqual(items[0]["hits"], items[1]["hits"])
        alone = json.loads(self.run_ok("--json", "profile", path, "--no-graph-time").stdout)["items"]
        self.assertEqual({(x["function"], x["total_ns"] == x["self_ns"], x["avg_ns"]) for x in alone},
                         {("vfs_fn_000", True, 2000), ("vfs_fn_004", True, 1000)})
        p = self.run_ok("report", path, "--format", "folded")
        self.assertRegex(p.stdout.decode(), r"^sh;vfs_fn_000 \d+\nsh;vfs_fn_000;vfs_fn_004 \d+\n$")
        self.run_ok("record", "g", "--duration", "100ms", "-o", path)
        self.fails("report", path, "--format", "folded", words=["function_graph"])
        self.fails("profile", "none", words=["not_found"])
        self.fails("profile", self.d.dir / "none", words=["none"])
        self.fails("profile", path, "--sort", "x", status=2, words=["--sort takes"])
        for args in (("--duration", "1s"), ("--args",), ("--threshold", "1ms"), ("-g", "vfs_*")):
            self.fails("profile", path, *args, status=2,
                       words=["is a recording: of the trace options it takes -l, -n and -P alone"])

    def test_json(self):
        self.d.attach()
        for args in (["--json", "trace", "g"], ["trace", "g", "--format", "json"]):
            p = self.run_ok(*args, "--duration", "100ms")
            items = [json.loads(x) for x in p.stdout.splitlines()]
            self.assertEqual([x["seq"] for x in items[:-1]], list(range(1, len(items))))
            self.assertEqual(items[-1]["type"], "end")

    def test_refused(self):
        self.d.attach()
        self.fails("trace", "g", "-l", "nope_*", words=['no function matches "nope_*" (filter.no_match)',
                                                       "hvftrace functions"])
        self.fails("trace", "g", "-P", "99999", words=["filter.no_such_pid"])
        self.fails("trace", "none", words=["not_found"])
        self.fails("record", "g", "-o", "/nonexistent/x", words=["cannot write /nonexistent/x"])

    def test_what_is_left_alone_is_told(self):
        self.d.attach()
        for verb, more in (("trace", []), ("record", ["-o", str(self.d.dir / "r.hvft")]), ("profile", [])):
            p = self.run_ok(verb, "g", "-l", "ext4_*", "--duration", "50ms", *more)
            lines = p.stderr.decode().splitlines(True)
            self.assertEqual(lines[0], LEFT_ALONE.format("10 matching functions are"), verb)
            self.assertRegex(lines[1], r"^\d+ records.*, 238 functions patched, restored\n$")
            p = self.run_ok(verb, "g", "-l", "ext4_fn_[05]50", "-l", "vfs_*", "--duration", "50ms", *more)
            self.assertIn(LEFT_ALONE.format("2 matching functions are"), p.stderr.decode())
            p = self.run_ok(verb, "g", "-l", "ext4_fn_05?", "--duration", "50ms", *more)
            self.assertIn(LEFT_ALONE.format("1 matching function is"), p.stderr.decode())
            p = self.run_ok(verb, "g", "-l", "vfs_*", "--duration", "50ms", *more)
            self.assertNotIn("left alone", p.stderr.decode())

    def test_signals_end_it_in_order(self):
        self.d.attach()
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = self.start("trace", "g")
            self.assertTrue(p.stdout.readline())
            p.send_signal(sig)
            out, err = p.communicate(timeout=20 * SLOW)
            self.assertEqual(p.returncode, 0, err)
            n = len([x for x in out.splitlines() if not x.startswith(b"#")])
            self.assertEqual(err.decode(), LEFT_ALONE.format("20 matching functions are") +
                             f"{n} records, 0 lost, 980 functions patched, restored\n")
            self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_signal_while_it_starts(self):
        self.d.attach("fake-slow")
        p = self.start("trace", "g")
        self.d.until_it_waits()
        p.send_signal(signal.SIGINT)
        self.d.open_gate()
        _, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual(p.returncode, 0, err)
        self.assertIn(b"restored", err)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_killed(self):
        self.d.attach()
        p = self.start("trace", "g")
        self.assertTrue(p.stdout.readline())
        p.kill()
        p.communicate()
        until("its trace is gone", lambda: not self.d.get("/v1/traces")["items"])

    def test_reader_that_has_seen_enough(self):
        self.d.attach("fake-fast")
        p = self.start("trace", "g")
        p.stdout.readline()
        p.stdout.close()
        self.assertEqual(p.wait(20 * SLOW), 0)
        self.assertIn(b"restored", p.stderr.read())
        p.stderr.close()
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_slow_reader_sees_its_losses(self):
        self.d.attach("fake-fast")
        p = self.start("trace", "g")
        first = p.stdout.readline()
        until("the buffer goes round", lambda: self.d.get("/v1/traces/t1")["records"] > 600000, 30)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60 * SLOW)
        lines = (first + out).decode().splitlines()
        lost = sum(int(x.split()[1]) for x in lines if x.startswith("[LOST"))
        n = len([x for x in lines if x[0] not in "#["])
        total, told = int(totals(err).split()[0]), int(totals(err).split()[2])
        self.assertGreater(lost, 0)
        self.assertEqual((told, n + lost), (lost, total), err)

    def blocked(self, *args):
        """A trace whose output nobody reads."""
        self.d.attach("fake-fast")
        p = self.start("trace", "g", *args)
        until("it runs", lambda: self.d.get("/v1/traces")["items"])
        return p

    def stopped(self, p):
        until("it is stopped", lambda: not self.running(), 10)
        self.assertIsNone(p.poll())  # it waits for its reader, and the records are still there
        out, err = p.communicate(timeout=60 * SLOW)
        self.assertEqual(p.returncode, 0, err)
        n = len([x for x in out.splitlines() if x[0] not in b"#["])
        lost = sum(int(x.split()[1]) for x in out.splitlines() if x.startswith(b"[LOST"))
        self.assertEqual(n + lost, int(totals(err).split()[0]), err)
        self.assertIn(b"restored", err)
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_duration_though_nobody_reads(self):
        self.stopped(self.blocked("--duration", "500ms"))

    def test_signal_though_nobody_reads(self):
        p = self.blocked()
        until("the buffer goes round", lambda: self.d.get("/v1/traces/t1")["records"] > 100000, 30)
        p.send_signal(signal.SIGTERM)
        self.stopped(p)

    def test_second_signal_though_nobody_reads(self):
        p = self.blocked()
        until("the pipe is full", lambda: self.d.get("/v1/traces/t1")["records"] > 100000, 30)
        p.send_signal(signal.SIGINT)
        until("it is stopped", lambda: not self.running(), 10)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(20 * SLOW), 1)
        _, err = p.communicate()
        self.assertEqual(err, b"hvftrace: not waited for the end\n")
        until("its trace is gone", lambda: not self.d.get("/v1/traces")["items"])

    def test_vmm_that_goes(self):
        self.d.attach("fake-dies")
        p = self.d.cli("trace", "g")
        self.assertEqual(p.returncode, 1)
        lines = p.stderr.decode().splitlines()[1:]
        self.assertEqual(lines[0], "200 records, 0 lost, 980 functions patched, NOT verified to be restored")
        self.assertIn("(vmm.gone)", lines[1])

    def test_stop_that_fails(self):
        self.d.attach("fake-stop")
        p = self.d.cli("trace", "g", "--duration", "100ms")
        self.assertEqual((p.returncode, len(p.stderr.splitlines())), (1, 1), p.stderr)
        self.assertIn(b"journal.failed", p.stderr)
        until("tried again and gone", lambda: not self.d.get("/v1/traces")["items"])

    def test_daemon_that_goes(self):
        self.d.attach()
        p = self.start("trace", "g")
        p.stdout.readline()
        self.d.process.kill()
        self.d.process.wait()
        _, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual((p.returncode, len(err.splitlines())), (1, 1), err)
        self.d.start()


class Recordings(CliCase):
    def test_record_and_report(self):
        self.d.attach()
        path = self.d.dir / "r.hvft"
        p = self.run_ok("record", "g", "-l", "vfs_*", "--duration", "300ms", "-o", path)
        self.assertEqual(p.stdout, b"")
        closing = p.stderr.decode()
        self.assertRegex(closing, r"^\d+ records, 0 lost, 251 functions patched, restored\n$")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        n = int(closing.split()[0])
        p = self.run_ok("report", path)
        text = p.stdout.decode().splitlines()
        self.assertEqual(p.stderr.decode(), closing)
        self.assertIn(f"# entries-in-buffer/entries-written: {n}/{n}   #P:2", text)
        self.assertEqual(len([x for x in text if x[0] != "#"]), n)
        p = self.run_ok("report", path, "--format", "json")
        items = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual([x["seq"] for x in items[:-1]], list(range(1, n + 1)))
        # no daemon is needed
        self.assertEqual(self.d.cli("-s", "/nowhere", "report", path).returncode, 0)

    def test_cut_and_damaged(self):
        self.d.attach()
        path = self.d.dir / "r.hvft"
        self.run_ok("record", "g", "--duration", "200ms", "-o", path)
        whole = path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        p = self.d.cli("report", path)
        self.assertEqual((p.returncode, len(p.stderr.splitlines())), (1, 1))
        n = len([x for x in p.stdout.decode().splitlines() if x[0] != "#"])
        self.assertIn(f"was cut after {n} records", p.stderr.decode())
        for data in (b"", b"nonsense" * 100, whole[:3]):
            path.write_bytes(data)
            self.fails("report", path, words=["file.format"])
        self.fails("report", self.d.dir / "none", words=["none"])

    def test_losses_are_recorded(self):
        self.d.attach("fake-lossy")
        path = self.d.dir / "r.hvft"
        p = self.run_ok("record", "g", "--duration", "500ms", "-o", path)
        lost = int(totals(p.stderr).split()[2])
        self.assertGreater(lost, 0)
        self.assertIn(b"2 functions of modules that came later are traced without", p.stderr)
        self.assertIn(b"some forks were missed, as the guest's own tracing had ", p.stderr)
        self.assertIn(b"some task switches were missed, as the guest's own tracing had ", p.stderr)
        self.assertRegex(p.stderr, rb"[1-9][0-9]* pieces of arguments lost, ")
        p = self.run_ok("report", path, "--format", "json")
        items = [json.loads(x) for x in p.stdout.splitlines()]
        self.assertEqual(sum(x["count"] for x in items if x["type"] == "lost"), lost)

    def test_full_disk(self):
        self.d.attach()
        self.fails("record", "g", "-o", "/dev/full", words=["No space left on device"])
        self.assertEqual(self.d.get("/v1/traces")["items"], [])


if __name__ == "__main__":
    unittest.main()
