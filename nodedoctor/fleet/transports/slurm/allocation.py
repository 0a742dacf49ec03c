"""Get nodes from Slurm for as long as we live: salloc, whose command waits for the end of a pipe of ours.

However we end, the pipe ends, and with it the allocation.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator

from nodedoctor.children.child_stream import listen
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetError
from nodedoctor.fleet.transports import control
from nodedoctor.fleet.transports.slurm.step import PARTING
from nodedoctor.nodeset import fold

ALLOCATION_TIMEOUT_S = 15.0
"""Ours: seconds Slurm may take to give nodes, without `--immediate=SECONDS`. What it can start at once it
starts within a few; more would be waiting for somebody's job to end."""
MINUTES = 10
"""Ours: time limit of our job without `--time`; short jobs fit before planned ones."""

_SCRIPT = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat'


class Pending(FleetError):
    """Slurm has not given the nodes in time; `why` is what became of the job."""

    def __init__(self, hosts: tuple[str, ...], patience: float, why: str) -> None:
        nodes = f"{len(hosts)} nodes" if len(hosts) > 1 else fold(hosts) or "the nodes"
        self.why = f"within {patience:g} s: {why}"
        super().__init__(
            f"Slurm has not given {nodes} {self.why}. "
            "Wait longer with --immediate=SECONDS, name fewer nodes, or ask over --ssh"
        )


class Allocation:
    """Nodes by name, or those the options choose; `job` and `nodes` are known once it has been granted."""

    def __init__(self, words: tuple[str, ...], hosts: tuple[str, ...], minutes: int = MINUTES) -> None:
        self._minutes = minutes
        self.job = ""
        self.nodes = ""
        self._name = f"nodedoctor-{os.getpid()}"
        self._words = words
        self._hosts = hosts
        self._said: list[str] = []
        self._lines = listen(Command(self._salloc_command(), stdin=b"", tied=True), parting=PARTING)

    async def get(self, patience: float) -> None:
        """Wait for the nodes; FleetError, and nothing left in the queue, when Slurm does not give them."""
        granting = asyncio.create_task(_await_grant(self._lines, self._said))
        try:
            await asyncio.wait({granting}, timeout=patience)
            if not granting.done():
                raise Pending(self._hosts, patience, await self._queue_reason())
            if not granting.result():
                raise FleetError(f"Slurm gives no nodes: {self._salloc_error()}")
        except BaseException:
            granting.cancel()
            await asyncio.wait({granting})
            await self.close()
            raise
        self.job, _, self.nodes = granting.result().partition(" ")

    async def close(self) -> None:
        """Give the nodes back."""
        await self._lines.aclose()

    def _salloc_command(self) -> tuple[str, ...]:
        ours = ("--no-bell", f"--time={self._minutes}", "--ntasks-per-node=1", "--no-kill")
        hosts = (f"--nodelist={fold(self._hosts)}", f"--nodes={len(self._hosts)}") if self._hosts else ()
        return ("salloc", *ours, *self._words, *hosts, f"--job-name={self._name}", "/bin/sh", "-c", _SCRIPT)

    async def _queue_reason(self) -> str:
        """What squeue says of our job."""
        words = ("--noheader", f"--name={self._name}", "--format=%i|%T|%r")
        answer = await control.ask("squeue", *words, timeout=5.0)
        job, _, rest = answer.text.strip().partition("|")
        state, _, reason = rest.partition("|")
        return f"job {job} is {state.casefold()} for {reason}" if reason else "squeue does not say why"

    def _salloc_error(self) -> str:
        """salloc's error, without the line that only says where to read about options."""
        lines = [line for line in self._said if line.strip() and not line.startswith("Try ")]
        errors = [line for line in lines if "error:" in line] or lines or ["salloc says nothing"]
        options = f" (options: {shlex.join(self._words)})" if self._words else ""
        return errors[-1].removeprefix("salloc: ").removeprefix("error: ").strip() + options


async def _await_grant(lines: AsyncIterator[tuple[int, str]], output: list[str]) -> str:
    """The line salloc's command prints once there are nodes; "" when salloc ends first."""
    try:
        async for fd, line in lines:
            if fd == 1:
                return line.strip()
            output.append(line)
    except OSError as error:
        output.append(f"salloc: {error.strerror or error}")
    return ""
