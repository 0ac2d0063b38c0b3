# SPDX-License-Identifier: Apache-2.0
"""Domains of a real libvirtd for tests. Standard library only; libvirt is spoken to by virsh.

    with Libvirtd() as v, Domain(v) as g:
        g.run("uname -r")

A libvirtd that runs already is used as it is; else one is started, with its virtlogd, and ended. The
domain has nothing for us: default memory, no monitor but libvirt's, no gdbstub.
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from guest import Guest, GuestError, Skip, die_with_parent, initramfs, wait_for
from qmp import QmpError

URI = "qemu:///system"
PREFIX = "hvf-test-"

XML = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>{mem}</memory>
  <vcpu>{cpus}</vcpu>
  <os>
    <type arch='x86_64'>hvm</type>
    <kernel>{dir}/vmlinuz</kernel>
    <initrd>{dir}/initrd</initrd>
    <cmdline>console=ttyS0 loglevel=5 panic=-1 {append}</cmdline>
  </os>
  <features><acpi/></features>
  <on_reboot>restart</on_reboot>
  <devices>
    <serial type='file'><source path='{dir}/console.log'/><target type='isa-serial'/></serial>
    <serial type='unix'><source mode='bind' path='{dir}/channel'/><target type='pci-serial'/></serial>{disk}
  </devices>
</domain>
"""

DISK = """
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{dir}/disk.qcow2'/><target dev='hda' bus='ide'/>
    </disk>"""


