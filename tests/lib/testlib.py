# SPDX-License-Identifier: Apache-2.0
"""The runner of tests/guest/test_*.py: functions named test_*, one after another.

    tests/guest/test_exact.py [NAME...]

Exit status: 0 all passed, 77 all were skipped, 1 any failed. Ends with "N passed, N failed,
N skipped". HVF_LONG=1 asks for the full counts and durations.
"""

import os
import signal
import sys
import time
import traceback

from guest import RACED, Skip

LONG = os.environ.get("HVF_LONG") == "1"


def kernels():
    """Flavours that a test which needs one kernel of each kind goes through."""
    names = os.environ.get("HVF_KERNELS", "cloud-6.1 cloud-6.12")
    return names.split()


def each_kernel(test):
    """Turns test(flavour) into one test a kernel."""
    test.flavours = kernels()
    return test


def last_kernel(test):
    """As each_kernel() in the long run; the short one has time for the last of them only."""
    test.flavours = kernels() if LONG else kernels()[-1:]
    return test


def first_kernel(test):
    """The same with the first."""
    test.flavours = kernels() if LONG else kernels()[:1]
    return test


# The oldest kernel that we hold to, and Debian's newest; in the short run test_kernels.py has them.
ENDS = ["cloud-5.10", "cloud-next"]


def ends_too(test):
    """In the long run on those, too, unless HVF_KERNELS says on which."""
    if LONG and "HVF_KERNELS" not in os.environ:
        test.flavours = test.flavours + [f for f in ENDS if f not in test.flavours]
    return test


def _cases(module):
    for name, f in list(vars(module).items()):
        if not name.startswith("test_") or not callable(f):
            continue
        if hasattr(f, "flavours"):
            for flavour in f.flavours:
                yield f"{name}[{flavour}]", lambda f=f, flavour=flavour: f(flavour)
        else:
            yield name, f


def run_case(name, case):
    """A second time, if QEMU's own fault (guest.py: QEMU_RACE) took the guest away; and says so."""
    RACED.clear()
    try:
        case()
    except Exception:
        if not RACED:
            raise
        traceback.print_exc()
        print(f"{name}: QEMU translated code while the guest patched it, and lost the guest. Its console:\n"
              f"{RACED[0]}\n{name}: running it again", flush=True)
        case()


def main():
    # a time limit from outside ends in SystemExit, so that guests and daemons are taken down
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.stdout.reconfigure(line_buffering=True)
    want = sys.argv[1:]
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name, case in _cases(sys.modules["__main__"]):
        if want and not any(name.startswith(w) for w in want):
            continue
        start = time.monotonic()
        try:
            run_case(name, case)
            result, why = "passed", ""
        except Skip as e:
            result, why = "skipped", f": {e}"
        except Exception as e:
            traceback.print_exc()
            line = traceback.extract_tb(e.__traceback__)[-1]
            said = str(e).strip().split("\n", 1)[0]
            result, why = "failed", f": {type(e).__name__}: {said} ({line.name}, line {line.lineno})"
        count[result] += 1
        print(f"{name}: {result} in {time.monotonic() - start:.1f} s{why}")
    print(", ".join(f"{n} {what}" for what, n in count.items()))
    if count["failed"] or not sum(count.values()):
        sys.exit(1)
    sys.exit(77 if count["skipped"] and not count["passed"] else 0)
