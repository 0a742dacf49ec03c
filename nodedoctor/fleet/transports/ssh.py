"""Ask nodes through the user's own ssh: their keys, their config, their shared connections.

Connections are shared where the user's own config says so (ControlMaster); masters of our own would be one
more process per node.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from nodedoctor.children import child_process
from nodedoctor.children.child_stream import ChildStream
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.reports import reading
from nodedoctor.fleet.transports import node_side, one_by_one
from nodedoctor.nodeset import NodeSetError, expand_nodes

CONNECTING = 10
"""Ours: seconds ssh may take to connect. Without it a node that is cut off is silent until its time is up."""
STARTING = 5.0
"""Ours: seconds within which a working ssh on this machine says its version."""


class Ssh:
    """The way to nodes through OpenSSH; `nodes` is a node set, whose names may be `user@host`.

    Ports, keys and jump hosts are for ssh's own config.
    """

    name = "ssh"

    def __init__(self, nodes: str) -> None:
        self._nodes = nodes

    async def hosts(self) -> tuple[str, ...]:
        """All nodes meant; FleetError when the set cannot be read, is empty, or there is no ssh here."""
        hosts = self._expand_names()
        observation = await child_process.run("ssh", Command(("ssh", "-V")), STARTING)
        if not observation.answered:
            raise FleetError(f"no ssh on this machine to reach nodes with: {observation.note}")
        return hosts

    def ask(self, request: FleetRequest) -> AsyncGenerator[Node, None]:
        """Every node as its answer comes, `width` at once; FleetError when the single file is none."""
        return one_by_one.ask(self.name, self._expand_names(), request, argv, reading.node)

    async def talk(self, host: str, script: str, first: bytes) -> ChildStream:
        """A line to a script on a node that stays open; OSError when ssh cannot be started."""
        argv = ("ssh", *plain_options(), "--", host, node_side.line(script))
        return await ChildStream.start(Command(argv, stdin=first, tied=True))

    async def close(self) -> None:
        """Nothing is held for all nodes."""

    def _expand_names(self) -> tuple[str, ...]:
        try:
            hosts = tuple(expand_nodes(self._nodes))
        except NodeSetError as error:
            raise FleetError(str(error)) from None
        if not hosts:
            raise FleetError("no nodes were named")
        return hosts


def argv(host: str, script: str, deadline: float = CONNECTING) -> tuple[str, ...]:
    """The command line that has a host run a script of sh."""
    return ("ssh", *plain_options(deadline), "--", host, node_side.line(script))


def plain_options(deadline: float = CONNECTING) -> tuple[str, ...]:
    """No question for a password, no terminal, and none of the forwardings meant for work by hand."""
    seconds = max(1, min(CONNECTING, int(deadline)))
    settings = (
        "BatchMode=yes",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        f"ConnectTimeout={seconds}",
    )
    return ("-T", "-a", "-x", *(word for setting in settings for word in ("-o", setting)))
