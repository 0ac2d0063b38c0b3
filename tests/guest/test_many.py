# SPDX-License-Identifier: Apache-2.0
"""One daemon, several guests at a time; one that hangs holds up no other, and not the next daemon's start."""

import os
import pathlib
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from daemon import Daemon, Problem, is_release
from frozen import Frozen
from guest import Guest, Skip, wait_for
from testlib import LONG, main

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
MIB_A_GUEST = 16
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
        assert rss < (30 + IDLE * MIB_A_GUEST) << 10, rss
        at_once(IDLE, lambda i: d.delete(f"/v1/guests/g{i}"))
        assert d.get("/v1/guests")["items"] == [] and not d.journals(), d.journals()


if __name__ == "__main__":
    main()
