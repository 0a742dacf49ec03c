"""Whom a node tries when all nodes of a job are named: everybody in a small one, neighbours in a large one.

All nodes are given the same names, so one command line serves them all, and each finds its place itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from nodedoctor.nodeset import short_host

EVERYBODY = 16
"""Names up to which all are tried; ours. Beyond, everybody trying everybody would cost the square."""
NEIGHBOURS = 4
"""Nodes each tries of more: as many others then say of every node whether it can be reached."""


def neighbours(hosts: Sequence[str], me: str) -> tuple[str, ...]:
    """The hosts that the node called `me` tries: not itself among others, of many the next in their ring."""
    named = tuple(dict.fromkeys(hosts))
    place = next((i for i, host in enumerate(named) if short_host(host) == short_host(me)), None)
    others = tuple(host for i, host in enumerate(named) if i != place) if len(named) > 1 else named
    if len(named) <= EVERYBODY:
        return others
    # A node that is not in the list by its own name starts where its name happens to point.
    start = place if place is not None else zlib.crc32(me.encode("utf-8", "replace")) % len(others)
    return tuple(others[(start + step) % len(others)] for step in range(NEIGHBOURS))
