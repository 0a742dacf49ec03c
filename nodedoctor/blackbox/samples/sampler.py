"""The child that watches the job: its samples as they come; given up and started again when it hangs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from nodedoctor.blackbox.samples.sample import Sample, parse
from nodedoctor.children.child_stream import ChildStream
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.probes.job.alive import lives

_log = logging.getLogger(__name__)

SLOW, FAST = 10.0, 1.0
"""Seconds between two looks: usually, and once a hang is suspected."""
PATIENCE = 20.0
"""Seconds beyond its pace that the child may be silent: a node under load is slow, one that hangs is not
back."""
BACK_OFF = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds before the child is started once more, by how often it had to be given up in a row."""


class Sampler:
    """The samples of one job; `wanted` says which, as probes/job/sampler.py reads it."""

    def __init__(self, wanted: Mapping[str, Any], pace: float = SLOW) -> None:
        self._wanted = wanted
        self._pace = self._usual = pace
        self._talk: ChildStream | None = None
        self._grain = 0.0
        self.failures = 0
        """How often the child had to be given up."""
        self.late_samples: list[Sample] = []
        """Samples that had come when the child was ended, and were not asked for."""

    async def samples(self) -> AsyncIterator[Sample]:
        """One sample after another, for as long as somebody wants them."""
        in_a_row = 0
        while True:
            try:
                async for sample in self._one_child():
                    in_a_row = 0
                    yield sample
            except OSError as error:
                _log.warning("the sampler could not be started: %s", error)
            self.failures += 1
            ends = time.monotonic() + BACK_OFF[min(in_a_row, len(BACK_OFF) - 1)]
            while time.monotonic() < ends:
                await asyncio.sleep(1)
                if self._has_ended():
                    yield Sample(time.time(), time.monotonic())  # of nothing: it is over
                    return
            in_a_row += 1

    def hurry(self, fast: bool) -> None:
        """Look every second from now on, or at the usual pace again."""
        pace = min(FAST, self._usual) if fast else self._usual
        if pace != self._pace:
            self._pace = pace
            if self._talk is not None:
                self._talk.say(json.dumps({"seconds": pace}).encode() + b"\n")

    def walk(self) -> None:
        """Search for new processes of the job with the next look: a compiler may have been started since."""
        if self._talk is not None:
            self._talk.say(b'{"walk": true}\n')

    def watch_outputs(self, grain: float) -> None:
        """Note the outputs' sizes so often between two looks, 0 for not at all."""
        if grain != self._grain and self._talk is not None:
            self._grain = grain
            self._talk.say(json.dumps({"grain": grain}).encode() + b"\n")

    async def close(self) -> None:
        """End the child."""
        stream, self._talk = self._talk, None
        if stream is not None:
            samples = (parse(line) for descriptor, line in stream.take_waiting() if descriptor == 1)
            self.late_samples += [sample for sample in samples if sample is not None]
            await stream.leave(0.2)

    def _has_ended(self) -> bool:
        """Whether none of the processes that were named is there: without a sampler nothing else says so."""
        pids = self._wanted.get("pids") or ()
        return bool(pids) and not any(map(lives, pids))

    async def _one_child(self) -> AsyncIterator[Sample]:
        argv = child("job/sampler", json.dumps({**self._wanted, "seconds": self._pace, "grain": self._grain}))
        self._talk = stream = await ChildStream.start(Command(argv, stdin=b"", tied=True))
        try:
            while True:
                try:
                    line = await asyncio.wait_for(stream.line(), self._pace + PATIENCE)
                except asyncio.TimeoutError:
                    _log.warning("the sampler is silent, and is started once more")
                    return
                if line is None:
                    return
                if line[0] == 2:
                    _log.debug("sampler: %s", line[1])
                elif (sample := parse(line[1])) is not None:
                    yield sample
        finally:
            await self.close()
