# SPDX-License-Identifier: Apache-2.0
"""Text output has the layout of the guest's own function tracer, byte for byte."""

import re

from daemon import Daemon
from guest import Guest
from testlib import last_kernel, main

# Linux v6.1 kernel/trace/trace_output.c:trace_print_context(), trace_fn_trace()
RECORD = re.compile(r"^ *\S.{0,15}-\d+ {0,6} \[\d{3}\] [d.bD][nNpB.bL][sShHzZ.][0-9a-f.][0-9a-f.]"
                    r" {1,5}\d+\.\d{6}: [A-Za-z_][\w.]*( \[\w+\])? <-\S+$")
TIME = re.compile(r" *\d+\.\d{6}: ")


def split(text):
    """(header lines with numbers taken out, record lines)"""
    lines = text.splitlines()
    head = [re.sub(r"\d+", "N", l) for l in lines if l.startswith("#")]
    records = [l for l in lines if l and not l.startswith("#") and re.search(r"\[\d{3}\]", l)]
    return head, records


def shape(line):
    """Where the columns are: task and pid, CPU, flags, the time's last digit, the function."""
    cpu = line.index("[")
    colon = TIME.search(line, cpu).end()
    return cpu, line[cpu + 6:cpu + 11].__len__(), colon


@last_kernel
def test_same_layout(flavour):
    with Guest(flavour) as g, Daemon() as d:
        g.run("cd /sys/kernel/tracing; echo do_sys_openat2 >set_ftrace_filter; "
              "echo function >current_tracer; open1000 20; echo 0 >tracing_on; cat trace >/tmp/own; "
              "echo nop >current_tracer; echo >set_ftrace_filter; echo 1 >tracing_on")
        own_head, own = split(g.run("cat /tmp/own"))
        d.attach(g, "g")
        p = d.cli("trace", "g", "-l", "do_sys_openat2", "--duration", "2")
        assert p.returncode == 0, p.stderr
        head, ours = split(p.stdout)
        assert head == own_head, "header differs:\n" + "\n".join(head) + "\n" + "\n".join(own_head)
        assert ours and own
        for who, lines in (("the guest's own", own), ("ours", ours)):
            for l in lines:
                assert RECORD.match(l), f"{who}: not the layout: {l!r}"
        widths = {shape(l) for l in own if len(l.split("-")[0]) <= 16}
        got = {shape(l) for l in ours if len(l.split("-")[0]) <= 16}
        assert got <= widths or widths <= got, f"columns differ: {got} and {widths}"
        d.delete("/v1/guests/g")
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
