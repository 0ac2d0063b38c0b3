# SPDX-License-Identifier: Apache-2.0
"""The tracer syscalls against programs of known system calls."""

import json
import signal
import subprocess

from daemon import Daemon, binary
from graphlib import add_up, all_given_back
from guest import Guest, wait_for
from testlib import LONG, each_kernel, ends_too, main
from truth import attach

EXECS = 1000
GETPPIDS = 1_000_000 if LONG else 20_000
LONG_PATH = "".join("/" + "a" * 99 for _ in range(3))


def trace(b, filter=(), **options):
    options.setdefault("mode", "discard")
    options.setdefault("buffer_records", 1 << 20)
    return b.d.trace("g", filter, tracer="syscalls", **options)["id"]


def finish(b, t):
    """Stops and forgets it; (calls, what it counted)."""
    info = b.d.stop_trace(t)
    records, end = b.d.records(t)
    b.d.delete(f"/v1/traces/{t}")
    add_up(info["graph"])
    s = info["syscalls"]
    calls = [r for r in records if r["type"] == "syscall"]
    # nothing is silently gone: each entry is a call, told or left out by the filter
    assert len(calls) == s["calls"], (len(calls), info)
    if not info["lost"]:
        assert info["graph"]["entries"] == s["calls"] + s["filtered"], info
    return calls, info


def texts(call):
    return [a["text"] for a in call["args"]]


class Bed:
    def __init__(self, g, d):
        self.g, self.d = g, d


KNOWN = [
    ("mkdirat", ["AT_FDCWD", '"/tmp/sys-dir"', "0750"], "0"),
    ("openat", ["AT_FDCWD", '"/tmp/sys-dir/file"', "O_RDWR|O_CREAT", "0640"], "3"),
    ("write", ["3", '"hello"', "5"], "5"),
    ("read", ["3", '""', "16"], "0"),
    ("close", ["3"], "0"),
    ("openat", ["AT_FDCWD", r'"/nowhere/at \"all\"\n"', "O_RDONLY"], "-2"),
    ("openat", ["AT_FDCWD", "0x10", "O_RDONLY"], "-14"),
    ("openat", ["AT_FDCWD", f'"{LONG_PATH}"', "O_RDONLY"], "-2"),
    ("renameat2", ["AT_FDCWD", '"/tmp/sys-dir/one"', "AT_FDCWD", '"/tmp/sys-dir/two"', "0"], "-2"),
    ("unlinkat", ["AT_FDCWD", '"/tmp/sys-dir/file"', "0"], "0"),
    ("unlinkat", ["AT_FDCWD", '"/tmp/sys-dir"', "AT_REMOVEDIR"], "0"),
    ("socket", ["AF_UNIX", "SOCK_STREAM", "0"], "3"),
    ("bind", ["3", '{sa_family=AF_UNIX, sun_path="/tmp/sys-socket"}', "110"], "0"),
    ("close", ["3"], "0"),
    ("unlinkat", ["AT_FDCWD", '"/tmp/sys-socket"', "0"], "0"),
    ("socket", ["AF_INET", "SOCK_STREAM", None], "3"),
    ("connect", ["3", '{sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}', "16"],
     None),
    ("close", ["3"], "0"),
    ("exit_group", ["7"], None),
]


def known(b):
    t = trace(b)
    b.g.sh("syscallset known")
    calls, info = finish(b, t)
    assert info["lost"] == 0, info
    mine = [c for c in calls if c["comm"] == "syscallset"]
    first = next(i for i, c in enumerate(mine) if c["syscall"] == "mkdirat")
    mine = mine[first:]
    assert [c["syscall"] for c in mine] == [k[0] for k in KNOWN], [c["syscall"] for c in mine]
    for c, (name, args, ret) in zip(mine, KNOWN):
        assert len(c["args"]) == len(args), c
        for got, want in zip(texts(c), args):
            assert want is None or got == want, (name, got, want, c)
        assert ret is None or c["ret"] == ret, c
        assert c["abi"] == "x86_64" and c["nr"] >= 0 and c["tgid"] == c["pid"], c
    assert mine[-1]["state"] == "never_returns" and mine[-1]["ret"] is None, mine[-1]
    connect = next(c for c in mine if c["syscall"] == "connect")
    assert connect["error"] in ("ECONNREFUSED", "ENETUNREACH"), connect
    sources = {a.get("source") for c in mine for a in c["args"]} - {None}
    assert sources == {"kernel", "user_enter"}, sources


def chosen(b):
    """Names, classes and failures choose."""
    t = trace(b, ["openat", "%network", "!socket"], failed=True)
    b.g.sh("syscallset known")
    calls, info = finish(b, t)
    mine = [(c["syscall"], c["error"]) for c in calls if c["comm"] == "syscallset"]
    assert mine[:3] == [("openat", "ENOENT"), ("openat", "EFAULT"), ("openat", "ENOENT")], mine
    assert [m[0] for m in mine[3:]] == ["connect"], mine
    assert info["functions"] < 100, info["functions"]


