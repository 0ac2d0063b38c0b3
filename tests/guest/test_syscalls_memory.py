# SPDX-License-Identifier: Apache-2.0
"""The tracer syscalls: a program's memory, its forks, whose call it is, and programs of the 32-bit ABI."""

import re

from daemon import Daemon
from graphlib import all_given_back
from guest import Guest
from test_syscalls import Bed, finish, texts, trace
from testlib import LONG, last_kernel, main
from truth import attach

TRACING = "/sys/kernel/tracing"
FORKS = 200 if LONG else 50
RACE_S = 10 if LONG else 1
RACE_RECORDS = 1 << (22 if LONG else 20)

# what a call's arguments show, the first of that name whose others are as given
MEMORY = [
    ("write", 1, '"a line of text\\n\\1\\2\\377 and binary\\0"', "user_enter"),
    ("writev", 1, '[{iov_base="first part, which is longer than"..., iov_len=46}, '
                  '{iov_base="second", iov_len=6}]', "user_enter"),
    ("read", 1, '"a line of "', "user_exit"),
    ("readv", 1, '[{iov_base="text\\n\\1\\2\\377 and binary\\0first part, "..., iov_len=40}, '
                 '{iov_base=" longer ", iov_len=8}]', "user_exit"),
    ("fstat", 1, "{st_mode=S_IFREG|0600, st_size=82, ...}", "user_exit"),
    ("readlinkat", 2, '"/bin/syscallmem"', "user_exit"),
    ("nanosleep", 0, "{tv_sec=0, tv_nsec=1000}", "user_enter"),
    ("uname", 0, '{sysname="Linux", nodename="guest", ...}', "user_exit"),
    ("pipe2", 0, "[3, 4]", "user_exit"),
    ("epoll_ctl", 3, "{events=EPOLLIN, data={u32=7, u64=7}}", "user_enter"),
    ("epoll_wait", 1, "[{events=EPOLLIN, data={u32=7, u64=7}}]", "user_exit"),
    ("poll", 0, "[{fd=3, events=POLLIN}, {fd=-1}]", "user_enter"),
    ("ioctl", 2, "[1]", "user_exit"),
    ("sendto", 1, '"to myself"', "user_enter"),
    ("recvfrom", 1, '"to myself"', "user_exit"),
    ("sendmsg", 1, None, "user_enter"),
    ("setsockopt", 3, "[1]", "user_enter"),
    ("socketpair", 3, "[4, 6]", "user_exit"),
]


def of(calls, comm):
    return [c for c in calls if c["comm"] == comm]


def memory(b):
    t = trace(b)
    b.g.sh("syscallmem memory")
    calls, info = finish(b, t)
    assert info["lost"] == 0, info
    mine = of(calls, "syscallmem")
    for name, arg, text, source in MEMORY:
        named = [c for c in mine if c["syscall"] == name]
        got = [(texts(c)[arg], c["args"][arg].get("source")) for c in named]
        assert any((text is None or g[0] == text) and g[1] == source for g in got), (name, text, got)
    sent = next(c for c in mine if c["syscall"] == "sendmsg")
    assert '"127.0.0.1"' in texts(sent)[1] and '"a message"' in texts(sent)[1], texts(sent)
    # what cannot be read is an address, and never anything else
    bad = next(c for c in mine if c["syscall"] == "read" and c["error"] == "EFAULT")
    assert texts(bad)[1] == "0x8", bad
    # of a call that failed early the address was never copied by the kernel
    failed = next(c for c in mine if c["syscall"] == "bind" and c["error"] == "EBADF")
    assert failed["args"][1]["source"] == "user_enter" and "AF_INET" in texts(failed)[1], failed


