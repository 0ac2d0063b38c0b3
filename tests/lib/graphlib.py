# SPDX-License-Identifier: Apache-2.0
"""What the tests of function_graph share."""

import os

KERNELS = os.environ.get("HVF_KERNELS", "cloud-6.1 cloud-6.12 rt-6.1").split()


def each(test):
    """As testlib.each_kernel(), the PREEMPT_RT flavour too."""
    test.flavours = KERNELS
    return test


def graph(d, filter=(), **more):
    """Starts function_graph on guest "g"; its id."""
    more.setdefault("mode", "overwrite")
    return d.trace("g", filter, tracer="function_graph", **more)["id"]


def add_up(g):
    """entries = returns + never returned + lost returns + those still inside"""
    assert g["entries"] == (g["returns"] + g["never_returned"] + g["lost_returns"] +
                            g["inside"]), g
    assert g["frame_errors"] == 0, g


def all_given_back(g, d, truth, sites):
    """Detaches, and has nothing of ours left in the guest."""
    restore = d.delete("/v1/guests/g")["restore"]
    assert restore["verified"] is True and restore["memory_freed"] is True, restore
    truth.assert_untouched(sites, quiet=True)
    assert not d.journals(), d.journals()
    g.assert_alive(60)
    g.assert_no_warnings()
