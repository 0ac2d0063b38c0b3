# SPDX-License-Identifier: Apache-2.0
"""Our own VMM, with kernels of a few instructions: how a guest starts, ends, and fails, each in one line."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time

from bare import (ABOVE, ECHOES, FAULTS, FLOODS, INT3, LIVES, LOOPS, MEMORY, OFF, PRINTS, PVH, RESETS,
                  VECTORS, Bare, Vmm, connects, order, type_to, vmm)
from daemon import binary, is_release
from guest import Skip, die_with_parent, wait_for
from small import Control, need_kvm
from testlib import main


def last_line(p):
    return p.stderr.splitlines()[-1]


def test_prints_and_ends_with_a_status():
    need_kvm()
    with Bare(PRINTS) as g:
        p = g.run()
        assert (p.returncode, p.stdout) == (15, "bare guest\n"), p
        assert p.stderr == "hvftrace-vmm: the guest ended itself with 7\n", p.stderr
        out = pathlib.Path(g.dir.name) / "console"
        p = g.run("--console", out, "--cpus", "4")
        assert (p.returncode, p.stdout, out.read_text()) == (15, "", "bare guest\n"), p


def test_ways_to_end():
    need_kvm()
    for case, status, line in ((FAULTS, 4, "the guest ended in a triple fault of vCPU 0"),
                               (RESETS, 0, "the guest reset itself"),
                               (OFF, 0, "the guest powered itself off")):
        with Bare(case) as g:
            p = g.run("--no-reboot")
            assert (p.returncode, last_line(p)) == (status, f"hvftrace-vmm: {line}"), p
            # registers only where something went wrong
            assert ("rip 0010:0000000000200000" in p.stderr) == (status == 4), p.stderr


def test_int3():
    """Also where KVM's emulator has no int3."""
    need_kvm()
    with Bare(INT3) as g:
        p = g.run()
        assert (p.returncode, last_line(p)) == (19, "hvftrace-vmm: the guest ended itself with 9"), p


def test_what_kvm_cannot_emulate():
    """Either it works, or the instruction is named and this guest alone ends."""
    need_kvm()
    with Bare(VECTORS) as g:
        p = g.run()
        if p.returncode == 7:
            return
        assert p.returncode == 4, p
        assert re.fullmatch(r"hvftrace-vmm: (vCPU 0: KVM cannot emulate the instruction at 0x2000\w\w "
                            r"\(0f 01 d0 [0-9a-f ]+, CPL 0\)|the guest ended in a triple fault of vCPU 0)",
                            last_line(p)), p.stderr
        assert "rax " in p.stderr and "cr3 0000000000009000" in p.stderr, p.stderr


def test_memory_with_its_hole():
    need_kvm()
    for mem in (16, 512, 3072, 3073, 5120):
        with Bare(MEMORY, EXPECT=mem) as g:
            p = g.run("--memory", f"{mem}M")
            assert (p.returncode, last_line(p)) == \
                (11, "hvftrace-vmm: the guest ended itself with 5"), (mem, p)


def test_entered_by_pvh():
    """In 32-bit mode, told what there is in the other form; more memory than 32 bits can address, too."""
    need_kvm()
    for mem in (16, 5120):
        with Bare(PVH, EXPECT=mem) as g:
            initrd = pathlib.Path(g.dir.name) / "initrd"
            initrd.write_text(" and an initrd\n")
            args = ("--memory", f"{mem}M", "--append", "a command line", "--initrd", initrd)
            p = g.run("--protocol", "pvh", *args)
            assert (p.returncode, p.stdout) == (11, "a command line and an initrd\n"), (mem, p)
            # not where it can be entered in 64-bit mode, unless it is asked for
            assert g.run(*args).returncode == 5
    # an entry that is no physical address, as in many a kernel that is not Linux
    with Bare(PVH, EXPECT=16) as g:
        raw = bytearray(g.kernel.read_bytes())
        struct.pack_into("<Q", raw, 24, 0xffffffff81000000)
        g.kernel.write_bytes(raw)
        initrd = pathlib.Path(g.dir.name) / "initrd"
        initrd.write_text("\n")
        p = g.run("--memory", "16M", "--append", "by itself", "--initrd", initrd)
        assert (p.returncode, p.stdout) == (11, "by itself\n"), p
        p = g.run("--protocol", "linux")
        assert p.returncode == 1 and "has no 64-bit entry" in last_line(p), p


