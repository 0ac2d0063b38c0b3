# SPDX-License-Identifier: Apache-2.0
"""
Guests of our own VMM, built in each way that a compiler makes call sites: what is found in their files, what
may be armed and what must be refused, who called whom, and that all is put back. The guest is in
tests/guest/ladder.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from daemon import binary
from guest import TOP, Skip, die_with_parent
from small import need_kvm
from testlib import main

FOLDER = TOP / "tests/guest/ladder"
# who calls whom; soft() is strong.c's, body.c's weak one is dead code
CALLS = {("outer", "run"), ("local_leaf", "outer"), ("soft", "outer")}
FUNCTIONS = {"outer", "local_leaf", "soft"}


@contextlib.contextmanager
def booted(*flags, cc="gcc"):
    """A guest that runs: (its kernel's path, its VMM's process id)."""
    with tempfile.TemporaryDirectory(prefix="hvf-ladder-") as folder:
        kernel = pathlib.Path(folder) / "kernel"
        common = ["-std=gnu11", "-O1", "-ffreestanding", "-fno-pic", "-mcmodel=kernel", "-mno-red-zone",
                  "-mgeneral-regs-only", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
                  "-fcf-protection=none", f"-I{TOP}"]
        subprocess.run([cc, *common, *flags, "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none",
                        "-Wl,-z,max-page-size=4096", "-Wl,--no-warn-rwx-segments",
                        f"-Wl,-T,{FOLDER}/kernel.lds", "-o", kernel, FOLDER / "head.S", FOLDER / "body.c",
                        FOLDER / "strong.c"], check=True)
        vmm = subprocess.Popen([binary("hvftrace-vmm"), "--kernel", kernel, "--memory", "64M"],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               preexec_fn=die_with_parent)
        try:
            yield kernel, vmm
        finally:
            vmm.kill()
            vmm.communicate()


def symbols(kernel):
    out = subprocess.run(["nm", kernel], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: int(addr, 16) for addr, _, name in (line.split() for line in out.splitlines())}


def climb(*flags, how=(), cc="gcc"):
    """One rung: {"source": ..., "armed": {...}, "refused": {...}, "weak": n, "calls": {...}}."""
    need_kvm()
    with booted(*flags, cc=cc) as (kernel, vmm):
        syms = symbols(kernel)
        p = subprocess.run([binary("ladder"), str(vmm.pid), kernel, hex(syms["rounds"]), *how],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280)
        assert p.returncode == 0, p.stderr + (vmm.stderr.read() if vmm.poll() is not None else "")
        got = {"armed": set(), "refused": set(), "weak": 0, "calls": {}}
        for line in p.stdout.splitlines():
            word, *rest = line.split()
            if word == "call":
                caller = max((a, n) for n, a in syms.items() if a <= int(rest[1], 16))[1]
                got["calls"][(rest[0], caller)] = got["calls"].get((rest[0], caller), 0) + int(rest[2])
            elif word in ("armed", "refused"):
                got[word].add(rest[0])
            elif word == "weak":
                got["weak"] += 1
            elif word == "restored":
                got["restored"] = int(rest[0])
            else:
                got[word] = " ".join(rest)
        assert vmm.poll() is None, f"the guest died: {vmm.stderr.read()}"
    print(" ".join((*flags, *how)), got)
    return got


def check_traced(got, source, weak):
    assert (got["source"], got["weak"]) == (source, weak), got
    assert got["armed"] == FUNCTIONS and not got["refused"], got
    assert set(got["calls"]) == CALLS, got
    # each round calls each of them once: all were seen, but for those at the two ends
    counts = sorted(got["calls"].values())
    assert counts[0] >= 18 and counts[-1] - counts[0] <= 2, got
    assert got["restored"] == len(FUNCTIONS), got


def test_unconverted_calls():
    """-pg -mfentry: sites are calls of __fentry__ still; nothing is recorded: they are found in the text."""
    check_traced(climb("-pg", "-mfentry"), "recorded", 0)


def test_recorded_calls():
    check_traced(climb("-pg", "-mfentry", "-mrecord-mcount"), "mcount_loc", 1)


def test_nops():
    check_traced(climb("-pg", "-mfentry", "-mnop-mcount"), "recorded", 0)


def test_recorded_nops():
    check_traced(climb("-pg", "-mfentry", "-mrecord-mcount", "-mnop-mcount"), "mcount_loc", 1)


def test_several_nops_are_refused():
    """-fpatchable-function-entry=5: five instructions, between which a task may be preempted."""
    got = climb("-fpatchable-function-entry=5")
    assert got["source"] == "patchable" and not got["armed"] and not got["calls"], got
    # it has no exceptions: run() and the stubs' file aside, all functions
    assert got["refused"] == FUNCTIONS | {"run", "guest_tracer"}, got


def test_one_nop_of_a_patchable_entry():
    """clang -fpatchable-function-entry=5: one instruction, so it may be armed; run()'s, too."""
    if not shutil.which("clang"):
        raise Skip("no clang")
    got = climb("-fpatchable-function-entry=5", "-Wno-unknown-attributes", cc="clang")
    assert got["source"] == "patchable" and got["weak"] == 1 and not got["refused"], got
    assert got["armed"] == FUNCTIONS | {"run", "guest_tracer"}, got
    check_calls(got)


def test_mcount_behind_the_prologue_is_refused():
    """-pg alone: the caller is not where the agent looks for it."""
    got = climb("-pg", "-fno-omit-frame-pointer")
    assert got["source"] == "recorded prologue" and got["refused"] == FUNCTIONS and not got["calls"], got


def check_calls(got):
    assert set(got["calls"]) == CALLS, got
    counts = sorted(got["calls"].values())
    assert counts[0] >= 18 and counts[-1] - counts[0] <= 2, got


def test_static_mcount():
    """-pg alone: the body of mcount is turned into our caller; selfpc and frompc are sites and callers."""
    got = climb("-pg", "-fno-omit-frame-pointer", how=("mcount",))
    assert got["armed"] == {"mcount"} and got["refused"] == FUNCTIONS, got
    check_calls(got)
    assert got["restored"] == 1, got


def test_static_mcount_that_the_guest_uses():
    """ftrace_trace_function is not ftrace_stub: the guest's own tracer is left alone."""
    got = climb("-pg", "-fno-omit-frame-pointer", "-DGUEST_TRACES", how=("mcount",))
    assert not got["armed"] and got["refused"] == FUNCTIONS | {"mcount"} and not got["calls"], got


def test_out_of_reach():
    """An agent 4 GiB away from the sites: each calls a veneer in padding, which goes on to it."""
    got = climb("-pg", "-mfentry", "-mrecord-mcount", "-mnop-mcount", how=("far",))
    assert "veneer" in got, got
    check_traced(got, "mcount_loc", 1)
    got = climb("-pg", "-fno-omit-frame-pointer", how=("far", "mcount"))
    assert "veneer" in got and got["armed"] == {"mcount"}, got
    check_calls(got)


if __name__ == "__main__":
    main()
