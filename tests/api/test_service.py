# SPDX-License-Identifier: Apache-2.0
"""Sockets that a service manager hands over, readiness, and completion in a shell."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from harness import SLOW, TOP, CliCase, Daemon, TestCase, until


def start(state, fds, env, listen=()):
    """hvftraced as a service manager starts it: @fds become 3, 4 ..., LISTEN_PID is its own."""
    def hand_over():
        for i, fd in enumerate(fds):
            os.dup2(fd, 200 + i)
        for i in range(len(fds)):
            os.dup2(200 + i, 3 + i)

    # LISTEN_PID is known only in the child: a shell sets it and becomes the daemon
    argv = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", os.environ["HVFTRACED"], "--state-dir", state]
    return subprocess.Popen([*argv, *listen], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env={**os.environ, **env},
                            preexec_fn=hand_over, close_fds=False)


def ask(sock, address):
    sock.settimeout(20 * SLOW)
    sock.connect(address)
    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return sock.recv(64)


class Activation(TestCase):
    def socket(self, *kind, **more):
        s = socket.socket(*kind, **more)
        self.addCleanup(s.close)
        return s

    def end(self, p):
        p.send_signal(signal.SIGTERM)
        out = p.communicate(timeout=60 * SLOW)[0]
        self.assertEqual(p.returncode, 0, out)
        return out

    def test_sockets_handed_over(self):
        with tempfile.TemporaryDirectory() as d:
            unix, tcp = self.socket(socket.AF_UNIX), self.socket()
            ready = self.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            unix.bind(f"{d}/api")
            tcp.bind(("127.0.0.1", 0))
            ready.bind(f"{d}/notify")
            ready.settimeout(30 * SLOW)
            for s in (unix, tcp):
                s.listen()
            # a client that comes before the daemon waits for it
            early = self.socket(socket.AF_UNIX)
            early.connect(f"{d}/api")
            p = start(f"{d}/state", [unix.fileno(), tcp.fileno()],
                      {"LISTEN_FDS": "2", "NOTIFY_SOCKET": f"{d}/notify"}, ["--allow", "admin=loopback"])
            self.assertEqual(ready.recv(64), b"READY=1")
            early.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            early.settimeout(20 * SLOW)
            self.assertTrue(early.recv(64).startswith(b"HTTP/1.1 200"))
            self.assertTrue(ask(self.socket(), tcp.getsockname()).startswith(b"HTTP/1.1 200"))
            out = self.end(p)
            self.assertEqual(ready.recv(64), b"STOPPING=1")
            self.assertIn(f"listening on unix:{d}/api", out)
            self.assertTrue(pathlib.Path(d, "api").exists(), "the manager's own file stays")

    def test_more_time_to_stop(self):
        """From the start, and as long as guests go back, the manager is asked for more time."""
        with tempfile.TemporaryDirectory() as tmp:
            told = self.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            told.bind(f"{tmp}/notify")
            told.settimeout(30 * SLOW)
            with Daemon(env={"NOTIFY_SOCKET": f"{tmp}/notify"}) as d:
                for name in ("g", "h"):
                    d.attach(f"{name}/fake", name)
                d.stop()
            for words in (rb"READY=1", rb"STOPPING=1", *[rb"EXTEND_TIMEOUT_USEC=\d{8,}"] * 3):
                self.assertRegex(told.recv(64), words)

    def test_capabilities(self):
        """What the unit leaves the daemon, a container gives it, and the manual explains."""
        unit = (TOP / "packaging/systemd/hvftraced.service").read_text()
        has = set(re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE).group(1).split())
        # signals to a VMM of ours that another user started: to let it go, and to lend and take back memory
        self.assertIn("CAP_KILL", has)
        given = re.findall(r"--cap-add=(\w+)", (TOP / "packaging/README.md").read_text())
        self.assertEqual({f"CAP_{x}" for x in given}, has)
        manual = (TOP / "docs/man/hvftraced.8.scd").read_text()
        section = re.search(r"^# UNDER A SERVICE MANAGER\n(.*?)^# ", manual, re.M | re.S).group(1)
        self.assertEqual(set(re.findall(r"CAP_\w+", section)), has)

    def test_windows_go_first(self):
        """The unit and a container let threads that hold a window go first, as far as those want to."""
        header = (TOP / "vmm/vm_ops.h").read_text()
        want = int(re.search(r"#define VM_WINDOW_NICE \((-\d+)\)", header).group(1))
        unit = (TOP / "packaging/systemd/hvftraced.service").read_text()
        self.assertIn(f"\nLimitNICE={want}\n", unit)
        # setrlimit(2): 20 - nice
        self.assertIn(f" --ulimit nice={20 - want} ", (TOP / "packaging/README.md").read_text())

    def test_address_families(self):
        """The unit leaves every kind of socket that the daemon makes; which those are, its sources say."""
        unit = (TOP / "packaging/systemd/hvftraced.service").read_text()
        has = set(re.search(r"^RestrictAddressFamilies=(.*)$", unit, re.MULTILINE).group(1).split())
        used = set()
        for folder in ("api", "tracers", "patcher", "symbols", "vmm", "base"):
            for path in (TOP / folder).glob("*.c"):
                used |= set(re.findall(r"(?:\bsocket(?:pair)?\(|_family = )(AF_\w+)", path.read_text()))
        self.assertLessEqual({"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}, used, "they are found at all")
        self.assertLessEqual(used, has)

    def test_with_places_of_its_own(self):
        with tempfile.TemporaryDirectory() as d:
            unix = self.socket(socket.AF_UNIX)
            unix.bind(f"{d}/api")
            unix.listen()
            p = start(f"{d}/state", [unix.fileno()], {"LISTEN_FDS": "1"}, ["--listen", f"unix:{d}/own"])
            until("a socket of its own", lambda: os.path.exists(f"{d}/own"))
            for name in ("api", "own"):
                self.assertTrue(ask(self.socket(socket.AF_UNIX), f"{d}/{name}").startswith(b"HTTP/1.1 200"))
            self.end(p)
            self.assertFalse(os.path.exists(f"{d}/own"))

    def test_for_somebody_else(self):
        """The variables of a parent's parent mean nothing."""
        with tempfile.TemporaryDirectory() as d:
            p = subprocess.Popen([os.environ["HVFTRACED"], "--state-dir", f"{d}/state",
                                  "--listen", f"unix:{d}/own"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env={**os.environ, "LISTEN_PID": "1", "LISTEN_FDS": "1"})
            until("a socket of its own", lambda: os.path.exists(f"{d}/own"))
            self.end(p)

    def test_what_is_refused(self):
        with tempfile.TemporaryDirectory() as d:
            quiet, world = self.socket(socket.AF_UNIX), self.socket()
            packets = self.socket(type=socket.SOCK_DGRAM)
            world.bind(("0.0.0.0", 0))
            world.listen()
            quiet.bind(f"{d}/api")
            for s, words in ((quiet, "no listening stream socket"), (packets, "no listening stream socket"),
                             (world, "only loopback")):
                p = start(f"{d}/state", [s.fileno()], {"LISTEN_FDS": "1"})
                out = p.communicate(timeout=30 * SLOW)[0]
                self.assertEqual(p.returncode, 1, out)
                self.assertIn(words, out)


class Completion(CliCase):
    def words(self, *typed):
        return self.out("completion", "words", *typed).split()

    def test_verbs_options_values(self):
        self.assertEqual(self.words("de"), ["detach"])
        self.assertIn("trace", self.words(""))
        self.assertIn("--graph-notrace", self.words("trace", "g", "--"))
        self.assertEqual(self.words("trace", "g", "--max"), ["--max-graph-depth"])
        self.assertNotIn("-tt", self.words("syscalls", "g", "-"), "strace's, not ours")
        self.assertEqual(self.words("trace", "-p", "function_"), ["function_graph"])
        self.assertEqual(self.words("profile", "g", "--sort", "s"), ["self", "stddev"])
        self.assertEqual(self.words("syscalls", "g", "-l", "%n"), ["%network"])
        self.assertEqual(self.words("help", "rep"), ["report"])
        self.assertEqual(self.words("report", ""), [], "files are the shell's own")
        self.assertEqual(self.words("xyzzy", ""), [])
        self.assertEqual(self.words(), [])

    def test_every_option_of_the_help(self):
        """None that the help has is missing; none is offered that the command does not take."""
        for verb in ("run", "trace", "record", "syscalls", "report", "profile", "detach"):
            for word in self.words(verb, "-"):
                p = self.d.cli(verb, word)
                self.assertNotIn(b"unrecognized option", p.stderr, (verb, word))
                self.assertNotIn(b"invalid option", p.stderr, (verb, word))

    def test_no_daemon(self):
        p = self.d.cli("completion", "words", "-s", "/nowhere", "info", "")
        self.assertEqual((p.returncode, p.stdout, p.stderr), (0, b"", b""))

    def test_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("completion words", self.out("completion", shell))
        self.fails("completion", status=2, words=["which shell?"])
        self.fails("completion", "csh", status=2, words=["none of bash, zsh and fish"])
        script = self.out("completion", "bash")
        for line, words in (("hvftrace tra", "trace"), ("hvftrace help prof", "profile"),
                            ("hvftrace trace g -p function_g", "function_graph")):
            p = subprocess.run(["bash", "-c", f'{script}\nhvftrace() {{ "$HVFTRACE" "$@"; }}\n'
                                f"COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _hvftrace; "
                                'echo "${COMPREPLY[@]}"'],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(p.stdout.strip(), words)

    def in_a_shell(self, *command):
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed")
        self.d.attach()
        p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                           cwd=self.d.dir, env=dict(self.d.env, HOME=str(self.d.dir), S=str(self.d.socket)))
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        return p.stdout.splitlines()

    def test_in_fish(self):
        self.assertEqual(self.in_a_shell("fish", "--no-config", "-c", """
            function hvftrace; $HVFTRACE $argv; end
            hvftrace completion fish | source
            for line in 'hvftrace tra' 'hvftrace trace g -p function_g' 'hvftrace trace g --thr'
                complete -C $line
            end
            complete -C "hvftrace -s $S info "
            complete -C "hvftrace report ap"
            """), ["trace", "function_graph", "--threshold", "g", "api.sock"])

    def test_in_zsh(self):
        """compadd, which wants a line editor, is one that prints."""
        self.assertEqual(self.in_a_shell("zsh", "-fc", """
            autoload -U compinit; compinit -D
            hvftrace() { $HVFTRACE "$@" }
            compadd() { print -r -- "${@:3}" }
            source <(hvftrace completion zsh)
            words=(hvftrace tra); CURRENT=2; _hvftrace
            words=(hvftrace trace g -p function_g); CURRENT=5; _hvftrace
            words=(hvftrace -s $S info ''); CURRENT=5; _hvftrace
            """), ["trace", "function_graph", "g"])


if __name__ == "__main__":
    unittest.main()
