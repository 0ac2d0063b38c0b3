# SPDX-License-Identifier: Apache-2.0
"""Guests of our own VMM: the small Linux of tests/kernels/build-small on KVM. Standard library only.

    with SmallGuest() as g:
        g.do("open 100")

init is tests/guest/small/init.c; commands go in by the console's socket, answers come out in its file.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from daemon import binary
from guest import TOP, TROUBLE, GuestError, Skip, die_with_parent, wait_for

# What a nested KVM that emulates kernel-mode code needs; others do not mind. The initcalls left out use
# instructions that it cannot emulate, or take many seconds of emulation and nothing here needs them.
EMULATED = ("lpj=1000000 no_timer_check noxsave rodata=off "
            "clearcpuid=cx16,smap,popcnt,rdtscp,erms,fsrm,invpcid "
            "initcall_blacklist=trace_eval_init,blake2s_mod_init,ftrace_check_for_weak_functions,"
            "slab_sysfs_init,kfunc_init,bpf_key_sig_kfuncs_init,bpf_prog_test_run_init,tracer_init_tracefs,"
            "param_sysfs_init,serial_pci_driver_init,exar_pci_driver_init,lpss8250_pci_driver_init,"
            "mid8250_pci_driver_init,pericom8250_pci_driver_init")


# RAM of 6 GiB of which the kernel takes so much: for each page it has work to do, which a nested KVM emulates
AROUND_HOLE = "acpi=off memmap=exactmap memmap=640K@0 memmap=95M@1M memmap=96M@4G"
LINKED_AT = 0x1000000  # CONFIG_PHYSICAL_START


def small_kernel(kind=None):
    """Directory of the small kernel, or of the one for "devices" or "kaslr", if it is built."""
    p = subprocess.run([TOP / "tests/kernels/build-small", "--cached", *([f"--{kind}"] if kind else [])],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if p.returncode == 77:
        raise Skip(p.stderr.strip())
    if p.returncode:
        raise GuestError(f"tests/kernels/build-small: {p.stderr.strip()}")
    return pathlib.Path(p.stdout.strip())


def need_kvm():
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
    except OSError as e:
        raise Skip(f"/dev/kvm: {e.strerror}") from e


def _cpio(entries):
    """A newc archive of (name, mode, bytes)."""
    out = b""
    for ino, (name, mode, data) in enumerate(list(entries) + [("TRAILER!!!", 0, b"")], 1):
        raw = name.encode() + b"\0"
        fields = (ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08X" % f for f in fields) + raw
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out


def make_initrd(folder):
    """init, compiled, alone in an initramfs; returns its path."""
    program, path = folder / "init", folder / "initrd"
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-nostdlib",
                    "-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-mgeneral-regs-only",
                    "-o", program, TOP / "tests/guest/small/init.c"], check=True)
    path.write_bytes(_cpio([("dev", 0o40755, b""), ("init", 0o100755, program.read_bytes())]))
    return path


def boot_line(append=""):
    return f"console=ttyS0 quiet panic=-1 reboot=k {EMULATED} {append}".strip()


class Control:
    """The VMM's control socket: answers, and events in the order they came."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        wait_for("it listens", lambda: self.connect(str(path)))
        self.socket.settimeout(20)
        self.lines = self.socket.makefile()
        self.events = []

    def connect(self, path):
        try:
            self.socket.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True

    def line(self):
        return self.lines.readline().rstrip("\n")

    def event(self):
        if self.events:
            return self.events.pop(0)
        line = self.line()
        assert line.startswith("event "), line
        return line[6:]

    def ask(self, command):
        self.socket.sendall(command.encode() + b"\n")
        while True:
            line = self.line()
            if not line.startswith("event "):
                return line
            self.events.append(line[6:])

    def registers(self, command="registers"):
        """What it answers, by name."""
        words = self.ask(command).split()
        assert words[0] == "ok", words
        return dict(zip(words[1::2], (int(v, 16) for v in words[2::2])))


