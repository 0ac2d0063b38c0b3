# SPDX-License-Identifier: Apache-2.0
"""Programs of this host in a test guest, with their libraries: for a test that compares with them."""

import os
import pathlib
import re
import shutil
import subprocess

from guest import initramfs


def _closure(path):
    """The file and the libraries that its loader would map, by the names under which they are looked for."""
    p = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [path] + (re.findall(r"/\S+(?= \(0x)", p.stdout) if p.returncode == 0 else [])


def _files(names):
    found, missing = {}, []
    for name in names:
        path = shutil.which(name)
        if not path:
            missing.append(name)
            continue
        found[f"bin/{name}"] = path
        found.update({lib.lstrip("/"): lib for lib in _closure(path)[1:]})
    return found, missing


def initramfs_with(kernel, names, directory):
    """
    The guests' initramfs and these programs: another archive behind it, which Linux takes as one with the
    first (Linux v6.1 Documentation/driver-api/early-userspace/buffer-format.rst). In @directory, and in no
    other test's guest. Returns (its path, names that this host has not).
    """
    directory = pathlib.Path(directory)
    found, missing = _files(names)
    root = directory / "root"
    for inside, path in found.items():
        (root / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), root / inside)
    out = directory / "initramfs"
    shutil.copy(initramfs(kernel), out)
    if found:
        with open(out, "ab") as f:
            f.write(b"\0" * (-out.stat().st_size % 512))
            tree = "\n".join(sorted(str(p.relative_to(root)) for p in root.rglob("*")))
            subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], input=tree.encode(),
                           cwd=root, stdout=f, check=True)
    shutil.rmtree(root, ignore_errors=True)
    return out, missing
