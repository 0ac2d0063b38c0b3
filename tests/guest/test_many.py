# SPDX-License-Identifier: Apache-2.0
"""One daemon, several guests at a time; one that hangs holds up no other, and not the next daemon's start."""

import contextlib
import functools
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from daemon import Daemon, Problem, is_release
from frozen import Frozen
from guest import Guest, Skip, wait_for
from testlib import LONG, main
from truth import Truth

GUESTS = 6 if LONG else 2
ROUNDS = 10 if LONG else 2
SLOW = 40  # seconds that rounds of a guest may take, of which it needs a few


def rounds(d, g, name, n, took):
    start = time.monotonic()
    for _ in range(n):
        d.attach(g, name)
        t = d.trace(name, ["vfs_*"])["id"]
        d.wait_trace(t, lambda x: x["records"] > 50)
        d.stop_trace(t)
        restore = d.delete(f"/v1/guests/{name}")["restore"]
        assert restore["verified"] and restore["memory_freed"], restore
    took[name] = time.monotonic() - start


def all_rounds(d, guests):
    """Rounds of all guests at a time; how long each took."""
    took = {}
    threads = [threading.Thread(target=rounds, args=(d, g, f"g{i}", ROUNDS, took))
               for i, g in enumerate(guests)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SLOW * 4)
    assert len(took) == len(guests), f"only {sorted(took)} came to an end"
    return took


def test_one_hangs():
    if not LONG:
        raise Skip("boots several guests; HVF_LONG=1 asks for it")
    guests = [Guest("cloud-6.1", mem=256, cpus=1) for _ in range(GUESTS)]
    with Guest("cloud-6.1", mem=256, cpus=1) as hung:
        try:
            for g in guests:
                g.start()
            check(guests, hung)
        finally:
            for g in guests:
                g.stop()


def check(guests, hung):
    state = hung.dir / "state"
    d = Daemon(state_dir=state).start()
    d.attach(hung, "hung")
    d.trace("hung", ["vfs_*"])
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        # somebody waits for it all the while
        def stop():
            try:
                d.delete("/v1/guests/hung?force=true")
            except (OSError, Problem, ValueError):
                pass
        waits = threading.Thread(target=stop)
        waits.start()
        took = all_rounds(d, guests)
        d.kill9()
        waits.join(30)
        ended = stopped_while_it_hangs(state)
        with Daemon(state_dir=state) as d:  # its journal is there, and it still hangs
            again = all_rounds(d, guests)
            os.kill(hung.pid, signal.SIGCONT)
            wait_for("the journal is done", lambda: not d.journals(), 120)
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    for g in [*guests, hung]:
        g.assert_alive(60)
        g.assert_no_warnings()
    print(f"{ROUNDS} rounds of {len(guests)} guests beside one that hangs: "
          f"{max(took.values()):.1f} s, after a restart {max(again.values()):.1f} s; a daemon that is "
          f"stopped meanwhile ends after {ended:.1f} s")


def stopped_while_it_hangs(state):
    """SIGTERM does not wait for the guest that hangs; what is left is said, and noted."""
    d = Daemon(state_dir=state).start()
    assert d.journals()
    start = time.monotonic()
    d.process.terminate()
    assert d.process.wait(60) == 1, d.log()
    took = time.monotonic() - start
    assert took < 45 and d.journals(), (took, d.log())
    d.process = None
    return took


MANY = 32
IDLE = 100  # attached and idle guests, under 1 % of one core
MIB_ALONE, MIB_A_GUEST = 30, 16
IDLE_S = 30


def cpu_s(pid):
    """Seconds of CPU that a process has used."""
    f = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def at_once(n, work):
    """work(0) .. work(n - 1) by 16 clients; the longest that one took."""
    def timed(i):
        start = time.monotonic()
        work(i)
        return time.monotonic() - start
    with ThreadPoolExecutor(16) as pool:
        return max(pool.map(timed, range(n)))


