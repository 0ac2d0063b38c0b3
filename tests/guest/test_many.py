# SPDX-License-Identifier: Apache-2.0
"""One daemon, several guests at a time; one that hangs holds up no other, and not the next daemon's start."""

import os
import signal
import threading
import time

from daemon import Daemon, Problem
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
          f"{max(took.values()):.1f} s, after a restart {max(again.values()):.1f} s")


if __name__ == "__main__":
    main()
