"""Ask nodes through Slurm: one job step runs nodedoctor on all of them, beside whatever runs there.

Inside an allocation its nodes are asked. Outside, Slurm is asked for the nodes that `sinfo` names for the
given options; those it would start nothing on are not asked but named, with its reason.

No GPUs are requested, because a check must not wait for free ones. Where cgroups hide what was not given
(ConstrainDevices), nodedoctor then sees none: ask inside the job that has them, or pass `--gres=gpu:N`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import AsyncIterator

from nodedoctor.children.child_stream import ChildStream
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.transports import control
from nodedoctor.fleet.transports.slurm.allocation import (
    ALLOCATION_TIMEOUT_S,
    MINUTES,
    Allocation,
    Pending,
)
from nodedoctor.fleet.transports.slurm.asking import SlurmAsking
from nodedoctor.fleet.transports.slurm.nodes import FORMAT, chosen, immediate, option, rows
from nodedoctor.fleet.transports.slurm.step import held_argv
from nodedoctor.nodeset import NodeSetError, expand, fold


class Slurm:
    """The way to nodes through Slurm; `words` are options as srun takes them, like `-p gpu -N 8`.

    `minutes` is the time limit of our own job, where one is needed and no `--time` is given. With `job` the
    nodes of that running job are asked, beside its own steps.
    """

    name = "slurm"

    def __init__(self, words: tuple[str, ...] = (), minutes: int = MINUTES, *, job: str = "") -> None:
        self._minutes = minutes
        self._words = tuple(word for word in words if not word.startswith(("-I", "--immediate")))
        self._patience = immediate(words, ALLOCATION_TIMEOUT_S)
        self._running = job
        self._job = job or os.environ.get("SLURM_JOB_ID", "")
        self._given: tuple[str, ...] = ()
        self._closed: dict[str, str] = {}
        self._idle: frozenset[str] = frozenset()
        self._allocation: Allocation | None = None

    async def hosts(self) -> tuple[str, ...]:
        """All nodes meant, given or not; FleetError when there is no Slurm or it gives none of them."""
        if self._words and not self._words[0].startswith("-"):
            word = self._words[0]
            raise FleetError(
                f"--slurm {word}: no option of srun; name checks before --slurm, or end it: --slurm="
            )
        if self._running:
            self._given = await self._of_running()
            return self._given
        if self._job:
            self._given = self._of_this_job()
            return self._given
        usual = os.environ.get(
            "SLURM_PARTITION", ""
        )  # srun(1) minds it, salloc and sinfo have names of theirs
        if usual and not option(self._words, "-p", "--partition"):
            self._words = (*self._words, f"--partition={usual}")
        count = option(self._words, "-N", "--nodes") or option(self._words, "-n", "--ntasks")
        requested = () if count else await self._requested_hosts()
        open_hosts = tuple(host for host in requested if host not in self._closed)
        if open_hosts or count:
            await self._get_allocation(open_hosts)
        return requested or self._given

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Every node as its answer comes, all asked at once: Slurm starts the step by a tree of its own."""
        try:
            for host, why in self._closed.items():
                yield Node(host, "unreachable", note=why)
            if self._given:
                asking = SlurmAsking(self._job, self._words if self._allocation is None else (), request)
                async with contextlib.aclosing(asking.nodes(self._given)) as nodes:
                    async for node in nodes:
                        yield node
        finally:
            await self.close()

    async def talk(self, host: str, script: str, first: bytes) -> ChildStream:
        """A line to a script on a node, by a step of its own; FleetError where Slurm would start nothing."""
        if why := self._closed.get(host):
            raise FleetError(why)
        words = self._words if self._allocation is None else ()
        argv = held_argv(self._job, words, host, script)
        return await ChildStream.start(Command(argv, stdin=first, tied=True))

    async def close(self) -> None:
        """Give the allocation back, if there is one of ours."""
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            await allocation.close()

    async def _of_running(self) -> tuple[str, ...]:
        """The nodes of a job that somebody else started; its steps are of no concern."""
        answer = await control.ask("squeue", f"--jobs={self._running}", "--noheader", "--format=%T %N")
        if answer.rc != 0:
            raise FleetError(f"--slurm {self._running}: {answer.complaint}")
        state, _, nodes = answer.text.strip().partition("\n")[0].partition(" ")
        if not nodes.strip():
            description = f"is {state.lower()}" if state else "is not running"
            raise FleetError(f"--slurm {self._running}: the job {description}, and has no nodes")
        return _expand_names(nodes.strip())

    def _of_this_job(self) -> tuple[str, ...]:
        nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST", "")
        allocated = _expand_names(nodes)
        nodelist = option(self._words, "-w", "--nodelist")
        if strangers := set(_expand_names(nodelist)) - set(allocated):
            raise FleetError(f"{fold(strangers)}: not in this allocation, which is {nodes}")
        left_out = set(_expand_names(option(self._words, "-x", "--exclude")))
        allocated = tuple(host for host in _expand_names(nodelist) or allocated if host not in left_out)
        if not allocated:
            raise FleetError("this allocation has no nodes (SLURM_JOB_NODELIST is empty)")
        return allocated

    async def _get_allocation(self, hosts: tuple[str, ...]) -> None:
        """Get an allocation of all these nodes, or of the idle ones: one without room must not hide them."""
        try:
            await self._allocate_nodes(hosts)
        except Pending as pending:
            idle = tuple(host for host in hosts if host in self._idle)
            if not idle or idle == hosts:
                raise
            try:
                await self._allocate_nodes(idle)
            except FleetError:
                raise pending from None
            without_room = (host for host in hosts if host not in idle)
            self._closed.update(dict.fromkeys(without_room, f"Slurm has not given it {pending.why}"))

    async def _allocate_nodes(self, hosts: tuple[str, ...]) -> None:
        allocation = Allocation(self._words, hosts, self._minutes)
        await allocation.get(self._patience)
        self._allocation, self._job = allocation, allocation.job
        self._given = _expand_names(allocation.nodes)

    async def _requested_hosts(self) -> tuple[str, ...]:
        """The nodes the options mean; those that Slurm would start nothing on are noted with its reason."""
        nodelist = option(self._words, "-w", "--nodelist")
        partition = option(self._words, "-p", "--partition")
        words = ["--noheader", "--Node", f"--format={FORMAT}"]
        words += [f"--nodes={nodelist}"] if nodelist else []
        words += [f"--partition={partition}"] if partition else []
        answer = await control.ask("sinfo", *words)
        if answer.rc != 0:
            raise FleetError(f"Slurm does not say which nodes it has: {answer.complaint}")
        by_host = chosen(rows(answer.text), everywhere=bool(nodelist or partition))
        if strangers := set(_expand_names(nodelist)) - set(by_host):
            raise FleetError(f"Slurm has no node {fold(strangers)}")
        for host in _expand_names(option(self._words, "-x", "--exclude")):
            by_host.pop(host, None)
        if not by_host:
            raise FleetError(f"Slurm has no nodes for these options: {shlex.join(self._words) or 'none'}")
        reservation = bool(option(self._words, "--reservation", "--reservation"))
        for host, row in by_host.items():
            if why := row.closed(reservation=reservation) or ("" if nodelist else row.busy):
                self._closed[host] = why
        self._idle = frozenset(host for host, row in by_host.items() if row.idle)
        return tuple(by_host)


def _expand_names(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand(text))
    except NodeSetError as error:
        raise FleetError(str(error)) from None
