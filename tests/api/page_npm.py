# SPDX-License-Identifier: Apache-2.0
"""Runs a script of web/package.json. Exit status 77: this machine lacks what it needs."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from browser import WEB, needs  # noqa: E402


def main():
    why = needs(browser=False)
    if why:
        print(why)
        return 77
    return subprocess.run(["npm", "run", "--silent", sys.argv[1]], cwd=WEB, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
