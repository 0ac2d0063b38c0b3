# SPDX-License-Identifier: Apache-2.0
"""The Debian package: built from the tree's files, installed, used on a guest under what its unit lets it
do, and removed without a trace. The host's root is covered by an overlay: nothing is installed on it."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from guest import TOP, Guest, Skip, wait_for
from testlib import LONG, main

SOCKET = "/run/hvftrace/hvftraced.sock"
INSIDE = "HVF_TEST_PACKAGE_INSIDE"  # set for the part that runs in a mount namespace of its own


def run(*argv, **more):
    p = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, **more)
    assert p.returncode == 0, f"{' '.join(str(a) for a in argv)}: {p.returncode}: {p.stdout[-3000:]}"
    return p.stdout


def needs(*programs):
    for p in programs:
        if not shutil.which(p):
            raise Skip(f"there is no {p}")


def build(work):
    """Builds the package of a copy of the tree; its path."""
    tree = work / "hvftrace"
    names = run("git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        source = TOP / name
        if source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)
    run("dpkg-buildpackage", "-b", "-us", "-uc", cwd=tree,
        env=dict(os.environ, DEB_BUILD_OPTIONS="noddebs nocheck", LC_ALL="C.UTF-8"))
    found = list(work.glob("hvftrace_*_amd64.deb"))
    assert len(found) == 1, found
    return found[0]


def test_built_installed_used_removed():
    if not LONG:
        raise Skip("builds all of it once more; HVF_LONG=1 asks for it")
    needs("dpkg-buildpackage", "dh", "unshare", "setpriv", "systemd-socket-activate")
    if os.getuid():
        raise Skip("only root can cover the host's root with an overlay")
    with tempfile.TemporaryDirectory(prefix="hvf-package-") as work:
        work = pathlib.Path(work)
        deb = build(work)
        if shutil.which("lintian"):
            said = subprocess.run(["lintian", "--fail-on", "error", "--allow-root", deb], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            assert said.returncode == 0, said.stdout
        with Guest("cloud-6.1", ram="anonymous") as g:
            print(run("unshare", "--mount", "--propagation", "private", sys.executable, "-B", __file__,
                      env=dict(os.environ, **{INSIDE: f"{work}\n{deb}\n{g.qmp_path}"})), end="")
            g.assert_no_warnings()


# in the mount namespace

def cover_root(work):
    """An overlay over /, which goes with the namespace; (what is written to it, where it is)."""
    for name in ("upper", "overlay", "root"):
        (work / name).mkdir()
    # overlayfs takes no upper directory on itself, as a container's root may be
    run("mount", "-t", "tmpfs", "tmpfs", work / "upper")
    for name in ("changed", "work"):
        (work / "upper" / name).mkdir()
    changed, root = work / "upper/changed", work / "root"
    p = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/,upperdir={changed},workdir={work}/upper/work", root],
                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise Skip(f"no overlay over /: {p.stderr.strip()}")
    for place in ("/proc", "/dev", "/sys", "/tmp"):
        run("mount", "--rbind", place, f"{root}{place}")
    run("mount", "-t", "tmpfs", "tmpfs", root / "run")
    return changed, root


def files(changed):
    """What is on the overlay now, without what dpkg and others keep about any package."""
    keep = re.compile(r"^(var/lib/(dpkg|systemd/deb-systemd-helper-enabled)|var/(cache|log)|"
                      r"etc/ld.so.cache)(/|$)")
    found = set()
    for d, _, names in os.walk(changed):
        for name in names:
            path = os.path.relpath(os.path.join(d, name), changed)
            if not keep.match(path):
                found.add(path)
    return found


def unit_capabilities(root):
    text = (root / "lib/systemd/system/hvftraced.service").read_text()
    names = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.M).group(1).split()
    return "-all," + ",".join("+" + n.lower().removeprefix("cap_") for n in names)


def use(root, qmp):
    """The daemon as its units start it: by its socket, with their capabilities and no more."""
    chroot = ["chroot", str(root)]
    os.makedirs(f"{root}{os.path.dirname(SOCKET)}")
    daemon = subprocess.Popen(
        chroot + ["systemd-socket-activate", "-l", SOCKET, "setpriv", "--no-new-privs",
                  "--bounding-set", unit_capabilities(root), "--inh-caps=-all", "/usr/sbin/hvftraced"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for("the socket", lambda: os.path.exists(f"{root}{SOCKET}"))
        words = run(*chroot, "bash", "-c", "source /usr/share/bash-completion/completions/hvftrace; "
                    "COMP_LINE='hvftrace functio'; COMP_POINT=${#COMP_LINE}; _hvftrace; echo ${COMPREPLY[@]}")
        assert words.split() == ["functions"], words
        run(*chroot, "hvftrace", "attach", f"qemu:{qmp}", "--name", "g")
        shown = run(*chroot, "hvftrace", "trace", "g", "-l", "vfs_*", "--duration", "1s")
        last = shown.splitlines()[-1]
        assert re.match(r"[1-9]\d* records, 0 lost, [1-9]\d* functions patched, restored", last), last
        print(last)
        words = run(*chroot, "hvftrace", "completion", "words", "trace", "g", "-l", "vfs_rea").split()
        assert "vfs_read" in words and all(w.startswith("vfs_rea") for w in words), words
        assert run(*chroot, "hvftrace", "completion", "words", "info", "").split() == ["g"]
        for page in ("hvftrace.1", "hvftraced.8", "hvftrace-vmm.1", "hvftrace-recording.5"):
            assert list((root / "usr/share/man").rglob(f"{page}.gz")), page
        run(*chroot, "hvftrace", "detach", "g")
        daemon.send_signal(signal.SIGTERM)
        said = daemon.communicate(timeout=60)[0]
        assert daemon.returncode == 0, said
    finally:
        if daemon.poll() is None:
            daemon.kill()
            print(daemon.communicate()[0])


def inside(work, deb, qmp):
    changed, root = cover_root(pathlib.Path(work))
    # as on a machine that has no service manager to start or stop anything
    before = files(changed)
    print(run("chroot", root, "dpkg", "-i", deb, env=dict(os.environ, LC_ALL="C.UTF-8")).splitlines()[-1])
    assert "hvftrace" in (root / "etc/group").read_text(), "the group of the socket"
    use(root, qmp)
    run("chroot", root, "dpkg", "-P", "hvftrace")
    # the group stays, as Debian has it: files may belong to it
    accounts = re.compile(r"etc/((group|gshadow|passwd|shadow)-?|\.pwd\.lock)$")
    left = {f for f in files(changed) - before if not accounts.match(f)}
    assert not left, f"left behind: {sorted(left)}"


if __name__ == "__main__":
    if os.environ.get(INSIDE):
        inside(*os.environ[INSIDE].split("\n"))
    else:
        main()
