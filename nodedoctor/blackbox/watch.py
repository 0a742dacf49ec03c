"""Watches one job to its end: samples, suspicion, capture, verdict; the job itself is never touched."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from nodedoctor.blackbox import artifacts, capture, counters, stack_methods, verdict
from nodedoctor.blackbox.folder import Folder
from nodedoctor.blackbox.late import LateRanks
from nodedoctor.blackbox.memory_groups import MemoryGroups
from nodedoctor.blackbox.recorded_node import record_node
from nodedoctor.blackbox.samples import confirm, timeouts
from nodedoctor.blackbox.samples.sample import ProcessEnd, RankSample, Sample
from nodedoctor.blackbox.samples.sampler import SLOW, Sampler
from nodedoctor.blackbox.samples.signs import Signs, signs
from nodedoctor.blackbox.samples.suspected_hang import USUAL, Activity, Progress, ProgressSettings, Suspicion
from nodedoctor.children import child_process
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import Json
from nodedoctor.record import record
from nodedoctor.triage.live import judge
from nodedoctor.triage.live.running_job import LiveJob
from nodedoctor.triage.rank_groups import rank_words
from nodedoctor.wording import count_with_noun

_log = Log(__name__)

LOOK_AGAIN = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""Seconds until the next look after one that found somebody at work, by how often that was so in a row."""
NAMELESS = 15.0
"""Seconds in which processes without a rank may yet get one: launchers start them one after another."""
ON_HANG = 600.0
"""Seconds the command of --on-hang may take."""
SETTLING = 1.0
"""Seconds after the last progress in which ranks may still finish what belongs to it."""
ENDING = 2.0
"""Seconds for the last look at the counters, when the job has ended."""
TASKS = 60.0
"""Seconds until the tasks of a Slurm job are there: a prolog that starts a watch runs right before them."""
EMPTY = 30.0
"""Seconds without any worker of a Ray job that mean its end."""


@record
class Hang:
    """A hang that was caught: when, why it was suspected, and the `nodedoctor.triage/1` document about it.

    `time` is of the wall clock, `moment` of the clock that never jumps; `seen` is the look that caught it.
    """

    time: float
    why: str
    document: Json
    seen: capture.Capture
    moment: float
    resumed_after: float | None = None

    @property
    def live(self) -> LiveJob:
        """What was seen of its processes."""
        return self.seen.live


@record
class Confirmed:
    """A look that confirms a hang, which counts once the next sample shows no step since the last one
    (`stepped`): looks take seconds, in which a job may go on or end."""

    look: capture.Capture
    suspicion: Suspicion
    word: str
    moment: float
    stepped: float | None


