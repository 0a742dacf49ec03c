"""`nodedoctor fleet ... --pairs`: the plan said, the agents started, the rounds run, the verdict shown."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nodedoctor.cli.console import columns, complain, emit
from nodedoctor.cli.endings import ended_by_signals, on_ending
from nodedoctor.cli.exit_codes import Exit, severity_code
from nodedoctor.engine.run import utc_now
from nodedoctor.errors import NodeDoctorError
from nodedoctor.pairs import text
from nodedoctor.pairs.agent_pool import AgentPool, Asked, Transport
from nodedoctor.pairs.crew import can_rdma, gathered, with_equal_rails
from nodedoctor.pairs.culprits import fit
from nodedoctor.pairs.document import document, plan_of
from nodedoctor.pairs.drive import PlanOutcome, PlanRunner
from nodedoctor.pairs.model import What
from nodedoctor.pairs.schedule import Plan, plan
from nodedoctor.report.document import severity


def run(arguments: argparse.Namespace) -> int:
    """Measure the nodes of these arguments in pairs; returns the exit code."""
    try:
        work = _Run(arguments, _check_arguments(arguments))
        outcome = asyncio.run(work.run())
        return outcome if isinstance(outcome, int) else work.show(outcome)
    except NodeDoctorError as error:
        return complain(error)


IGNORED = ("tag", "passive", "deep", "peers", "since", "exec", "deadline", "pyz", "save", "passing")
"""Options of a fleet run that say nothing about pairs."""
MINUTES = 20
"""Time limit of our own Slurm job: the quarter of an hour that a plan may take, and what comes before it."""


def _check_arguments(arguments: argparse.Namespace) -> dict[str, float]:
    """Complain of what can be known to be wrong before anybody is asked; the floors that are expected."""
    from nodedoctor.cli import outputs
    from nodedoctor.engine.session import UsageError
    from nodedoctor.expectations import expectations

    if arguments.reports:
        raise UsageError("--pairs measures nodes now; --reports are of nodes that were asked before")
    if arguments.checks:
        raise UsageError(f"--pairs runs no checks: {' '.join(arguments.checks)}")
    if used := [f"--{name}" for name in IGNORED if getattr(arguments, name)]:
        raise UsageError(f"{used[0]} has no meaning with --pairs")
    if arguments.junit:
        raise UsageError("--junit has no form for pairs; --html and --json have")
    if problem := outputs.no_folder(arguments, "failing", "debug_log"):
        raise UsageError(problem)
    floors = {
        key: float(value) for key, value in expectations(arguments.expect).items() if key.startswith("pair.")
    }
    if arguments.expect and not floors:
        raise UsageError(
            "--pairs: --expect has no key that begins with pair.: see `nodedoctor expect --keys`"
        )
    return floors


class _Run:
    """One run from the command line."""

    def __init__(self, arguments: argparse.Namespace, expected: dict[str, float]) -> None:
        self._arguments, self._expected = arguments, expected
        self._asked: Asked = arguments.what
        self._what: What = "tcp" if self._asked == "auto" else self._asked
        self._ended_by = 0
        self._stopped = asyncio.Event()

    async def run(self) -> dict[str, Any] | int:
        """The document, or the exit code of a dry run."""
        transport = _choose_transport(self._arguments)
        try:
            return await self._measure_over(transport)
        finally:
            await transport.close()

    async def _measure_over(self, transport: Transport) -> dict[str, Any] | int:
        with ended_by_signals():
            hosts = await transport.hosts()
        if len(hosts) < 2:
            raise NodeDoctorError("--pairs wants at least two nodes")
        groups = self._leaf_groups(hosts)
        plan = self._make_plan(hosts)
        self._write_note(text.plan(plan_of(plan, self._arguments.size)))
        if self._arguments.dry_run:
            return self._print_schedule(plan)
        began, started = time.monotonic(), utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        crew = AgentPool(transport, self._asked, self._arguments.python)
        with on_ending(self._stop_run, signal.SIGINT):
            try:
                outcome = await self._run_plan(crew, hosts, groups, plan)
            finally:
                await crew.leave()
        return document(
            outcome,
            source=transport.name,
            started=started,
            seconds=time.monotonic() - began,
            size=self._arguments.size,
            groups=groups,
            floors=self._expected,
            preview=self._arguments.preview,
        )

    async def _run_plan(
        self, crew: AgentPool, hosts: Sequence[str], groups: dict[str, str], plan: Plan
    ) -> PlanOutcome:
        gathering = asyncio.ensure_future(gathered(crew, hosts))
        stopping = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({gathering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not gathering.done():
            gathering.cancel()
            return PlanOutcome((), plan, (), (), fit((), groups), 0, interrupted=True)
        members = gathering.result()
        if self._asked == "rails":
            members = with_equal_rails(members)
        idle = [
            host
            for host, member in members.items()
            if not member.why and (self._arguments.load_busy or not member.busy)
        ]
        if len(idle) < len(hosts):
            unused = [host for host in hosts if host not in idle]
            names = (
                ""
                if self._arguments.redact
                else f": {', '.join(unused[:8])}{' ...' if len(unused) > 8 else ''}"
            )
            self._write_note(f"  left out {len(unused)} nodes{names}\n")
        if self._asked == "auto" and can_rdma(members[host] for host in idle):
            self._what = "rdma"
            self._write_note(
                "  every node has ib_write_bw and as many rails as the others: RDMA, rail by rail\n"
            )
        final = self._make_plan(idle)
        if len(idle) < 2:
            return PlanOutcome(tuple(members.values()), final, (), (), fit((), groups), 0)
        driver = PlanRunner(
            crew,
            members,
            final,
            groups,
            self._arguments.size,
            self._stopped,
            self._asked == "auto",
            lambda line: self._write_note(f"  {line}\n") if sys.stderr.isatty() else None,
        )
        return await driver.run()

    def _make_plan(self, hosts: Sequence[str]) -> Plan:
        mode = None if self._arguments.pairs == "auto" else self._arguments.pairs
        return plan(tuple(hosts), mode, self._arguments.seconds, self._what)

    def _leaf_groups(self, hosts: Sequence[str]) -> dict[str, str]:
        if not self._arguments.topology:
            return {}
        from nodedoctor import input_files
        from nodedoctor.pairs.topology import leaves

        try:
            topology = input_files.read(self._arguments.topology, pipes=True).decode("utf-8", "replace")
        except OSError as error:
            raise NodeDoctorError(f"--topology {self._arguments.topology}: {error.strerror}") from None
        return leaves(topology, hosts)

    def _stop_run(self, number: int) -> None:
        self._ended_by = number
        self._stopped.set()

    def _write_note(self, message: str) -> None:
        """For people only, before and while it runs: --json keeps stderr silent."""
        if not self._arguments.json and not self._arguments.quiet:
            sys.stderr.write(message)
            sys.stderr.flush()

    def _print_schedule(self, plan: Plan) -> int:
        if not self._arguments.json:
            return Exit.OK
        import json

        rounds = [[list(pair) for pair in pairs] for pairs in plan.rounds]
        plan_document = {**plan_of(plan, self._arguments.size), "schedule": rounds}
        return Exit.OK if emit(json.dumps(plan_document) + "\n") else Exit.OUTPUT

    def show(self, document: dict[str, Any]) -> int:
        """Print the document, write its files; the exit code."""
        from nodedoctor.fleet.ending import Lists, conclude, tripped

        left_by = self._on_screen(document)
        too_many = ""
        if self._arguments.failing:
            failing, nodes = {"pairs.node": document["failing"]}, len(document["nodes"])
            too_many = tripped(failing, nodes, self._arguments.max_failing)
        outranks = conclude(
            self._arguments,
            document,
            Lists((), document["failing"], too_many),
            self._render_document,
            self._ended_by,
        )
        if left_by or outranks is not None:
            return left_by or outranks or Exit.OK
        if too_many:
            return Exit.UNKNOWN
        return severity_code(
            {severity(finding) for finding in document["findings"]}, self._arguments.fail_on or "fail"
        )

    def _render_document(self, document: Mapping[str, Any], arguments: argparse.Namespace) -> str:
        from nodedoctor.fleet.document import render

        return render(document) + "\n" if arguments.json else text.render(document, min(columns(100), 140))

    def _on_screen(self, document: dict[str, Any]) -> int:
        """Let a person read it where there is a terminal; the text follows when they leave."""
        from nodedoctor.tui import start

        options = ("json", "text", "quiet", "redact")
        if (
            any(getattr(self._arguments, option) for option in options)
            or self._ended_by
            or not start.possible()
        ):
            return 0
        return start.show_measured(document) or 0


def _choose_transport(arguments: argparse.Namespace) -> Transport:
    """The way to the nodes that was chosen."""
    from nodedoctor.fleet import asking

    if arguments.slurm is not None:
        from nodedoctor.fleet.transports.slurm.transport import Slurm

        return Slurm(asking.split("--slurm", arguments.slurm), minutes=MINUTES)
    return cast("Transport", asking.transport(arguments))
