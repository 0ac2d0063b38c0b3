# SPDX-License-Identifier: Apache-2.0
"""What is really in a guest's memory, found without the product: symbols are the guest's own word
(/proc/kallsyms), bytes come from QEMU (pmemsave) through a page walk of our own.

    truth = Truth(guest)            # before attaching
    ... attach, trace, detach ...
    truth.assert_untouched(sites)   # every site, gate padding, mailbox page; the guest's own patches excepted
"""

import bisect
import re
import struct

PAGE = 4096


class Truth:
    def __init__(self, guest):
        self.guest = guest
        # else /proc/vmallocinfo shows hashes in place of addresses
        guest.run("echo 1 >/proc/sys/kernel/kptr_restrict")
        self.syms = guest.symbols("_text", "_etext", "vmcoreinfo_data", "page_offset_base", "init_top_pgt",
                                  "__SCT__*", "__start___jump_table", "__stop___jump_table",
                                  "__start_static_call_sites", "__stop_static_call_sites")
        guest.note_text(self.sym("_text"), self.sym("_etext"))
        self.root, self.levels = self._root()
        self.start, self.text = guest.kernel_text()
        self.module_sites = {}
        self.note_page = self._vmcoreinfo_page()

    # memory

    def _root(self):
        """The kernel's own page table root and its number of levels (a process's may go any time)."""
        text, phys, _ = self.guest.text_range()
        cr4 = int(re.search(r"CR4=([0-9a-f]+)", self.guest.qmp.hmp("info registers")).group(1), 16)
        return self.sym("init_top_pgt") - text + phys, 5 if cr4 & (1 << 12) else 4

    def walk(self, addr):
        """{phys, entry, size, writable, nx} of a virtual address, or None."""
        table = self.root
        writable, nx = True, False
        for level in range(self.levels, 0, -1):
            shift = 12 + 9 * (level - 1)
            slot = table + 8 * ((addr >> shift) & 511)
            entry = struct.unpack("<Q", self.guest.read_phys(slot, 8))[0]
            if not entry & 1:
                return None
            writable &= bool(entry & 2)
            nx |= bool(entry >> 63)
            base = entry & 0x000f_ffff_ffff_f000
            if level == 1 or (level <= 3 and entry & 0x80):
                size = 1 << shift
                base &= ~(size - 1)
                return {"phys": base + (addr & (size - 1)), "entry": entry, "size": size,
                        "writable": writable, "nx": nx}
            table = base
        return None

    def read(self, addr, size):
        """By virtual address, across pages."""
        out = b""
        while size:
            m = self.walk(addr)
            assert m, f"{addr:#x} is not mapped"
            n = min(size, m["size"] - (m["phys"] & (m["size"] - 1)))
            out += self.guest.read_phys(m["phys"], n)
            addr, size = addr + n, size - n
        return out

    def sym(self, name):
        return self.syms[name][0]

    def pointer(self, name):
        return struct.unpack("<Q", self.read(self.sym(name), 8))[0]

    def name_of(self, addr):
        """Symbol and offset, for messages."""
        if not hasattr(self, "_sorted"):
            self._sorted = sorted((a, n) for n, aa in self.guest.symbols().items()
                                  for a in aa)
        i = bisect.bisect_right(self._sorted, (addr, "\x7f")) - 1
        if i < 0:
            return hex(addr)
        return f"{self._sorted[i][1]}+{addr - self._sorted[i][0]:#x}"

    def _vmcoreinfo_page(self):
        """Address and bytes of the page that holds vmcoreinfo_data, whose tail is the mailbox."""
        at = self.pointer("vmcoreinfo_data") & ~(PAGE - 1)
        return at, self.read(at, PAGE)

    def vmallocinfo(self):
        """[(start, end, line)]; areas that are free and only wait for their TLB flush left out"""
        out = []
        for line in self.guest.run("cat /proc/vmallocinfo").splitlines():
            m = re.match(r"0x([0-9a-f]+)-0x([0-9a-f]+)\s", line)
            if m and "unpurged" not in line:
                out.append((int(m.group(1), 16), int(m.group(2), 16), line.strip()))
        return out

    # what the guest itself may patch in its text while it runs

    def own_patches(self):
        """Sorted [(start, end)] of the kernel's jump labels and static calls, from its own tables."""
        out = []
        for first, last, fmt, size in (("__start___jump_table", "__stop___jump_table", "<i", 16),
                                       ("__start_static_call_sites", "__stop_static_call_sites",
                                        "<i", 8)):
            if first not in self.syms:
                continue
            start = self.sym(first)
            data = self.read(start, self.sym(last) - start)
            for off in range(0, len(data) - size + 1, size):
                code = start + off + struct.unpack_from(fmt, data, off)[0]
                out.append((code, code + 5))
        # trampolines that static calls go through: "__SCT__name", 5 bytes each
        out += [(a, a + 5) for n, aa in self.syms.items() if n.startswith("__SCT__") for a in aa]
        return sorted(out)

    def note_module_sites(self, sites):
        """Before arming: remember the bytes of sites outside of the kernel's own text."""
        for ip in sites:
            if not self.start <= ip < self.start + len(self.text):
                self.module_sites[ip] = self.read(ip, 5)

    def changed(self, sites):
        """(sites whose bytes differ, other differing addresses that the guest's own patching explains,
        other differing addresses that nothing explains)"""
        start, now = self.guest.kernel_text()
        bad = [ip for ip in sites
               if start <= ip < start + len(now) and
               now[ip - start:ip - start + 5] != self.text[ip - start:ip - start + 5]]
        bad += [ip for ip, was in self.module_sites.items() if self.read(ip, 5) != was]
        own, strange = [], []
        patches = None
        at_site = {a for ip in bad for a in range(ip, ip + 5)}
        # page by page: nearly all are equal
        for page in range(0, len(now), PAGE):
            if now[page:page + PAGE] == self.text[page:page + PAGE]:
                continue
            patches = patches or self.own_patches()
            for off in range(page, min(page + PAGE, len(now))):
                addr = start + off
                if now[off] == self.text[off] or addr in at_site:
                    continue
                i = bisect.bisect_right(patches, (addr, 1 << 64)) - 1
                inside = i >= 0 and patches[i][0] <= addr < patches[i][1]
                (own if inside else strange).append(addr)
        return bad, own, strange

    def assert_untouched(self, sites, quiet=False):
        """Every recorded site, the rest of the text and the mailbox's page are as they were."""
        bad, own, strange = self.changed(sites)
        assert not bad, (f"{len(bad)} sites differ: " +
                         ", ".join(self.name_of(a) for a in bad[:10]))
        assert not strange, (f"{len(strange)} bytes of text outside of the sites differ: " +
                             ", ".join(self.name_of(a) for a in strange[:10]))
        at, was = self.note_page
        now = self.read(at, PAGE)
        assert now == was, "the page of vmcoreinfo_data differs at " + str(
            [i for i in range(PAGE) if now[i] != was[i]][:20])
        if not quiet:
            names = sorted({self.name_of(a).split("+")[0] for a in own})
            print(f"text: {len(sites)} sites as before; {len(own)} bytes elsewhere changed by the "
                  f"guest's own jump labels and static calls ({', '.join(names[:6])})"
                  if own else f"text: {len(sites)} sites and all else as before")

    # borrowed memory

    def pages_of(self, start, size):
        """Physical pages behind a range of the guest's virtual memory."""
        out = []
        for a in range(start & ~(PAGE - 1), start + size, PAGE):
            m = self.walk(a)
            assert m, f"agent page {a:#x} is not mapped"
            out.append(m["phys"] & ~(PAGE - 1))
        return out

    def assert_given_back(self, ranges, pages):
        """The ranges are no areas of the guest any more, and their pages RW and NX in its direct map."""
        areas = self.vmallocinfo()
        for start, size in ranges:
            there = [line for a, end, line in areas if a < start + size and start < end]
            assert not there, "still in /proc/vmallocinfo: " + "; ".join(there)
            for a in range(start, start + size, PAGE):
                assert self.walk(a) is None, f"{a:#x} is still mapped"
        direct = self.pointer("page_offset_base")
        for phys in pages:
            m = self.walk(direct + phys)
            assert m, f"page {phys:#x} is missing in the direct map"
            assert m["writable"] and m["nx"], f"page {phys:#x} of the direct map: entry {m['entry']:#x}"


def attach(guest, daemon):
    """Attaches guest as "g"; (its Truth, taken before, and the call sites that the product lists)."""
    truth = Truth(guest)
    daemon.attach(guest, "g")
    sites = [int(f["ip"], 16) for f in daemon.functions("g")]
    truth.note_module_sites(sites)
    return truth, sites