class Watch:
    """Follows one job; `report` gets lines for a person."""

    def __init__(
        self,
        wanted: Mapping[str, Any],
        folder: Folder,
        report: Callable[[str], None],
        settings: ProgressSettings = USUAL,
        pace: float = SLOW,
        on_hang: str = "",
        caught: Callable[[], None] = lambda: None,
    ) -> None:
        self._wanted = wanted
        self._sampler = Sampler(wanted, pace)
        self._folder = folder
        self._say = report
        self._on_hang = on_hang
        self._caught = caught
        self._host = socket.gethostname()
        self._began = time.time()
        self._next_look = 0.0
        self._in_vain = 0
        self._asked: float | None = None
        self._introduced: set[tuple[int, int]] = set()
        self._ranks: set[int] = set()
        self._met: dict[tuple[int, int], RankSample] = {}
        self._unsure: LiveJob | None = None
        self._named = False
        self._confirmed: Confirmed | None = None
        self._waits = False
        self._computing = confirm.Computing()
        self._stopped = False
        self._first = time.monotonic()
        self._grace = min(settings.grace, TASKS) if "slurm" in wanted else settings.grace
        self.appeared = "pids" in wanted
        """Whether anything of the job was ever there: raylets and tasks may be started after the watch."""
        self.progress = Progress(settings)
        self.memory = MemoryGroups()
        self.late = LateRanks(self._host, report)
        self.ends: list[ProcessEnd] = []
        self.timeouts = timeouts.Timeouts()
        self.hangs: list[Hang] = []
        self.last: Sample | None = None
        self.recording: asyncio.Task[None] | None = None
        """The node's recording, begun when a hang was seen."""
        self.gained: tuple[str, ...] = ()
        """By how much error counters had grown at the last look, or at the end."""
        self._counters: asyncio.Task[counters.Counters] | None = None

    async def run(self) -> None:
        """Until the job is over."""
        emptied: float | None = None
        self._counters = asyncio.ensure_future(counters.read())
        async for sample in self._sampler.samples():
            if self._stopped:
                return
            if not self._has_appeared(sample):
                if sample.moment - self._first >= self._grace:
                    return
                self._sampler.hurry(True)
                continue
            self.last = sample
            self._folder.append("samples.jsonl", artifacts.sample_line(sample))
            artifacts.outputs(self._folder, sample)
            self.timeouts.feed(sample)
            went_on = self.progress.feed(sample)
            self.memory.feed(sample.living)
            self._sampler.watch_outputs(self.late.feed(sample))
            self._note_ends(sample)
            self._ranks |= {rank.rank for rank in sample.living if rank.rank is not None}
            self._introduce_ranks(sample)
            emptied = None if sample.living or not self._introduced else emptied or sample.moment
            stays = self._wanted.get("ray") is True  # raylets outlive their jobs
            if sample.over or (stays and emptied is not None and sample.moment - emptied >= EMPTY):
                return
            if went_on and self._is_caught():
                self._note_resumption()
            suspicion = self.progress.suspicion()
            if self._confirmed is not None and sample.moment >= self._confirmed.moment:
                self._conclude_hang(self._confirmed)
            if self._is_caught() and await self._moves_again(suspicion, sample):
                self._note_resumption()
            self._sampler.hurry(suspicion is not None or not self._introduced or self._waits_to_judge(sample))
            if suspicion is None:
                self._in_vain, self._asked = 0, None
                if self._unsure is not None and not self._is_caught():
                    artifacts.resumed(self._folder, self._unsure)
                    self._unsure = None
            elif not self._is_caught() and self._confirmed is None and sample.moment >= self._next_look:
                if self._asked is None:
                    self._asked = sample.moment
                    self._sampler.walk()
                elif sample.walked > self._asked:
                    self._asked = None
                    await self._examine_suspicion(suspicion, sample)

    def _note_ends(self, sample: Sample) -> None:
        self.ends += sample.ended
        self._met |= {rank.key: rank for rank in sample.living}

    def _has_appeared(self, sample: Sample) -> bool:
        """Whether something of the job is or was there; says once that it is waited for."""
        if not self.appeared and sample.walked and (sample.roots or sample.living):
            self.appeared = True
        if not self.appeared and not self._waits:
            self._waits = True
            self._say(f"nothing of the job runs on {self._host} yet; waiting {self._grace:g} s at most")
        return self.appeared

    @property
    def living(self) -> tuple[RankSample, ...]:
        """The ranks that ran at the last look."""
        return self.last.living if self.last is not None else ()

    @property
    def met(self) -> tuple[RankSample, ...]:
        """All processes that were ever watched, each as it was last seen."""
        return tuple(self._met.values())

    def stop(self) -> None:
        """Take in no further sample. Up to Python 3.11 wait_for() may swallow a cancellation (gh-86296)."""
        self._stopped = True

    async def close(self) -> None:
        """Let go of the sampler, and read the counters once more."""
        await self._sampler.close()
        for sample in self._sampler.late_samples:  # what came while a hang was looked at, which takes seconds
            self._note_ends(sample)
        self.late.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._compare_counters(), ENDING)
        if self._counters is not None:
            self._counters.cancel()

    def state(self) -> dict[str, Any]:
        """What run.json says of the watching itself."""
        return {
            "host": self._host,
            "began": self._began,
            "ended": time.time(),
            "ranks": sorted(self._ranks),
            "steps_seen": self.progress.count,
            "step_seconds": self.progress.median,
            "hang_after": self.progress.threshold,
            "timeout": asdict(self.timeouts.in_force),
            "sampler_restarts": self._sampler.failures,
            "counters_gained": list(self.gained),
            "late_ranks": self.late.state(),
            "hangs": [
                {"time": hang.time, "why": hang.why, "headline": hang.document.get("headline"),
                 "resumed_after": hang.resumed_after}
                for hang in self.hangs
            ],
        }  # fmt: skip

    def _is_caught(self) -> bool:
        return bool(self.hangs) and self.hangs[-1].resumed_after is None

    def _waits_to_judge(self, sample: Sample) -> bool:
        """True while somebody is stopped or gone and the grace for that is not over yet."""
        stopped = any(rank.state in ("T", "t", "Z") for rank in sample.living)
        return bool(sample.living) and (stopped or bool(self.progress.missing))

    def _introduce_ranks(self, sample: Sample) -> None:
        """Say once who is watched, by what means, and whether a hang can be seen before the watchdog."""
        new = [rank for rank in sample.living if rank.key not in self._introduced]
        if not self._is_worth_a_line(new, sample):
            return
        first = not self._introduced
        self._introduced |= {rank.key for rank in new}
        ranks = [rank.rank for rank in new if rank.rank is not None]
        self._named = self._named or bool(ranks)
        names = rank_words(ranks) if ranks else ", ".join(rank.called for rank in new[:4])
        size = max((rank.world or 0 for rank in new), default=0)
        total = f" of {size}" if size else ""
        self._say(f"{'watching' if first else 'found'} {names}{total} on {self._host}")
        if first:
            self._say(f"Python stacks: {stack_methods.phrase(new)}")
            self._say(self.timeouts.before_watchdog(self.progress.threshold))
            if self.timeouts.has_gpus:
                self._say(stack_methods.UNTRIED)

    def _is_worth_a_line(self, new: Sequence[RankSample], sample: Sample) -> bool:
        """True when these are worth a line: ranks, or after a while whatever there is."""
        waited = sample.moment - (self.progress.first or sample.moment)
        if self._named:  # once there were ranks, what has none is what is left of their launcher
            new = [rank for rank in new if rank.rank is not None]
        return bool(new) and (any(rank.rank is not None for rank in new) or waited >= NAMELESS)

    async def _examine_suspicion(self, suspicion: Suspicion, sample: Sample) -> None:
        look, _ = await asyncio.gather(
            capture.look_twice(sample.living, host=self._host, missing=self.progress.missing),
            self._compare_counters(),
        )
        live = replace(look.live, notes=(*look.live.notes, *counters.note(self.gained)))
        look = replace(look, live=live)

        def lately(rank: RankSample) -> Activity:
            return self.progress.activity(rank, suspicion.since + SETTLING)

        busy = confirm.at_work(look, lately)
        _log.debug("%s; at work: %s", suspicion.why, [rank.called for rank in busy])
        waits = confirm.someone_waits(look)
        abnormal = bool(judge.abnormal(look.live))
        if busy and waits and self._only_computes(look, busy, suspicion, lately):
            silent = time.monotonic() - suspicion.since
            look = self._computing.marked(look, silent)
            self._confirmed = Confirmed(
                look, suspicion, "PERHAPS A HANG", time.monotonic(), self.progress.stepped
            )
        elif busy or (suspicion.rule != 2 and not waits and not abnormal):
            if not busy and self._unsure is None:
                self._unsure = look.live
                artifacts.look(self._folder, look)  # on other nodes there may be somebody who waits for these
                self._say(f"{suspicion.why}, and none of them is seen to wait for another: no verdict")
            self._next_look = time.monotonic() + LOOK_AGAIN[min(self._in_vain, len(LOOK_AGAIN) - 1)]
            if (due := suspicion.since + self._due_time()) > time.monotonic():
                self._next_look = min(self._next_look, due)
            self._in_vain += 1
        else:
            word = "HANG" if waits or abnormal else "PERHAPS A HANG"
            self._confirmed = Confirmed(look, suspicion, word, time.monotonic(), self.progress.stepped)

    async def _compare_counters(self) -> None:
        """Read the counters, and note what they have gained since the watching began."""
        if self._counters is not None:
            before, now = await asyncio.gather(asyncio.shield(self._counters), counters.read())
            self.gained = now.gained_since(before)

    async def _moves_again(self, suspicion: Suspicion | None, sample: Sample) -> bool:
        """Whether a job that shows no steps goes on: every rank has moved and each is seen to go on.

        A watchdog's heartbeat moves one rank for a moment, and a rank that was let go may stop at once again.
        """
        hang = self.hangs[-1]
        if suspicion is not None or self.progress.stepped is not None or sample.moment < self._next_look:
            return False
        if not self.progress.all_moved(hang.moment):
            return False
        look = await capture.look_twice(sample.living, host=self._host)
        self._next_look = time.monotonic() + LOOK_AGAIN[0]
        pids = {process.pid for process in hang.live.processes}
        return not confirm.stuck(look, pids, lambda rank: self.progress.activity(rank, hang.moment))

    def _due_time(self) -> float:
        limit = self.timeouts.in_force.seconds
        return confirm.due(self.progress.threshold, limit, self.progress.longest)

    def _only_computes(
        self, look: capture.Capture, busy: Sequence[RankSample], suspicion: Suspicion, lately: confirm.Lately
    ) -> bool:
        only = self._computing.feed(look, busy, suspicion, lately)
        return only and suspicion.rule == 2 and time.monotonic() - suspicion.since >= self._due_time()

    def _conclude_hang(self, confirmed: Confirmed) -> None:
        """Call it a hang, unless a step came during the look."""
        self._confirmed = None
        if self.progress.stepped == confirmed.stepped:
            self._caught_one(confirmed.look, confirmed.suspicion, confirmed.word)

    def _caught_one(self, look: capture.Capture, suspicion: Suspicion, word: str) -> None:
        """Judge and keep what was seen, and say it."""
        examined = verdict.judge(look)
        self.hangs.append(Hang(look.time, suspicion.why, examined, look, time.monotonic()))
        artifacts.capture(self._folder, look, examined)
        self._say(f"{word}: {suspicion.why}")
        for line in verdict.short(examined, look):
            self._say(line)
        dump_note = (
            f"; {count_with_noun(look.dumps, 'rank')} asked for a flight recorder dump" if look.dumps else ""
        )
        self._say(f"kept in {self._folder.path} (stacks: {look.ways}{dump_note}; {look.seconds:.1f} s)")
        self._react_to_hang()
        self._caught()

    async def signs(self, hang: Hang, before: capture.Capture) -> tuple[capture.Capture, Signs]:
        """Look once more at a job that hangs: what speaks for it besides the time, since an earlier look."""
        look = await capture.look_twice(self.living, host=self._host, missing=self.progress.missing)
        stepped = (self.progress.stepped or 0) > hang.moment
        return look, signs(before, look, stepped=stepped)

    def _react_to_hang(self) -> None:
        """Begin what takes longer and is of use later: the node's recording, and what a person asked for."""
        if self.recording is None:
            self.recording = asyncio.ensure_future(self._record_node())
        if self._on_hang:
            env = {"NODEDOCTOR_DIR": str(self._folder.path)}
            command = Command(("/bin/sh", "-c", self._on_hang), env=env)
            self._reaction = asyncio.ensure_future(child_process.run("on-hang", command, ON_HANG))

    async def _record_node(self) -> None:
        self._folder.write("node.zip", await record_node(of_ray=any(rank.of_ray for rank in self.met)))

    def _note_resumption(self) -> None:
        hang = self.hangs[-1]
        seconds = time.monotonic() - hang.moment
        self.hangs[-1] = replace(hang, resumed_after=seconds)
        artifacts.resumed(self._folder, hang.live)
        self._in_vain = 0
        self._say(f"the job goes on again, {seconds:.0f} s after the hang was seen")
