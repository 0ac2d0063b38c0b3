# SPDX-License-Identifier: Apache-2.0
"""Exports, read by the tools that they are for: trace-cmd, babeltrace2, protoc, speedscope's own schema.

The recordings are of a guest that does not exist (make_recording); what is true of them is what
`hvftrace report --json` says.
"""

import collections
import functools
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from harness import TOP, CliCase, Daemon, DaemonCase, TestCase, until

FORMATS = {"trace.dat": ("application/vnd.trace-cmd.trace-dat", ".dat"),
           "trace.dat.v7": ("application/vnd.trace-cmd.trace-dat", ".dat"),
           "chrome": ("application/json", ".json"),
           "perfetto": ("application/vnd.perfetto.trace", ".pftrace"),
           "folded": ("text/plain", ".folded"),
           "speedscope": ("application/json", ".speedscope.json"),
           "ctf": ("application/x-tar", ".ctf.tar")}
RECORDS = 6000
LOST = 12
NPM = pathlib.Path(os.environ.get("HVF_CACHE", pathlib.Path.home() / ".cache/hvftrace")) / "npm/node_modules"
WORK = tempfile.TemporaryDirectory(prefix="hvf-export-")


def tearDownModule():
    WORK.cleanup()


def needs(tool):
    return unittest.skipUnless(shutil.which(tool), f"{tool} is not installed")


def run(*command, **more):
    p = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=120, check=False, **more)
    assert p.returncode == 0, f"{command}: {p.returncode}: {p.stderr.decode()[-2000:]}"
    return p


@functools.lru_cache(None)
def recording(kind):
    path = pathlib.Path(WORK.name) / f"{kind}.hvft"
    maker = pathlib.Path(os.environ["HVFTRACE"]).parent / "make_recording"
    path.write_bytes(run(maker, kind, RECORDS, LOST).stdout)
    return path


@functools.lru_cache(None)
def truth(kind):
    """The records as objects; system calls are whole calls."""
    out = run(os.environ["HVFTRACE"], "report", recording(kind), "--json").stdout
    return [x for x in map(json.loads, out.splitlines()) if x["type"] not in ("lost", "end")]


@functools.lru_cache(None)
def export(kind, name):
    out = pathlib.Path(WORK.name) / f"{kind}-{name}"
    run(os.environ["HVFTRACE"], "export", recording(kind), "-f", name, "-o", out)
    return out


def fields(text):
    return dict(re.findall(r"(\w+)=(\S+)", text))


class Report(TestCase):
    def test_what_was_missed(self):
        said = run(os.environ["HVFTRACE"], "report", recording("graph")).stderr.decode()
        self.assertTrue(said.endswith(
            "some forks were missed, as the guest's own tracing had the functions that tell them\n"), said)


