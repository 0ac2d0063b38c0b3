# SPDX-License-Identifier: Apache-2.0
"""function_graph: the same work has the same call tree by the guest's own tracer and by ours.

calltree does the same system calls round after round. One run is traced by ours, then one by the guest's
own function_graph, in the same guest. A *step* is one system call at its place in the round: x64_sys_call()
with all below it, and the outermost calls after it, on the way out to user mode.

From the first outermost system call on every record is held to its nesting: depth, order, each return that
of the call entered last; theirs has one exception, see the end. Neither side may have lost anything. Then,
for each step,
- most rounds of ours have one and the same tree, and it is the one that most rounds of theirs have;
- of the trees of ours at least 90 % are among theirs for that step, and the other way round;
and 99 % of all trees of ours are among theirs, and the other way round (seen: 99.7 to 100 %): now and then
a round drains a cache or helps RCU along, under either tracer and not at will.

Not compared, but counted and printed:
- what interrupts do, found by the context of a record and by INTERRUPT;
- steps that were interrupted outside of any traced function: an interrupt's way out to user mode is made
  of the same calls as a system call's;
- calls that depend on the moment: VARIES and INSIDE_VARIES have them, with the reason each. Of those that
  depend on the clock both tracers must at least have one tree in common.

No function is traced by one of the two alone or has another name there, so there is no list of functions
that differ; the long run compares the names of all sites that are on, 35051 on 6.1.0-57 and 40339 on
6.12.117. Two differences are the guest's:
- its set_ftrace_pid hangs on the event sched_switch: while a task gives the CPU away, its own tracer shows
  __traceiter_sched_switch(), which nobody calls under ours, and nothing from there to the switch itself
  (enter_lazy_tlb(), save_fpregs_to_fpstate()), which ours has. All of that is within a switch, see VARIES.
- an interrupt that comes while its own tracer is at work on a call is shown one deeper than it is (the
  call is on its stack, but not in the trace), or one less (its return is not in the trace, but off the
  stack): INTERRUPTS_OFF. Ours must have none of that.
"""

import collections
import difflib
import re

from daemon import Daemon
from graphlib import KERNELS
from guest import Guest, wait_for
from testlib import LONG, kernels, main

ROUNDS = 150 if LONG else 60  # a daemon keeps as many records
SYSCALL = "x64_sys_call"
FIRST, LAST = "__do_sys_getppid", "__x64_sys_getpgid"

# begin or end an interrupt while its bit in the context is not set yet, or not any more
INTERRUPT = {"irq_enter_rcu", "irq_exit_rcu", "raw_irqentry_exit_cond_resched"}
INTERRUPTS_OFF = 1

SWITCH = "the CPU was given to another task"
AFTER_SWITCH = "on the way out to user mode when the task has been away"
CLOCK = "how much there is to do depends on whether the clock has ticked since the last time"

# taken out with all below them
VARIES = {
    "schedule": SWITCH,
    "__rseq_handle_notify_resume": AFTER_SWITCH,
    "blkcg_maybe_throttle_current": AFTER_SWITCH,
    "mem_cgroup_handle_over_high": AFTER_SWITCH,
    "switch_fpu_return": AFTER_SWITCH,
    "task_work_run": "scheduler's work for the task, queued by its tick",
    "___slab_alloc": "this CPU's slab was used up",
}
# stay, without what is below them
INSIDE_VARIES = {
    "__cond_resched": SWITCH,
    "file_update_time": CLOCK,
    "touch_atime": CLOCK,
}

Event = collections.namedtuple("Event", "entry name depth context")


def ours(g, pid):
    """(events of the task, names of all functions traced), by the product."""
    with Daemon() as d:
        d.attach(g, "g")
        sites = sorted(f["name"] for f in d.functions("g") if f["state"] == "traceable")
        t = d.trace("g", [], tracer="function_graph", pids=[pid], mode="discard")["id"]
        run(g, pid)
        d.stop_trace(t)
        records, _ = d.records(t)
        info = d.trace_info(t)
        restore = d.delete("/v1/guests/g")["restore"]
    assert restore["verified"] is True and restore["memory_freed"] is True, restore
    assert info["lost"] == 0 and info["graph"]["lost_frames"] == info["graph"]["lost_returns"] == 0, info
    assert info["functions"] == len(sites), info
    return [Event(r["type"] == "graph_entry", r["function"], r["depth"], r["context"]) for r in records
            if r["type"] in ("graph_entry", "graph_return") and r["pid"] == pid], sites


# TIME | CPU) TASK-PID | flags | DURATION | calls; PREEMPT_RT of 6.1 has two flags more, of lazy preemption
LINE = re.compile(r"^ *[\d.]+ \| +\d+\) .*-(\d+) +\| +(\S{5}|\S{7}) \|.{15}\|  ( *)(.*)$")
CALL = re.compile(r"^([\w.]+)(?: \[\w+\])?\(\)( \{|;)$")
RETURN = re.compile(r"^\} /\* ([\w.]+)(?: \[\w+\])? \*/$")