def virsh(*args, timeout=60, check=True):
    """Output of a virsh command on the system's connection."""
    p = subprocess.run(["virsh", "-q", "-c", URI, *args], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
    if check and p.returncode:
        raise GuestError(f"virsh {' '.join(args)}: {p.stderr.strip()}")
    return p.stdout.strip()


def answers():
    """Does a libvirtd answer?"""
    try:
        virsh("uri", timeout=15)
        return True
    except (GuestError, subprocess.TimeoutExpired):
        return False


def listens(path):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


class Libvirtd:
    """The system's libvirtd; `ours` says whether we started it, and so may restart it. With kvm, one of
    ours runs QEMU as root where QEMU's user may not open /dev/kvm."""

    def __init__(self, kvm=False):
        self.kvm = kvm
        self.process = self.logger = None
        self.dir = None

    @property
    def ours(self):
        return self.process is not None

    def __enter__(self):
        for program in ("virsh", "libvirtd", "virtlogd"):
            if not shutil.which(program):
                raise Skip(f"{program} is not installed (scripts/setup)")
        if os.geteuid() != 0:
            raise Skip("libvirtd's system connection needs root")
        try:
            if not answers():
                self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hvf-libvirtd-"))
                self.start()
            self.sweep()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for p in (self.process, self.logger):
            if p and p.poll() is None:
                p.terminate()
                p.wait(30)
        self.process = self.logger = None
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def _run(self, program, command=None):
        with open(self.dir / f"{program}.log", "ab") as log:
            return subprocess.Popen(command or [program], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True, preexec_fn=die_with_parent)

    def _command(self):
        """
        libvirtd as it is; but where QEMU's user may not open /dev/kvm, libvirtd 9.0 does not believe its
        own cache and probes QEMU for seconds at every call (virQEMUCapsIsValid()). There it runs without
        KVM, or QEMU as root, in a mount namespace of its own; without KVM it cannot give QEMU another one.
        """
        try:
            user = pwd.getpwnam("libvirt-qemu")
        except KeyError:
            return None
        if not os.path.exists("/dev/kvm") or not subprocess.run(
                ["test", "-w", "/dev/kvm"], user=user.pw_uid, group=user.pw_gid,
                extra_groups=os.getgrouplist(user.pw_name, user.pw_gid)).returncode:
            return None
        (self.dir / "kvm").touch(0o000)
        conf = pathlib.Path("/etc/libvirt/qemu.conf").read_text()
        conf += '\nuser = "root"\ngroup = "root"\n' if self.kvm else "\nnamespaces = []\n"
        (self.dir / "qemu.conf").write_text(conf)
        hide = "" if self.kvm else 'mount --bind "$1/kvm" /dev/kvm && '
        return ["unshare", "--mount", "sh", "-c", hide + 'mount --bind "$1/qemu.conf" '
                '/etc/libvirt/qemu.conf && exec libvirtd', "sh", str(self.dir)]

    def start(self):
        if not self.logger and not listens("/run/libvirt/virtlogd-sock"):
            self.logger = self._run("virtlogd")
        self.process = self._run("libvirtd", self._command())
        wait_for("libvirtd answers", lambda: self.process.poll() is not None or answers(), 30, 0.1)
        if self.process.poll() is not None:
            log = (self.dir / "libvirtd.log").read_text(errors="replace").strip().splitlines()
            raise Skip("libvirtd does not run on this machine: " + (log[-1] if log else "no reason given"))

    def kill(self):
        """As an upgrade or a crash would: domains run on."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    @staticmethod
    def sweep():
        """Domains of tests that were killed."""
        for name in virsh("list", "--all", "--name").split():
            m = re.fullmatch(re.escape(PREFIX) + r"(\d+)-\d+", name)
            if m and not os.path.exists(f"/proc/{m.group(1)}"):
                virsh("destroy", name, check=False)
                virsh("undefine", "--managed-save", "--snapshots-metadata", name, check=False)


def empty_qcow2(size):
    """A disk of QEMU's, as `qemu-img create` makes one (QEMU docs/interop/qcow2.txt, version 2)."""
    cluster = 1 << 16
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 16, size, 0, -(-size // (cluster << 13)),
                       3 * cluster, cluster, 1, 0, 0)
    counts = struct.pack(">4H", 1, 1, 1, 1)  # this, the two tables of counts, and the one of blocks
    parts = head, struct.pack(">Q", 2 * cluster), counts, b""
    return b"".join(part.ljust(cluster, b"\0") for part in parts)


class _Monitor:
    """QMP by `virsh qemu-monitor-command`."""

    def __init__(self, name):
        self.name = name

    def close(self):
        pass

    def command(self, name, **args):
        request = {"execute": name}
        if args:
            request["arguments"] = args
        reply = json.loads(virsh("qemu-monitor-command", self.name, json.dumps(request)))
        if "error" in reply:
            raise QmpError(f"{name}: {reply['error']['desc']}")
        return reply["return"]

    def hmp(self, line):
        return self.command("human-monitor-command", **{"command-line": line})


class _Process:
    """The part of subprocess.Popen that Guest uses, for a QEMU that is not our child."""

    returncode = None

    def __init__(self, pid):
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    def poll(self):
        try:
            signal.pidfd_send_signal(self.fd, 0)
            state = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            self.returncode = 0 if state == "Z" else None
        except OSError:
            self.returncode = 0
        return self.returncode

    def wait(self, timeout=30):
        wait_for("QEMU ends", lambda: self.poll() is not None, timeout)

    def kill(self):
        signal.pidfd_send_signal(self.fd, signal.SIGKILL)


class Domain(Guest):
    """A guest that is a domain; `start=False` only defines it. With disk, snapshots go into that."""

    number = 0

    def __init__(self, libvirtd, kernel="cloud-6.1", mem=256, disk=False, **more):
        super().__init__(kernel, mem=mem, ram="anonymous", **more)
        self.libvirtd, self.disk = libvirtd, disk
        Domain.number += 1
        self.name = f"{PREFIX}{os.getpid()}-{Domain.number}"

    @property
    def target(self):
        return f"libvirt:{URI}/{self.name}"

    @property
    def uuid(self):
        return virsh("domuuid", self.name)

    def state(self):
        return virsh("domstate", self.name)

    def define(self):
        """What libvirt needs of the host, and the definition."""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hvf-guest-"))
        self.dir.chmod(0o755)
        self.console_path = self.dir / "console.log"
        self.log_path = pathlib.Path(f"/var/log/libvirt/qemu/{self.name}.log")
        # copies: libvirt gives them to QEMU's user
        shutil.copyfile(self.kernel / "vmlinuz", self.dir / "vmlinuz")
        shutil.copyfile(self.initrd or initramfs(self.kernel), self.dir / "initrd")
        if self.disk:
            (self.dir / "disk.qcow2").write_bytes(empty_qcow2(64 << 20))
        xml = self.dir / "domain.xml"
        xml.write_text(XML.format(name=self.name, mem=self.mem, cpus=self.cpus, dir=self.dir,
                                  append=self.append, disk=DISK.format(dir=self.dir) if self.disk else ""))
        virsh("define", str(xml))
        return self

    def _start_once(self):
        self.buf = b""
        if not self.dir:
            self.define()
        try:
            virsh("start", self.name, timeout=120)
            self._reach()
            self.wait_ready()
        except Exception as e:
            detail = self._tail(self.log_path) + self._tail(self.console_path)
            self.stop()
            raise GuestError(f"domain did not start: {e}\n{detail}") from e
        return self

    def _reach(self):
        """The QEMU that it runs in now."""
        pid = int(pathlib.Path(f"/run/libvirt/qemu/{self.name}.pid").read_text())
        self.process = _Process(pid)
        self.qmp = _Monitor(self.name)
        self.channel = self._connect(self.dir / "channel")
        where = self.qmp.hmp("gpa2hva 0")
        self.ram_at = int(re.search(r"\) is 0x([0-9a-f]+)", where).group(1), 16)

    def save(self):
        """Into a file that libvirt keeps; its QEMU ends."""
        virsh("managedsave", self.name, timeout=120)
        self.process.wait()
        self._let_go()

    def restore(self):
        """As it was when it was saved, in another process."""
        virsh("start", self.name, timeout=120)
        self._reach()

    def snapshot(self, tag):
        """Of all that it is, into its disk's file."""
        virsh("snapshot-create-as", self.name, tag, timeout=300)

    def revert(self, tag):
        """To a snapshot; libvirt may have another QEMU for that."""
        virsh("snapshot-revert", self.name, tag, timeout=300)
        self._let_go()
        self._reach()

    def _let_go(self):
        self.channel.close()
        os.close(self.process.fd)
        self.process = self.channel = None
        self.buf = b""

    def stop(self):
        if self.channel:
            self.channel.close()
        self.channel = None
        if self.dir:
            virsh("destroy", self.name, check=False)
            virsh("undefine", "--managed-save", "--snapshots-metadata", self.name, check=False)
            shutil.rmtree(self.dir, ignore_errors=True)
        if self.process:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self.process.fd)
        self.process = self.dir = self.qmp = None

    def read_phys(self, addr, size):
        """By QEMU's memory; also while no libvirtd is there. All RAM of so small a guest is one piece."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
            data = os.pread(f.fileno(), size, self.ram_at + addr)
        assert len(data) == size and addr + size <= self.mem << 20
        return data
