# SPDX-License-Identifier: Apache-2.0
"""Our own VMM with kernels of a few instructions, tests/guest/bare. Standard library only."""

import ctypes
import pathlib
import socket
import subprocess
import tempfile

from daemon import binary
from guest import TOP, die_with_parent, wait_for

PRINTS, FAULTS, RESETS, OFF, INT3, VECTORS, MEMORY, LOOPS, ECHOES, FLOODS, LIVES, ABOVE, PVH, TWO = \
    range(1, 15)


class Bare:
    """A guest of tests/guest/bare: runs hvftrace-vmm with it."""

    def __init__(self, case, **defines):
        self.dir = tempfile.TemporaryDirectory(prefix="hvf-bare-")
        self.kernel = pathlib.Path(self.dir.name) / "kernel"
        subprocess.run(["gcc", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x200000",
                        "-Wl,-Tdata=0x210000", "-Wl,--build-id=none", f"-DCASE={case}",
                        *(f"-D{k}={v}" for k, v in defines.items()), "-o", self.kernel,
                        TOP / "tests/guest/bare/guest.S"], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.dir.cleanup()

    def symbols(self):
        out = subprocess.run(["nm", self.kernel], stdout=subprocess.PIPE, text=True, check=True).stdout
        return {name: int(addr, 16) for addr, _, name in (line.split() for line in out.splitlines())}

    def run(self, *args):
        return vmm("--kernel", self.kernel, *args)


class Vmm(subprocess.Popen):
    """A VMM in the background, which is not waited for when the test has failed."""

    def __exit__(self, kind, *more):
        if kind:
            self.kill()
        super().__exit__(kind, *more)


def vmm(*args):
    return subprocess.run([binary("hvftrace-vmm"), *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          preexec_fn=die_with_parent)


def order(p, sig, value):
    """As whoever traces the guest tells its VMM by a signal with a value (sigqueue(3))."""
    assert ctypes.CDLL(None, use_errno=True).sigqueue(p.pid, sig, ctypes.c_void_p(value)) == 0


def connects(s, path):
    try:
        s.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


def type_to(path):
    """A client of the console's input; the socket comes after the control socket."""
    s = socket.socket(socket.AF_UNIX)
    wait_for("it takes what is typed", lambda: connects(s, path))
    return s