def test_what_is_typed():
    """From standard input, more than the port's FIFO holds; by a socket, from one client after another."""
    need_kvm()
    with Bare(ECHOES) as g:
        text = "typed " * 50
        p = subprocess.run([binary("hvftrace-vmm"), "--kernel", g.kernel, "--input", "-"], input=text + "q",
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                           preexec_fn=die_with_parent)
        assert (p.returncode, p.stdout) == (9, text), p
        path = f"{g.dir.name}/input"
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--input", path],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, preexec_fn=die_with_parent)
        for part in ("one", "twoq"):
            wait_for("it listens", lambda part=part: send(path, part))
        out, err = p.communicate(timeout=60)
        assert (p.returncode, out) == (9, "onetwo"), (p.returncode, out, err)
        # a file that is no socket, or one where somebody listens, is left alone
        pathlib.Path(g.dir.name, "file").write_text("mine")
        p = g.run("--input", f"{g.dir.name}/file")
        assert p.returncode == 1 and "Address already in use" in p.stderr, p
        assert pathlib.Path(g.dir.name, "file").read_text() == "mine"


def send(path, text):
    with socket.socket(socket.AF_UNIX) as s:
        if not connects(s, path):
            return False
        s.sendall(text.encode())
        return True


def confined(pid):
    """By seccomp's filters: soon after its pid is in the file, and before the guest runs."""
    return re.search(r"^Seccomp:\s+2$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)


def test_signals_and_daemon():
    need_kvm()
    with Bare(LOOPS) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--pidfile", f"{g.dir.name}/pid"],
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        pidfile = pathlib.Path(g.dir.name, "pid")
        wait_for("it runs", lambda: pidfile.exists() and pidfile.read_text())
        if is_release():
            wait_for("it is confined", lambda: confined(p.pid))
        p.terminate()
        _, err = p.communicate(timeout=30)
        assert (p.returncode, err) == (0, "hvftrace-vmm: the guest was ended by signal 15 (Terminated)\n")
        assert pidfile.read_text() == ""
        # in the background: returns once the guest runs; what it says at its end goes where it did before
        log = pathlib.Path(g.dir.name, "log")
        with open(log, "wb") as f:
            q = subprocess.run([binary("hvftrace-vmm"), "--kernel", g.kernel, "--daemonize",
                                "--console", "/dev/null", "--pidfile", f"{g.dir.name}/pid"],
                               stdin=subprocess.DEVNULL, stderr=f, timeout=60)
        assert q.returncode == 0, (q, log.read_text())
        pid = int(pidfile.read_text())
        os.kill(pid, signal.SIGINT)
        wait_for("it ends", lambda: not os.path.exists(f"/proc/{pid}"))
        assert log.read_text() == "hvftrace-vmm: the guest was ended by signal 2 (Interrupt)\n"
        q = g.run("--daemonize", "--console", "/dev/null", "--initrd", "/nonexistent")
        assert (q.returncode, last_line(q)) == \
            (1, "hvftrace-vmm: /nonexistent: No such file or directory"), q


def test_ends_while_nobody_reads():
    """Its output goes to a full pipe that nobody reads: it ends in time, and says what was lost."""
    need_kvm()
    with Bare(FLOODS) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        with p:
            size = fcntl.fcntl(p.stdout, fcntl.F_GETPIPE_SZ)
            wait_for("the pipe is full", lambda: unread(p.stdout) == size)
            start = time.monotonic()
            p.terminate()
            assert p.wait(timeout=10) == 0
            assert time.monotonic() - start < 3
            err = p.stderr.read().decode()
            assert err == ("hvftrace-vmm: 1 bytes of the console's output were lost\n"
                           "hvftrace-vmm: the guest was ended by signal 15 (Terminated)\n"), err
            assert p.stdout.read() == b"x" * size


def test_lives():
    """A reset brings the guest back in the same process, memory and devices as at its start; it is told."""
    need_kvm()
    with Bare(LIVES) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--input", f"{g.dir.name}/input",
                 "--control", f"{g.dir.name}/control", "--triple-fault", "reset", "--cpus", "3",
                 "--memory", "4G"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=die_with_parent)
        with p:
            c = Control(f"{g.dir.name}/control")
            keyboard = type_to(f"{g.dir.name}/input")
            # it is heard from now on: what is told before somebody was let in, nobody is told
            assert c.ask("status").startswith("ok life 1 ")
            life, said = 1, []
            os.set_blocking(p.stdout.fileno(), True)
            for how, why in [("r", "reset itself"), ("t", "reset itself by a triple fault"),
                             (None, "was reset by its control socket")] * 7:
                assert p.stdout.read(1) == b"b", p.stderr.read()
                if how == "r":
                    keyboard.sendall(b"pp")  # told once a life
                    said.append(f"the guest's kernel panics (life {life})")
                    assert c.event() == said[-1]
                if how:
                    keyboard.sendall(how.encode())
                else:
                    assert c.ask("reset") == "ok"
                life += 1
                said.append(f"the guest {why}: life {life}")
                assert c.event() == said[-1]
            assert c.ask("status") == f"ok life {life} console_lost 0"
            assert c.ask("power").startswith("error the guest does not listen")
            assert c.ask("what").startswith("error commands are")
            assert p.stdout.read(1) == b"b"
            # no file of the lives before is left open
            files = len(os.listdir(f"/proc/{p.pid}/fd"))
            keyboard.sendall(b"q")
            assert p.wait(timeout=20) == 9
            said.append("the guest ended itself with 4")
            assert c.event() == said[-1]
            assert p.stderr.read().decode() == "".join(f"hvftrace-vmm: {s}\n" for s in said)
            assert files < 40, files


