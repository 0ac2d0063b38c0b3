# SPDX-License-Identifier: Apache-2.0
"""Stack traces of chosen functions: what the guest's own tracer says (func_stack_trace), by both tracers.

calltree does the same system calls round after round. The guest's own function tracer tells the callers of
FUNCTIONS in one run; ours must tell the same in others: as the function tracer, as function_graph of them
alone, and as function_graph of everything, where every return address on the stack is a hijacked one.
"""

import contextlib

from daemon import Daemon
from graphlib import add_up, all_given_back
from guest import Guest, Skip, wait_for
from testlib import LONG, first_kernel, last_kernel, main
from truth import attach

ROUNDS = 20
FUNCTIONS = ["vfs_write", "vfs_read", "do_faccessat"]
TAIL = ("do_syscall_64",)
# where a stack ends: system calls, exceptions, threads, idle tasks
OUTERMOST = ("entry_", "asm_", "ret_from_fork", "secondary_startup", "common_startup", "x86_64_start")


class Bed:
    def __init__(self, g, d):
        self.g, self.d = g, d

    @contextlib.contextmanager
    def task(self):
        """calltree, traced by who does so inside; it ran when this is over."""
        self.g.run(f"rm -f /tmp/pid; calltree {ROUNDS} > /tmp/pid & true")
        pid = int(wait_for("calltree", lambda: self.g.sh("cat /tmp/pid")[1].strip()))
        yield pid
        self.g.run(f"kill -USR1 {pid}; while [ -d /proc/{pid} ]; do sleep 0.05; done", 120)

    def run(self, filter, tracer, **options):
        with self.task() as pid:
            t = self.d.trace("g", filter, tracer=tracer, pids=[pid], mode="discard", **options)["id"]
        info = self.d.stop_trace(t)
        assert info["lost"] == 0 and info["stacks"]["lost"] == 0, info
        records, _ = self.d.records(t)
        self.d.delete(f"/v1/traces/{t}")
        if info["graph"] and "threshold_ns" not in options:
            add_up(info["graph"])
        self.info = info
        return [r for r in records if r.get("pid") == pid]


def theirs(b):
    """{function: set of stacks}, each a tuple of names from the function on outward."""
    with b.task() as pid:
        b.g.run(f"cd /sys/kernel/tracing; echo {pid} > set_ftrace_pid; echo 8000 > buffer_size_kb; "
                f"for f in {' '.join(FUNCTIONS)}; do echo $f >> set_ftrace_filter; done; "
                "echo 1 > options/func_stack_trace; echo function > current_tracer", 120)
    b.g.run("cd /sys/kernel/tracing; echo 0 > tracing_on; cat trace > /tmp/own; echo nop > current_tracer; "
            "echo 0 > options/func_stack_trace; echo > set_ftrace_filter; echo > set_ftrace_pid; "
            "echo 1 > tracing_on; echo 100 > buffer_size_kb", 120)
    stacks = {f: set() for f in FUNCTIONS}
    names = []
    text = b.g.run("cat /tmp/own", 120).splitlines()
    for line in text + ["end"]:
        if line.startswith(" => "):
            names.append(line[4:].strip().split(" ")[0])
            continue
        # its own trampoline is the first
        if names and names[0].startswith(("0x", "[FTRACE")):
            del names[0]
        if names and names[0] in stacks:
            stacks[names[0]].add(tuple(names))
        names = []
    assert all(stacks.values()), (stacks, text[:40])
    return stacks


def ours(records, kind):
    stacks = {f: set() for f in FUNCTIONS}
    n = 0
    for r in records:
        if r["type"] != kind or r["function"] not in stacks:
            assert "stack" not in r, r
            continue
        n += 1
        names = (r["function"],) + tuple(c.split("+")[0] for c in r["stack"])
        assert not any(c.startswith("0x") for c in names), r
        if r["parent"]:
            assert r["stack"][0] == r["parent"], r
        stacks[r["function"]].add(names)
    assert n >= 2 * ROUNDS, n
    return stacks


def same(seen, truth, what):
    for f in FUNCTIONS:
        assert any(set(TAIL) & set(s) for s in truth[f]), truth[f]
        assert seen[f] == truth[f], (what, f, seen[f] ^ truth[f])
    print(f"{what}: {sum(map(len, seen.values()))} different stacks, the guest's own")