def execs(b):
    """argv of those that fail, and of one that does not; longer strings when asked for."""
    t = trace(b, ["execve", "execveat"], string_max=200)
    b.g.sh("syscallmem execs")
    calls, _ = finish(b, t)
    mine = [c for c in calls if c["comm"] == "syscallmem"]
    three = '["prog", "with", "three args, of which one is longer than what is shown"]'
    want = [("execve", '["in-heap", "in-heap"]', "ENOENT"), ("execve", three, "EACCES"),
            ("execve", three, "EACCES"), ("execve", "0x10", "EFAULT"),
            ("execveat", '["echo", "a b", ""]', None)]
    got = [(c["syscall"], texts(c)[1 + (c["syscall"] == "execveat")], c["error"]) for c in mine]
    assert got == want, got
    assert mine[-1]["state"] == "execve" and mine[-1]["args"][2]["source"] == "kernel", mine[-1]
    assert mine[-1]["args"][2]["strings"] == ["echo", "a b", ""], mine[-1]
    assert texts(mine[-1])[3].endswith(" */"), mine[-1]  # how many there are
    # the environment: the kernel's copy of what a program was started with, else what was to be
    t = trace(b, ["execve"], env=True)
    b.g.sh("env -i A=1 'TWO=a b' EMPTY= true; env -i B=2 /nowhere/at/all")
    calls, _ = finish(b, t)
    started = [c for c in calls if texts(c)[2] == '["A=1", "TWO=a b", "EMPTY="]']
    assert started and started[-1]["args"][2]["source"] == "kernel", [texts(c) for c in calls]
    assert started[-1]["args"][2]["strings"] == ["A=1", "TWO=a b", "EMPTY="], started
    failed = [c for c in calls if texts(c)[2] == '["B=2"]']
    assert failed and failed[0]["args"][2]["source"] == "user_enter", [texts(c) for c in calls]


def raw(b):
    """Numbers alone, and nothing that they point to."""
    t = trace(b, raw=True)
    b.g.sh("syscallmem memory")
    calls, _ = finish(b, t)
    mine = of(calls, "syscallmem")
    assert len(mine) > 20 and not [a for c in mine for a in c["args"] if "source" in a], mine[0]
    write = next(c for c in mine if c["syscall"] == "write")
    assert texts(write)[1].startswith("0x") and texts(write)[2] == "30", write


def interrupted(b):
    """What a signal does to a call: begun again, given up, or never to return."""
    t = trace(b)
    b.g.sh("syscallmem signals")
    calls, _ = finish(b, t)
    mine = of(calls, "syscallmem")
    read = next(c for c in mine if c["syscall"] == "read" and c["state"] == "restarted")
    assert read["ret_text"] == "? ERESTARTSYS (To be restarted if SA_RESTART is set)", read
    assert read["ret"] is None and read["restart"] == "sa_restart", read
    rest = [c for c in mine if c["pid"] == read["pid"] and c["seq"] > read["seq"]]
    assert [(c["syscall"], c["state"]) for c in rest[:2]] == [("rt_sigreturn", "sigreturn"),
                                                              ("read", "returned")], rest[:2]
    assert texts(rest[1]) == [texts(read)[0], '"x"', "1"] and rest[1]["ret"] == "1", rest[1]
    sleep = next(c for c in rest if c["syscall"] == "nanosleep")
    assert sleep["ret_text"] == "? ERESTART_RESTARTBLOCK (Interrupted by signal)", sleep
    assert texts(sleep)[1].startswith("{tv_sec=0, tv_nsec="), sleep  # what was left of it
    pause = next(c for c in mine if c["syscall"] == "pause")  # ended by SIGKILL, behind its return
    assert pause["ret_text"] == "? ERESTARTNOHAND (To be restarted if no handler)", pause
    assert pause["ret"] is None and pause["restart"] == "no_handler", pause


