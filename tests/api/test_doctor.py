# SPDX-License-Identifier: Apache-2.0
"""hvftrace doctor: what is looked at on the host and of a guest, and the exit status."""

import json
import unittest

from harness import CliCase

HOST = ["host", "kvm", "hvftrace-vmm", "qemu", "libvirt", "ptrace", "daemon"]


class Doctor(CliCase):
    def checks(self, *args, status=0, env=None):
        p = self.d.cli("--json", "doctor", *args, env=env)
        self.assertEqual((p.returncode, p.stderr), (status, b""))
        doc = json.loads(p.stdout)
        self.assertEqual(list(doc), ["checks"])
        for c in doc["checks"]:
            self.assertIn(c["status"], ("ok", "warn", "no"), c)
            self.assertTrue(c["detail"], c)
        return doc["checks"]

    def test_host(self):
        checks = self.checks()
        self.assertEqual([c["name"] for c in checks][:len(HOST)], HOST)
        self.assertEqual({c["name"] for c in checks[len(HOST):]}, {"vm"})
        kvm = checks[1]
        # one decision: what `run --accel auto` does is what is shown
        self.assertEqual(kvm["status"] == "ok", "using it" in kvm["detail"])
        self.assertEqual(kvm["status"] == "warn", "using QEMU TCG" in kvm["detail"])
        self.assertIsInstance(kvm["insns_per_sec"], float)
        self.assertEqual(checks[6]["status"], "ok")
        text = self.d.cli("doctor")
        self.assertEqual(text.returncode, 0)
        for line, c in zip(text.stdout.decode().splitlines(), checks):
            self.assertEqual(line.split()[:2], [c["status"], c["name"]])

    def test_qemu_versions(self):
        bin_dir = self.d.dir / "bin"
        bin_dir.mkdir()
        qemu = bin_dir / "qemu-system-x86_64"
        for version, status in (("7.2.22 (Debian 1:7.2+dfsg-7)", "warn"), ("8.0.5", "warn"), ("8.1.0", "ok"),
                                ("10.0.2", "ok"), ("strange", "warn")):
            qemu.write_text(f"#!/bin/sh\necho 'QEMU emulator version {version}'\n")
            qemu.chmod(0o755)
            c = self.checks(env={"PATH": f"{bin_dir}:/usr/bin:/bin"})[3]
            self.assertEqual(c["status"], status, c)

    def test_our_vmm(self):
        self.assertEqual(self.checks(env={"HVFTRACE_VMM": "/nosuch"})[2]["status"], "warn")
        self.assertEqual(self.checks(env={"HVFTRACE_VMM": "/bin/true"})[2],
                         {"name": "hvftrace-vmm", "status": "ok", "detail": "/bin/true"})

    def guest_checks(self, *args, **more):
        return [(c["name"], c["status"], c["detail"]) for c in self.checks(*args, **more)
                if c["name"] not in HOST and c["name"] != "vm"]

    def test_attached_guest(self):
        self.d.attach()
        got = self.guest_checks("g")
        self.assertEqual([(n, s) for n, s, _ in got],
                         [(name, "ok") for name in ("guest", "sites", "config", "btf", "lockdown", "agent",
                                                    "tracer", "tracer")] + [("tracer", "no")])
        self.assertIn("6.1.0-fake", got[0][2])
        self.assertIn("set: SMP; not set: KASAN; preemption dynamic", got[2][2])
        self.assertEqual(got[-1][2], "syscalls: it is not real")
        self.assertIn("integrity", got[4][2])

    def test_guest_that_cannot(self):
        self.d.attach("fake-noagent", "bad")
        got = self.guest_checks("bad", status=1)
        self.assertIn(("tracer", "no", "function: asked to have none"), got)
        got = self.guest_checks("nosuch", status=1)
        self.assertEqual([(n, s) for n, s, _ in got], [("guest", "no")])
        self.assertIn("not_found", got[0][2])

    def test_target_is_attached_for_the_look_alone(self):
        self.assertEqual(self.guest_checks("qemu:/fake")[0][:2], ("guest", "ok"))
        self.assertEqual(self.d.get("/v1/guests")["items"], [])
        got = self.guest_checks("qemu:/err/guest.no_btf", status=1)
        self.assertIn("(guest.no_btf): the guest's kernel needs CONFIG_DEBUG_INFO_BTF", got[0][2])

    def test_without_a_daemon(self):
        self.d.stop()
        checks = self.checks()
        self.assertEqual((checks[6]["name"], checks[6]["status"]), ("daemon", "no"))
        self.assertIn("does not answer", self.guest_checks("g", status=1)[0][2])

    def test_usage(self):
        p = self.d.cli("doctor", "a", "b")
        self.assertEqual((p.returncode, p.stdout), (2, b""))


if __name__ == "__main__":
    unittest.main()
