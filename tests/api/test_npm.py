# SPDX-License-Identifier: Apache-2.0
"""Checks of openapi.yaml that need packages from npm: redocly's lint and respect, which follows the workflows
of node/workflows.arazzo.yaml, and a fuzzer with ajv and fast-check.

They are installed outside the tree, once for each lock file. Exit status 77: no Node.js, or no registry.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import Daemon

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "node"
TOP = HERE.parents[1]
WORKFLOWS = SOURCE / "workflows.arazzo.yaml"


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


def checked(command, env):
    p = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       check=False)
    if p.returncode:
        print(p.stdout[-20000:])
        sys.exit(1)
    return p.stdout


def token(path, role):
    return subprocess.run([os.environ["HVFTRACE"], "token", "add", f"for-{role}", "--role", role, "--file",
                           path], capture_output=True, text=True, check=True).stdout.strip()


def spelled_out(text):
    """The document with each range of status codes, which respect does not know, as the codes there are."""
    codes = sorted(set(re.findall(r"\b[45]\d\d\b", (TOP / "base/err_codes.h").read_text())) | {"401", "403"})

    def lines(m):
        return "\n".join(f"{m[1]}'{c}': {m[3]}" for c in codes if c[0] == m[2])
    return re.sub(r"^( +)([45])XX: (.*)$", lines, text, flags=re.M)


def respect(redocly, env):
    """Each step's answer must be what the workflow expects and what the document says."""
    with tempfile.TemporaryDirectory(prefix="hvf-respect-") as name:
        top = pathlib.Path(name)
        place = top / WORKFLOWS.relative_to(TOP)
        place.parent.mkdir(parents=True)
        (top / "api").mkdir()
        (top / "api/openapi.yaml").write_text(spelled_out((TOP / "api/openapi.yaml").read_text()))
        shutil.copy(WORKFLOWS, place)
        tokens = {role: token(top / "tokens", role) for role in ("viewer", "operator", "admin")}
        with Daemon("--tokens", str(top / "tokens"), listen=["tcp:127.0.0.1:0"]) as d:
            port = re.search(r"127\.0\.0\.1:(\d+)", d.log())[1]
            out = checked([redocly, "respect", place, "--server", f"hvftrace=http://127.0.0.1:{port}",
                           "--input", json.dumps(tokens)], env)
    summary = re.search(r"Workflows: .*\n.*Steps: (\d+) passed.*\n.*", out)
    assert summary and int(summary[1]) == WORKFLOWS.read_text().count("- stepId:"), out
    print(summary[0])


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
    redocly = place / "node_modules/.bin/redocly"
    for command in ([redocly, "lint", "--config", SOURCE / "redocly.yaml", TOP / "api/openapi.yaml",
                     WORKFLOWS],
                    ["node", "--test", place / "fuzz.test.mjs"]):
        print("\n".join(checked(command, env).splitlines()[-12:]))
    respect(redocly, env)


if __name__ == "__main__":
    main()