def execs(b):
    t = trace(b, ["%process"])
    b.g.run(f"syscallset execs {EXECS}", 300)
    calls, info = finish(b, t)
    assert info["lost"] == 0, info
    execves = [c for c in calls if c["syscall"] == "execve" and c["comm"] == "syscallset"]
    true = [c for c in execves if texts(c)[0] == '"/bin/true"']
    assert len(true) == EXECS, (len(true), len(execves), [texts(c) for c in execves[:3]])
    assert all(c["state"] == "execve" and c["comm_after"] == "true" for c in true), true[0]
    # the kernel's own copy: "true" of a child that never touched the page is not in its memory
    argvs = {(texts(c)[1], c["args"][1]["source"]) for c in true}
    assert argvs == {('["true"]', "kernel")}, argvs
    pids = {c["pid"] for c in true}
    ends = {c["pid"]: texts(c) for c in calls if c["syscall"] == "exit_group"}
    assert len(pids) == EXECS and all(ends[p] == ["0"] for p in pids), len(pids)


def all_of_them(b):
    """At full speed: records and counted losses are what was called."""
    t = trace(b, ["getppid"], buffer_records=1 << 22)
    b.g.run(f"syscallset getppid {GETPPIDS}", 600)
    calls, info = finish(b, t)
    mine = [c for c in calls if c["comm"] == "syscallset"]
    print(f"{GETPPIDS} getppid(): {len(mine)} told, {info['lost']} records lost")
    lost_entries = info["lost"] - info["graph"]["lost_returns"]
    if info["lost"] == 0:
        assert len(mine) == GETPPIDS, len(mine)
        assert all(c["state"] == "returned" for c in mine)
    # the shell asks a few times, too
    assert GETPPIDS <= len(calls) + lost_entries <= GETPPIDS + 20, (len(calls), info)


def raced(b):
    """The path that is told is the one that the kernel used."""
    t = trace(b, ["openat"])
    found, missing = map(int, b.g.run("syscallset race 1", 60).split())
    calls, info = finish(b, t)
    by_path, empty = {True: [], False: []}, []
    for c in calls:
        if c["comm"] == "syscallset" and c["args"][1].get("source") == "kernel":
            by_path[texts(c)[1] == '"/proc/version"'].append(c["error"])
        elif c["comm"] == "syscallset":
            empty.append(c["error"])
    told = sum(map(len, by_path.values()))
    assert by_path[True] and set(by_path[True]) == {None}, set(by_path[True])
    assert set(by_path[False]) <= {"ENOENT", "ENOTDIR"}, set(by_path[False])
    # getname() makes no copy of a path that was empty when it looked
    assert set(empty) <= {"ENOENT"}, set(empty)
    if not info["lost"]:
        assert len(by_path[True]) == found and told + len(empty) == found + missing
    print(f"raced: {found} found, {missing} not; {told} told, {info['lost']} lost")


def resumed(b):
    """A stream goes on after any call; records come in pages of whole calls."""
    t = trace(b)
    b.g.sh("syscallset known")
    b.d.stop_trace(t)
    calls, _ = b.d.records(t)
    calls = [c for c in calls if c["type"] == "syscall"]
    at = len(calls) // 2
    rest = [r for r in b.d.stream(f"/v1/traces/{t}/stream?after={calls[at]['seq']}")
            if r["type"] == "syscall"]
    assert rest == calls[at + 1:], (len(rest), len(calls) - at - 1)
    paged, after = [], 0
    while True:
        page = b.d.get(f"/v1/traces/{t}/records?after={after}&limit=50")
        if not page["items"]:
            break
        paged += page["items"]
        after = page["next_after"]
    assert paged == calls, (len(paged), len(calls))
    b.d.delete(f"/v1/traces/{t}")


def overtaken(b):
    """Who comes too late for some is told how many, and goes on with the rest."""
    t = trace(b, ["getppid"], buffer_records=1024)
    b.g.run("syscallset getppid 2000", 60)
    b.d.stop_trace(t)
    records, _ = b.d.records(t)
    lost = [r for r in records if r["type"] == "lost"]
    calls = [r for r in records if r["type"] == "syscall"]
    assert records[0]["type"] == "lost" and lost[0]["count"] > 0, records[0]
    assert 100 < len(calls) < 2000, len(calls)
    b.d.delete(f"/v1/traces/{t}")


def recorded(b):
    """The command's recording, and its forms."""
    path = str(b.d.dir / "calls.hvft")
    command = [binary("hvftrace"), "-s", b.d.socket, "record", "g", "-p", "syscalls", "-l", "%file",
               "-l", "connect", "--duration", "60s", "-o", path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as p:
        wait_for("trace", lambda: b.d.get("/v1/traces")["items"])
        b.g.sh("syscallset known")
        p.send_signal(signal.SIGINT)
        said = p.communicate(timeout=60)[1]
    assert p.returncode == 0 and "system calls" in said and "restored" in said, (p.returncode, said)
    text = b.d.cli("report", path).stdout
    assert 'mkdirat(AT_FDCWD, "/tmp/sys-dir", 0750) = 0 <' in text, text[-2000:]
    assert ") = -1 ENOENT (No such file or directory) <" in text, text[-2000:]
    lines = [json.loads(x) for x in b.d.cli("report", path, "--format", "ocsf").stdout.splitlines()]
    assert {1001, 4001} <= {x["class_uid"] for x in lines}, lines[-3:]


@ends_too
@each_kernel
def test_syscalls(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        b = Bed(g, d)
        for step in (known, chosen, resumed, overtaken, recorded, execs, all_of_them, raced):
            print(f"{flavour}: {step.__name__}")
            step(b)
        all_given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
