# SPDX-License-Identifier: Apache-2.0
"""The tracer syscalls beside Debian's strace, in one run of the same programs, call by call."""

import collections
import re

from daemon import Daemon
from guest import Guest, Skip
from testlib import last_kernel, main
from truth import attach

PROGRAMS = ["syscallset known", "ls -l /proc/self", "sh -c 'echo one | cat; cp /etc/x /tmp/y; true'",
            "sh -c 'mkdir /tmp/d; cd /tmp/d; touch a b; mv a c; ln -s c l; rm -r /tmp/d'",
            "syscallset execs 20", "syscallmem memory", "syscallmem threads", "syscallmem signals",
            "syscallmem execs", "syscall32",
            "sh -c 'mkdir -p /tmp/t/u; echo hello >/tmp/t/u/f; cp -r /tmp/t /tmp/v; "
            "tar cf /tmp/x.tar -C /tmp t; tar tf /tmp/x.tar; rm -r /tmp/t /tmp/v /tmp/x.tar'"]
LINE = re.compile(r"^(\d+) +(.*)$")
CALL = re.compile(r"^(\w+)\((.*)\) += (.*)$", re.S)
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.S)
LABEL = re.compile(r"^[a-z_]+=")  # what clone's arguments are called
UNFINISHED = " <unfinished ...>"


def split(text):
    """Arguments, by commas that are in no bracket and no string."""
    out, depth, quoted, at, i = [], 0, False, 0, 0
    while i < len(text):
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "[({":
            depth += 1
        elif c in "])}":
            depth -= 1
        elif c == "," and not depth:
            out.append(text[at:i].strip())
            at = i + 1
        i += 1
    last = text[at:].strip()
    return out + [last] if last or out else []


def strace_calls(text):
    """{pid: [(name, args, result)]}"""
    calls, open_calls = collections.defaultdict(list), {}
    for line in text.splitlines():
        m = LINE.match(line)
        if not m:
            continue
        pid, rest = int(m.group(1)), m.group(2)
        if rest.endswith(UNFINISHED):
            open_calls[pid] = rest[:-len(UNFINISHED)]
            continue
        r = RESUMED.match(rest)
        if r:
            rest = open_calls.pop(pid) + r.group(2)
        c = CALL.match(rest)
        if c:
            calls[pid].append((c.group(1), split(c.group(2)), c.group(3)))
    for pid, rest in open_calls.items():
        name, _, args = rest.partition("(")
        calls[pid].append((name, split(args), "?"))
    return calls


def our_calls(records):
    calls = collections.defaultdict(list)
    for r in records:
        if r["type"] == "syscall":
            ret = (r["ret_text"] or "?").split()
            calls[r["pid"]].append((r["syscall"], [a["text"] for a in r["args"]], " ".join(ret)))
    return calls


def result(text):
    """What both say of it: the number, and the name of an error."""
    words = text.split()
    return words[:2] if words[0] == "-1" else words[:1]


class Count:
    def __init__(self):
        self.calls = self.same = self.args = self.same_args = 0
        self.differ = collections.Counter()
        self.examples = {}

    def compare(self, theirs, ours):
        self.calls += 1
        if theirs[0] != ours[0] or result(theirs[2]) != result(ours[2]):
            self.note(f"call {theirs[0]}", theirs, ours)
            return
        self.same += 1
        for i, want in enumerate(theirs[1]):
            got = ours[1][i] if i < len(ours[1]) else None
            self.args += 1
            # "not read": an address that strace followed and we did not
            if got in (want, LABEL.sub("", want)):
                self.same_args += 1
            else:
                why = "not read" if got and got.startswith("0x") else "decoded otherwise"
                self.note(f"{theirs[0]} argument {i}: {why}", want, got)

    def note(self, what, theirs, ours):
        self.differ[what] += 1
        self.examples.setdefault(what, (theirs, ours))


def compare(g, d, command, count, y=""):
    t = d.trace("g", tracer="syscalls", mode="discard", buffer_records=1 << 20, fd_paths=bool(y))["id"]
    g.sh(f"strace {y} -f -s 32 -o /tmp/strace.out {command}", 120)
    info = d.stop_trace(t)
    ours = our_calls(d.records(t)[0])
    d.delete(f"/v1/traces/{t}")
    assert info["lost"] == 0, info
    theirs = strace_calls(g.run("cat /tmp/strace.out"))
    assert theirs, command
    for pid, calls in theirs.items():
        mine = ours[pid]
        # strace's own child does something before strace watches it
        mine = mine[len(mine) - len(calls):] if len(mine) >= len(calls) else mine
        for i, call in enumerate(calls):
            count.compare(call, mine[i] if i < len(mine) else ("-", [], "-"))


@last_kernel
def test_strace(flavour):
    with Guest(flavour) as g, Daemon() as d:
        if g.sh("strace -V")[0] != 0:
            raise Skip("the host has no strace to put into the guest")
        attach(g, d)
        count = Count()
        for command in PROGRAMS:
            compare(g, d, command, count)
        # what descriptors are of; sockets and pipes in arrays are numbers with us
        for command in PROGRAMS[:3]:
            compare(g, d, command, count, "-y")
        for what, n in count.differ.most_common():
            theirs, ours = count.examples[what]
            print(f"{n:5} {what}: strace {str(theirs)[:90]}, ours {str(ours)[:90]}")
        print(f"{flavour}: {count.same} of {count.calls} calls match, "
              f"{100 * count.same / count.calls:.2f} %; {count.same_args} of {count.args} arguments, "
              f"{100 * count.same_args / count.args:.2f} %")
        assert count.same >= 0.99 * count.calls, count.differ
        assert count.same_args >= 0.95 * count.args, count.differ


if __name__ == "__main__":
    main()
