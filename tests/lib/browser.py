# SPDX-License-Identifier: Apache-2.0
"""Runs web/tests/browser in Chromium, where there are one, Node.js and what the tests take from npm."""

import os
import pathlib
import shutil
import subprocess

WEB = pathlib.Path(__file__).resolve().parents[2] / "web"
LIMIT = 240


def chromium():
    return os.environ.get("CHROMIUM") or shutil.which("chromium")


def needs(browser=True):
    """Why this machine cannot run them; None when it can."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "Node.js and npm (nodejs, npm) are not installed"
    if browser and not chromium():
        return "Chromium (chromium) is not installed"
    if not (WEB / "node_modules/.package-lock.json").exists():
        return "what the tests take from npm is not there: scripts/setup --tests, or npm ci in web/"
    return None


def shots():
    """Where pictures go."""
    d = pathlib.Path(os.environ.get("HVF_KEEP_LOGS") or WEB.parent / "build/page-shots")
    d.mkdir(parents=True, exist_ok=True)
    return d


def run(name, env, limit=LIMIT):
    """One file of web/tests/browser; its exit status."""
    env = dict(os.environ, CHROMIUM=chromium(), PAGE_SHOTS=str(shots()), NO_COLOR="1", **env)
    command = ["node", "--test", "--test-reporter=spec", f"tests/browser/{name}"]
    return subprocess.run(command, cwd=WEB, env=env, timeout=limit, check=False).returncode