def theirs(g, pid):
    """The same by the guest's own tracer; the names in a long run only, for they take ten seconds."""
    g.run(f"cd /sys/kernel/tracing; echo {pid} > set_ftrace_pid; echo 40000 > buffer_size_kb; "
          "for o in latency-format funcgraph-abstime funcgraph-proc funcgraph-tail funcgraph-irqs; do "
          "echo 1 > options/$o; done; echo 1 > tracing_on; echo function_graph > current_tracer", 120)
    run(g, pid)
    sites = g.run("cat /sys/kernel/tracing/enabled_functions", 120) if LONG else ""
    g.run("cd /sys/kernel/tracing; echo 0 > tracing_on; cat trace > /tmp/own; echo nop > current_tracer", 120)
    text = g.run("cat /tmp/own", 120)
    got, written = re.search(r"#(\d+)/(\d+), CPU#", text).groups()
    assert got == written, f"the guest's own tracer lost calls: {got} of {written}"
    events = []
    for line in text.splitlines():
        m = LINE.match(line)
        if not m or int(m.group(1)) != pid:
            continue
        flags, indent, what = m.group(2), len(m.group(3)), m.group(4)
        if len(flags) == 7:
            flags = flags[:2] + flags[3:5] + flags[6:]
        call, end = CALL.match(what), RETURN.match(what)
        assert (call or end) and indent % 2 == 0, line
        name = (call or end).group(1)
        if call:
            events.append(Event(True, name, indent // 2, flags))
        if end or call.group(2) == ";":
            events.append(Event(False, name, indent // 2, flags))
    return events, sorted(re.findall(r"^(\S+) \(", sites, re.M))


def start(g):
    """Starts calltree, waits until it waits; its pid. PREEMPT_RT preempts at will, so there it is first."""
    first = "fifo" if "-rt-" in g.run("uname -r") else ""
    g.run("echo -1 > /proc/sys/kernel/sched_rt_runtime_us; "
          f"rm -f /tmp/pid; calltree {ROUNDS} {first} > /tmp/pid & true")
    return int(wait_for("calltree", lambda: g.sh("cat /tmp/pid")[1].strip()))


def run(g, pid):
    g.run(f"kill -USR1 {pid}; while [ -d /proc/{pid} ]; do sleep 0.1; done", 120)


class Steps:
    """What a run did: trees[place in the round, system call] counts the trees of a step."""

    def __init__(self, events, off=0):
        self.trees = collections.defaultdict(collections.Counter)
        self.clock = collections.defaultdict(set)
        self.compared = self.aside = self.varied = self.interrupted = 0
        self.rounds = []  # the names of the system calls of each
        self.within = False
        self.step = None
        self.follow(events, off)

    def __str__(self):
        return (f"{self.compared} calls in {len(self.rounds)} rounds ({self.varied} that vary, "
                f"{self.aside} of interrupts, {self.interrupted} interrupted steps left out)")

    def follow(self, events, off):
        """Nests the events from the first outermost system call on."""
        stack = None
        for e in events:
            if stack is None:
                if not (e.entry and e.depth == 0 and e.name == SYSCALL):
                    continue
                stack = []
            if e.entry:
                depth = stack[-1][0].depth + 1 if stack else 0
                here = abs(e.depth - depth) <= off if interrupts(e) else e.depth == depth
                assert here, (e, [c.name for c, _ in stack])
                if not stack and e.name == SYSCALL:
                    self.end_step()
                stack.append((e, []))
                continue
            assert stack and (e.depth, e.name) == (stack[-1][0].depth, stack[-1][0].name), (e, stack[-1:])
            self.leave(*stack.pop(), stack)

    def leave(self, call, callees, stack):
        tree = (call.name, tuple(callees))
        if interrupts(call):
            self.aside += size(tree)
            if self.step and not stack:
                self.step["interrupted"] = True
            return
        if call.name in VARIES:
            self.varied += size(tree)
            return
        if call.name in INSIDE_VARIES:
            self.varied += size(tree) - 1
            if INSIDE_VARIES[call.name] is CLOCK:
                self.clock[call.name].add(tree)
            tree = (call.name, ())
        if stack:
            stack[-1][1].append(tree)
            return
        if call.name == SYSCALL:
            self.step = {"name": callees[0][0] if callees else None, "trees": [], "interrupted": False}
        if self.step:
            self.step["trees"].append(tree)

    def end_step(self):
        step, self.step = self.step, None
        if not step:
            return
        if step["name"] == FIRST:
            self.within = True
            self.rounds.append([])
        if not self.within:
            return
        place = len(self.rounds[-1]), step["name"]
        self.rounds[-1].append(step["name"])
        if step["name"] == LAST:
            self.within = False
        if step["interrupted"]:
            self.interrupted += 1
            return
        self.compared += sum(map(size, step["trees"]))
        self.trees[place][tuple(step["trees"])] += 1


def interrupts(e):
    return e.context[2] != "." or e.name in INTERRUPT


def size(tree):
    return 1 + sum(map(size, tree[1]))


def lines(trees, depth=0):
    for name, callees in trees:
        yield "  " * depth + name
        yield from lines(callees, depth + 1)


def difference(a, b):
    return "\n".join(difflib.unified_diff(list(lines(b)), list(lines(a)), "theirs", "ours", lineterm="", n=2))


def among(a, b):
    """How many of the trees counted in a are in b, too."""
    return sum(n for tree, n in a.items() if tree in b)


def complaints(a, b, say=None):
    """What is not the same in the steps of ours and theirs."""
    if a.rounds != b.rounds or len(a.rounds) != ROUNDS:
        return [f"the rounds are not the same: {len(a.rounds)} and {len(b.rounds)} of {ROUNDS}; "
                f"{a.rounds[:1]} and {b.rounds[:1]}"]
    bad, all_steps = [], collections.Counter()
    for place in sorted(set(a.trees) | set(b.trees)):
        x, y = a.trees[place], b.trees[place]
        nx, ny = x.total(), y.total()
        if min(nx, ny) < ROUNDS / 2:
            bad.append(f"{place}: only {nx} and {ny} trees")
            continue
        (mx, cx), (my, cy) = x.most_common(1)[0], y.most_common(1)[0]
        if mx != my or cx <= nx / 2 or cy <= ny / 2:
            bad.append(f"{place}: most of ours ({cx} of {nx}) are not most of theirs ({cy} of {ny}):\n" +
                       difference(mx, my))
        if among(x, y) < 0.9 * nx or among(y, x) < 0.9 * ny:
            other = next((t for t in x if t not in y), mx)
            bad.append(f"{place}: {among(x, y)} of {nx} of ours are among theirs, {among(y, x)} of {ny} of "
                       f"theirs among ours:\n" + difference(other, my))
        all_steps.update(ours=nx, theirs=ny, ours_among=among(x, y), theirs_among=among(y, x))
    if say:
        print(f"{say}: trees over all steps: {dict(all_steps)}")
    if any(all_steps[who + "_among"] < 0.99 * all_steps[who] for who in ("ours", "theirs")):
        bad.append(f"over all steps: {dict(all_steps)}")
    for name, reason in INSIDE_VARIES.items():
        if reason is CLOCK and not a.clock[name] & b.clock[name]:
            bad.append(f"{name}: {a.clock[name]} of ours, {b.clock[name]} of theirs")
    return bad


def without(events, lose):
    """events as if the calls for which lose(index, name) is true had not been seen at all."""
    kept, lost_above, stack = [], 0, []
    for i, e in enumerate(events):
        if e.entry:
            stack.append(lose(i, e.name))
            lost = stack[-1]
            lost_above += lost
            depth = e.depth - lost_above + lost
        else:
            lost = stack.pop() if stack else False
            lost_above -= lost
            depth = e.depth - lost_above
        if not lost:
            kept.append(e._replace(depth=depth))
    return kept


def assert_would_fail(events, b):
    """The comparison notices what it is there for."""
    for what, lose in (("one of 1000", lambda i, name: i % 1000 < 2 and name not in (SYSCALL, FIRST, LAST)),
                       ("one function", lambda i, name: name == "__rcu_read_unlock")):
        assert complaints(Steps(without(events, lose)), b), f"{what} is missing, and nobody complains"
    try:
        Steps([e for i, e in enumerate(events) if i % 50 or not e.entry])
    except AssertionError:
        return
    raise AssertionError("entries are missing, and nobody complains")


def reference(g, tries):
    """
    (Steps, functions) of the guest's own tracer. Where a kernel is preempted within a call, it shows what the
    scheduler calls at a depth of its own: then it is asked again. Ours must be right the first time.
    """
    own, sites = theirs(g, start(g))
    try:
        return Steps(own, INTERRUPTS_OFF), sites
    except AssertionError as e:
        if tries == 1:
            raise
        print(f"the guest's own tracer is asked again: {str(e)[:200]}")
    return reference(g, tries - 1)


def test_same_trees(flavour):
    # nothing else runs; one thread: see Guest
    with Guest(flavour, load="none", thread="single") as g:
        events, our_sites = ours(g, start(g))
        a = Steps(events)
        b, own_sites = reference(g, 5 if "rt" in flavour else 1)
        g.assert_no_warnings()
    assert not LONG or own_sites == our_sites, set(own_sites) ^ set(our_sites)
    print(f"{flavour}: ours compared {a}; theirs {b}")
    bad = complaints(a, b, flavour)
    assert not bad, "\n".join(bad)
    assert a.compared > 250 * ROUNDS, a
    assert_would_fail(events, b)


test_same_trees.flavours = KERNELS if LONG else kernels()[-1:]

if __name__ == "__main__":
    main()