def spare_maps(pid):
    return [l for l in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "hvftrace-spare" in l]


def test_memory_that_is_lent():
    """Memory above RAM: there for the guest only while it is lent, and new each time; also after a reset."""
    need_kvm()
    with Bare(ABOVE) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--memory", "16M", "--input",
                 f"{g.dir.name}/input", "--control", f"{g.dir.name}/control"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=die_with_parent)
        with p:
            c = Control(f"{g.dir.name}/control")
            keyboard = type_to(f"{g.dir.name}/input")

            def say(what, expect):
                keyboard.sendall(what)
                assert p.stdout.read(len(expect)) == expect, what

            def lend(value):
                order(p, signal.SIGRTMIN, value)
                want = "ok 0+1000000" + " 100000000+a000000" * value
                wait_for(f"slots are {want}", lambda: c.ask("slots") == want)
                assert len(spare_maps(p.pid)) == value

            assert c.ask("slots") == "ok 0+1000000" and not spare_maps(p.pid)
            say(b"lsl", b"nn")
            for _ in range(3):
                lend(1)
                say(b"lsl", b"05")
                lend(1)
                say(b"l", b"5")
                lend(0)
                say(b"lsl", b"nn")
            lend(1)
            say(b"sl", b"5")
            assert c.ask("reset") == "ok"
            assert c.event().endswith("life 2")
            say(b"l", b"0")
            lend(0)
            say(b"l", b"n")
            # without a value nobody knows what is wanted
            os.kill(p.pid, signal.SIGRTMIN)
            assert c.ask("slots") == "ok 0+1000000"
            keyboard.sendall(b"q")
            assert p.wait(timeout=20) == 9


