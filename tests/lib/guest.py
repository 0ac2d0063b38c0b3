# SPDX-License-Identifier: Apache-2.0
"""Test guests: a stock Debian kernel under QEMU with a command channel. Standard library only.

    with Guest("cloud-6.1") as g:
        status, out = g.sh("uname -r")

Each guest has its own temporary directory, two monitors (g.qmp_path is for the product, one client at
a time; g.qmp is the harness's) and a console log. Nothing of it outlives stop() or the context.
"""

import base64
import ctypes
import gzip
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from qmp import Qmp, QmpError

TOP = pathlib.Path(__file__).resolve().parents[2]

# What a guest must never print because of us. Lines of a normal boot do not match.
TROUBLE = re.compile(
    r"WARNING: |BUG: |\bBUG at |Oops|ftrace_bug|FTRACE_WARN|ftrace failed to modify|general protection|"
    r"kernel NULL pointer|Unable to handle|rcu: INFO: rcu_\w+ (?:self-)?detected|rcu_\w+ kthread starved|"
    r"soft lockup|hard LOCKUP|hung_task|blocked for more than|invalid opcode|double fault|"
    r"Kernel panic|stack segment|Bad page state|list_\w+ corruption|scheduling while atomic|"
    r"sleeping function called from invalid|refcount_t: |segfault at|traps: "
)

# Linux v6.12 arch/x86/kernel/traps.c exc_debug_kernel() on its warning: "A known way to trigger this is
# through QEMU's GDB stub, which leaks #DB into the guest". Seen once in some 30,000 stop windows under TCG,
# which open that stub; under KVM there is none. We set no TF and no breakpoint.
GDBSTUB_LEAK = re.compile(r"WARNING: .* exc_debug_kernel\+")

# QEMU before v8.1 (commit deba78709ae8) lets a vCPU translate code that another one is writing, and keep
# the translation. A kernel that patches itself, as for its static keys, may then meet an int3 of its own
# after the patching is over; ours never has one. No test result: testlib.py runs the case again.
QEMU_RACE = re.compile(r"\bint3: 0000 \[#1\](?:.*\n){1,12}.*RIP: 0010:[a-z_]\w*\+0x")
RACED = []  # consoles of guests that ended so


def die_with_parent():
    """For preexec_fn: a test that is killed must not leave its processes behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Skip(Exception):
    """What the test needs is not to be had on this machine; the message says what."""


class GuestError(Exception):
    pass


class GuestTimeout(GuestError):
    pass


BOOT_TRIES = 3


def wait_for(what, condition, timeout=30, every=0.05):
    """Polls until condition() is true; returns what it returned."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise GuestTimeout(f"{what}: not within {timeout} s")
        time.sleep(every)