def agree(b):
    truth = theirs(b)
    same(ours(b.run(FUNCTIONS, "function", stack=FUNCTIONS), "function"), truth, "function")
    same(ours(b.run(FUNCTIONS, "function_graph", stack=FUNCTIONS), "graph_entry"), truth, "function_graph")
    same(ours(b.run([], "function_graph", stack=FUNCTIONS), "graph_entry"), truth,
         "function_graph of everything")
    assert b.info["stacks"]["skipped_calls"] > 0, b.info  # the unwinder's own
    same(ours(b.run([], "function_graph", stack=FUNCTIONS, threshold_ns=1), "graph_return"), truth,
         "function_graph of everything, returns")
    seen = b.run(FUNCTIONS, "function", stack=["vfs_write"], stack_depth=2)
    assert {len(r.get("stack", [])) for r in seen if r["function"] == "vfs_write"} == {2}, seen[:3]
    assert not any("stack" in r for r in seen if r["function"] == "vfs_read"), seen[:3]


def start_all(d, **options):
    """Everything with every return hijacked, callers of what is called often, in any context."""
    often = ["try_to_wake_up", "kfree", "schedule", "do_exit", "handle_mm_fault"]
    return d.trace("g", [], tracer="function_graph", stack=often, **options)["id"]


def under_load(b):
    """Callers in every context; addresses of ours never among them."""
    t = start_all(b.d, mode="overwrite")
    b.g.sh(f"mixload {30 if LONG else 6}", 200)
    info = b.d.stop_trace(t)
    records, _ = b.d.records(t)
    b.d.delete(f"/v1/traces/{t}")
    add_up(info["graph"])
    stacks = [r for r in records if "stack" in r]
    assert len(stacks) > 50, (len(stacks), info)
    unknown = [r for r in stacks if any(c.startswith("0x") for c in r["stack"])]
    assert not unknown, unknown[:2]
    contexts = {r["context"][2] for r in stacks}
    assert contexts & set("hHs"), contexts
    whole = sum(1 for r in stacks if len(r["stack"]) == 64 or r["stack"][-1].startswith(OUTERMOST))
    print(f"{len(stacks)} stacks, {whole} of them to the stack's end, {info['stacks']}")
    ends = {r["stack"][-1] for r in stacks if not r["stack"][-1].startswith(OUTERMOST)}
    assert whole > 0.95 * len(stacks), ends


def start_and_stop(b):
    """Under load: stopped while tasks are in the unwinder, and have the truth in their cells."""
    b.g.run(f"mixload {20 if LONG else 8} > /tmp/load & true")
    for _ in range(20 if LONG else 4):
        t = start_all(b.d, mode="overwrite")
        b.d.wait_trace(t, lambda x: x["records"] > 2000, 20)
        info = b.d.stop_trace(t)
        add_up(info["graph"])
        assert info["restore"]["verified"] is True, info
        b.d.delete(f"/v1/traces/{t}")
    wait_for("the load's end", lambda: "mixload: ok" in b.g.sh("cat /tmp/load")[1], 120)


def refused(b):
    status, body = b.d.request("POST", "/v1/guests/g/traces", {"tracer": "function", "stack": ["*"]})
    assert status == 422 and body["code"] == "filter.too_many_stacks", (status, body)
    status, body = b.d.request("POST", "/v1/guests/g/traces",
                               {"tracer": "function", "filter": ["vfs_read"], "stack": ["vfs_write"]})
    assert status == 422 and body["code"] == "filter.no_match", (status, body)


@last_kernel
def test_stacks(flavour):
    with Guest(flavour) as g, Daemon() as d:
        truth, sites = attach(g, d)
        b = Bed(g, d)
        for step in (refused, agree, under_load, start_and_stop):
            print(f"{flavour}: {step.__name__}")
            step(b)
        all_given_back(g, d, truth, sites)


@first_kernel
def test_daemon_killed(flavour):
    """kill -9 at any moment of it: the guest runs on, the next start puts all of it back. The long run's."""
    if not LONG:
        raise Skip("test_graph_life kills a daemon, too")
    with Guest(flavour) as g:
        state = g.dir / "state"
        d = Daemon(state_dir=state).start()
        truth, sites = attach(g, d)
        g.run("mixload 6 > /tmp/load & true")
        t = start_all(d, mode="discard")
        d.wait_trace(t, lambda x: x["graph"]["entries"] > 1000)
        d.kill9()
        wait_for("the load's end", lambda: "mixload: ok" in g.sh("cat /tmp/load")[1], 120)
        with Daemon(state_dir=state) as d:
            wait_for("the journal is done", lambda: not d.journals(), 60)
            truth.assert_untouched(sites, quiet=True)
            assert "mixload: ok" in g.run("mixload 2", 120)
            g.assert_alive()
            g.assert_no_warnings()


if __name__ == "__main__":
    main()
