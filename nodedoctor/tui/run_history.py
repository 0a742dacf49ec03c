"""All runs of one sitting, merged into one report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from nodedoctor.declare.registry import probes_of
from nodedoctor.engine.causes.roots import diagnose
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Session
from nodedoctor.model import Report, Result
from nodedoctor.report.document import Report as Document
from nodedoctor.tui.state import EngineInfo, State, Waiting

OFTEN = 0.05  # seconds between two looks at the results: faster only costs bytes
SOON = 0.02  # seconds until probes have begun and can be named
TICK = 1.0  # seconds between two looks while nothing but time goes by


Begun = tuple[Diagnosis, AsyncIterator[Result]]
"""A run that was begun, and those of its results that are left."""


class RunHistory:
    """The engine itself: the whole run of a session, and the checks that were asked again since."""

    latest: State | None = None

    def __init__(self, session: Session, started_run: Begun | None = None) -> None:
        self.session = session
        self.about = EngineInfo.of(session)
        self._whole, self._left = started_run or _start_run(session)
        self._again: list[Diagnosis] = []
        self._tasks: dict[asyncio.Task[None], Diagnosis] = {}
        self._changed = asyncio.Event()
        self._latest: tuple[list[tuple[Diagnosis, int, int, int]], State] | None = None
        self._probes = {check.id: probes_of(check) for check in session.checks}

    def start(self) -> None:
        """Begin the first run; its probes are under way when control next returns to the event loop."""
        self._follow_run(self._whole, self._left)

    def again(self, check: str = "") -> None:
        """Ask one check once more, its probes afresh; all of them when none is named."""
        chosen = [candidate for candidate in self.session.checks if candidate.id == check]
        diagnosis = self.session.diagnosis(chosen or None)
        if chosen:
            self._again.append(diagnosis)
        else:
            self._whole, self._again = diagnosis, []
        self._follow_run(diagnosis, diagnosis.results())

    def state(self) -> State:
        """The report of now, and what is still running.

        While only time goes by it is the last one with other seconds: judging everything again every second
        would cost a tenth of a core.
        """
        news = self._answer_counts()
        previous = self._latest[1] if self._latest and self._latest[0] == news and self._tasks else None
        same = previous or State.of(self.report())
        self._latest = (news, same) if self._tasks else None
        asking: dict[str, float] = {}
        for diagnosis in self._tasks.values():
            asking.update(diagnosis.source.waiting_for())
        timed: Document = {**same.report, "seconds": self._whole.seconds}
        return replace(same, report=timed, running=self._running_checks(), asking=asking)

    def _answer_counts(self) -> list[tuple[Diagnosis, int, int, int]]:
        """What is another one whenever a probe, a fact or a check has answered since."""
        return [
            (run, len(run.finished), len(run.source.observations()), len(run.facts.shown_facts()))
            for run in (self._whole, *self._again)
        ]

    def report(self) -> Report:
        """The whole run with later answers in place of earlier ones."""
        report = self._whole.report()
        if not self._again:
            return report
        for diagnosis in self._again:
            report = _merge_reports(report, diagnosis)
        devices = self._whole.devices()
        results, causes = diagnose(report.results, self.session.checks, report.observations, devices)
        return replace(report, results=results, causes=causes)

    async def states(self, *, is_reported: bool = False) -> AsyncIterator[State]:
        """A new state after every change, and once a second while something runs; never ends.

        `is_reported` says that the first run has ended and its report was sent.
        """
        if is_reported:
            await asyncio.gather(*self._tasks)  # it has nothing left to do
            self._changed.clear()
            await self._changed.wait()
        elif not self.about.recorded:
            yield self.state()
            await asyncio.sleep(SOON)
        while True:
            self._changed.clear()
            state = self.state()
            yield state
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), TICK if state.running else None)
            await asyncio.sleep(OFTEN)

    async def recording(self) -> bytes:
        """The zip that keeps what was seen so far, in the whole run or asked again."""
        return self.session.recording(self._whole, self.report())

    async def close(self) -> None:
        """End every run; children that hang are killed and left behind."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _follow_run(self, diagnosis: Diagnosis, results: AsyncIterator[Result]) -> None:
        task = asyncio.create_task(self._exhaust_results(results))
        self._tasks[task] = diagnosis
        task.add_done_callback(self._forget_task)
        self._changed.set()

    async def _exhaust_results(self, results: AsyncIterator[Result]) -> None:
        async for _ in results:
            self._changed.set()
            await asyncio.sleep(0)  # a recording answers at once, and others want to be heard

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._changed.set()

    def _running_checks(self) -> dict[str, Waiting]:
        running: dict[str, Waiting] = {}
        for diagnosis in self._tasks.values():
            ages = diagnosis.source.waiting_for()
            for check in diagnosis.checks:
                if check.id not in diagnosis.finished:
                    running[check.id] = _oldest_wait(ages, self._probes[check.id])
        return running


def _start_run(session: Session) -> Begun:
    diagnosis = session.diagnosis()
    return diagnosis, diagnosis.results()


def _oldest_wait(ages: Mapping[str, float], probes: frozenset[str]) -> Waiting:
    waits = [Waiting(name, age) for name, age in ages.items() if name in probes]
    return max(waits, key=lambda waiting: waiting.seconds, default=Waiting())


def _merge_reports(report: Report, later: Diagnosis) -> Report:
    """The report with a later run's answers; what that run has not answered yet keeps its earlier answer."""
    new = later.report()
    results = {result.check: result for result in report.results} | later.finished
    seen = {seen.probe: seen for seen in (*report.observations, *new.observations)}
    return replace(
        report,
        results=tuple(result for _, result in sorted(results.items())),
        observations=tuple(seen.values()),
        facts={**(report.facts or {}), **(new.facts or {})},
        node={**report.node, **new.node},
    )
