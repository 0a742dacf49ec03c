"""Which leaf switch a node hangs on: from Slurm's topology.conf, ibnetdiscover, or lines of `node leaf`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.errors import NodeDoctorError
from nodedoctor.nodeset import NodeSetError, expand

_SLURM = re.compile(r"\bSwitchName=(\S+)(?:\s.*?)?\sNodes=(\S+)", re.IGNORECASE)
_SWITCH = re.compile(r'^Switch\s+\d+\s+"[^"]*"\s*#\s*"([^"]*)"')
_PORT = re.compile(r'^\[\d+\]\s+"H-[0-9a-f]+"\S*\s*#\s*"(\S+)')


def leaves(text: str, hosts: Iterable[str]) -> dict[str, str]:
    """The leaf of each of these nodes, as far as the text knows it; NodeDoctorError when it knows none.

    Names are compared without the user of `user@host`, and also without the domain.
    """
    by_name: dict[str, str] = {}
    switch = ""
    for line in text.splitlines():
        line = line.strip()
        if match := _SLURM.search(line):
            by_name.update(dict.fromkeys(_expand_nodes(match[2]), match[1]))
        elif match := _SWITCH.match(line):
            switch = match[1]
        elif switch and (match := _PORT.match(line)):
            by_name.setdefault(match[1], switch)
        elif not switch and len(words := line.partition("#")[0].split()) == 2 and "=" not in line:
            by_name.update(dict.fromkeys(_expand_nodes(words[0]), words[1]))
    by_host = {}
    for host in hosts:
        name = host.rpartition("@")[2]
        if leaf := by_name.get(name) or by_name.get(name.partition(".")[0]):
            by_host[host] = leaf
    if not by_host:
        raise NodeDoctorError(
            "--topology: no node of this run is in it (topology.conf, ibnetdiscover, `node leaf`)"
        )
    return by_host


def _expand_nodes(text: str) -> list[str]:
    try:
        return list(expand(text))
    except NodeSetError:
        return []