@needs("trace-cmd")
class TraceDat(TestCase):
    NAMES = {"function": "function", "graph_entry": "funcgraph_entry", "graph_return": "funcgraph_exit",
             "graph_never": "never_returned", "switch": "sched_switch"}

    def lines(self, path):
        """Raw: every event with its fields as numbers."""
        p = run("trace-cmd", "report", "-R", "-t", path)
        self.assertEqual(p.stderr, b"")
        out = p.stdout.decode()
        dropped = sum(map(int, re.findall(r"^CPU:\d+ \[(\d+) EVENTS DROPPED\]$", out, re.M)))
        found = re.findall(r"^ *(.*)-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): (\w+): +(.*)$", out, re.M)
        return dropped, [(comm, int(pid), int(cpu), int(s) * 10**9 + int(ns), event, fields(rest))
                         for comm, pid, cpu, s, ns, event, rest in found]

    def same_calls(self, kind, name):
        dropped, lines = self.lines(export(kind, name))
        self.assertEqual(dropped, LOST)
        self.assertEqual(lines[-1][4], "lost")
        wanted = [x for x in truth(kind)]
        got = lines[:-1]
        self.assertEqual(len(got), len(wanted))
        for cpu in (0, 1):
            for r, (_, pid, _, ts, event, f) in zip((x for x in wanted if x["cpu"] == cpu),
                                                    (x for x in got if x[2] == cpu)):
                self.assertEqual((event, ts), (self.NAMES[r["type"]], r["ts_ns"]), r)
                self.assertEqual(pid, r["prev_pid"] if r["type"] == "switch" else r["pid"], r)
                if r["type"] == "switch":
                    self.assertEqual((int(f["prev_pid"]), int(f["next_pid"])), (r["prev_pid"], r["pid"]))
                elif r["type"] == "function":
                    self.assertEqual(f["ip"], r["function"])
                else:
                    self.assertEqual(f["func"], r["function"], r)
                if r["type"] == "graph_return":
                    self.assertEqual(int(f["rettime"], 16) - int(f["calltime"], 16), r["duration_ns"], r)
                if r["type"] in ("graph_return", "graph_entry"):
                    self.assertEqual(int(f["depth"]), r["depth"], r)

    def test_calls_version_6(self):
        self.same_calls("graph", "trace.dat")

    def test_calls_version_7(self):
        self.same_calls("graph", "trace.dat.v7")
        self.assertLess(export("graph", "trace.dat.v7").stat().st_size,
                        export("graph", "trace.dat").stat().st_size / 2)

    def test_functions(self):
        self.same_calls("function", "trace.dat")

    def test_names_and_durations_as_people_see_them(self):
        """Every return shows its duration, in a line of its own or in that of a call without callees."""
        text = run("trace-cmd", "report", export("graph", "trace.dat")).stdout.decode()
        shown = re.findall(r"funcgraph_(?:entry|exit): +(?:[+!#$] )? *(\d+)(?:\.\d*)? us +\|", text)
        returns = [r for r in truth("graph") if r["type"] == "graph_return"]
        self.assertEqual(sorted(map(int, shown)), sorted(r["duration_ns"] // 1000 for r in returns))
        leaves = re.findall(r"funcgraph_entry: +(?:[+!#$] )? *(\d+)(?:\.\d*)? us +\| +(\S+)\(\);$", text,
                            re.M)
        self.assertGreater(len(leaves), RECORDS // 10)
        known = collections.Counter((str(r["duration_ns"] // 1000), r["function"]) for r in returns)
        self.assertFalse(collections.Counter(leaves) - known)
        self.assertIn("    fn_", text)
        options = run("trace-cmd", "dump", "--options", export("graph", "trace.dat")).stdout.decode()
        self.assertIn("[local]", options)

    def test_who_and_what_was_lost_is_in_the_statistics(self):
        out = run("trace-cmd", "report", "--stat", export("graph", "trace.dat")).stdout.decode()
        for line in ('guest: web1 "x"', "kernel: 6.1.0-test", "tracer: function_graph", f"lost: {LOST}",
                     "started: 2026-01-01T00:00:00.000000000Z", "restored: yes"):
            self.assertIn(line + "\n", out)

    def test_system_calls_by_time(self):
        for name in ("trace.dat", "trace.dat.v7"):
            dropped, lines = self.lines(export("syscalls", name))
            self.assertEqual(dropped, LOST)
            for cpu in (0, 1):
                times = [x[3] for x in lines if x[2] == cpu]
                self.assertEqual(times, sorted(times))
            enter = sorted((x[3], x[1], int(x[5]["id"])) for x in lines if x[4] == "sys_enter")
            leave = sorted((x[3], x[1], int(x[5]["id"]), int(x[5]["ret"]))
                           for x in lines if x[4] == "sys_exit")
            calls = truth("syscalls")
            self.assertEqual(enter, sorted((c["ts_ns"], c["pid"], c["nr"]) for c in calls))
            over = [c for c in calls if c["ret"] is not None]
            self.assertEqual(len(leave), len(over))
            self.assertEqual(leave, sorted((c["ts_ns"] + c["duration_ns"], c["pid"], c["nr"], int(c["ret"]))
                                           for c in over))
            out = run("trace-cmd", "report", export("syscalls", name)).stdout.decode()
            self.assertRegex(out, r"sys_enter: +NR 257 openat\(7fff")


@needs("trace-cmd")
class Merge(TestCase):
    """A guest's trace.dat and its host's in one time line. The host's is an export, too, of another clock."""

    def host(self, name, clock=b"[mono] \0"):
        data = export("function", name).read_bytes()
        path = pathlib.Path(WORK.name) / f"host-{name}-{len(clock)}.dat"
        self.assertEqual(data.count(b"[local]\0"), 1)
        path.write_bytes(data.replace(b"[local]\0", clock))
        return path

    def test_shifted(self):
        for name in ("trace.dat", "trace.dat.v7"):
            out = pathlib.Path(WORK.name) / f"merge-{name}"
            run(os.environ["HVFTRACE"], "export", recording("graph"), "-f", name, "-o", out, "--host-trace",
                self.host(name))
            text = run("trace-cmd", "report", "-t", "-i", export("function", name), "-i", out).stdout.decode()
            guest = [int(s) * 10**9 + int(ns) for s, ns in
                     re.findall(r"\s(\d+)\.(\d{9}): funcgraph_entry:", text)]
            want = min(r["ts_ns"] for r in truth("graph") if r["type"] == "graph_entry")
            self.assertEqual(min(guest), want + 5000 * 10**9)  # as make_recording says

    def test_hosts_that_cannot_be(self):
        def fails(host, words):
            p = subprocess.run([os.environ["HVFTRACE"], "export", recording("graph"), "-f", "trace.dat",
                                "-o", f"{WORK.name}/x.dat", "--host-trace", host], stderr=subprocess.PIPE,
                               check=False)
            self.assertEqual(p.returncode, 1)
            self.assertIn(words, p.stderr.decode())
        fails(export("function", "trace.dat"), 'has the clock "local"; record it with trace-cmd record -C')
        fails(recording("function"), "not a trace.dat")
        cut = pathlib.Path(WORK.name) / "cut.dat"
        cut.write_bytes(self.host("trace.dat").read_bytes()[:3000])
        fails(cut, "do not make sense")


class Json(TestCase):
    def test_chrome(self):
        doc = json.loads(export("graph", "chrome").read_text())
        self.assertEqual(doc["otherData"]["guest"], 'web1 "x"')
        self.assertEqual(doc["hvftrace"]["lost"], LOST)
        self.assertEqual(sum(e["args"]["count"] for e in doc["traceEvents"] if e.get("cat") == "lost"), LOST)
        calls = [e for e in doc["traceEvents"] if e["ph"] == "X" and e["pid"] != 4194304]
        returned = [(e["name"], round(e["dur"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in calls
                    if "end" not in e["args"]]
        self.assertEqual(sorted(returned), sorted((r["function"], r["duration_ns"], r["ts_ns"])
                                                  for r in truth("graph") if r["type"] == "graph_return"))
        never = [e for e in calls if e["args"].get("end") == "task ended inside"]
        self.assertEqual(len(never), sum(r["type"] == "graph_never" for r in truth("graph")))
        runs = [e for e in doc["traceEvents"] if e["ph"] == "X" and e["pid"] == 4194304]
        self.assertTrue(runs)

    def test_chrome_of_other_tracers(self):
        doc = json.loads(export("function", "chrome").read_text())
        self.assertEqual([(e["name"], round(e["ts"] * 1000)) for e in doc["traceEvents"]
                          if e["ph"] == "i" and e["s"] == "t"],
                         [(r["function"], r["ts_ns"]) for r in truth("function")])
        doc = json.loads(export("syscalls", "chrome").read_text())
        got = [(e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000), e["args"].get("ret"))
               for e in doc["traceEvents"] if e.get("cat") == "syscall"]
        self.assertEqual(got, [(c["syscall"], c["ts_ns"], c["duration_ns"] or 0,
                                None if c["ret"] is None else str(c["ret"])) for c in truth("syscalls")])

    def test_speedscope(self):
        for kind in ("graph", "syscalls"):
            doc = json.loads(export(kind, "speedscope").read_text())
            self.assertIn(f"{LOST} events lost", doc["name"])
            frames, total = doc["shared"]["frames"], collections.Counter()
            for p in doc["profiles"]:
                stack, last = [], p["startValue"]
                for e in p["events"]:
                    self.assertGreaterEqual(e["at"], last)
                    last = e["at"]
                    if e["type"] == "O":
                        stack.append(e)
                    else:
                        begun = stack.pop()
                        self.assertEqual(begun["frame"], e["frame"])
                        total[frames[e["frame"]]["name"]] += e["at"] - begun["at"]
                self.assertEqual(stack, [])
                self.assertLessEqual(last, p["endValue"])
            if kind == "graph":
                want = collections.Counter()
                for r in truth(kind):
                    if r["type"] == "graph_return":
                        want[r["function"]] += r["duration_ns"]
                # those that never return are there as long as they were seen
                for name, ns in want.items():
                    self.assertGreaterEqual(total[name], ns)

    @unittest.skipUnless(shutil.which("node") and (NPM / "speedscope").exists() and (NPM / "ajv").exists(),
                         "speedscope and ajv are not installed (scripts/setup --tests)")
    def test_speedscope_by_its_own_schema(self):
        script = """
const Ajv = require(process.argv[1] + '/ajv'), fs = require('fs');
const schema = process.argv[1] + '/speedscope/dist/release/file-format-schema.json';
const check = new Ajv({strict: false}).compile(JSON.parse(fs.readFileSync(schema)));
for (const f of process.argv.slice(2))
	if (!check(JSON.parse(fs.readFileSync(f)))) { console.error(f, check.errors.slice(0, 5)); process.exit(1); }
if (check({profiles: 1})) process.exit(2);
"""
        run("node", "-e", script, NPM, export("graph", "speedscope"), export("syscalls", "speedscope"))

    def test_folded(self):
        lines = export("graph", "folded").read_text().splitlines()
        self.assertRegex(lines[0], rf'^# hvftrace .*: guest web1 "x", Linux 6.1.0-test, .* {LOST} lost\.$')
        report = run(os.environ["HVFTRACE"], "report", recording("graph"), "--format", "folded").stdout
        self.assertEqual(sorted(lines[1:]), sorted(report.decode().splitlines()))
        calls = export("syscalls", "folded").read_text().splitlines()[1:]
        self.assertEqual(sum(int(x.rsplit(" ", 1)[1]) for x in calls),
                         sum(c["duration_ns"] or 0 for c in truth("syscalls")))


@needs("protoc")
class Perfetto(TestCase):
    def packets(self, kind):
        data = export(kind, "perfetto").read_bytes()
        text = run("protoc", f"-I{TOP}/tests/api/data", "--decode=check.Trace", "perfetto.proto",
                   input=data).stdout.decode()
        self.assertNotRegex(text, r"^\s*\d+[:{ ]", "a field that is not Perfetto's")
        return text.split("\npacket {")

    def test_slices(self):
        names, open_at, returned, lost = {}, collections.defaultdict(list), [], 0
        for p in self.packets("graph"):
            for iid, name in re.findall(r'event_names \{\s+iid: (\d+)\s+name: "([^"]*)"', p):
                names[iid] = name
            kind = re.search(r"type: TYPE_(\w+)", p)
            if not kind:
                continue
            ts = int(re.search(r"timestamp: (\d+)", p).group(1))
            track = re.search(r"track_uuid: (\d+)", p).group(1)
            if "previous_packet_dropped: true" in p:
                lost += int(re.search(r"uint_value: (\d+)", p).group(1))
                self.assertIn("trusted_packet_sequence_id: 2", p)
            if int(track) >> 32 not in (1, 2):
                continue
            if kind.group(1) == "SLICE_BEGIN":
                open_at[track].append((re.search(r"name_iid: (\d+)", p).group(1), ts))
            elif kind.group(1) == "SLICE_END":
                iid, begun = open_at[track].pop()
                self.assertGreaterEqual(ts, begun)
                if '"end"' not in p:
                    returned.append((names[iid], ts - begun, ts))
        self.assertEqual(lost, LOST)
        self.assertEqual(sorted(returned), sorted((r["function"], r["duration_ns"], r["ts_ns"])
                                                  for r in truth("graph") if r["type"] == "graph_return"))

    def test_other_tracers(self):
        functions = self.packets("function")
        self.assertEqual(sum('name: "parent"' in p for p in functions), len(truth("function")))
        calls = self.packets("syscalls")
        self.assertEqual(sum('categories: "syscall"' in p for p in calls), len(truth("syscalls")))
        self.assertEqual(sum("TYPE_SLICE_END" in p for p in calls),
                         sum(c["ret"] is not None for c in truth("syscalls")))


@needs("babeltrace2")
class Ctf(TestCase):
    def read(self, kind):
        p = run("babeltrace2", "--clock-cycles", "--no-delta", export(kind, "ctf"))
        return p.stdout.decode().splitlines(), p.stderr.decode()

    def test_calls(self):
        lines, warnings = self.read("graph")
        events = [x for x in lines if x.startswith("[")]
        self.assertEqual(len(events), len(truth("graph")) + 1)
        self.assertIn("lost_at_end", events[-1])
        got = [re.match(r"\[(\d+)\].* funcgraph_exit: \{ cpu_id = (\d+) \}.* func = \"([^\"]*)\".* "
                        r"duration_ns = (\d+) \}$", x) for x in events if "funcgraph_exit" in x]
        self.assertEqual(sorted((int(m[1]), int(m[2]), m[3], int(m[4])) for m in got),
                         sorted((r["ts_ns"], r["cpu"], r["function"], r["duration_ns"])
                                for r in truth("graph") if r["type"] == "graph_return"))
        self.assertIn("discarded", warnings + "\n".join(x for x in lines if not x.startswith("[")))

    def test_how_many_were_lost(self):
        out = run("babeltrace2", "--component=source.ctf.fs", "--params",
                  f'inputs=["{export("graph", "ctf")}"]', "--component=sink.text.details").stdout.decode()
        self.assertEqual(sum(map(int, re.findall(r"^Discarded events \((\d+) events?\)", out, re.M))), LOST)

    def test_system_calls(self):
        lines, _ = self.read("syscalls")
        self.assertEqual(sum("syscall_entry" in x for x in lines), len(truth("syscalls")))
        self.assertEqual(sum("syscall_exit" in x for x in lines),
                         sum(c["ret"] is not None for c in truth("syscalls")))


class Command(TestCase):
    def fails(self, *args, status=1):
        p = subprocess.run([os.environ["HVFTRACE"], "export", *map(str, args)], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual((p.returncode, p.stdout), (status, b""), p.stderr)
        return p.stderr.decode()

    def test_what_it_refuses(self):
        self.assertIn("-f takes trace.dat,", self.fails(recording("graph"), status=2))
        self.assertIn('no format "x"', self.fails(recording("graph"), "-f", "x", status=2))
        self.assertIn("has none: trace with function_graph",
                      self.fails(recording("function"), "-f", "folded"))
        self.assertIn("No such file", self.fails("/nowhere/x", "-f", "chrome"))
        self.assertIn("not a recording", self.fails(os.environ["HVFTRACE"], "-f", "chrome"))
        self.assertIn("cannot write /nowhere/x: No such", self.fails(recording("graph"), "-f", "chrome",
                                                                      "-o", "/nowhere/x"))
        self.assertIn("cannot make the directory",
                      self.fails(recording("graph"), "-f", "ctf", "-o", WORK.name))

    def test_a_full_disk_is_told(self):
        self.assertIn("No space left", self.fails(recording("graph"), "-f", "perfetto", "-o", "/dev/full"))

    def test_no_room_for_the_temporary_file(self):
        p = subprocess.run([os.environ["HVFTRACE"], "export", str(recording("graph")), "-f", "trace.dat",
                            "-o", f"{WORK.name}/never.dat"], env=dict(os.environ, TMPDIR="/nowhere"),
                           stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"temporary file: No such file", p.stderr)

    def test_a_cut_recording(self):
        cut = pathlib.Path(WORK.name) / "cut.hvft"
        cut.write_bytes(recording("graph").read_bytes()[:40000])
        err = self.fails(cut, "-f", "chrome", "-o", f"{WORK.name}/cut.json")
        self.assertIn("those are exported", err)
        doc = json.loads(pathlib.Path(f"{WORK.name}/cut.json").read_text())
        self.assertGreater(len(doc["traceEvents"]), 500)
        self.assertTrue(any(e["args"].get("end") == "still inside" for e in doc["traceEvents"]))

    def test_a_tar_archive(self):
        out = run(os.environ["HVFTRACE"], "export", recording("graph"), "-f", "ctf").stdout
        tar = tarfile.open(fileobj=io.BytesIO(out))
        for m in tar.getmembers():
            self.assertEqual(tar.extractfile(m).read(), (export("graph", "ctf") / m.name).read_bytes())
        self.assertEqual(sorted(tar.getnames()), ["cpu_0", "cpu_1", "metadata"])


class Api(DaemonCase):
    def get_export(self, trace, name, method="GET"):
        return self.d.request(method, f"/v1/traces/{trace}/export?format={name}")

    def test_every_format_of_a_stopped_trace(self):
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        self.d.until_more(t, 600)
        total = self.d.good("POST", f"/v1/traces/{t}/stop")["records"]
        for name, (media, suffix) in FORMATS.items():
            r = self.get_export(t, name)
            self.assertEqual((r.status, r.type), (200, media), name)
            self.assertEqual(r.headers["Content-Disposition"], f'attachment; filename="g-{t}{suffix}"')
            self.assertGreater(len(r.text), 200, name)
            self.assertEqual(self.get_export(t, name, "HEAD").status, 200)
        self.assertEqual(self.get_export(t, "chrome").body["hvftrace"]["records"], total)

    @needs("trace-cmd")
    def test_every_function_has_its_name_in_trace_cmd(self):
        """The highest, too, though a reader takes the last symbol of a file for the end of all."""
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_fn_00?"])
        self.d.until_more(t, 60)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        path = self.d.dir / "trace.dat"
        for name in ("trace.dat", "trace.dat.v7"):
            path.write_bytes(self.get_export(t, name).text)
            out = run("trace-cmd", "report", path).stdout.decode()
            self.assertGreater(out.count("vfs_fn_008"), 5)
            self.assertNotIn("ffffffff8", out)

    def test_a_running_trace_goes_on(self):
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        self.d.until_more(t, 100)
        first = self.get_export(t, "chrome").body["hvftrace"]["records"]
        self.d.until_more(t, 100)
        self.assertGreater(self.get_export(t, "chrome").body["hvftrace"]["records"], first)
        self.assertEqual(self.d.get(f"/v1/traces/{t}")["state"], "running")

    def test_what_is_not_kept_is_lost(self):
        self.d.attach("fake-fast")
        t = self.d.trace(buffer_records=1024)
        until("it wraps", lambda: self.d.get(f"/v1/traces/{t}")["oldest_seq"] > 1)
        doc = self.d.good("POST", f"/v1/traces/{t}/stop")
        for name in ("chrome", "trace.dat"):
            r = self.get_export(t, name)
            self.assertEqual(r.status, 200)
        got = self.get_export(t, "chrome").body["hvftrace"]
        self.assertEqual(got["records"] + got["lost"], doc["records"] + doc["lost"])
        self.assertGreater(got["lost"], 0)

    def test_losses_in_the_guest(self):
        self.d.attach("fake-lossy")
        t = self.d.trace()
        self.d.until_more(t, 300)
        doc = self.d.good("POST", f"/v1/traces/{t}/stop")
        self.assertEqual(self.get_export(t, "chrome").body["hvftrace"]["lost"], doc["lost"])

    def test_refusals(self):
        self.d.attach()
        t = self.d.trace()
        self.problem(self.get_export(t, "x"), 400, "bad_request")
        self.problem(self.d.request("GET", f"/v1/traces/{t}/export"), 400, "bad_request")
        self.problem(self.get_export(t, "folded"), 400, "bad_request")
        self.problem(self.get_export("t99", "chrome"), 404, "not_found")

    def test_merging_with_a_host(self):
        self.d.attach("fake-quiet")
        t = self.d.trace()
        path = f"/v1/traces/{t}/export?format=trace.dat&host_trace_id="
        self.problem(self.d.request("GET", path + "0123456789abcdef"), 409, "conflict")
        for bad in ("", "x", "0123456789ABCDEF", "0123456789abcdef0"):
            self.problem(self.d.request("GET", path + bad), 400, "bad_request")
        path = path.replace("trace.dat", "ctf")
        self.problem(self.d.request("GET", path + "0123456789abcdef"), 400, "bad_request")

    def test_a_client_that_leaves(self):
        self.d.attach("fake-fast")
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        self.d.until_more(t, 50000)
        c = self.d.connection()
        c.request("GET", f"/v1/traces/{t}/export?format=chrome")
        c.getresponse().read(10)
        c.close()
        self.d.good("POST", f"/v1/traces/{t}/stop")
        self.d.good("DELETE", f"/v1/traces/{t}")


class ApiElsewhere(TestCase):
    def test_temporary_files_are_in_the_state_directory(self):
        with Daemon(env={"TMPDIR": "/nowhere"}) as d:
            d.attach("fake-fast")
            t = d.trace(buffer_records=65536)
            d.until_more(t, 60000)
            d.good("POST", f"/v1/traces/{t}/stop")
            r = d.request("GET", f"/v1/traces/{t}/export?format=trace.dat")
            self.assertGreater(len(r.text), 1000000)
            self.assertFalse([p for p in d.state_dir.rglob("hvftrace-*")])


class ApiCommand(CliCase):
    def test_from_the_daemon(self):
        self.d.attach()
        t = self.d.trace(tracer="function_graph", filter=["vfs_*"])
        self.d.until_more(t, 100)
        self.d.good("POST", f"/v1/traces/{t}/stop")
        self.assertIn("traceEvents", json.loads(self.out("export", t, "-f", "chrome")))
        out = self.d.dir / "ctf"
        self.run_ok("export", t, "-f", "ctf", "-o", out)
        self.assertIn(b"CTF 1.8", (out / "metadata").read_bytes())
        self.fails("export", "t99", "-f", "chrome", words=["t99"])
        self.fails("export", t, "-f", "ctf", "-o", out, words=["cannot make the directory"])


class Recorder(CliCase):
    """Recordings in files."""

    def report(self, path):
        p = self.d.cli("report", path, "--json")
        return p, [json.loads(x) for x in p.stdout.splitlines()]

    def test_killed(self):
        self.d.attach("fake-fast")
        path = self.d.dir / "killed.hvft"
        p = self.start("record", "g", "-o", path)
        until("some records are in the file", lambda: path.exists() and path.stat().st_size > 100000)
        p.kill()
        p.communicate()
        r, items = self.report(path)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"was cut after", r.stderr)
        self.assertGreater(len(items), 5000)
        self.assertEqual(items[-1]["reason"], "cut")
        self.run_ok("export", self.keep(path), "-f", "trace.dat", "-o", self.d.dir / "x.dat")

    def keep(self, path):
        """A recording that was not cut."""
        done = path.with_name("done.hvft")
        self.run_ok("record", "g", "--duration", "100ms", "-o", done)
        self.assertEqual(done.read_bytes()[:8], b"HVFTRECZ")
        return done

    def test_within_limits(self):
        self.d.attach("fake-fast")
        path = self.d.dir / "newest.hvft"
        self.run_ok("record", "g", "--duration", "1s", "--max-size", "100K", "-o", path)
        _, items = self.report(path)
        kept = [x["seq"] for x in items if x["type"] == "function"]
        lost = sum(x["count"] for x in items if x["type"] == "lost")
        end = items[-1]
        self.assertEqual(end["type"], "end")
        self.assertEqual(kept[-1], end["records"])
        self.assertEqual(len(kept) + lost, end["records"])
        self.assertGreater(lost, 0)

    def test_limits_that_make_no_sense(self):
        self.d.attach()
        for args in (("--max-size", "much"), ("--max-size", "0"), ("--max-age", "old")):
            self.fails("record", "g", "-o", self.d.dir / "x", *args, status=2)
        self.fails("record", "g", "-o", "/dev/stderr", "--max-size", "1M", words=["only a file can be kept"])


if __name__ == "__main__":
    unittest.main()
