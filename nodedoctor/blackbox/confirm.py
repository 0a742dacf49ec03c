"""Whether a suspected hang is one: who moved between two looks, and who does not but works all the same.

A job hangs when nobody in it goes on. Saving, loading, compiling and generating can keep one Python stack for
minutes: whoever moves bytes, has busy children, or uses CPU outside of a wait is at work. A rank that waits
for others uses a whole core in cudaStreamSynchronize and does nothing all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nodedoctor.blackbox.capture import Capture
from nodedoctor.blackbox.progress import IDLE, Activity
from nodedoctor.blackbox.sample import RankSample
from nodedoctor.triage.live.running_job import RankProcess

_GPU_WAIT = re.compile(r"^(?:synchronize|wait|item|cpu|tolist|to|_local_scalar_dense)$")
"""Python functions below which a rank waits for its GPU, and so perhaps for a collective on it."""


def at_work(capture: Capture, activity: Callable[[RankSample], Activity]) -> tuple[RankSample, ...]:
    """The ranks that go on, whatever the suspicion says; none when the job hangs."""
    by_pid = {process.pid: process for process in capture.live.processes}
    return tuple(
        rank
        for rank in capture.ranks
        if not rank.gone and (process := by_pid.get(rank.pid)) and _works(process, activity(rank))
    )


def someone_waits(capture: Capture) -> bool:
    """True when some rank is seen to wait in a collective: else a still job may simply have nothing to do."""
    return any(process.collective for process in capture.live.processes)


def _works(process: RankProcess, lately: Activity) -> bool:
    if process.states[1] in ("T", "t", "Z", "X", "gone"):
        return False
    if process.collective:
        return process.moved
    if process.moved or lately.works:
        return True
    return lately.cpu > IDLE and not _waits_for_gpu(process)


def _waits_for_gpu(process: RankProcess) -> bool:
    return any(_GPU_WAIT.match(frame.function) for thread in process.threads for frame in thread.frames[:2])