class SmallGuest:
    """
    image:   "vmlinux" (ELF) or "vmlinuz" (bzImage)
    mem:     MiB
    append:  more of the kernel command line; what comes later counts
    extra:   more arguments for hvftrace-vmm
    reboot:  a reset brings it back; else it is its end
    kind:    None, "devices": the kernel with drivers for all devices, "kaslr": one that chooses its place
    """

    def __init__(self, image="vmlinux", mem=64, cpus=2, append="acpi=off", extra=(), timeout=240,
                 reboot=False, kind=None):
        self.kind = kind
        extra = [*extra] if reboot else [*extra, "--no-reboot"]
        self.image, self.mem, self.cpus, self.append, self.extra = image, mem, cpus, append, extra
        self.timeout = timeout
        self.image_at = LINKED_AT  # guest physical
        self.pid = self.process = self.input = self.dir = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()

    def start(self):
        need_kvm()
        kernel = small_kernel(self.kind)
        self.symbols = self._read_map(kernel / "System.map")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hvf-small-"))
        self.console_path, self.log_path = self.dir / "console.log", self.dir / "vmm.log"
        self.socket_path = self.dir / "input"
        self.control_path = self.dir / "control"
        start = time.monotonic()
        try:
            self._start(kernel / self.image, make_initrd(self.dir))
            self.boot_seconds = time.monotonic() - start
            self.input = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.input.connect(str(self.socket_path))
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, kernel, initrd):
        args = [binary("hvftrace-vmm"), "--kernel", kernel, "--initrd", initrd,
                "--cpus", str(self.cpus), "--memory", f"{self.mem}M", "--console", self.console_path,
                "--input", self.socket_path, "--control", self.control_path,
                "--append", boot_line(self.append)]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(args + self.extra, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self.process.pid
        self.wait_ready()

    def wait_ready(self):
        self.wait_console(r"^HVF-READY", self.timeout)

    def running(self):
        return self.process.poll() is None

    def _end(self):
        if self.running():
            self.process.kill()
        self.process.wait()

    def stop(self):
        if self.input:
            self.input.close()
            self.input = None
        if self.pid:
            self._end()
            self.pid = None
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    @staticmethod
    def _read_map(path):
        words = (line.split() for line in path.read_text().splitlines())
        return {name: int(addr, 16) for addr, _, name in words}

    @property
    def target(self):
        return f"pid:{self.pid}"

    def console(self):
        try:
            return self.console_path.read_bytes().decode(errors="replace").replace("\r", "")
        except FileNotFoundError:
            return ""

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_console(self, pattern, timeout=60, after=0):
        """Returns the match once the console shows it, from character `after` on."""
        def look():
            m = re.search(pattern, self.console()[after:], re.M)
            if not m and not self.running():
                raise GuestError(f"the VMM ended: {self.log()}\n{self.console()[-2000:]}")
            return m
        try:
            return wait_for(f"the console shows {pattern}", look, timeout, 0.1)
        except GuestError as e:
            raise GuestError(f"{e}; it ends with:\n{self.console()[-2000:]}\n{self.log()}") from e

    def type(self, line):
        self.input.sendall(line.encode() + b"\n")

    def do(self, command, timeout=60):
        """Runs a command of init's; returns what it printed, its last line included."""
        before = len(self.console())
        self.type(command)
        m = self.wait_console(r"^HVF-DONE.*\n", timeout, before)
        return self.console()[before:before + m.end()]

    def wait_end(self, timeout=30):
        """Returns once the VMM has ended by itself."""
        wait_for("the VMM ends", lambda: not self.running(), timeout)

    # the guest's memory, found without the product: one mapping of a memfd, the image at its own addresses

    def read_phys(self, addr, size):
        maps = pathlib.Path(f"/proc/{self.pid}/maps").read_text()
        base = int(re.search(r"^([0-9a-f]+)-.*memfd:guest-ram", maps, re.M).group(1), 16)
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
            f.seek(base + addr)
            return f.read(size)

    def read_kernel(self, addr, size):
        """Bytes of the kernel's image by the virtual address that it is linked for."""
        return self.read_phys(addr - self.symbols["_text"] + self.image_at, size)

    def find_image(self):
        """Of a kernel that has chosen its place, which it tells."""
        said = re.search("([0-9a-f]+)-[0-9a-f]+ : Kernel code", self.do("read /proc/iomem"))
        self.image_at = int(said[1], 16)

    def kernel_text(self):
        start, end = self.symbols["_text"], self.symbols["_etext"]
        return self.read_kernel(start, (end - start + 4095) & ~4095)

    def ram(self):
        """{guest physical address: bytes}, around the hole below 4 GiB (machine/mem.h)."""
        low = min(self.mem << 20, 3 << 30)
        return {0: low} | ({4 << 30: (self.mem << 20) - low} if self.mem << 20 > low else {})

    def agent_entries(self):
        """Entries of the kernel image's page table, below its 512 MiB, that map what is no RAM."""
        table = struct.unpack("<256Q", self.read_kernel(self.symbols["level2_kernel_pgt"], 2048))
        end = max(at + n for at, n in self.ram().items())
        return [e for e in table if e & 1 and e & 0x000ffffffffff000 >= end]

    def slots(self):
        """What the VMM says that it has given the VM as memory: {guest physical address: bytes}."""
        words = Control(self.control_path).ask("slots").split()
        assert words[0] == "ok", words
        return {int(at, 16): int(size, 16) for at, size in (w.split("+") for w in words[1:])}

    def is_lent(self):
        """Does the VMM map the memory above RAM? By the process alone."""
        return "hvftrace-spare" in pathlib.Path(f"/proc/{self.pid}/maps").read_text()

    def assert_given_back(self):
        """Nothing of the agent's is left: no entry of the page table, no slot of the VM, no mapping."""
        assert not self.agent_entries(), [hex(e) for e in self.agent_entries()]
        assert self.slots() == self.ram() and not self.is_lent(), self.slots()

    def assert_no_warnings(self):
        bad = [l for l in self.console().splitlines() if TROUBLE.search(l)]
        assert not bad, "the guest's kernel complains:\n" + "\n".join(bad[:20])


class RunGuest(SmallGuest):
    """As above, started by `hvftrace run --accel kvm`, which attaches it to the daemon under this name."""

    def __init__(self, daemon, name, **more):
        super().__init__(**more)
        self.daemon, self.name = daemon, name

    def _start(self, kernel, initrd):
        p = self.daemon.cli("run", "--kernel", kernel, "--initrd", initrd, "--accel", "kvm",
                            "--name", self.name, "--cpus", str(self.cpus), "--memory", f"{self.mem}M",
                            "--append", boot_line(self.append), "--timeout", str(self.timeout), *self.extra,
                            timeout=self.timeout + 20, env={"XDG_RUNTIME_DIR": str(self.dir)})
        folder = self.dir / "hvftrace/guests" / self.name
        self.console_path, self.log_path = folder / "console.log", folder / "vmm.log"
        self.socket_path, self.control_path = folder / "input", folder / "control"
        if p.returncode:
            raise GuestError(f"run: {p.stderr} {self.console()[-2000:]}")
        self.pid = int((folder / "pid").read_text())

    def running(self):
        try:
            return ") Z " not in pathlib.Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return False

    def _end(self):
        if self.running():
            os.kill(self.pid, signal.SIGKILL)
