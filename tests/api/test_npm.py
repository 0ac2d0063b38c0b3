# SPDX-License-Identifier: Apache-2.0
"""Checks of openapi.yaml that need packages from npm: redocly's lint, and a fuzzer with ajv and fast-check.

They are installed outside the tree, once for each lock file. Exit status 77: no Node.js, or no registry.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "node"
TOP = HERE.parents[1]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def installed():
    """The folder with the packages of the lock file."""
    lock = (SOURCE / "package-lock.json").read_bytes()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    place = cache / "hvftrace/node" / hashlib.sha256(lock).hexdigest()[:16]
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(SOURCE / name, place)
        try:
            p = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=place,
                               timeout=200, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            skip("npm does not answer")
        if p.returncode:
            skip("npm cannot install the packages: " + " ".join(p.stderr.split())[-300:])
        (place / "done").touch()
    for path in SOURCE.glob("*.mjs"):  # modules are looked for next to the file, not where it is run
        shutil.copy(path, place)
    for path in place.glob("*.mjs"):
        path.write_text(path.read_text().replace(
            "join(dirname(fileURLToPath(import.meta.url)), '../../..')", repr(str(TOP))))
    return place


def main():
    if not shutil.which("npm") or not shutil.which("node"):
        skip("Node.js and npm are not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        skip(f"Node.js {version.strip()} is older than 20")
    place = installed()
    env = dict(os.environ, REDOCLY_TELEMETRY="off", REDOCLY_SUPPRESS_UPDATE_NOTICE="true")
    if os.environ.get("HVF_LONG") == "1":
        env.setdefault("HVF_FUZZ_RUNS", "2000")
    for command in ([place / "node_modules/.bin/redocly", "lint", "--config", SOURCE / "redocly.yaml",
                     TOP / "api/openapi.yaml"],
                    ["node", "--test", place / "fuzz.test.mjs"]):
        p = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
        if p.returncode:
            print(p.stdout[-20000:])
            sys.exit(1)
        print("\n".join(p.stdout.splitlines()[-12:]))


if __name__ == "__main__":
    main()
