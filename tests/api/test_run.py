# SPDX-License-Identifier: Apache-2.0
"""hvftrace run, with a program that only pretends to be QEMU."""

import os
import pathlib
import signal
import socket
import stat
import struct
import subprocess
import termios
import unittest

from harness import SLOW, CliCase, until

FAKE_QEMU = """#!/bin/sh
printf '%s\\n' "$@" > "$HVF_TEST_ARGS"
[ -z "$HVF_TEST_HANG" ] || exec sleep 60
[ -z "$HVF_TEST_FAIL" ] || { echo "qemu: $HVF_TEST_FAIL" >&2; exit 1; }
while [ $# -gt 0 ]; do
	case $1 in
	-pidfile) pidfile=$2 ;;
	-add-fd) fd=${2#fd=} fd=${fd%%,*} ;;
	esac
	shift
done
[ -z "$HVF_TEST_FLOOD" ] || head -c "$HVF_TEST_FLOOD" /dev/zero >"/dev/fd/$fd"
sleep 60 >/dev/null 2>&1 &
echo $! > "$pidfile"
"""


# As FAKE_QEMU, in place of our own VMM.
FAKE_VMM = FAKE_QEMU.replace("-pidfile", "--pidfile").replace("qemu: ", "hvftrace-vmm: ")