def test_what_waits_is_lent_memory():
    """Whoever waits to be started is traced from boot: it is lent from the start."""
    need_kvm()
    with Bare(LOOPS) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--wait", "--no-reboot",
                 "--control", f"{g.dir.name}/control"], stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent)
        with p:
            wait_for("it waits", lambda: ") T " in pathlib.Path(f"/proc/{p.pid}/stat").read_text())
            assert len(spare_maps(p.pid)) == 1
            p.send_signal(signal.SIGCONT)
            c = Control(f"{g.dir.name}/control")
            wait_for("it answers", lambda: "100000000+a000000" in c.ask("slots"))
            # a guest that is not reset may change the slots of its own VM, and of none else
            order(p, signal.SIGRTMIN, 0)
            wait_for("it is back", lambda: "a000000" not in c.ask("slots"))
            assert not spare_maps(p.pid)
            assert c.ask("end") == "ok"
            assert p.wait(timeout=20) == 0


def test_control_ends_it():
    need_kvm()
    with Bare(LOOPS) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel,
                 "--control", f"{g.dir.name}/control"],
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        with p:
            c = Control(f"{g.dir.name}/control")
            more = [Control(f"{g.dir.name}/control") for _ in range(7)]
            assert all(k.ask("status") == "ok life 1 console_lost 0" for k in more)
            # one too many is let go; one that leaves makes room
            assert Control(f"{g.dir.name}/control").line() == ""
            more.pop().socket.shutdown(socket.SHUT_RDWR)
            wait_for("there is room", lambda: room_for_one(g))
            assert c.ask("x" * 500).startswith("error")
            assert c.ask("end") == "ok"
            assert p.wait(timeout=20) == 0
            assert c.event() == "the guest was ended by its control socket"


def test_registers():
    """Where each vCPU is, while it runs, which it does not notice."""
    need_kvm()
    with Bare(ECHOES) as g:
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--cpus", "2",
                 "--input", f"{g.dir.name}/input", "--control", f"{g.dir.name}/control"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        with p:
            c = Control(f"{g.dir.name}/control")
            keyboard = type_to(f"{g.dir.name}/input")
            windows = []
            for i in range(60):
                keyboard.sendall(b"x")
                regs = c.registers("registers" if i % 2 else "registers 0")
                assert 0x200000 <= regs["rip"] < 0x200100 and regs["cr3"] == 0x9000, regs
                assert (regs["vcpu"], regs["cs"], regs["cpl"], regs["rdx"] & ~5) == (0, 0x10, 0, 0x3f8), regs
                windows.append(regs["window_ns"])
                assert p.stdout.read(1) == b"x"
            print(f"windows of {sorted(windows)[30] / 1e3:.0f} us, the longest {max(windows) / 1e3:.0f} us")
            # one that waits to be started
            regs = c.registers("registers 1")
            assert (regs["vcpu"], regs["rip"]) == (1, 0xfff0), regs
            assert c.ask("registers 2") == "error the guest has vCPUs 0 to 1"
            for bad in ("registers x", "registers 1 ", "registersx", "registers -1", "registers 99999"):
                assert c.ask(bad).startswith("error commands are"), bad
            keyboard.sendall(b"q")
            assert p.wait(timeout=20) == 9


def room_for_one(g):
    k = Control(f"{g.dir.name}/control")
    try:
        return k.ask("status").startswith("ok")
    except (BrokenPipeError, ConnectionResetError):
        return False


def qemu_takes(disk, *how):
    """Does QEMU start, stopped, with the disk? It takes its locks when it starts."""
    pidfile, log = disk.with_suffix(".pid"), disk.with_suffix(".log")
    with open(log, "wb") as out:  # a file, as the one in the background may keep it open
        p = subprocess.run(["qemu-system-x86_64", "-S", "-accel", "tcg", "-machine", "q35", "-m", "32M",
                            "-nodefaults", "-display", "none",
                            "-drive", ",".join((f"file={disk},format=raw,if=virtio", *how)),
                            "-pidfile", pidfile, "-daemonize"],
                           stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=60)
    if p.returncode == 0:
        os.kill(int(pidfile.read_text()), signal.SIGKILL)
        process = pathlib.Path("/proc", pidfile.read_text().strip())
        wait_for("QEMU's locks are gone", lambda: not process.exists())
    else:
        assert "another process using the image" in log.read_text(), log.read_text()
    return p.returncode == 0


