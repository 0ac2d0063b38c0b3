# SPDX-License-Identifier: Apache-2.0
"""The page on a real guest: attached, traced and let go in Chromium, and nothing is left in the guest."""

from browser import needs, run
from daemon import Daemon
from guest import Guest, Skip
from testlib import first_kernel, main
from truth import attach


@first_kernel
def test_page(flavour):
    why = needs()
    if why:
        raise Skip(why)
    with Guest(flavour) as g, Daemon(tcp=True) as d:
        truth, sites = attach(g, d)
        d.delete("/v1/guests/g")
        g.run("(while :; do ls /bin > /dev/null; cat /nowhere; sleep 0.1; done) > /dev/null 2>&1 & true")
        assert run("guest.test.mjs", {"PAGE_URL": d.url(), "PAGE_TARGET": g.target}) == 0, "see above"
        truth.assert_untouched(sites, quiet=True)
        assert not d.journals(), d.journals()
        g.assert_alive()
        g.assert_no_warnings()


if __name__ == "__main__":
    main()
