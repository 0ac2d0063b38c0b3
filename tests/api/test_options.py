# SPDX-License-Identifier: Apache-2.0
"""Options of hvftrace trace, record and profile: what reaches the engine, and files of names."""

import unittest

from harness import CliCase


class OptionsCase(CliCase):
    def verbs(self):
        """The three verbs, with what makes them short."""
        yield "trace", ["g", "-p", "function_graph", "--duration", "20ms"]
        yield "record", ["g", "-p", "function_graph", "--duration", "20ms", "-o", str(self.d.dir / "o.hvft")]
        yield "profile", ["g", "--duration", "20ms"]

    def setUp(self):
        super().setUp()
        self.d.attach()

    def write(self, name, text):
        path = self.d.dir / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


class Options(OptionsCase):
    def test_each(self):
        for options, words in ((["-g", "vfs_read", "-g", "tcp_*"], "graph:vfs_read graph:tcp_* n_graph:2"),
                               (["--graph-notrace", "ext4_*"], "graph_notrace:ext4_* n_graph_notrace:1"),
                               (["--max-graph-depth", "3"], "max_depth:3"),
                               (["--max-graph-depth", "0"], "max_depth:0"),
                               (["--threshold", "50us"], "threshold_ns:50000"),
                               (["--threshold", "700ns"], "threshold_ns:700"),
                               (["--threshold", "2ms"], "threshold_ns:2000000"),
                               (["--threshold", "1s"], "threshold_ns:1000000000"),
                               (["--no-irqs"], "no_irqs:1"), (["--no-sleep-time"], "no_sleep_time:1"),
                               (["--retval"], "retval:1"), (["--args"], "args:1"),
                               (["--switches"], "switches:1"),
                               (["--func-stack=vfs_r*", "--func-stack=ksys_*", "--stack-depth", "5"],
                                "stack:vfs_r* stack:ksys_* n_stack:2 stack_depth:5"),
                               (["--func-stack", "-l", "vfs_r*"], "stack:vfs_r* n_stack:1 stack_depth:0"),
                               ([], "function_graph n_filter:0 n_notrace:0 n_graph:0 n_graph_notrace:0 "
                                    "max_depth:0 threshold_ns:0 no_irqs:0 no_sleep_time:0 retval:0 args:0 "
                                    "switches:0")):
            for verb, args in self.verbs():
                p = self.run_ok(verb, *args, *options)
                self.assertIn(b"restored", p.stderr)
                self.assertIn(f" {words} ", f" {self.d.engine()} ")

    def test_text_options(self):
        names = ("latency-format", "funcgraph-abstime", "funcgraph-proc", "funcgraph-tail",
                 "funcgraph-retaddr")
        path = self.d.dir / "o.hvft"
        self.run_ok("record", "g", "-p", "function_graph", "--duration", "300ms", "-o", str(path))
        plain = self.run_ok("report", str(path)).stdout
        for name in names:
            self.assertNotEqual(self.run_ok("report", "-O", name, str(path)).stdout, plain, name)
        # the same over the daemon, which makes the text
        shown = self.run_ok("trace", "g", "-p", "function_graph", "-O", "funcgraph-proc", "-O",
                            "latency-format", "--duration", "300ms").stdout.decode()
        self.assertIn("TASK/PID", shown)
        self.assertIn("_-----=> irqs-off", shown)
        for verb, last in (("report", [str(path)]), ("trace", ["g"])):
            self.fails(verb, "-O", "funcgraph-tale", *last, status=2, words=["-O takes latency-format"])
        t = self.d.trace()
        self.problem(self.d.request("GET", f"/v1/traces/{t}/stream?layout=x"), 400, "bad_request")

    def test_args_of_function(self):
        self.run_ok("trace", "g", "--args", "--duration", "20ms")
        self.assertRegex(self.d.engine(), "^function .* args:1 switches:0$")

    def test_shown_in_help(self):
        for verb, _ in self.verbs():
            text = self.out("help", verb)
            for option in ("-g GLOB", "--graph-notrace GLOB", "--max-graph-depth N", "--threshold T",
                           "--no-irqs", "--no-sleep-time", "--retval", "--args", "--switches",
                           "--func-stack[=GLOB]", "--stack-depth N", "@FILE"):
                self.assertIn(option, text, verb)
            self.assertEqual("-O NAME" in text, verb == "trace", verb)

    def test_wrong_values(self):
        for options, words in ((["--threshold", "100"], "--threshold takes a time with its unit"),
                               (["--threshold", "0us"], "--threshold takes"),
                               (["--threshold", "fast"], "--threshold takes"),
                               (["--threshold", "1.5ms"], "--threshold takes"),
                               (["--max-graph-depth", "-1"], "--max-graph-depth takes a number of levels"),
                               (["--max-graph-depth", "two"], '0 for all, not "two"'),
                               (["--max-graph-depth", ""], "--max-graph-depth takes"),
                               (["--func-stack"], "--func-stack needs functions: -l GLOB"),
                               (["--stack-depth", "3"], "--stack-depth needs --func-stack"),
                               (["--stack-depth", "0"], "--stack-depth takes a number of callers"),
                               (["-g", "@"], "@ is followed by the name of a file"),
                               (["-g", "\udcff"], "is not UTF-8")):
            for verb, args in self.verbs():
                p = self.d.cli(verb, *args, *options)
                self.assertEqual((p.returncode, p.stdout), (2, b""), p.stderr)
                self.assertIn(words, p.stderr.decode(errors="replace"))
                self.assertIn(f"usage: hvftrace {verb}", p.stderr.decode(errors="replace"))
        for verb, args in self.verbs():
            self.fails(verb, *args, "--max-graph-depth", "65536",
                       words=["/max_graph_depth must be 0 to 65535 (bad_request)"])
            self.fails(verb, *args, "--threshold", "2h",
                       words=["/threshold_ns must be 0 to 3600000000000 (bad_request)"])
            self.fails(verb, *args, "--func-stack=a", "--stack-depth", "65",
                       words=["/stack_depth must be 1 to 64 (bad_request)"])
            self.fails(verb, *args, "-g", "", words=["/graph/0 must have 1 to 511 bytes (bad_request)"])
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_what_function_has_no_use_for(self):
        for option in (["-g", "vfs_*"], ["--graph-notrace", "vfs_*"], ["--max-graph-depth", "2"],
                       ["--threshold", "1ms"], ["--no-irqs"], ["--no-sleep-time"], ["--retval"]):
            self.fails("trace", "g", *option, status=2, words=[f"{option[0]} needs -p function_graph"])
            self.fails("record", "g", "-o", "/dev/null", "-p", "function", *option, status=2,
                       words=[f"{option[0]} needs -p function_graph"])