def own_kib(pid):
    """Memory of its own: what it has mapped of guests' RAM is not."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return sum(int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1)) for name in ("RssAnon", "RssFile"))


def idle_share(d):
    """Of one core, while nobody asks for anything."""
    before = cpu_s(d.pid)
    time.sleep(IDLE_S)  # not a wait: what is measured
    return (cpu_s(d.pid) - before) / IDLE_S


def test_many():
    """32 guests come and go at the same time, one of which hangs; 100 that are idle cost next to nothing.
    They stand still: RAM, registers and monitor of a real one, so that they fit into this machine."""
    if not LONG:
        raise Skip("attaches 100 guests; HVF_LONG=1 asks for it")
    with Guest("cloud-6.1", mem=256) as g, Frozen(g, IDLE) as f, Daemon() as d:
        alone = at_once(1, lambda i: d.attach(f.targets[0], "g0"))
        d.delete("/v1/guests/g0")
        hung = f.pids[MANY]
        os.kill(hung, signal.SIGSTOP)
        waits = threading.Thread(target=lambda: d.request("POST", "/v1/guests", {
            "target": f.targets[MANY], "name": "hung"}))
        waits.start()
        all_in = at_once(MANY, lambda i: d.attach(f.targets[i], f"g{i}"))
        looks = at_once(MANY, lambda i: d.get(f"/v1/guests/g{i}"))
        assert waits.is_alive() or d.request("GET", "/v1/guests/hung")[0] == 404
        os.kill(hung, signal.SIGCONT)
        waits.join(60)
        d.request("DELETE", "/v1/guests/hung")
        # one that hangs while it is attached
        d.attach(f.targets[MANY], "hung")
        os.kill(hung, signal.SIGSTOP)
        waits = threading.Thread(target=lambda: d.request("GET", "/v1/guests/hung"))
        waits.start()
        out = at_once(MANY, lambda i: d.delete(f"/v1/guests/g{i}"))
        os.kill(hung, signal.SIGCONT)
        waits.join(60)
        d.delete("/v1/guests/hung")
        print(f"attach: one alone {alone:.2f} s, of {MANY} at once the last {all_in:.2f} s, beside one that "
              f"hangs; a look at most {looks:.3f} s; detach {out:.2f} s")
        # each has its share of what one takes, and some: the host has few cores
        assert all_in < 3 + 2 * MANY * alone and looks < 3, (alone, all_in, looks)
        empty = idle_share(d)
        at_once(IDLE, lambda i: d.attach(f.targets[i], f"g{i}"))
        share, rss = idle_share(d), own_kib(d.pid)
        print(f"idle: {100 * share:.2f} % of a core with {IDLE} guests attached, {100 * empty:.2f} % with "
              f"none; {rss >> 10} MiB")
        if is_release():
            assert share < 0.01, share
        assert rss < (MIB_ALONE + IDLE * MIB_A_GUEST) << 10, rss
        at_once(IDLE, lambda i: d.delete(f"/v1/guests/g{i}"))
        assert d.get("/v1/guests")["items"] == [] and not d.journals(), d.journals()


SMALL = 160  # MiB that a guest needs to boot and to lend memory
BOOTED = 4  # of MANY; the others are copies of these, and go on from where they were
LONG_S = 600
SPARE = 3 << 10  # MiB that the host keeps


def available():
    """MiB of memory that are to be had."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"^MemAvailable:\s+(\d+)", text, re.M).group(1)) >> 10


