"""Whether a suspected hang is one: who moved between two looks, and who does not but works all the same.

A job hangs when no rank goes on. Saving, loading, compiling and generating can keep one Python stack for
minutes: a rank that moves bytes, has busy children, or uses CPU outside of a wait is at work, and so is one
in a function of such work, that waits for another machine perhaps. A rank that waits for others uses a
whole core in cudaStreamSynchronize and does nothing all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from nodedoctor.blackbox.capture import Capture
from nodedoctor.blackbox.samples.sample import TICKS_PER_SECOND, RankSample
from nodedoctor.blackbox.samples.suspected_hang import DEAD, IDLE, STOPPED, Activity, Suspicion
from nodedoctor.triage.live.activity import long_work, main_thread, own_frame
from nodedoctor.triage.live.running_job import RankProcess
from nodedoctor.triage.patterns.stacks import StackFrame

Lately = Callable[[RankSample], Activity]
"""What a rank did since the suspicion began."""

_GPU_WAIT = re.compile(r"^(?:synchronize|wait|item|cpu|tolist|to|_local_scalar_dense)$")
"""Python functions below which a rank waits for its GPU, and so perhaps for a collective on it."""


def at_work(capture: Capture, activity: Lately) -> tuple[RankSample, ...]:
    """The ranks that go on, whatever the suspicion says; none when the job hangs."""
    by_pid = {process.pid: process for process in capture.live.processes}
    return tuple(
        rank
        for rank in capture.ranks
        if not rank.gone
        and (process := by_pid.get(rank.pid))
        and _is_working(process, _with_looks(activity(rank), process, capture.seconds))
    )


def someone_waits(capture: Capture) -> bool:
    """True when some rank, or its GPU, waits for others: else a still job may have nothing to do."""
    return any(process.collective or process.polls for process in capture.live.processes)


def stuck(capture: Capture, pids: Iterable[int], activity: Lately) -> tuple[RankSample, ...]:
    """Those of some processes that do not go on: neither at work nor elsewhere in the second look."""
    going = {rank.pid for rank in at_work(capture, activity)} | set(capture.moving)
    wanted = set(pids)
    return tuple(rank for rank in capture.ranks if rank.pid in wanted and rank.pid not in going)


def _with_looks(lately: Activity, process: RankProcess, seconds: float) -> Activity:
    """What a rank did lately, the time between the two looks included: samples may be too few to tell."""
    return replace(lately, cpu=max(lately.cpu, share(process, seconds)))


def share(process: RankProcess, seconds: float) -> float:
    """The CPU that a process used between two looks so far apart, as a share of one core."""
    return process.ticks / TICKS_PER_SECOND / max(seconds, 1.0)


def _is_working(process: RankProcess, lately: Activity) -> bool:
    before, now = process.states
    if now == "gone":
        return before != "gone"  # it came to its end between the looks: the job goes on
    if now in (*STOPPED, *DEAD) or process.frozen or process.lock:
        return False
    if process.collective:
        return process.moved
    if process.polls:
        return lately.works
    if process.moved or lately.works or (now != "D" and long_work(process)):
        return True
    return computes(process, lately.cpu)


def computes(process: RankProcess, cpu: float) -> bool:
    """True for a rank that uses CPU outside of a wait, as a share of one core."""
    wants = cpu > IDLE or "R" in process.states  # also where it gets no core for long
    return wants and not (process.collective or process.polls or _waits_for_gpu(process))


def _waits_for_gpu(process: RankProcess) -> bool:
    return any(_GPU_WAIT.match(frame.function) for thread in process.threads for frame in thread.frames[:2])


PATIENCE, OF_LIMIT, OF_LONGEST = 10.0, 0.75, 3.0
"""When a rank that only computes is said to hold the job up: after so many thresholds of silence, or so large
a part of the limit at which the job's own watchdog ends it, whatever comes first; never before so many times
the longest step that was seen, as phases of one job differ fifty-fold."""
LOOKS = 3
"""Looks that must have found a rank in the same function."""


class Computing:
    """Tells an endless loop from work by its length alone: a rank that in every look since the last step was
    in one function of the job, moved no byte and started nothing, while others wait for it."""

    def __init__(self) -> None:
        self._since = 0.0
        self._places: dict[int, tuple[StackFrame | None, int]] = {}

    def feed(
        self, capture: Capture, busy: Iterable[RankSample], suspicion: Suspicion, lately: Lately
    ) -> bool:
        """Take in a look that found somebody at work; True when all of these have only computed so far."""
        if suspicion.since != self._since:
            self._since, self._places = suspicion.since, {}
        by_pid = {process.pid: process for process in capture.live.processes}
        places: dict[int, tuple[StackFrame | None, int]] = {}
        for rank in busy:
            process = by_pid[rank.pid]
            activity = _with_looks(lately(rank), process, capture.seconds)
            place = None if process.collective or activity.works else _own_frame(process)
            before, looks = self._places.get(rank.pid, (place, 0))
            places[rank.pid] = (place if place == before else None, looks + 1)
        self._places = places
        return all(place is not None and looks >= LOOKS for place, looks in places.values())

    def marked(self, capture: Capture, seconds: float) -> Capture:
        """The look with these ranks as those that have not moved for so long."""
        processes = (
            replace(process, moved=False, computing=seconds) if process.pid in self._places else process
            for process in capture.live.processes
        )
        return replace(capture, live=replace(capture.live, processes=tuple(processes)))


def due(threshold: float, limit: float, longest: float) -> float:
    """Seconds of silence after which a rank that only computes is named."""
    return max(threshold, min(PATIENCE * threshold, OF_LIMIT * limit), OF_LONGEST * longest)


def _own_frame(process: RankProcess) -> StackFrame | None:
    """The innermost function of the job's own code in the main thread, without its line."""
    thread = main_thread(process.threads)
    own = own_frame(thread.frames) if thread is not None else None
    return replace(own, line=0) if own is not None else None