class Names(OptionsCase):
    def test_file(self):
        path = self.write("names", "# what is read and written\n\nvfs_read\n  vfs_w* \r\n"
                                   "vfs_fn_900 [fakemod]  # of a module\n")
        for letter, key in (("-l", "filter"), ("-n", "notrace"), ("-g", "graph"),
                            ("--graph-notrace", "graph_notrace")):
            for verb, args in self.verbs():
                self.run_ok(verb, *args, letter, f"@{path}", letter, "tcp_*")
                globs = ("vfs_read", "vfs_w*", "vfs_fn_900:mod:fakemod", "tcp_*")
                self.assertIn("".join(f" {key}:{x}" for x in globs) + f" n_{key}:4 ", self.d.engine())

    def test_standard_input(self):
        for verb, args in self.verbs():
            self.run_ok(verb, *args, "-l", "@-", stdin=b"vfs_read\ntcp_*")
            self.assertIn(" filter:vfs_read filter:tcp_* n_filter:2 ", self.d.engine())
            self.fails(verb, *args, "-l", "@-", "-g", "@-", stdin=b"vfs_read\n", words=["give @- once"])
            self.fails(verb, *args, "-l", "@-", words=["standard input: there is no glob in it"])
            self.fails(verb, *args, "-l", "@-", stdin=b"a\nb c\n",
                       words=["standard input:2: a line is one glob"])

    def test_what_functions_prints(self):
        names = self.out("functions", "g", "vfs_*", "ext4_fn_05?")
        self.assertIn("ext4_fn_050 (disabled)\n", names)
        self.assertIn("vfs_fn_900 [fakemod]\n", names)
        p = self.run_ok("trace", "g", "-l", f"@{self.write('all', names)}", "--duration", "20ms")
        n = len([x for x in names.splitlines() if not x.endswith(")")])
        self.assertIn(f" {n} functions patched, restored".encode(), p.stderr)

    def test_faults_say_where(self):
        path = self.d.dir / "names"
        for text, where in (("", ": there is no glob in it"), ("# nothing\n\n", ": there is no glob in it"),
                            ("a\nb c\n", ":2: a line is one glob, or NAME [MODULE]"),
                            ("a\n\n# x\nb [m\n", ":4: a line is one glob, or NAME [MODULE]"),
                            (b"a\n\xff\xfe\n", ":2: a name is UTF-8"),
                            (b"a\0b\n", ":1: a name has no NUL in it"),
                            ("a\n" + "x" * 512, ":2: a glob has at most 511 bytes"),
                            ("a\n" * 65537, ":65537: at most 65536 globs are taken")):
            self.write("names", text)
            self.fails("trace", "g", "-l", f"@{path}", words=[f"hvftrace: {path}{where}\n"])
        self.fails("trace", "g", "-l", f"@{self.d.dir}/none", words=["cannot read", "none: No such file"])
        self.fails("trace", "g", "-n", f"@{self.d.dir}", words=["cannot read", "Is a directory"])
        # what only the guest can tell is told with its place as well
        self.write("names", "# names\nnope_*\n")
        self.fails("trace", "g", "-l", f"@{path}",
                   words=[f'hvftrace: {path}:2: no function matches "nope_*" (filter.no_match)'])
        self.assertEqual(self.d.get("/v1/traces")["items"], [])

    def test_20000_names(self):
        lines = "".join(f"a_function_with_a_rather_long_name_that_the_compiler_split_{n}.constprop.0\n"
                        for n in range(20000))
        path = self.write("names", lines)
        for verb, args in self.verbs():
            self.run_ok(verb, *args, "-l", "*", "-g", f"@{path}")
            self.assertIn(" n_graph:20000 ", self.d.engine())


if __name__ == "__main__":
    unittest.main()
