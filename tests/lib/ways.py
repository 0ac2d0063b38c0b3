# SPDX-License-Identifier: Apache-2.0
"""One body of tests for every way to reach a guest: our own VMM, QEMU with KVM, QEMU with TCG. What differs
is how a guest is attached, made to open a file so many times, and looked at without the product:

    way.attach(daemon, name)    way.open_files(n) -> pid    way.assert_untouched()    way.assert_alive()

    check_way(daemon, way, name)           the daemon has attached it
    check_kill9(way)                       nobody has
"""

import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile

from daemon import Daemon
from guest import Skip, die_with_parent, wait_for
from small import SmallGuest, boot_line
from truth import Truth

CALLS = 40
OPEN = "do_sys_openat2"
INNER = ("do_filp_open", "do_file_open")  # what it was called, and is on v7.2


def tree_of(d, name):
    """A function of the guest's, and the one that it always calls."""
    there = [f["name"] for f in d.functions(name, glob="do_fil*_open")]
    return [OPEN, next(f for f in INNER if f in there)]


def traced(d, way, name, filters, **more):
    """Records of a trace while a program opens CALLS files, and that program's pid."""
    t = d.trace(name, filters, **more)["id"]
    pid = way.open_files(CALLS)
    d.stop_trace(t)
    records, end = d.records(t)
    assert end is not None
    info = d.trace_info(t)
    assert info["lost"] == 0, info
    d.delete(f"/v1/traces/{t}")
    return [r for r in records if r.get("pid") == pid]


def check_function(d, way, name):
    """So many calls, so many records, in order, each by who called it."""
    tree = tree_of(d, name)
    calls = [r for r in traced(d, way, name, tree) if r["type"] == "function"]
    # execve() opens the program, too, by the inner one alone
    calls = [r for r in calls if r["function"] == OPEN or r["parent"].startswith(OPEN)]
    assert [r["function"] for r in calls] == tree * CALLS, len(calls)
    times = [r["ts_ns"] for r in calls]
    assert times == sorted(times)


def check_graph(d, way, name):
    """Each call has its return, at its depth, and what is within a call takes no longer than it."""
    tree = tree_of(d, name)
    records = traced(d, way, name, tree, tracer="function_graph")
    opens, took = [], {f: [] for f in tree}
    for r in records:
        if r["type"] not in ("graph_entry", "graph_return") or (r["function"] != OPEN and not r["depth"]):
            continue  # not ours, or execve()'s
        assert r["depth"] == tree.index(r["function"]), r
        if r["type"] == "graph_entry":
            opens.append(r["function"])
            assert opens == tree[:len(opens)], opens
        else:
            assert opens.pop() == r["function"], r
            took[r["function"]].append(r["duration_ns"])
    assert not opens, opens
    assert all(len(v) == CALLS for v in took.values()), {f: len(v) for f, v in took.items()}
    assert all(0 < inner <= outer for outer, inner in zip(took[OPEN], took[tree[1]])), took


def check_way(d, way, name):
    """By both tracers exact, all functions at once, and given back byte by byte."""
    check_function(d, way, name)
    check_graph(d, way, name)
    for tracer in ("function", "function_graph"):
        t = d.trace(name, [], tracer=tracer, mode="overwrite")["id"]
        way.open_files(5)
        info = d.wait_trace(t, lambda x: x["records"] > 100)
        assert info["functions"] > 10000, info
        d.stop_trace(t)
    restore = d.delete(f"/v1/guests/{name}")["restore"]
    assert restore["verified"] is True and restore["memory_freed"] is True, restore
    way.assert_untouched()
    way.assert_alive()


def check_kill9(way, tracers=("function", "function_graph")):
    """The daemon is killed while it traces: the guest does not notice, the next one gives everything back."""
    with tempfile.TemporaryDirectory(prefix="hvf-state-") as state:
        for tracer in tracers:
            d = Daemon(state_dir=state).start()
            try:
                way.attach(d, "killed")
                d.trace("killed", ["vfs_*", *tree_of(d, "killed")], tracer=tracer)
            finally:
                d.process.send_signal(signal.SIGKILL)
                d.process.wait()
                shutil.rmtree(d.dir, ignore_errors=True)
            way.open_files(20)
            with Daemon(state_dir=state) as d:
                for guest in d.get("/v1/guests")["items"]:
                    d.delete(f"/v1/guests/{guest['name']}")
                wait_for("the journal is done", lambda d=d: not d.journals(), 60)
                way.assert_untouched()
                way.assert_alive()
                way.attach(d, "again")
                check_function(d, way, "again")
                d.delete("/v1/guests/again")
            way.assert_untouched()