class RunCase(CliCase):
    def setUp(self):
        super().setUp()
        self.bin = self.d.dir / "bin"
        self.bin.mkdir()
        qemu = self.bin / "qemu-system-x86_64"
        qemu.write_text(FAKE_QEMU)
        qemu.chmod(0o755)
        vmm = self.bin / "vmm"
        vmm.write_text(FAKE_VMM)
        vmm.chmod(0o755)
        self.kernel = self.d.dir / "vmlinuz"
        self.kernel.touch()
        self.args = self.d.dir / "args"
        self.env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(self.d.dir),
                    "HVFTRACE_VMM": str(vmm),
                    "HVF_TEST_ARGS": str(self.args)}

    def tearDown(self):
        for pidfile in self.d.dir.glob("hvftrace/guests/*/pid"):
            try:
                os.kill(int(pidfile.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
        super().tearDown()

    def run_guest(self, name, *args, env=None):
        return self.d.cli("run", "--kernel", self.kernel, "--name", name, *args,
                          env=dict(self.env, **(env or {})))

    def pid(self, name):
        return int((self.d.dir / f"hvftrace/guests/{name}/pid").read_text())


class FromBoot(RunCase):
    daemon_env = {"HVFTRACE_FAKE_PIDS": "1"}

    def early(self, *args):
        return self.run_guest("early", "--accel", "kvm", "--trace-from-boot", *args)

    def test_into_a_file(self):
        path = self.d.dir / "boot.hvft"
        p = self.early("-o", path, "--func-stack", "-l", "vfs_r*", "--duration", "100ms")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b"restored", p.stderr)
        self.assertIn(" stack:vfs_r* n_stack:1 ", self.d.engine())
        self.assertEqual(path.read_bytes()[:8], b"HVFTRECZ")  # of blocks, as record writes it
        self.assertIn("vfs_read <-", self.run_ok("report", path).stdout.decode())

    def test_options_that_do_not_go_together(self):
        path = self.d.dir / "boot.hvft"
        for args, why in ((("--func-stack",), b"--func-stack needs functions"),
                          (("--stack-depth", "3"), b"--stack-depth needs --func-stack"),
                          (("-o", path, "--persistent"),
                           b"a recording is of one kernel: no --persistent with -o"),
                          (("-o", path, "--format", "json"), b"--format and -O are of what is shown"),
                          (("-o", path, "-p", "function_graph", "-O", "funcgraph-proc"),
                           b"--format and -O are of what is shown")):
            p = self.early(*args)
            self.assertEqual((p.returncode, p.stdout), (2, b""), p.stderr)
            self.assertIn(why, p.stderr)
        self.assertFalse(path.exists() or self.args.exists())
        self.assertEqual(self.early("-p", "syscalls", "--format", "json", "--duration", "50ms").returncode, 0)


class Console(RunCase):
    daemon_env = {"HVFTRACE_FAKE_PIDS": "1"}

    def setUp(self):
        super().setUp()
        self.assertEqual(self.run_guest("own", "--accel", "kvm").returncode, 0)
        self.folder = self.d.dir / "hvftrace/guests/own"
        self.log = open(self.folder / "console.log", "wb", buffering=0)
        self.guest = socket.socket(socket.AF_UNIX)
        self.guest.bind(str(self.folder / "input"))
        self.guest.listen()
        self.guest.settimeout(20 * SLOW)

    def tearDown(self):
        self.log.close()
        self.guest.close()
        super().tearDown()

    def console(self, stdin):
        p = subprocess.Popen([os.environ["HVFTRACE"], "console", "own"], stdin=stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, bufsize=0, env={**os.environ, **self.env})
        keys, _ = self.guest.accept()
        keys.settimeout(20 * SLOW)
        return p, keys

    def end(self):
        os.kill(self.pid("own"), signal.SIGKILL)

    def test_follows_and_sends(self):
        self.log.write(b"a line of the guest's\n" * 3000)
        p, keys = self.console(subprocess.PIPE)
        with p, keys:
            p.stdin.write(b"typed\n")
            self.assertEqual(keys.recv(100), b"typed\n")
            p.stdin.close()
            self.log.write(b"the last words\n")
            self.end()
            out = p.stdout.read()
            self.assertEqual((p.wait(20 * SLOW), p.stderr.read()), (0, b""))
        lines = out.splitlines()
        self.assertEqual((set(lines[:-1]), lines[-1]), ({b"a line of the guest's"}, b"the last words"))
        self.assertTrue(32000 < len(out) < 33000, len(out))
        p = self.d.cli("console", "own", env=self.env)
        self.assertEqual((p.returncode, p.stdout[-15:]), (1, b"the last words\n"))
        self.assertIn(b"(run.not_running)", p.stderr)

    def test_a_terminal(self):
        ours, terminal = os.openpty()
        before = termios.tcgetattr(terminal)
        p, keys = self.console(terminal)
        with p, keys:
            until("keys come as they are", lambda: termios.tcgetattr(terminal) != before)
            os.write(ours, b"\x03a")
            got = b""
            while len(got) < 2:
                got += keys.recv(100)
            self.assertEqual(got, b"\x03a")
            os.write(ours, b"b\x1dc")
            self.assertEqual(p.wait(20 * SLOW), 0)
            self.assertEqual(keys.recv(100), b"b")
        self.assertEqual(termios.tcgetattr(terminal), before)
        os.close(ours)
        os.close(terminal)

    def test_whose(self):
        for name, status, words in (("nosuch", 1, b"nor is one attached (run.not_found)"),
                                    ("../own", 2, b"which guest?"), (".own", 2, b"which guest?")):
            p = self.d.cli("console", name, env=self.env)
            self.assertEqual((p.returncode, p.stdout), (status, b""))
            self.assertIn(words, p.stderr)
        # a folder that others may write to is not believed
        self.folder.chmod(0o777)
        p = self.d.cli("console", "own", env=self.env)
        self.assertEqual(p.returncode, 1)
        self.folder.chmod(0o700)


class Run(RunCase):
    def test_trace_from_boot(self):
        # the VMM is told to wait; that the daemon without guests knows no pid: targets is all the same here
        p = self.run_guest("early", "--accel", "kvm", "--trace-from-boot", "-p", "function_graph", "-l", "x*",
                           "--args", "--retval", "--max-graph-depth", "2", "-o", "/dev/null")
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"target.no_process", p.stderr)
        self.assertEqual(self.args.read_text().splitlines()[-2:], ["--daemonize", "--wait"])
        for args, why in ((("-l", "x"), b"go with --trace-from-boot"),
                          (("--trace-from-boot", "--accel", "tcg"), b"needs --accel kvm"),
                          (("--trace-from-boot", "--retval"), b"--retval needs -p function_graph"),
                          (("--trace-from-boot", "-p", "nosuch"), b"-p takes")):
            p = self.run_guest("early", *args)
            self.assertEqual(p.returncode, 2, p.stderr)
            self.assertIn(why, p.stderr)
        disk = self.d.dir / "d.qcow2"
        disk.write_bytes(b"QFI\xfb" + bytes(100))
        p = self.run_guest("early", "--trace-from-boot", "--disk", disk)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"run.from_boot", p.stderr)

    def test_starts_and_attaches_once_it_is_up(self):
        disk = self.d.dir / "a,b.qcow2"
        disk.write_bytes(b"QFI\xfb" + bytes(100))
        p = self.run_guest("fake-boots", "--accel", "tcg", "--cpus", "3", "--memory", "1G", "--disk", disk,
                           "--append", "quiet", "--initrd", "/dev/null")
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        folder = self.d.dir / "hvftrace/guests/fake-boots"
        self.assertEqual(p.stdout.decode(),
                         f"fake-boots: Linux 6.1.0-fake, 980 functions, pid {self.pid('fake-boots')}, "
                         f"console {folder}/console.log\n")
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        self.assertEqual(self.d.get("/v1/guests/fake-boots")["target"], f"qemu:{folder}/qmp")
        args = self.args.read_text().splitlines()
        for pair in (["-accel", "tcg,thread=multi"], ["-cpu", "max"], ["-smp", "3"], ["-m", "1024M"],
                     ["-append", "console=ttyS0 quiet"], ["-initrd", "/dev/null"],
                     ["-kernel", str(self.kernel)],
                     ["-drive", f"file={self.d.dir}/a,,b.qcow2,format=qcow2,if=virtio"],
                     ["-object", "memory-backend-memfd,id=ram,size=1024M,share=on"],
                     ["-qmp", f"unix:{folder}/qmp,server=on,wait=off"]):
            self.assertTrue(any(args[i:i + 2] == pair for i in range(len(args))), (pair, args))
        self.assertIn("-daemonize", args)
        # a second of that name would take its folder
        p = self.run_guest("fake-boots", "--accel", "tcg")
        self.assertEqual((p.returncode, p.stdout), (1, b""))
        self.assertIn(b"run.name_taken", p.stderr)
        os.kill(self.pid("fake-boots"), 0)

    def test_chooses_by_itself_and_says_why(self):
        p = self.run_guest("fake-a", "--append", "console=hvc0")
        why = p.stderr.decode().splitlines()[0]
        args = self.args.read_text().splitlines()
        self.assertIn("console=hvc0", args)
        if "using QEMU TCG" in why:
            self.assertEqual((p.returncode, len(p.stderr.splitlines())), (0, 1))
            self.assertEqual(args[args.index("-accel") + 1].split(",")[0], "tcg")
        else:  # our own VMM, whose process the fake daemon does not know
            self.assertRegex(why, "^KVM runs kernel code at speed")
            self.assertEqual(args[0], "--kernel")

    def test_own_vmm(self):
        disk = self.d.dir / "disk"
        disk.write_bytes(bytes(1024))
        # the fake daemon knows no process, so the guest is ended again
        p = self.run_guest("own", "--accel", "kvm", "--cpus", "2", "--memory", "1G", "--disk", disk,
                           "--initrd", "/dev/null", "--append", "quiet")
        self.assertEqual(p.returncode, 1)
        self.assertIn(f"there is no process {self.pid('own')} (target.no_process)", p.stderr.decode())
        self.assertFalse(pathlib.Path(f"/proc/{self.pid('own')}/cwd").exists())
        folder = self.d.dir / "hvftrace/guests/own"
        self.assertEqual(self.args.read_text().splitlines(),
                         ["--kernel", str(self.kernel), "--initrd", "/dev/null",
                          "--append", "console=ttyS0 quiet", "--cpus", "2", "--memory", str(1 << 30),
                          "--disk", str(disk), "--console", f"{folder}/console.log",
                          "--input", f"{folder}/input", "--control", f"{folder}/control",
                          "--pidfile", f"{folder}/pid", "--daemonize"])
        (folder / "pid").unlink()

    def test_own_vmm_fails(self):
        p = self.run_guest("own", "--accel", "kvm", env={"HVF_TEST_FAIL": "no KVM on this host"})
        self.assertEqual(p.returncode, 1)
        self.assertEqual(p.stderr.decode().splitlines()[-1],
                         "hvftrace: hvftrace-vmm did not start: "
                         "hvftrace-vmm: no KVM on this host (run.vmm_failed)")
        p = self.run_guest("own", "--accel", "kvm", env={"HVFTRACE_VMM": "/nonexistent"})
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"(run.no_vmm): it belongs beside hvftrace", p.stderr)
        disk = self.d.dir / "disk.qcow2"
        disk.write_bytes(b"QFI\xfb" + bytes(100))
        p = self.run_guest("own", "--accel", "kvm", "--disk", disk)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"(run.disk_format): qemu-img convert -O raw", p.stderr)
        # a raw disk into which a guest wrote the beginning of another format
        disk = disk.rename(self.d.dir / "disk.img")
        for accel in ("auto", "kvm", "tcg"):
            p = self.run_guest("own", "--accel", accel, "--disk", disk)
            self.assertEqual((p.returncode, p.stdout), (1, b""))
            self.assertIn(b"(run.disk_format): if it is one, its name must end in .qcow2", p.stderr)

    def test_devices_of_our_own_vmm(self):
        disk = self.d.dir / "a,b"
        disk.write_bytes(bytes(1024))
        self.run_guest("own", "--accel", "kvm", "--disk", f"{disk},cow", "--disk", f"{disk},readonly",
                       "--disk", f"{disk},cow=/x,y", "--net", "tap=t0,mac=02:00:00:00:00:01", "--vsock",
                       "/s,cid=9", "--no-reboot")
        args = self.args.read_text().splitlines()
        at = args.index("--disk")
        self.assertEqual(args[at:at + 11],
                         ["--disk", f"{disk},cow", "--disk", f"{disk},readonly", "--disk", f"{disk},cow=/x,y",
                          "--net", "tap=t0,mac=02:00:00:00:00:01", "--vsock", "/s,cid=9", "--no-reboot"])
        p = self.run_guest("own", "--accel", "kvm", "--net", "user")
        self.assertEqual((p.returncode, p.stderr.decode()),
                         (1, "hvftrace: --net user: with --accel kvm a network card needs a tap "
                             "(run.not_here): ip tuntap add dev NAME mode tap user $USER, "
                             "then --net tap=NAME\n"))
        for wrong in (("--disk", ",cow=/x"), ("--disk", "x,cow="), ("--net", "bridge=br0")):
            self.assertEqual(self.run_guest("own", "--accel", "kvm", *wrong).returncode, 2)

    def test_devices_of_qemu(self):
        disk = self.d.dir / "a,b"
        disk.write_bytes(bytes(1024))
        p = self.run_guest("fake-boots", "--accel", "tcg",
                           "--disk", f"{disk},cow", "--disk", f"{disk},readonly",
                           "--net", "tap=t0,mac=02:00:00:00:00:01", "--net", "user", "--no-reboot")
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        args = self.args.read_text().splitlines()
        for pair in (["-drive", f"file={self.d.dir}/a,,b,format=raw,if=virtio,snapshot=on"],
                     ["-drive", f"file={self.d.dir}/a,,b,format=raw,if=virtio,readonly=on"],
                     ["-netdev", "tap,id=net0,ifname=t0,script=no,downscript=no"],
                     ["-device", "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01"],
                     ["-netdev", "user,id=net1"], ["-device", "virtio-net-pci,netdev=net1"]):
            self.assertTrue(any(args[i:i + 2] == pair for i in range(len(args))), (pair, args))
        self.assertIn("-no-reboot", args)
        for what, given in (("--vsock", "/x"), ("--disk", f"{disk},cow=/x")):
            p = self.run_guest("fake-a", "--accel", "tcg", what, given)
            self.assertEqual(p.returncode, 1)
            self.assertIn(f"hvftrace: {what}", p.stderr.decode())
            self.assertIn("(run.not_here)", p.stderr.decode())

    def test_console_of_qemu_has_a_limit(self):
        flood = (64 << 20) + 1000000
        p = self.run_guest("fake-boots", "--accel", "tcg", env={"HVF_TEST_FLOOD": str(flood)})
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        console = self.d.dir / "hvftrace/guests/fake-boots/console.log"
        until("all is read", lambda: console.stat().st_size >= 64 << 20)
        # what a daemon finds in its process goes on
        until("all of it was offered", lambda: self.offered(self.pid("fake-boots")) == flood)
        # whoever fills it ends with the guest
        os.kill(self.pid("fake-boots"), signal.SIGKILL)
        until("nobody has it open", lambda: not self.holders(console))
        self.assertEqual(console.stat().st_size, 64 << 20)

    @staticmethod
    def offered(pid):
        """How many bytes were said, by what the VMM's process has open."""
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(fd) == "/memfd:hvftrace-console (deleted)":
                with open(fd, "rb") as f:
                    return struct.unpack("<QQQ", f.read(24))[2]
        raise AssertionError("it is not offered")

    @staticmethod
    def holders(path):
        found = []
        for fd in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if os.readlink(fd) == str(path):
                    found.append(fd)
            except OSError:
                pass
        return found

    def test_folder_with_a_comma(self):
        folder = self.d.dir / "run,time"
        folder.mkdir(mode=0o700)
        p = self.run_guest("nofake", "--accel", "tcg", "--timeout", "100ms",
                           env={"XDG_RUNTIME_DIR": str(folder)})
        self.assertIn(b"target.no_socket", p.stderr)
        args = self.args.read_text().splitlines()
        self.assertIn(f"unix:{self.d.dir}/run,,time/hvftrace/guests/nofake/qmp,server=on,wait=off", args)

    def test_of_two_at_once_one_runs(self):
        p = self.start_guest("nofake", env={"HVF_TEST_HANG": "1"})
        until("the first is being started", self.args.exists)
        q = self.run_guest("nofake", "--accel", "tcg")
        self.assertEqual((q.returncode, q.stderr.decode()),
                         (1, "hvftrace: a guest nofake is being started already (run.name_taken): "
                             "choose another --name\n"))
        p.send_signal(signal.SIGINT)
        self.interrupted(p, "no guest runs (run.interrupted)")

    def test_stale_pid_files(self):
        """Not taken for the guest: a process that got its number since, and what a failed start left."""
        folder = self.d.dir / "hvftrace/guests/fake-boots"
        folder.mkdir(parents=True, mode=0o700)
        for path in (folder, folder.parent, folder.parent.parent):
            path.chmod(0o700)
        (folder / "pid").write_text(f"{os.getpid()}\n")
        p = self.run_guest("fake-boots", "--accel", "tcg", env={"HVF_TEST_FAIL": "no"})
        self.assertIn(b"run.qemu_failed", p.stderr)
        self.assertFalse((folder / "pid").exists())
        (folder / "pid").write_text(f"{os.getpid()}\n")
        p = self.run_guest("fake-boots", "--accel", "tcg")
        self.assertEqual((p.returncode, p.stderr), (0, b""))

    def start_guest(self, name, *args, env=None):
        return self.start("run", "--kernel", str(self.kernel), "--name", name, "--accel", "tcg", *args,
                          env=dict(self.d.env, **self.env, **(env or {})))

    def started(self, name):
        path = self.d.dir / f"hvftrace/guests/{name}/pid"
        until("the guest is started", lambda: path.exists() and path.read_text().strip())
        return self.pid(name)

    def interrupted(self, p, words):
        out, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual((p.returncode, out, err.decode()),
                         (1, b"", f"hvftrace: interrupted: {words}\n"))

    def test_interrupted_while_it_boots(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = self.start_guest("nofake")  # has no socket, so it is waited for
            pid = self.started("nofake")
            p.send_signal(sig)
            self.interrupted(p, f"the guest was ended, pid {pid} (run.interrupted)")
            self.assertFalse(pathlib.Path(f"/proc/{pid}/cwd").exists())
            (self.d.dir / "hvftrace/guests/nofake/pid").unlink()
        p = self.start_guest("nofake", "--keep")
        pid = self.started("nofake")
        p.send_signal(signal.SIGINT)
        self.interrupted(p, f"the guest runs on, pid {pid} (run.interrupted): hvftrace attach "
                            f"qemu:{self.d.dir}/hvftrace/guests/nofake/qmp --name nofake")
        os.kill(pid, 0)

    def test_interrupted_twice_but_kept(self):
        p = self.start_guest("fake-gate", "--keep")
        pid = self.started("fake-gate")
        self.d.until_it_waits()
        p.send_signal(signal.SIGINT)
        until("the first is taken", lambda: "ShdPnd:\t0000000000000000" in
              pathlib.Path(f"/proc/{p.pid}/status").read_text())
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual((p.returncode, err), (1, b"hvftrace: not waited for the guest's end\n"))
        os.kill(pid, 0)
        until("it sleeps", lambda: "sleep" in pathlib.Path(f"/proc/{pid}/comm").read_text())

    def test_interrupted_while_it_is_attached(self):
        p = self.start_guest("fake-gate")
        pid = self.started("fake-gate")
        self.d.until_it_waits()
        p.send_signal(signal.SIGINT)
        self.assertIsNone(p.poll())
        self.d.open_gate()
        self.interrupted(p, f"the guest was ended, pid {pid} (run.interrupted)")
        self.assertFalse(pathlib.Path(f"/proc/{pid}/cwd").exists())
        self.assertEqual(self.d.get("/v1/guests")["items"], [])

    def test_interrupted_twice(self):
        p = self.start_guest("fake-gate")
        pid = self.started("fake-gate")
        self.d.until_it_waits()
        p.send_signal(signal.SIGINT)
        until("the first is taken", lambda: "ShdPnd:\t0000000000000000" in
              pathlib.Path(f"/proc/{p.pid}/status").read_text())
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=20 * SLOW)
        self.assertEqual((p.returncode, err), (1, b"hvftrace: not waited for the guest's end\n"))
        until("it is ended", lambda: not pathlib.Path(f"/proc/{pid}/cwd").exists())

    def test_interrupted_while_qemu_starts(self):
        p = self.start_guest("nofake", env={"HVF_TEST_HANG": "1"})
        until("QEMU is started", self.args.exists)
        p.send_signal(signal.SIGINT)
        self.interrupted(p, "no guest runs (run.interrupted)")

    def test_failures(self):
        p = self.run_guest("fake-a", "--accel", "tcg", env={"HVF_TEST_FAIL": "no such machine"})
        self.assertEqual((p.returncode, p.stderr.decode()),
                         (1, "hvftrace: QEMU did not start: qemu: no such machine (run.qemu_failed)\n"))
        p = self.run_guest("fake-a", "--accel", "tcg", env={"PATH": "/nonexistent"})
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"install qemu-system-x86", p.stderr)
        # one whose kernel cannot be traced is not left behind
        p = self.run_guest("nofake", "--accel", "tcg", "--timeout", "300ms")
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"target.no_socket", p.stderr)
        self.assertFalse(pathlib.Path(f"/proc/{self.pid('nofake')}/cwd").exists())
        p = self.d.cli("run", "--kernel", "/nonexistent", env=self.env)
        self.assertEqual((p.returncode, p.stderr.decode()),
                         (1, "hvftrace: --kernel /nonexistent: No such file or directory\n"))
        self.args.unlink()
        p = self.d.cli("-s", "/nowhere", "run", "--kernel", self.kernel, env=self.env)
        self.assertEqual(p.returncode, 1)
        self.assertFalse(self.args.exists(), "a guest was started although there is no daemon")


if __name__ == "__main__":
    unittest.main()