def test_disks_are_locked_for_qemu_too():
    need_kvm()
    if not shutil.which("qemu-system-x86_64"):
        raise Skip("no QEMU")
    with Bare(LOOPS) as g:
        disk = pathlib.Path(g.dir.name) / "disk"
        disk.write_bytes(bytes(1 << 20))
        for ours, reads, writes in ((f"{disk}", False, False), (f"{disk},readonly", True, False),
                                    (f"{disk},cow", True, False)):
            pidfile = pathlib.Path(g.dir.name, "pid")
            p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--pidfile", pidfile,
                     "--disk", ours], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
            wait_for("it runs", lambda f=pidfile: f.exists() and f.read_text())
            assert qemu_takes(disk, "readonly=on") == reads, ours
            assert qemu_takes(disk) == writes, ours
            p.terminate()
            assert p.wait(timeout=20) == 0
        assert qemu_takes(disk)


def low_memory(pid):
    """A guest's first MiB, found without the product: one mapping of a memfd."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    base = int(re.search(r"^([0-9a-f]+)-.*memfd:guest-ram", maps, re.M).group(1), 16)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
        f.seek(base)
        return f.read(1 << 20)


def acpi_tables(ram):
    """By signature; each has the length it says, and its bytes add up to 0."""
    def table(at):
        data = ram[at:at + struct.unpack_from("<I", ram, at + 4)[0]]
        assert len(data) >= 36 and sum(data) & 255 == 0, (hex(at), data[:8])
        return data
    xsdt = table(struct.unpack_from("<Q", ram, ram.index(b"RSD PTR ") + 24)[0])
    found = [table(at) for at, in struct.iter_unpack("<Q", xsdt[36:])]
    fadt = next(t for t in found if t[:4] == b"FACP")
    return {t[:4].decode(): t for t in [xsdt, *found, table(struct.unpack_from("<Q", fadt, 140)[0])]}


def test_acpi_tables_compile():
    """What stock kernels interpret is what iasl, written by the same people, finds nothing wrong with."""
    need_kvm()
    if not shutil.which("iasl"):
        raise Skip("no iasl (acpica-tools)")
    with Bare(LOOPS) as g:
        disk = pathlib.Path(g.dir.name) / "disk"
        disk.write_bytes(bytes(1 << 20))
        p = Vmm([binary("hvftrace-vmm"), "--kernel", g.kernel, "--cpus", "4",
                 "--disk", f"{disk},readonly", "--disk", f"{disk},cow",
                 "--append", "console=hvc0",
                 "--vsock", f"{g.dir.name}/vsock", "--control", f"{g.dir.name}/control"],
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        with p:
            assert Control(f"{g.dir.name}/control").ask("status").startswith("ok")
            tables = acpi_tables(low_memory(p.pid))
            p.terminate()
        assert set(tables) == {"XSDT", "FACP", "APIC", "DSDT"}, tables.keys()
        assert tables["DSDT"].count(b"LNRO0005") == 5 and tables["DSDT"].count(b"QEMU0001") == 1
        for name, data in tables.items():
            pathlib.Path(g.dir.name, f"{name}.dat").write_bytes(data)
            out = iasl(g.dir.name, "-d", f"{name}.dat")
            assert not re.search("error|warning|invalid", out, re.I), out
        out = iasl(g.dir.name, "DSDT.dsl")
        assert " 0 Errors, 0 Warnings" in out, out


def iasl(folder, *args):
    return subprocess.run(["iasl", *args], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=True).stdout


def unread(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_no_permission_for_kvm():
    need_kvm()
    nobody = 65534
    if os.geteuid() or os.stat("/dev/kvm").st_mode & 0o006:
        raise Skip("needs root, and a /dev/kvm that is not for everybody")
    try:
        p = subprocess.run([binary("hvftrace-vmm"), "--kernel", "/dev/null"], stdin=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, timeout=60, user=nobody, group=nobody,
                           extra_groups=[])
    except PermissionError as e:
        raise Skip(f"the build is not for everybody: {e}") from e
    assert (p.returncode, p.stderr) == (1, "hvftrace-vmm: no permission to use /dev/kvm: "
                                           "join the group that owns it, often kvm\n"), p


def in_a_host(prepare, *args, user=None):
    """Runs a program where /dev is what the shell commands make of an empty one, in a mount namespace."""
    drop = f"setpriv --reuid {user} --regid {user} --clear-groups " if user else ""
    script = f'set -e; mount -t tmpfs -o mode=755 none /dev; {prepare}; exec {drop}"$@"'
    return subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *args],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)


def test_a_kvm_that_cannot_be_opened():
    """One line that says why and what to do; auto takes QEMU TCG then, and says so."""
    if os.geteuid():
        raise Skip("needs root, for a /dev of its own")
    if in_a_host("true", "true").returncode:
        raise Skip("no mount namespaces here")
    nobody = 65534
    for prepare, user, line, auto in (
            ("true", None, "no KVM on this host (/dev/kvm: No such file or directory): load kvm_intel or "
             "kvm_amd, or let the firmware turn virtualisation on", "No such file or directory"),
            ("mknod -m 600 /dev/kvm c 10 232", nobody,
             "no permission to use /dev/kvm: join the group that owns it, often kvm", "Permission denied"),
            ("mknod -m 666 /dev/kvm c 1 3", None, "KVM's API is not version 12", "KVM here makes no guest")):
        p = in_a_host(prepare, binary("hvftrace-vmm"), "--kernel", "/proc/self/exe", user=user)
        if user and "Permission denied" in p.stderr and "hvftrace-vmm:" not in p.stderr:
            continue  # the build is not for everybody
        assert (p.returncode, p.stderr) == (1, f"hvftrace-vmm: {line}\n"), p
        p = in_a_host(prepare, binary("hvftrace"), "--json", "doctor", user=user)
        kvm = next(c for c in json.loads(p.stdout)["checks"] if c["name"] == "kvm")
        assert kvm["status"] == "warn" and auto in kvm["detail"], kvm
        assert kvm["detail"].endswith("using QEMU TCG"), kvm


def test_what_cannot_be_started():
    need_kvm()
    with Bare(PRINTS) as g:
        big = pathlib.Path(g.dir.name) / "big"
        with open(big, "wb") as f:
            f.truncate(65 << 20)
        text = pathlib.Path(g.dir.name) / "text"
        text.write_text("no kernel\n" * 1000)
        cut = pathlib.Path(g.dir.name) / "cut"
        cut.write_bytes(g.kernel.read_bytes()[:4200])
        for args, words in (
                (("--kernel", "/nonexistent"), "/nonexistent: No such file"),
                (("--kernel", text), "neither a bzImage nor an ELF file"),
                (("--kernel", cut), "cut short"),
                (("--kernel", binary("hvftrace-vmm")), "no x86-64 kernel"),
                (("--kernel", g.kernel, "--protocol", "pvh"), "has no PVH entry"),
                (("--kernel", g.kernel, "--initrd", big, "--memory", "64M"),
                 "the initrd has 65 MiB, there is room for 61 MiB"),
                (("--kernel", g.kernel, "--append", "x" * 4000), "a command line of 2047 bytes, not 4000")):
            p = vmm(*args)
            assert p.returncode == 1 and len(p.stderr.splitlines()) == 1 and words in p.stderr, (args, p)
    for args in ((), ("--cpus", "0"), ("--memory", "1M"), ("--memory", "9999999999T"), ("extra",),
                 ("--kernel", "x", "--daemonize"), ("--kernel", "x", "--protocol", "multiboot")):
        assert vmm(*args).returncode == 2, args


if __name__ == "__main__":
    main()