class SmallWay:
    """The small Linux, in our own VMM or another's process that has its RAM as one shared mapping."""

    def __init__(self, g):
        self.g = g
        self.before, self.modules = g.kernel_text(), self.module_pages()

    def module_pages(self):
        """What is mapped where modules go, and what their allocator lends: entries of the page table."""
        tables = struct.unpack("<256Q", self.g.read_kernel(self.g.symbols["level2_kernel_pgt"] + 2048, 2048))
        pages = []
        for i, table in enumerate(tables):
            if table & 1:
                entries = struct.unpack("<512Q", self.g.read_phys(table & 0x000ffffffffff000, 4096))
                pages += [0xffffffffa0000000 + (i << 21) + (k << 12) for k, e in enumerate(entries) if e & 1]
        return pages

    def attach(self, d, name):
        d.attach(self.g, name)

    def open_files(self, n):
        # every function traced, each emulated, on a busy host
        return int(self.g.do(f"open {n}", 300).split("pid ")[1])

    def assert_untouched(self):
        after = self.g.kernel_text()
        changed = [hex(self.g.symbols["_text"] + i) for i in range(len(after)) if self.before[i] != after[i]]
        assert not changed, f"{len(changed)} bytes of kernel text differ: {changed[:10]}"
        assert self.module_pages() == self.modules, "memory of the guest's is still lent"
        self.g.assert_given_back()

    def assert_alive(self):
        self.g.do("open 1", 300)
        self.g.assert_no_warnings()


class StockWay:
    """A stock Debian kernel under TCG."""

    def __init__(self, g, sites=(), truth=None):
        self.g, self.truth, self.sites = g, truth or Truth(g), list(sites)

    def attach(self, d, name):
        d.attach(self.g, name)

    def open_files(self, n):
        return int(self.g.run(f"open1000 {n}").split()[0])

    def assert_untouched(self):
        self.truth.assert_untouched(self.sites, quiet=True)

    def assert_alive(self):
        self.g.assert_alive()
        self.g.assert_no_warnings()


class SmallQemuGuest(SmallGuest):
    """The small Linux in QEMU with KVM, reached by QMP."""

    def __init__(self, **more):
        super().__init__(reboot=True, **more)

    def _start(self, kernel, initrd):
        if not shutil.which("qemu-system-x86_64"):
            raise Skip("no QEMU")
        self.qmp_path = self.dir / "qmp"
        args = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-accel", "kvm",
                "-machine", "pc,memory-backend=ram", "-object",
                f"memory-backend-memfd,id=ram,share=on,size={self.mem}M",
                # for an AMD its kernel would use x87 instructions, which not every nested KVM has
                "-cpu", "qemu64,vendor=GenuineIntel",
                # the firmware's MP table has one CPU a socket
                "-smp", f"{self.cpus},sockets={self.cpus}", "-m", f"{self.mem}M",
                "-kernel", kernel, "-initrd", initrd, "-append", boot_line(self.append), "-chardev",
                f"socket,id=com,path={self.socket_path},server=on,wait=off,logfile={self.console_path}",
                "-serial", "chardev:com", "-qmp", f"unix:{self.qmp_path},server=on,wait=off", "-no-reboot",
                *self.extra]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self.process.pid
        self.wait_ready()

    @property
    def target(self):
        return f"qemu:{self.qmp_path}"

    def console(self):
        # QEMU's guest waits for a client that does not read: some 270 bytes, each sent alone, fill the socket
        while self.input and select.select([self.input], [], [], 0)[0] and self.input.recv(65536):
            pass
        return super().console()

    def read_phys(self, addr, size):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as f:
            base = int(re.search(r"^([0-9a-f]+)-.*memfd:memory-backend-memfd", f.read(), re.M).group(1), 16)
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
            f.seek(base + addr)
            return f.read(size)

    def assert_given_back(self):
        """Memory came from the guest's own allocator: SmallWay looks at what is mapped there."""
