# SPDX-License-Identifier: Apache-2.0
"""The same tests for every way to reach a guest: our own VMM, QEMU with KVM or TCG (tests/lib/ways.py)."""

from daemon import Daemon
from guest import Guest, Skip
from small import AROUND_HOLE, SmallGuest
from testlib import LONG, kernels, main
from ways import SmallQemuGuest, SmallWay, StockWay, check_kill9, check_way


class ByProcess(SmallQemuGuest):
    """Reached as a process of which nothing else is known: RAM lies where the guest says, and shows."""

    @property
    def target(self):
        return f"pid:{self.pid}"


def check(way):
    with Daemon() as d:
        way.attach(d, "g")
        check_way(d, way, "g")
    check_kill9(way)


def need_time():
    if not LONG:
        raise Skip("boots a guest for each way; HVF_LONG=1 asks for it")


def test_our_own_vmm():
    need_time()
    with SmallGuest() as g:
        check(SmallWay(g))


def test_qemu_with_kvm():
    need_time()
    with SmallQemuGuest(timeout=600) as g:
        print(f"up after {g.boot_seconds:.1f} s")
        check(SmallWay(g))


def test_any_process_with_kvm():
    """With RAM above 4 GiB, where memory is lent from first."""
    need_time()
    with ByProcess(mem=6144, append=AROUND_HOLE, timeout=600) as g:
        check(SmallWay(g))


def test_qemu_with_tcg():
    need_time()
    with Guest(kernels()[0]) as g:
        with Daemon() as d:
            d.attach(g, "g")
            sites = [int(f["ip"], 16) for f in d.functions("g")]
            d.delete("/v1/guests/g")
        check(StockWay(g, sites))


if __name__ == "__main__":
    main()