def crowd(stack):
    """MANY guests, or as many as fit into this host; one vCPU each, and nothing to do."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvf-crowd-"))
    guests, states = [], []

    def one(**more):
        g = Guest("cloud-6.1", mem=SMALL, cpus=1, load="none", timeout=LONG_S, **more)
        guests.append(stack.enter_context(g))

    begin = time.monotonic()
    while len(guests) < BOOTED:
        one()
        states.append(f"{folder}/{len(states)}")
        guests[-1].save_state(states[-1])
    # QEMU keeps code that it translates: what it has now is not all
    each = 3 * (guests[0].rss_kib() >> 10) // 2
    n = min(MANY, BOOTED + max(0, available() - SPARE) // each)
    while len(guests) < n:
        one(incoming=states[len(guests) % BOOTED])
    print(f"{n} guests, {BOOTED} booted and the others copies of those, in {time.monotonic() - begin:.0f} s; "
          f"{each} MiB expected for each, {available()} MiB left")
    return guests


def life(d, g, name):
    """One comes, is traced and goes, with records of what it was asked to do. How long that may take is for
    the caller to say, who knows how long it takes others."""
    d.attach(g, name, LONG_S)
    t = d.trace(name, ["vfs_*"], LONG_S)["id"]
    g.run("cat /proc/uptime /proc/version", 120)
    d.wait_trace(t, lambda x: x["records"] > 20, 120)
    d.stop_trace(t, LONG_S)
    assert d.trace_info(t)["lost"] == 0
    restore = d.delete(f"/v1/guests/{name}", LONG_S)["restore"]
    assert restore["verified"] and restore["memory_freed"], restore


def ghost_life(d, target, name):
    """The same for one that only stands there."""
    d.attach(target, name)
    assert d.get(f"/v1/guests/{name}")["target"] == target
    d.delete(f"/v1/guests/{name}")


def seconds(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def together(lives):
    """All at a time: (how long until the last had ended, how long each took)."""
    with ThreadPoolExecutor(len(lives)) as pool:
        took = []
        return seconds(lambda: took.extend(pool.map(seconds, lives))), took


class Hung:
    """A guest that hangs while it is traced, for whose end somebody waits; who else asks is answered."""

    def __init__(self, d, g):
        self.d, self.g, self.slowest, self.over = d, g, 0, threading.Event()

    def __enter__(self):
        self.d.attach(self.g, "hung")
        self.t = self.d.trace("hung", ["vfs_*"])["id"]
        os.kill(self.g.pid, signal.SIGSTOP)
        self.threads = [threading.Thread(target=f) for f in (self._wait, self._look)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        os.kill(self.g.pid, signal.SIGCONT)
        for t in self.threads:
            t.join(120)

    def _wait(self):
        self.d.request("POST", f"/v1/traces/{self.t}/stop", {}, timeout=LONG_S)

    def _look(self):
        while not self.over.wait(0.2):
            self.slowest = max(self.slowest, seconds(lambda: self.d.get("/v1/traces", timeout=LONG_S)))


def check_crowd(d, guests, lives):
    hung = guests[-1]
    some = lives[::4]
    used = sum(cpu_s(g.pid) for g in guests), cpu_s(d.pid)
    alone = seconds(lambda: [life() for life in some]) / len(some)
    used = [(b - a) / len(some) for a, b in zip(used, (sum(cpu_s(g.pid) for g in guests), cpu_s(d.pid)))]
    one_by_one = alone * len(lives)
    print(f"attached, traced and let go: one alone {alone:.1f} s, in which all guests work {used[0]:.2f} s "
          f"and the daemon {used[1]:.2f} s")
    last, took = together(lives)
    print(f"{len(lives)} guests: one after another {one_by_one:.1f} s, all at a time {last:.1f} s, the "
          f"slowest of them {max(took):.1f} s")
    # what waits for its own guest holds up no other; were they served in turn it would be all of that
    assert last < 0.7 * one_by_one, (last, one_by_one)
    with Hung(d, hung) as h:
        beside, took_beside = together(lives)
    print(f"beside one that hangs {beside:.1f} s, the slowest {max(took_beside):.1f} s; "
          f"a look {h.slowest:.2f} s at most")
    assert beside < 1.5 * last + 5 and beside < one_by_one, (beside, last, one_by_one)
    assert h.slowest < 3 + beside / 8, (h.slowest, beside)  # who waits for the one that hangs waits for all
    wait_for("the one that hung is stopped", lambda: d.trace_info(h.t)["state"] != "running" or
             d.request("POST", f"/v1/traces/{h.t}/stop", {})[0] == 200, 120)
    restore = d.delete("/v1/guests/hung")["restore"]
    assert restore["verified"] and restore["memory_freed"], restore


def check_idle(d, targets):
    """IDLE that stand still cost under 1 % of a core; so do these, which run."""
    empty = idle_share(d)
    for i, target in enumerate(targets):
        d.attach(target, f"g{i}")
    share, kib = idle_share(d), own_kib(d.pid)
    print(f"idle: {100 * share:.2f} % of a core with {len(targets)} guests attached, {100 * empty:.2f} % "
          f"with none; {kib >> 10} MiB")
    if is_release():
        assert share < 0.01, share
    assert kib < (MIB_ALONE + len(targets) * MIB_A_GUEST) << 10, kib
    for i in range(len(targets)):
        d.delete(f"/v1/guests/g{i}")


def test_many_that_run():
    """32 that really run: what they share is the host's processors, and no other waits for one that hangs.
    Those that do not fit into this host's memory stand still, as in test_many()."""
    if not LONG:
        raise Skip("runs 32 guests; HVF_LONG=1 asks for it")
    with contextlib.ExitStack() as stack:
        guests = crowd(stack)
        ghosts = []
        if len(guests) < MANY:
            still = stack.enter_context(Guest("cloud-6.1", mem=SMALL, cpus=1, load="none"))
            ghosts = stack.enter_context(Frozen(still, MANY - len(guests))).targets
        truths = [Truth(g) for g in guests[::8]]
        with Daemon() as d:
            lives = [functools.partial(life, d, g, f"g{i}") for i, g in enumerate(guests[:-1])]
            lives += [functools.partial(ghost_life, d, t, f"ghost{i}") for i, t in enumerate(ghosts)]
            check_crowd(d, guests, lives)
            assert d.get("/v1/guests")["items"] == [] and not d.journals(), d.journals()
            kib = own_kib(d.pid)
            print(f"the daemon has {kib >> 10} MiB when all are gone")
            assert kib < 2 * MIB_ALONE << 10, kib  # twice: the C library keeps a little for each thread
        d = stack.enter_context(Daemon())
        check_idle(d, [*guests, *ghosts])
        assert d.get("/v1/guests")["items"] == [] and not d.journals(), d.journals()
        for g in guests:
            g.assert_alive(60)
            g.assert_no_warnings()
        for truth in truths:
            d.attach(truth.guest, "g")
            truth.assert_untouched([int(f["ip"], 16) for f in d.functions("g")], quiet=True)
            d.delete("/v1/guests/g")


if __name__ == "__main__":
    main()
