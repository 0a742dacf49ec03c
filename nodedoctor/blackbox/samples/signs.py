"""What speaks for a hang besides the time that it lasts: three signs, of which `--kill-after` needs two."""

from __future__ import annotations

from nodedoctor.blackbox.capture import Capture
from nodedoctor.blackbox.samples.confirm import computes, share
from nodedoctor.blackbox.samples.suspected_hang import QUIET
from nodedoctor.record import record
from nodedoctor.triage.live.activity import long_work, main_thread
from nodedoctor.triage.live.judge import abnormal, ras_counts
from nodedoctor.triage.live.running_job import RankProcess
from nodedoctor.wording import comma_list, singular_or_plural

LOOKS = 2
"""Looks whose stacks may have been written between the two samples, at most."""
NAMED = 3
"""Processes that a reason names."""


@record
class Signs:
    """What was found in two looks; `against` is for each sign why it is not met, '' where it is.

    `progress`: no step came, RAS counts the same operations, no rank moved bytes or computes. `stacks`: the
    Python stacks of all ranks are known and the same, and none is in work that takes long. `state`: the
    kernel calls some process stopped, frozen, stuck or gone.
    """

    progress: str = ""
    stacks: str = ""
    state: str = ""

    @property
    def met(self) -> int:
        """How many of the three are met."""
        return (self.progress, self.stacks, self.state).count("")

    @property
    def against(self) -> str:
        """Why those that are not met are not."""
        return comma_list([why for why in (self.progress, self.stacks, self.state) if why], most=3)


def signs(before: Capture, now: Capture, *, stepped: bool = False) -> Signs:
    """The signs in a look and an earlier one; `stepped` where a step came in between."""
    return Signs(_progress_sign(before, now, stepped), _stack_sign(before, now), _state_sign(now))


def _progress_sign(before: Capture, now: Capture, stepped: bool) -> str:
    if stepped:
        return "a step came"
    counts = [ras_counts(look.live.ras[1]) for look in (before, now)]
    if all(counts) and counts[0] != counts[1]:
        return "NCCL's operation counts rise"
    by_key = {rank.key: rank for rank in before.ranks}
    minutes = max(1.0, (now.time - before.time) / 60)
    # Who is asked for its stacks by a signal writes them itself, twice a look.
    written = {stack.pid: 2 * LOOKS * len(stack.text) for stack in before.stacks if stack.way == "signal"}
    moved = [
        rank.called
        for rank in now.ranks
        if (first := by_key.get(rank.key))
        and (rank.bytes or 0) - (first.bytes or 0) + rank.child_bytes - first.child_bytes
        > QUIET * minutes + sum(written.get(pid, 0) for pid in (rank.pid, *rank.children))
    ]
    if moved:
        return f"{comma_list(moved, most=NAMED)} moved bytes"
    busy = {process.pid for process in now.live.processes if computes(process, share(process, now.seconds))}
    computing = [rank.called for rank in now.ranks if rank.pid in busy]
    return (
        f"{comma_list(computing, most=NAMED)} {singular_or_plural(len(computing), 'uses', 'use')} CPU"
        if computing
        else ""
    )


def _stack_sign(before: Capture, now: Capture) -> str:
    by_pid = {process.pid: process for process in before.live.processes}
    names = {rank.pid: rank.called for rank in now.ranks}
    living = [process for process in now.live.processes if process.pid in names]
    unread = [names[process.pid] for process in living if not process.threads]
    if unread or not living:
        return f"no Python stack of {comma_list(unread, most=NAMED) or 'any rank'} could be read"
    for process in living:
        if work := long_work(process):
            return f"{names[process.pid]} is in {work}, which may take long"
    moving = [
        names[process.pid]
        for process in living
        if process.moved or _main_frames(process) != _main_frames(by_pid.get(process.pid))
    ]
    return f"the stack of {comma_list(moving, most=NAMED)} changes" if moving else ""


def _main_frames(process: RankProcess | None) -> object:
    thread = main_thread(process.threads) if process is not None else None
    return thread.frames if thread is not None else None


def _state_sign(now: Capture) -> str:
    return "" if abnormal(now.live) else "the kernel calls no rank stopped, frozen, stuck or gone"
