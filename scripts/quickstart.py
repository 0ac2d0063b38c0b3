# SPDX-License-Identifier: Apache-2.0
"""The second half of scripts/quickstart: guest, daemon, trace, proof. Not to be run by itself."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from daemon import Daemon, binary
from guest import TOP, Guest, wait_for
from truth import Truth

STATE = TOP / "build" / "quickstart.json"
CLOSING = re.compile(r"^\d[\d,]* records, \d[\d,]* lost, \d[\d,]* functions patched, restored$", re.M)
SHOWN = 25


def say(text):
    print(f"==> {text}", flush=True)


def ours(pid, directory):
    """Is this process still the one that we started there?"""
    try:
        return directory.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def stop():
    """Ends what --keep left: the daemon first, which gives everything in the guest back."""
    if not STATE.exists():
        print("nothing was kept up")
        return 0
    state = json.loads(STATE.read_text())
    for who, sig in (("daemon", signal.SIGTERM), ("qemu", signal.SIGKILL)):
        pid, directory = state[who], state[who + "_dir"]
        if ours(pid, directory):
            os.kill(pid, sig)
            wait_for(f"{who} ends", lambda pid=pid, d=directory: not ours(pid, d), 60)
        shutil.rmtree(directory, ignore_errors=True)
    STATE.unlink()
    say("guest and daemon are down")
    return 0


def run(d, *args):
    """hvftrace with these arguments; what it printed."""
    print("$ hvftrace " + " ".join(f"'{a}'" if "*" in a else a for a in args), flush=True)
    p = d.cli(*args)
    if p.returncode:
        raise SystemExit(f"hvftrace {args[0]}: status {p.returncode}: {p.stderr.strip()}\n{d.log()}")
    return p


def show(text):
    """A screenful of the records."""
    lines = text.splitlines()
    print("\n".join(lines[:SHOWN]))
    if len(lines) > SHOWN:
        print(f"    ... {len(lines) - SHOWN:,} more lines")


def trace(guest, d):
    """Attach, trace, detach. Returns the call sites and the agent's ranges."""
    run(d, "attach", guest.target, "--name", "quickstart")
    print(run(d, "info", "quickstart").stdout.rstrip())
    functions = d.functions("quickstart")
    sites = [int(f["ip"], 16) for f in functions]
    p = run(d, "trace", "quickstart", "-l", "vfs_*", "--duration", "2")
    both = p.stdout + p.stderr
    closing = CLOSING.search(both)
    if not closing:
        raise SystemExit("the trace did not end as it should:\n" + both[-2000:])
    show(CLOSING.sub("", p.stdout).rstrip("\n"))
    print(f"\n{closing.group(0)}\n", flush=True)
    if closing.group(0).startswith("0 records"):
        raise SystemExit("no records: the guest's workload must show in them")
    run(d, "detach", "quickstart")
    return sites


def keep_up(guest, d):
    """Leaves both running, attached, and says how to go on."""
    STATE.write_text(json.dumps({"qemu": guest.pid, "qemu_dir": str(guest.dir),
                                 "daemon": d.pid, "daemon_dir": str(d.dir)}))
    run(d, "attach", guest.target, "--name", "quickstart")
    cli = f"{os.path.relpath(binary('hvftrace'), TOP)} -s {d.socket}"
    print(f"""
The guest and the daemon stay up. Go on in a browser:

  {d.url()}/#/g/quickstart

There "vfs_*" under Functions, "Start trace", then "Flame graph" shows where the guest's time goes.
Or with:

  {cli} ls
  {cli} functions quickstart 'tcp_*'
  {cli} trace quickstart -l 'vfs_*' -l 'do_sys_open*' --duration 5
  {cli} record quickstart -l 'tcp_*' --duration 5 -o out.hvft
  curl --unix-socket {d.socket} http://localhost/v1/guests
  curl --unix-socket {d.socket} http://localhost/v1/guests/quickstart

End both with: scripts/quickstart --stop""")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kernel")
    p.add_argument("--start", type=float, default=time.time())
    p.add_argument("--keep", action="store_true")
    p.add_argument("--stop", action="store_true")
    a = p.parse_args()
    if a.stop:
        return stop()
    if a.keep and STATE.exists():
        stop()
    os.environ.setdefault("HVF_BUILD", str(TOP / "build/release"))
    guest = Guest(a.kernel, linger=a.keep)
    daemon = Daemon(linger=a.keep, tcp=a.keep)
    kept = False
    try:
        say("booting the guest: a stock Debian kernel under QEMU (TCG), nothing of ours in it")
        guest.start()
        print(guest.run("uname -a").strip())
        before = Truth(guest)
        say(f"attaching from outside; QEMU is process {guest.pid}")
        daemon.start()
        sites = trace(guest, daemon)
        say("comparing the guest's text with before, read through QEMU, not through hvftrace")
        before.assert_untouched(sites)
        guest.assert_alive()
        guest.assert_no_warnings()
        left = daemon.journals()
        if left:
            raise SystemExit(f"the journal is not empty: {left}")
        say(f"unchanged; the guest runs on; {time.time() - a.start:.0f} s in all")
        if a.keep:
            keep_up(guest, daemon)
            kept = True
        return 0
    except AssertionError as e:
        print(f"quickstart: {e}\n{daemon.log()}", file=sys.stderr)
        return 1
    finally:
        if not kept:
            daemon.stop(check=False)
            guest.stop()
            shutil.rmtree(daemon.dir, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.TimeoutExpired as e:
        sys.exit(f"quickstart: {e}")
    except KeyboardInterrupt:
        sys.exit(130)
