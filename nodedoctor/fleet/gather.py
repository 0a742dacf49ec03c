"""Ask all nodes of a transport, for a bounded time, and make one fleet of what came."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Protocol, cast

from nodedoctor import __version__
from nodedoctor.cli.endings import ended_by_signals, on_ending
from nodedoctor.debug import Log
from nodedoctor.engine.run import utc_now
from nodedoctor.fleet.compare import clocks
from nodedoctor.fleet.compare.duplicates import drop_duplicates
from nodedoctor.fleet.compare.outliers import judge
from nodedoctor.fleet.compare.reachability import cleared
from nodedoctor.fleet.model import Fleet, FleetRequest, Node, is_old
from nodedoctor.fleet.reports.saved import saved_text
from nodedoctor.nodeset import fold, natural_key, of_file, plain, short_host
from nodedoctor.record import record

END_WAIT_S = 10.0
"""Seconds beyond the nodes' own time after which the run ends, whatever a transport does; ours."""
WRITERS = 16
"""Reports that are written at once."""
INTERRUPTED = "interrupted before it answered"


class Transport(Protocol):
    """A way to many nodes; see its classes in fleet/transports/ssh.py, fleet/transports/slurm/transport.py,
    fleet/transports/ray.py, fleet/transports/kube.py and fleet/reports/files.py."""

    name: str

    async def hosts(self) -> tuple[str, ...]:
        """All nodes meant, in order; FleetError when they cannot be asked at all."""
        ...

    def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Each node as it answers, or why it did not."""
        ...


@record
class GatherState:
    """How far a run is: the nodes that came, and the names that have not, as far as they are known."""

    nodes: tuple[Node, ...]
    expected: int
    waiting: tuple[str, ...]

    @property
    def answered(self) -> int:
        """How many nodes have come."""
        return len(self.nodes)


Progress = Callable[[GatherState], None]

_log = Log(__name__)


@record
class Gathered:
    """The fleet, and the signal that ended the run early, if one did."""

    fleet: Fleet
    ended_by: int = 0


async def gather(
    transport: Transport,
    request: FleetRequest,
    *,
    peers: bool = False,
    save: str = "",
    progress: Progress | None = None,
    stopped: asyncio.Event | None = None,
) -> Gathered:
    """Ask every node; with `peers` each also tries the way to others, with `save` the reports are kept there.

    `stopped` ends the asking, not the report: what had not answered is silent. Without one, Ctrl-C and
    SIGTERM do that. FleetError when the nodes cannot be asked at all.
    """
    gc.disable()  # nothing here lives long enough to be worth looking through
    began, start = time.monotonic(), utc_now()
    started = start.strftime("%Y-%m-%dT%H:%M:%SZ")
    run = _Run(transport, save, progress, stopped or asyncio.Event())
    with ended_by_signals() if stopped is None else contextlib.nullcontext():
        await run.prepare()
    with on_ending(run.stop, signal.SIGINT) if stopped is None else contextlib.nullcontext():
        if peers and len(run.hosts) > 1:
            names = fold(host.rpartition("@")[2] for host in run.hosts)
            request = replace(request, arguments=(*request.arguments, "--peers", names))
        await run.ask(request)
    nodes = await run.all(started)
    if transport.name != "reports":  # those are of nodes that were asked earlier
        nodes = tuple(own_reports(nodes, started))
        nodes = tuple(run.with_clock(node, start.timestamp()) for node in nodes)
    _log.debug("%d nodes gathered in %.3f s over %s", len(nodes), time.monotonic() - began, transport.name)
    oddities = judge(nodes)
    nodes = tuple(cleared(nodes, oddities))
    titles = {problem.check: problem.title for node in nodes for problem in node.problems}
    seconds = round(time.monotonic() - began, 3)
    gated = "--gate" in request.arguments
    fleet = Fleet(__version__, transport.name, started, seconds, nodes, oddities, titles, gated)
    return Gathered(fleet, run.ended_by)


class _Run:
    """Nodes as they come."""

    def __init__(
        self, transport: Transport, save: str, progress: Progress | None, stopped: asyncio.Event
    ) -> None:
        self.hosts: tuple[str, ...] = ()
        self.ended_by = 0
        self._transport, self._save, self._progress = transport, save, progress
        self._came: dict[str, Node] = {}
        self._arrived: dict[str, float] = {}
        self._stopped = stopped
        self._writers = asyncio.Semaphore(WRITERS)
        self._writing: set[asyncio.Task[None]] = set()

    def with_clock(self, node: Node, start: float) -> Node:
        """The node with the bounds of its clock; none was asked before `start`."""
        arrival = self._arrived.get(node.host)
        if arrival is None or node.state != "answered":
            return node
        return replace(node, ahead=clocks.bounds(node, start, arrival))

    def stop(self, number: int) -> None:
        """End the asking; called by a signal."""
        self.ended_by = number
        self._stopped.set()

    async def prepare(self) -> None:
        """Learn which nodes are meant."""
        self.hosts = await self._transport.hosts()

    async def ask(self, request: FleetRequest) -> None:
        """Take in every node until all have come, time is up, or somebody ends it."""
        waves = -(-len(self.hosts) // max(1, request.width))  # of nodes asked at once
        limit = waves * request.deadline + END_WAIT_S if self.hosts else None
        asking = asyncio.create_task(self._take_in(request))
        stopped = asyncio.create_task(self._stopped.wait())
        telling = asyncio.create_task(self._show_progress())
        try:
            await asyncio.wait({asking, stopped}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopped, telling, asking):
                task.cancel()
            await asyncio.wait({asking}, timeout=END_WAIT_S)
        if asking.done() and not asking.cancelled():
            asking.result()
        await self._await_writing(self._writing)

    async def all(self, started: str) -> tuple[Node, ...]:
        """Every node in the order meant, the unnamed ones as people count; silent where nothing came."""
        why = INTERRUPTED if self._stopped.is_set() else "no answer, and the time for all nodes is over"
        if not self.hosts:
            late = [Node(of_file(name), "silent", note=why, report=name) for name in self._waiting_hosts()]
            return tuple(drop_duplicates([*self._came.values(), *late]))
        for host in self.hosts:
            self._came.setdefault(host, Node(host, "silent", note=why))
        if self._save:
            mute = [node for node in self._came.values() if node.state != "answered"]
            await self._await_writing([self._start_writing(node, started) for node in mute])
        ordered = dict.fromkeys(self.hosts)
        others = (host for host in sorted(self._came, key=natural_key) if host not in ordered)
        return tuple(self._came[host] for host in (*ordered, *others))

    async def _take_in(self, request: FleetRequest) -> None:
        asking = cast("AsyncGenerator[Node, None]", self._transport.ask(request))
        async with contextlib.aclosing(asking) as answers:
            async for node in answers:
                note = f": {node.note}" if node.note else ""
                _log.debug("%s %s after %.3f s%s", node.host, node.state, node.seconds, note)
                if self.hosts and node.host in self._came:
                    _log.debug("%s has come before; this answer is passed over", node.host)
                    continue
                self._arrived[node.host] = utc_now().timestamp()
                if self._save and node.state == "answered":
                    self._start_writing(node)
                key = node.host if self.hosts else node.report or node.host
                is_kept_later = self._save and node.state != "answered"
                self._came[key] = replace(node, raw="") if node.raw and not is_kept_later else node

    def _start_writing(self, node: Node, started: str = "") -> asyncio.Task[None]:
        task = asyncio.create_task(self._write_node(node, started))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def _write_node(self, node: Node, started: str) -> None:
        """Write a node's file, and beside it an answer that was no report."""
        from nodedoctor.cli.headless import write

        path = os.path.join(self._save, plain(node.host) or "unnamed")
        files = {f"{path}.json": saved_text(node, started)}
        if node.state != "answered" and node.raw:
            files[f"{path}.txt"] = node.raw
        problem = ""
        async with self._writers:
            for name, text in files.items():
                problem = await write(name, text.encode("utf-8", "surrogateescape")) or problem
        came = self._came[node.host]
        note = "; ".join(filter(None, (came.note, f"not saved: {problem}" if problem else "")))
        self._came[node.host] = replace(came, report="" if problem else f"{path}.json", note=note, raw="")

    async def _await_writing(self, writing: Collection[asyncio.Task[None]]) -> None:
        if writing:
            await asyncio.wait(writing, timeout=2 * END_WAIT_S)

    async def _show_progress(self) -> None:
        while self._progress:
            expected = getattr(self._transport, "expected", 0) or len(self.hosts)
            nodes = {node.host: node for node in self._came.values()}  # reports may be of one node
            self._progress(GatherState(tuple(nodes.values()), expected, self._waiting_hosts()))
            await asyncio.sleep(0.5)

    def _waiting_hosts(self) -> tuple[str, ...]:
        if self.hosts:
            return tuple(host for host in self.hosts if host not in self._came)
        waiting: Callable[[], tuple[str, ...]] = getattr(self._transport, "waiting", lambda: ())
        return waiting()