def kernel_dir(flavour):
    """Directory of a stock kernel: a name of tests/kernels/fetch, or a directory like its own."""
    if os.path.isdir(str(flavour)):
        return pathlib.Path(flavour)
    p = subprocess.run([TOP / "tests/kernels/fetch", str(flavour)], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if p.returncode == 77:
        raise Skip(p.stderr.strip())
    if p.returncode:
        raise GuestError(f"tests/kernels/fetch {flavour}: {p.stderr.strip()}")
    return pathlib.Path(p.stdout.strip())


def initramfs(kernel=None):
    p = subprocess.run([TOP / "tests/lib/initramfs"] + ([str(kernel)] if kernel else []),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                       text=True)
    if p.returncode:
        raise GuestError(f"tests/lib/initramfs: {p.stderr.strip()}")
    return pathlib.Path(p.stdout.strip())


class Guest:
    """
    kernel:  flavour or directory; None starts QEMU without a kernel (firmware only)
    mem:     MiB
    append:  more of the kernel command line
    ram:     "memfd" (a shared mapping) or "anonymous" (QEMU's and libvirt's default)
    cpu:     QEMU's -cpu; max has 5-level page tables
    extra:   more QEMU arguments
    linger:  the guest may outlive this process
    incoming: a file that save_state() of a guest with the same parameters wrote: it goes on from there
    thread:  "multi" or "single", QEMU's threads for the vCPUs. For QEMU_RACE some 1 of 20 guests that
             trace all functions themselves hang for good (their kernel's RCU says so), with nothing of ours
             near them; with one thread none did. Use it where a guest does that.
    icount:  all of the guest's clocks count what its one vCPU executes, an instruction a nanosecond; while
             it is idle they are the host's
    """

    def __init__(self, kernel="cloud-6.1", mem=512, cpus=2, append="", load="light", modules=(),
                 ram="memfd", cpu="max", extra=(), initrd=None, user=None, ready=True, timeout=120,
                 linger=False, reboot=False, thread="multi", incoming=None, icount=False):
        self.kernel = kernel_dir(kernel) if kernel else None
        self.mem, self.cpus, self.ram, self.cpu = mem, cpus, ram, cpu
        self.append = f"hvf.load={load} {append}".strip()
        if kernel and ("6.12" in str(kernel) or "next" in str(kernel)):
            # else it may find its TSC unstable seconds later, and patch static keys of its scheduler:
            # QEMU_RACE. 6.1 does so while it boots. Of the newest it is not known.
            self.append += " tsc=reliable"
        if modules:
            self.append += " hvf.modules=" + ",".join(modules)
        self.extra, self.initrd, self.user = list(extra), initrd, user
        self.ready, self.timeout, self.linger = ready, timeout, linger
        self.reboot, self.incoming = reboot, incoming
        self.thread, self.icount = "single" if icount else thread, icount
        self.process = self.qmp = self.channel = None
        self.buf = b""
        self.token = 0
        self.dir = self._text = None

    # life

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()

    def arguments(self):
        d = self.dir
        a = ["qemu-system-x86_64", "-name", "hvf-test", "-nodefaults", "-no-user-config",
             "-display", "none", "-accel", f"tcg,thread={self.thread}", "-cpu", self.cpu,
             "-smp", str(self.cpus), "-m", f"{self.mem}M"]
        if self.icount:
            a += ["-icount", "shift=0,sleep=on"]
        if not self.reboot:
            a += ["-no-reboot"]
        if self.ram == "memfd":
            a += ["-object", f"memory-backend-memfd,id=ram,size={self.mem}M,share=on",
                  "-machine", "pc,memory-backend=ram"]
        else:
            a += ["-machine", "pc"]
        a += ["-qmp", f"unix:{self.qmp_path},server=on,wait=off",
              "-qmp", f"unix:{d}/harness.qmp,server=on,wait=off",
              "-chardev", f"file,id=console,path={self.console_path}", "-serial", "chardev:console",
              # on PCI, level-triggered: an edge of a second ISA port is lost now and then, and with it
              # the channel; an RT kernel even gives the interrupt up ("irq 3: nobody cared")
              "-chardev", f"socket,id=channel,path={d}/channel,server=on,wait=off",
              "-device", "pci-serial,chardev=channel"]
        if self.kernel:
            initrd = self.initrd or initramfs(self.kernel)
            a += ["-kernel", str(self.kernel / "vmlinuz"), "-initrd", str(initrd), "-append",
                  f"console=ttyS0 loglevel=5 panic=-1 {self.append}".strip()]
        if self.incoming:
            a += ["-incoming", f"exec:cat {self.incoming}"]
        return a + self.extra

    def start(self):
        """
        Boots. A stock 6.12 panics in some 1 of 40 boots for QEMU_RACE, with nothing of ours near it. Only a
        panic before the guest was ever ready is booted again, and it is said.
        """
        for left in range(BOOT_TRIES - 1, -1, -1):
            try:
                return self._start_once()
            except GuestError as e:
                if not left or "Kernel panic" not in str(e):
                    raise
                RACED.clear()
                print("the guest's kernel panicked while it booted, before anything was attached; "
                      "booting again", flush=True)
        return self

    def _start_once(self):
        if not shutil.which("qemu-system-x86_64"):
            raise Skip("qemu-system-x86_64 is not installed (scripts/setup)")
        self.buf = b""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hvf-guest-"))
        self.qmp_path = self.dir / "qmp"
        self.console_path = self.dir / "console.log"
        self.log_path = self.dir / "qemu.log"
        try:
            with open(self.log_path, "wb") as log:
                self.process = subprocess.Popen(
                    self.arguments(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True, user=self.user,
                    preexec_fn=None if self.linger else die_with_parent)
            self.qmp = Qmp(str(self.dir / "harness.qmp"))
            self.channel = self._connect(self.dir / "channel")
            if self.incoming:
                wait_for("it goes on", lambda: self.status() == "running", self.timeout)
            elif self.kernel and self.ready:
                self.wait_ready()
        except Exception as e:
            detail = self._tail(self.log_path) + self._tail(self.console_path)
            self.stop()
            if isinstance(e, Skip):
                raise
            raise GuestError(f"guest did not start: {e}\n{detail}") from e
        return self

    def stop(self):
        for s in (self.channel, self.qmp):
            if s:
                s.close()
        self.channel = self.qmp = None
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
        if self.dir:
            if QEMU_RACE.search(self._tail(self.console_path, 20000)):
                RACED.append(self._tail(self.console_path))
            keep = os.environ.get("HVF_KEEP_LOGS")
            if keep and self.console_path.exists():
                os.makedirs(keep, exist_ok=True)
                shutil.copy(self.console_path, os.path.join(keep, f"{self.dir.name}.console.log"))
            shutil.rmtree(self.dir, ignore_errors=True)
        self.process = self.dir = None

    @property
    def pid(self):
        return self.process.pid

    @property
    def target(self):
        return f"qemu:{self.qmp_path}"

    def _connect(self, path):
        def attempt():
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                s.connect(str(path))
                return s
            except OSError:
                s.close()
                return None
        return wait_for(f"socket {path}", attempt, 20)

    @staticmethod
    def _tail(path, n=3000):
        try:
            return pathlib.Path(path).read_bytes()[-n:].decode(errors="replace")
        except OSError:
            return ""

    def save_state(self, path):
        """All that it is, into a file; then it goes on."""
        self.qmp.command("migrate-set-parameters", **{"max-bandwidth": 1 << 33})
        self.qmp.command("migrate", uri=f"exec:cat > {path}")

        def ended():
            status = self.qmp.command("query-migrate").get("status")
            return status if status in ("completed", "failed", "cancelled") else None
        status = wait_for("its state is written", ended, self.timeout)
        if status != "completed":
            raise GuestError(f"its state was not written: {status}")
        self.qmp.command("cont")

    # command channel

    def _line(self, end):
        while b"\n" not in self.buf:
            self._fill(end)
        line, self.buf = self.buf.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def _fill(self, end):
        left = end - time.monotonic()
        if left <= 0:
            raise GuestTimeout("no answer on the command channel; console ends with:\n" +
                               self._tail(self.console_path, 1500) + self._vcpus())
        if select.select([self.channel], [], [], min(left, 1.0))[0]:
            part = self.channel.recv(1 << 20)
            if not part:
                raise GuestError("guest is gone; console ends with:\n" +
                                 self._tail(self.console_path))
            self.buf += part
        elif self.process.poll() is not None:
            raise GuestError(f"QEMU ended with status {self.process.returncode}")

    def _vcpus(self):
        """What each vCPU is doing, twice: for a guest that does not answer."""
        try:
            said = [f"QEMU says: {self.status()}"]
            for _ in range(2):
                for cpu in self.qmp.command("query-cpus-fast"):
                    def ask(line, cpu=cpu["cpu-index"]):
                        return self.qmp.command("human-monitor-command", **{
                            "command-line": line, "cpu-index": cpu}).replace("\r", "")
                    regs = ask("info registers")
                    said.append("\n".join(l for l in regs.splitlines() if re.match(r"CPU#|R|GS|CR", l)))
                    said.append("stack:\n" + ask("x /64gx 0x" + re.search(r"RSP=(\w+)", regs)[1]))
                time.sleep(0.2)
            return "\n" + "\n".join(said)
        except (OSError, ValueError, QmpError) as e:
            return f"\nQEMU does not answer either: {e}"

    def wait_ready(self, timeout=None):
        """Returns once init serves commands."""
        end = time.monotonic() + (timeout or self.timeout)
        while self._line(end) != "HVF-READY":
            pass

    def send(self, cmd, timeout=60):
        """Has the guest run a shell command, and waits for nothing: it may not live to answer."""
        self.token += 1
        token = f"hvf-{os.getpid()}-{self.token}"
        if "\n" in cmd:
            cmd = f'eval "$(echo {base64.b64encode(cmd.encode()).decode()} | base64 -d)"'
        line = f"{token} {timeout} {cmd}\n".encode()
        self.channel.sendall(line)
        return token, line

    def sh(self, cmd, timeout=60):
        """Runs a shell command in the guest; returns (exit status, output). 137: it took too long."""
        token, line = self.send(cmd, timeout)
        try:
            return self._answer(token, time.monotonic() + timeout + 10)
        except GuestTimeout:
            # By now init has killed it. Now and then QEMU's serial port stops taking bytes from its socket:
            # the guest is idle and well, no interrupt is pending, init polls its port.
            print("no answer on the command channel; opening it again", flush=True)
            self.channel.close()
            self.channel, self.buf = self._connect(self.dir / "channel"), b""
            self.channel.sendall(b"\n" + line)
            return self._answer(token, time.monotonic() + timeout + 30)

    def _answer(self, token, end):
        # answers to commands that were given up come first
        while True:
            word = self._line(end).split()
            if word[:2] == ["HVF-OUT", token] and len(word) == 4:
                break
        how, size = word[2], int(word[3])
        while len(self.buf) < size:
            self._fill(end)
        body, self.buf = self.buf[:size], self.buf[size:]
        word = self._line(end).split()
        if word[:2] != ["HVF-END", token]:
            raise GuestError(f"command channel out of step: {word}")
        data = base64.b64decode(body)
        if how == "gz":
            data = gzip.decompress(data)
        return int(word[2]), data.decode(errors="replace")

    def run(self, cmd, timeout=60):
        """As sh(), but a status that is not 0 is an error; returns the output."""
        status, out = self.sh(cmd, timeout)
        if status:
            raise GuestError(f"in the guest: {cmd}: status {status}: {out[-2000:]}")
        return out

    # is it well?

    def status(self):
        return self.qmp.command("query-status")["status"]

    def assert_alive(self, timeout=30):
        """QEMU runs, the vCPUs run, and the guest starts a process and answers."""
        if self.process.poll() is not None:
            raise AssertionError(f"QEMU ended with status {self.process.returncode}: " +
                                 self._tail(self.console_path))
        # a stop window under TCG shows as paused; whose daemon was killed in it ends a moment later
        try:
            wait_for("the guest runs", lambda: self.status() == "running", 5)
        except GuestTimeout:
            raise AssertionError(f"the guest is not running but {self.status()}") from None
        assert self.run("echo al''ive", timeout).strip() == "alive"

    def dmesg(self):
        return self.run("dmesg")

    def kernel_warnings(self):
        """Lines of the kernel's log that say that something is wrong with it."""
        bad = [l for l in self.dmesg().splitlines() if TROUBLE.search(l)]
        for line in [l for l in bad if GDBSTUB_LEAK.search(l)]:
            print(f"not ours, QEMU's: {line}", flush=True)
            bad.remove(line)
        return bad

    def assert_no_warnings(self):
        bad = self.kernel_warnings()
        assert not bad, "the guest's kernel complains:\n" + "\n".join(bad[:20])

    # independent looks at the guest's memory: the guest's own word and QEMU's, never the product's

    def symbols(self, *names):
        """{name: [address, ...]} of /proc/kallsyms, modules too. With names (a prefix ends in *), only
        those: all take ten seconds."""
        table = {}
        cmd = "ksyms " + " ".join(f"'{n}'" for n in names) if names else "cat /proc/kallsyms"
        for line in self.run(cmd, 120).splitlines():
            f = line.split()
            if len(f) >= 3:
                table.setdefault(f[2], []).append(int(f[0], 16))
        return table

    def note_text(self, text, etext):
        """Where kernel text lies, from kallsyms (_text, _etext) and /proc/iomem."""
        m = re.search(r"^\s*([0-9a-f]+)-[0-9a-f]+ : Kernel code$", self.run("cat /proc/iomem"), re.M)
        self._text = text, int(m.group(1), 16), etext - text

    def text_range(self):
        """(virtual start, physical start, length) of kernel text."""
        if not self._text:
            syms = self.symbols("_text", "_etext")
            self.note_text(syms["_text"][0], syms["_etext"][0])
        return self._text

    def read_phys(self, addr, size):
        """Guest RAM by physical address, through QEMU."""
        path = self.dir / "pmem"
        self.qmp.command("pmemsave", val=addr, size=size, filename=str(path))
        data = path.read_bytes()
        path.unlink()
        assert len(data) == size
        return data

    def read_ram(self, addr, size):
        """As read_phys(), from the file that holds the RAM: for a QEMU whose main thread answers nobody."""
        assert self.ram == "memfd" and addr + size <= self.mem << 20
        files = pathlib.Path(f"/proc/{self.pid}/fd")
        ram = next(f for f in files.iterdir() if os.readlink(f).startswith("/memfd:memory-backend-memfd"))
        with open(ram, "rb") as f:
            data = os.pread(f.fileno(), size, addr)
        assert len(data) == size
        return data

    def read_virt(self, addr, size):
        """By virtual address, through QEMU and the page table that vCPU 0 uses now."""
        path = self.dir / "mem"
        self.qmp.command("memsave", val=addr, size=size, filename=str(path))
        data = path.read_bytes()
        path.unlink()
        return data

    def kernel_text(self):
        """(virtual start, bytes) of the kernel's text up to the end of its last page."""
        start, phys, size = self.text_range()
        return start, self.read_phys(phys, (size + 4095) & ~4095)

    # VMM

    def rss_kib(self):
        """Resident memory of QEMU, shared RAM included."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", text, re.M).group(1))

    def signal(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