def follow(b):
    """A task, its threads and what it forks, and nobody else; nothing of them is missed."""
    b.g.run("mkfifo /tmp/go; "
            f"sh -c 'read x </tmp/go; syscallmem fork {FORKS}; syscallmem threads' >/dev/null & "
            "echo $! >/tmp/pid")
    pid = int(b.g.run("cat /tmp/pid"))
    t = trace(b, pids=[pid], follow_forks=True)
    b.g.run(f"echo >/tmp/go; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; rm /tmp/go", 120)
    calls, info = finish(b, t)
    assert info["lost"] == 0, info
    asked = [c for c in of(calls, "syscallmem") if c["syscall"] == "getppid"]
    assert len(asked) == len({c["pid"] for c in asked}) == FORKS, len(asked)
    assert {c["comm"] for c in calls} == {"sh", "syscallmem"} | {f"thread-{i}" for i in range(4)}
    assert len([c for c in calls if c["syscall"] == "sched_yield"]) == 40


def taken(b):
    """The guest's own kprobe has what tells of forks: that is said, and who was forked meanwhile is found."""
    def kprobe(on):
        b.g.run(f"echo {on} >{TRACING}/events/kprobes/hvf/enable")

    b.g.run("mkfifo /tmp/go /tmp/on; "
            f"sh -c 'read x </tmp/go; (read y </tmp/on; syscallmem fork {FORKS}) & wait' >/dev/null & "
            "echo $! >/tmp/pid")
    pid = int(b.g.run("cat /tmp/pid"))
    b.g.run(f"echo 'p:hvf wake_up_new_task' >{TRACING}/kprobe_events")
    kprobe(1)
    status, problem = b.d.request("POST", "/v1/guests/g/traces", {"tracer": "syscalls", "pids": [pid],
                                                                  "follow_forks": True})
    assert status == 409 and problem["code"] == "conflict" and "own tracing" in problem["detail"], problem
    kprobe(0)
    t = trace(b, pids=[pid], follow_forks=True)
    before = b.d.trace_info(t)
    assert before["missed"] == [], before
    kprobe(1)
    b.d.wait_trace(t, lambda x: x["missed"] == ["forks"], 30)
    b.g.run("echo >/tmp/go; sleep 0.5")
    kprobe(0)
    b.d.wait_trace(t, lambda x: x["functions"] == before["functions"], 30)
    b.g.run(f"echo >{TRACING}/kprobe_events; echo >/tmp/on; "
            f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; rm /tmp/go /tmp/on", 120)
    calls, info = finish(b, t)
    asked = [c for c in of(calls, "syscallmem") if c["syscall"] == "getppid"]
    assert len(asked) == FORKS and info["missed"] == ["forks"], (len(asked), info)


def whose(b):
    """By user, cgroup, name of the task and path; each call says them."""
    b.g.run("mkdir -p /tmp/cg && mount -t cgroup2 none /tmp/cg && mkdir -p /tmp/cg/one")
    cgroup = int(b.g.run("stat -c %i /tmp/cg/one"))
    inside = "sh -c 'echo $$ >/tmp/cg/one/cgroup.procs; exec syscallmem uid 0'"
    cases = [({"uid": 77}, {("syscallmem", 77)}, 1), ({"cgroup": cgroup}, {("syscallmem", 0)}, 1),
             ({"comm": "syscallm*"}, {("syscallmem", 0), ("syscallmem", 77)}, 2)]
    for options, who, n in cases:
        t = trace(b, **options)
        b.g.run(f"syscallmem uid 77; {inside}")
        calls, _ = finish(b, t)
        got = {(c["comm"], c["uid"]) for c in calls if c["syscall"] == "getppid"}
        assert got == who, (options, got)
        assert len([c for c in calls if c["syscall"] == "getppid"]) == n, options
        assert "cgroup" not in options or {c["cgroup"] for c in calls} == {cgroup}
    t = trace(b, path="/tmp/mem")
    b.g.sh("syscallmem memory")
    calls, _ = finish(b, t)
    assert {c["syscall"] for c in calls} == {"openat", "newfstatat", "unlinkat"}, calls
    b.g.run("umount /tmp/cg")


def unmapped(b):
    """Its page comes and goes while the call runs: the path is what the kernel used, and nobody faults."""
    t = trace(b, ["openat", "write"], buffer_records=RACE_RECORDS)
    found, missing, fault = map(int, b.g.run(f"syscallmem unmap {RACE_S}", 60).split())
    calls, info = finish(b, t)
    mine = of(calls, "syscallmem")
    known, seen = {"/proc/version", "/no/such/path"}, {"opened": 0, "written": 0, "unread": 0}
    for c in mine:
        arg = c["args"][1]
        if c["syscall"] == "write":
            seen["written"] += 1
            seen["unread"] += arg.get("unread", False)
            continue
        seen["opened"] += 1
        path = arg.get("string")
        if path == "/proc/version":
            assert c["error"] is None, c
        elif path == "/no/such/path":
            assert c["error"] == "ENOENT", c
        elif path is None:  # the page was not there, or was new and held nothing
            assert c["error"] in ("EFAULT", "ENOENT"), c
        else:  # half of one, half of the other: as the kernel saw it, so it is nowhere
            assert path in known or c["error"] in ("ENOENT", "ENOTDIR"), c
    print(f"unmapped: {found} found, {missing} not, {fault} faults; {seen}, {info['lost']} lost")
    assert seen["opened"] > 50, seen


CALLS32 = [("getpid", 20), ("getppid", 64), ("getuid32", 199), ("mkdir", 39), ("open", 5), ("write", 4),
           ("lseek", 19), ("read", 3), ("writev", 146), ("fstat64", 197), ("close", 6), ("nanosleep", 162),
           ("clock_gettime", 265), ("sendmsg", 370), ("rt_sigaction", 174), ("open", 5), ("getcwd", 183),
           ("unlink", 10),
           ("rmdir", 40), ("execve", 11), ("sched_yield", 158), ("exit_group", 252)]


def of_32_bits(b):
    if b.g.sh("test -x /bin/syscall32")[0] != 0:
        print("gcc here makes no 32-bit programs: their calls are not looked at")
        return
    t = trace(b)
    b.g.sh("syscall32")
    calls, _ = finish(b, t)
    mine = [c for c in of(calls, "syscall32") if c["abi"] == "i386"]
    assert [(c["syscall"], c["nr"]) for c in mine] == CALLS32, [(c["syscall"], c["nr"]) for c in mine]
    show = {c["syscall"]: texts(c) for c in mine}
    assert show["mkdir"] == ['"/tmp/dir32"', "0711"], show
    assert show["write"] == ["3", '"of thirty-two bits"', "18"], show
    assert show["read"] == ["3", '"thirty-two bits"', "64"], show
    assert show["execve"] == ['"/no/such/prog32"', '["prog32", "with one"]', "NULL"], show
    # laid out as 32-bit programs have it
    parts = '[{iov_base="one", iov_len=3}, {iov_base="and two", iov_len=7}]'
    assert show["writev"] == ["3", parts, "2"], show
    assert show["fstat64"] == ["3", "{st_mode=S_IFREG|0640, st_size=28, ...}"], show
    assert show["nanosleep"] == ["{tv_sec=0, tv_nsec=1000}", "NULL"], show
    assert re.fullmatch(r"{tv_sec=\d+, tv_nsec=\d{1,9}}", show["clock_gettime"][1]), show
    assert show["sendmsg"][1] == ('{msg_name={sa_family=AF_INET, sin_port=htons(9), '
                                  'sin_addr=inet_addr("127.0.0.1")}, msg_namelen=16, '
                                  f"msg_iov={parts}, msg_iovlen=2, msg_controllen=0, msg_flags=0}}"), show
    assert show["rt_sigaction"][1] == "{sa_handler=SIG_IGN, sa_mask=[INT], sa_flags=SA_RESTART}", show
    others = [c for c in calls if c["abi"] != "i386" and c["comm"] == "syscall32"]
    assert not others, others[0]


STEPS = [memory, execs, raw, interrupted, follow, whose, unmapped, of_32_bits] + [taken] * LONG


@last_kernel
def test_memory(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        b = Bed(g, d)
        for step in STEPS:
            print(f"{flavour}: {step.__name__}")
            step(b)
        all_given_back(g, d, truth, sites)


if __name__ == "__main__":
    main()
