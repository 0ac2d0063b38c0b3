# SPDX-License-Identifier: Apache-2.0
"""Exports of a real guest's calls: other tools see the calls, durations and tasks that our own text has."""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

from daemon import Daemon
from graphlib import graph
from guest import Guest
from testlib import Skip, main
from truth import attach

FORMATS = ("trace.dat", "trace.dat.v7", "chrome", "perfetto", "folded", "speedscope", "ctf")


def output(*command):
    p = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                       check=False)
    assert p.returncode == 0, (command, p.returncode, p.stderr[-2000:])
    return p.stdout


def graph_exits(path):
    """(ns, cpu, pid, function, duration) of every return, by trace-cmd's raw report."""
    out = output("trace-cmd", "report", "-R", "-t", path).decode()
    found = re.findall(r"^ *.*-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): funcgraph_exit: +func=(\S+) calltime=(\S+) "
                       r"rettime=(\S+) ", out, re.M)
    return sorted((int(s + ns), int(cpu), int(pid), f, int(end, 16) - int(begin, 16))
                  for pid, cpu, s, ns, f, begin, end in found)


def test_the_same_calls_in_every_format():
    if not shutil.which("trace-cmd"):
        raise Skip("trace-cmd is not installed")
    with Guest("cloud-6.1", load="none") as g, Daemon() as d, tempfile.TemporaryDirectory() as tmp:
        attach(g, d)
        t = graph(d, ["vfs_*", "do_sys_openat2", "__x64_sys_wait4", "schedule"], switches=True,
                  mode="discard", buffer_records=1 << 20)
        g.sh("for i in 1 2 3; do ls -lR /proc/1 /etc >/dev/null 2>&1; done")
        info = d.stop_trace(t)
        records, _ = d.records(t)
        tmp = pathlib.Path(tmp)
        for f in FORMATS:
            p = d.cli("export", t, "-f", f, "-o", tmp / f)
            assert p.returncode == 0, p.stderr
        returns = sorted((r["ts_ns"], r["cpu"], r["pid"], r["function"], r["duration_ns"])
                         for r in records if r["type"] == "graph_return")
        assert len(returns) > 1000 and info["lost"] == 0, info
        for f in ("trace.dat", "trace.dat.v7"):
            assert graph_exits(tmp / f) == returns, f
        text = output("trace-cmd", "report", tmp / "trace.dat").decode()
        assert re.search(r" ls-\d+ +\[00\d\] .*funcgraph_entry:.*vfs_", text), text[:2000]
        assert "sched_switch:" in text
        stat = output("trace-cmd", "report", "--stat", tmp / "trace.dat").decode()
        assert f"kernel: {d.get('/v1/guests/g')['release']}\n" in stat, stat
        # the others: the sum of all calls, by function
        want = collections.Counter()
        for _, _, _, name, ns in returns:
            want[name] += ns
        got = collections.Counter()
        for e in json.loads((tmp / "chrome").read_text())["traceEvents"]:
            if e["ph"] == "X" and e["pid"] != 4194304 and "end" not in e["args"]:
                got[e["name"]] += round(e["dur"] * 1000)
        assert got == want
        if shutil.which("babeltrace2"):
            out = output("babeltrace2", tmp / "ctf").decode()
            got = collections.Counter()
            for name, ns in re.findall(r'funcgraph_exit: .* func = "([^"]*)", .* duration_ns = (\d+) \}$',
                                       out, re.M):
                got[name] += int(ns)
            assert got == want
        doc = json.loads((tmp / "speedscope").read_text())
        assert len(doc["profiles"]) == len({r["pid"] or ("idle", r["cpu"]) for r in records
                                            if r["type"].startswith("graph_")})
        assert (tmp / "perfetto").stat().st_size > 20 * len(returns)
        print(f"{len(records)} records, {len(returns)} returns the same in every format")
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