_MOST = 0.5
"""Share of nodes that call themselves as they were asked, from which names are hostnames here: one that calls
itself otherwise answered for another (our choice; where names are aliases, hardly any does)."""


def own_reports(nodes: Iterable[Node], started: str) -> Iterator[Node]:
    """The nodes, as unreadable where the answer is of another node, or was not made now."""
    all_nodes = list(nodes)
    hosts = {short_host(node.host) for node in all_nodes}
    answered = [node for node in all_nodes if node.state == "answered" and node.hostname]
    matching = sum(short_host(node.hostname) == short_host(node.host) for node in answered)
    by_hostname = len(answered) > 2 and matching > _MOST * len(answered)
    for node in all_nodes:
        host, hostname = short_host(node.host), short_host(node.hostname)
        if node.state != "answered":
            yield node
        elif hostname and hostname != host and (hostname in hosts or by_hostname):
            yield _not_its_own(node, f"the report is of {node.hostname}, another node")
        elif is_old(node, started):
            when = node.started or "no time"
            yield _not_its_own(node, f"the report is of {when}: an old one, or the node's clock is wrong")
        else:
            yield node


def _not_its_own(node: Node, note: str) -> Node:
    noted = [part for part in node.note.split("; ") if part and not part.startswith("calls itself ")]
    mute = Node(node.host, "unreadable", note="; ".join((note, *noted)), seconds=node.seconds, raw=node.raw)
    return replace(mute, report=node.report, alias=node.alias)
