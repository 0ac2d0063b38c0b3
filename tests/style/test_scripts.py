# SPDX-License-Identifier: Apache-2.0
"""scripts/test, scripts/setup, tests/kernels/fetch: over a tree of their own, with programs that pretend."""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
IN_FRONT = """#!/usr/bin/env python3
import os, sys
tty = os.open("/dev/tty", os.O_RDWR)
sys.exit(os.tcgetpgrp(tty) != os.getpgrp())
"""


def run_on_a_terminal(command, env):
    """Its controlling terminal is a new one, its standard input is not. Returns the exit status."""
    pid, fd = pty.fork()
    if not pid:
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.execvpe(command[0], command, env)
    while True:
        try:
            if not os.read(fd, 4096):
                break
        except OSError:  # EIO: nobody has it open any more
            break
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return os.waitstatus_to_exitcode(status)


class Case(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory(prefix="hvf-scripts-")
        self.addCleanup(tmp.cleanup)
        self.top = pathlib.Path(tmp.name)
        self.bin = self.top / "bin"
        self.bin.mkdir()
        self.env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", LOG=str(self.top / "log"))

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_without_terminal(self, *command):
        return subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, start_new_session=True,
                              check=False)


class Test(Case):
    def setUp(self):
        super().setUp()
        self.script = self.top / "scripts/test"
        self.program(self.top / "scripts/setup", "exit 0")
        self.program(self.bin / "cmake", "exit 0")
        shutil.copy(SCRIPTS / "test", self.script)
        self.tests = self.top / "build/dev/CTestTestfile.cmake"
        self.tests.parent.mkdir(parents=True)

    def suite(self, text):
        self.tests.write_text(text)
        p = self.run_without_terminal(str(self.script), "--only", "style")
        return p.returncode, p.stdout.splitlines()[-1]

    def test_a_suite_counts(self):
        one = 'add_test(one "true")\nset_tests_properties(one PROPERTIES LABELS "style")\n'
        self.assertEqual(self.suite(one), (0, "3 passed, 0 failed, 0 skipped"))  # setup, build, one
        self.assertEqual(self.suite(one.replace("true", "false")), (1, "2 passed, 1 failed, 0 skipped"))

    def test_says_at_the_end_why_a_case_failed(self):
        self.program(self.top / "bad", "echo 'test_x: failed in 0.1 s: ValueError: no'\n"
                     "echo '1 passed, 1 failed, 0 skipped'\nexit 1")
        self.tests.write_text(f'add_test(one "{self.top}/bad")\n'
                              'set_tests_properties(one PROPERTIES LABELS "style")\n')
        p = self.run_without_terminal(str(self.script), "--only", "style")
        self.assertEqual(p.stdout.splitlines()[-3:-2],
                         ["failed: one: test_x: failed in 0.1 s: ValueError: no"])

    def test_an_empty_suite_fails(self):
        self.assertEqual(self.suite(""), (1, "2 passed, 1 failed, 0 skipped"))
        other = 'add_test(one "true")\nset_tests_properties(one PROPERTIES LABELS "unit")\n'
        self.assertEqual(self.suite(other), (1, "2 passed, 1 failed, 0 skipped"))

    def test_setup_may_ask_at_the_terminal(self):
        self.tests.write_text('add_test(one "true")\nset_tests_properties(one PROPERTIES LABELS "style")\n')
        self.program(self.top / "scripts/setup", IN_FRONT)
        self.assertEqual(run_on_a_terminal([str(self.script), "--only", "style"], self.env), 0)


class Setup(Case):
    def setUp(self):
        super().setUp()
        self.log = self.top / "log"
        self.program(self.bin / "id", "echo 1000")
        self.program(self.bin / "sudo", '[ "$1" != -n ] || exit 1\necho "$*" >>"$LOG"')
        for name in ("dpkg-query", "apt-cache", "apt-get"):
            self.program(self.bin / name, "exit 0")

    def test_asks_when_there_is_a_terminal(self):
        self.assertEqual(run_on_a_terminal([str(SCRIPTS / "setup")], self.env), 0)
        self.assertIn(" install ", self.log.read_text())

    def test_says_so_when_there_is_none(self):
        p = self.run_without_terminal(str(SCRIPTS / "setup"))
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("cannot become root without a terminal", p.stdout)
        self.assertFalse(self.log.exists())


@unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb makes the package that is fetched")
class Fetch(Case):
    """Its cache: a package of two modules, and scripts that want one of them, then both."""

    def setUp(self):
        super().setUp()
        self.env["HVF_CACHE"] = str(self.top / "cache")
        deb = self.package("linux-image-6.1.0-9-cloud-amd64", "boot/vmlinuz-6.1.0-9", "boot/config-6.1.0-9",
                           "lib/modules/6.1.0-9/loop.ko", "lib/modules/6.1.0-9/virtio_balloon.ko")
        self.program(self.bin / "modinfo", "exit 0")
        self.program(self.bin / "apt-cache", "echo '  Depends: linux-image-6.1.0-9-cloud-amd64'")
        self.mirror(f'cp "{deb}" linux-image.deb')

    def package(self, name, *files):
        tree = self.top / "tree" / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: amd64\n"
            "Maintainer: nobody <nobody@example.org>\nDescription: none\n")
        for path in files:
            self.program(tree / path, path)
        deb = self.top / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True,
                       stdout=subprocess.DEVNULL)
        return deb

    def mirror(self, answer):
        self.program(self.bin / "apt-get", f'case $* in *download*) echo one >>"$LOG"; {answer} ;; esac')

    def fetch(self, *modules, flavour="cloud-6.1", release="6.1.0-9"):
        """Fetched by a script that wants these; the modules that its directory has then."""
        script = self.top / "fetch"
        text = (SCRIPTS.parent / "tests/kernels/fetch").read_text()
        self.program(script, re.sub("^modules='.*'$", f"modules='{' '.join(modules)}'", text, flags=re.M))
        p = self.run_without_terminal(str(script), flavour)
        self.assertEqual(p.returncode, 0, p.stdout)
        where = pathlib.Path(p.stdout.splitlines()[-1])
        self.assertEqual((where / "release").read_text(), release + "\n")
        self.assertEqual([x.name for x in where.parent.iterdir() if x.name.startswith("tmp.")], [])
        return [line.split()[0] for line in (where / "modules/order").read_text().splitlines()]

    def downloads(self):
        log = self.top / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def test_what_is_there_is_not_fetched_again(self):
        self.assertEqual(self.fetch("loop", "not_in_this_kernel"), ["loop"])
        self.assertEqual(self.fetch("loop", "not_in_this_kernel"), ["loop"])
        self.assertEqual(self.fetch("loop"), ["loop"])
        self.assertEqual(self.downloads(), 1)

    def test_a_kernel_in_parts_from_another_suite(self):
        """As Debian 14 has it; by a list of our own, checked with Debian's keys."""
        modules = "usr/lib/modules/7.2.1"
        parts = {"linux-base-7.2.1": [f"{modules}/config"], "linux-binary-7.2.1": [f"{modules}/vmlinuz"],
                 "linux-modules-7.2.1": [f"{modules}/loop.ko"], "linux-image-7.2.1": []}
        debs = " ".join(f'"{self.package(name, *files)}"' for name, files in parts.items())
        lines = "".join(f"\n  Depends: {name}" for name in parts if "image" not in name)
        self.program(self.bin / "apt-cache", f"""case $* in
            *sourcelist=*apt-forky/sources.list*sourceparts=-*linux-image-cloud-amd64)
                echo '  Depends: linux-image-7.2.1' ;;
            *sourcelist=*apt-forky/sources.list*linux-image-7.2.1)
                echo '  PreDepends: linux-base\n |Depends: dracut{lines}' ;;
            esac""")
        self.program(self.bin / "apt-get", f"""case $* in
            *sourcelist=*apt-forky/sources.list*" linux-image-7.2.1 linux-base-7.2.1 linux-binary-7.2.1 "*)
                cp {debs} . ;;
            *download*) exit 1 ;;
            *indextargets*) echo http://mirror.example.org/debian/ ;;
            esac""")
        self.assertEqual(self.fetch("loop", flavour="cloud-next", release="7.2.1"), ["loop"])
        sources = self.top / "cache/kernels/apt-forky/sources.list"
        keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
        self.assertEqual(sources.read_text(),
                         f"deb [signed-by={keys}] http://mirror.example.org/debian/ forky main\n")

    def test_what_is_not_offered_is_a_skip(self):
        self.program(self.bin / "apt-cache", "exit 0")
        for flavour, whose in (("cloud-5.10", "Debian's bullseye"),
                               ("cloud-6.1", "this machine's package sources")):
            p = self.run_without_terminal(str(SCRIPTS.parent / "tests/kernels/fetch"), flavour)
            self.assertEqual(p.returncode, 77, p.stdout)
            self.assertIn(f"fetch: {flavour}: no linux-image-cloud-amd64 in {whose}\n", p.stdout)

    def test_a_module_asked_for_later_is_fetched(self):
        self.assertEqual(self.fetch("loop"), ["loop"])
        self.assertEqual(self.fetch("loop", "virtio_balloon"), ["loop", "virtio_balloon"])
        self.assertEqual(self.fetch("loop"), ["loop", "virtio_balloon"])
        self.assertEqual(self.downloads(), 2)

    def test_without_a_mirror_the_old_one_is_used(self):
        self.assertEqual(self.fetch("loop"), ["loop"])
        self.mirror("exit 1")
        self.assertEqual(self.fetch("loop", "virtio_balloon"), ["loop"])
        tried = self.downloads()
        self.assertGreater(tried, 1)
        self.assertEqual(self.fetch("loop", "virtio_balloon"), ["loop"])
        self.assertEqual(self.downloads(), tried)  # not at each start of a test
        failed = self.top / "cache/kernels/cloud-6.1/failed"
        os.utime(failed, (0, 0))
        self.fetch("loop", "virtio_balloon")
        self.assertGreater(self.downloads(), tried)


if __name__ == "__main__":
    unittest.main()
