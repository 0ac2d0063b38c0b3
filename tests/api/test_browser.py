# SPDX-License-Identifier: Apache-2.0
"""The page in Chromium over the daemon's engine without guests. Exit status 77: there is no Chromium here."""

import os
import re
import subprocess
import sys

from harness import TOP, Daemon

sys.path.insert(0, str(TOP / "tests/lib"))
from browser import needs, run  # noqa: E402


def tcp(d):
    return "http://" + re.search(r"listening on tcp:(\S+)", d.log()).group(1)


def main():
    why = needs()
    if why:
        print(why)
        return 77
    with Daemon(listen=["tcp:127.0.0.1:0"]) as d, Daemon(listen=["tcp:127.0.0.1:0"]) as asks:
        asks.stop()
        tokens = asks.dir / "tokens"
        add = ["token", "add", "page", "--role", "admin", "--file", tokens]
        command = [os.environ["HVFTRACE"], *add]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        asks.args = ["--tokens", str(tokens)]
        asks.start()
        at = re.findall(r"listening on tcp:(\S+)", asks.log())[-1]
        return run("fake.test.mjs", {"PAGE_URL": tcp(d), "PAGE_ASKS": f"http://{at}",
                                     "PAGE_TOKEN": re.search(r"hvft_\w+", out).group(0)})


if __name__ == "__main__":
    sys.exit(main())
