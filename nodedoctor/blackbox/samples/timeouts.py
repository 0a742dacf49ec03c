"""When the job's own watchdog would end it: what the output says, else the backend's default.

Only then a hang is caught "before the watchdog": when that limit is longer than the silence that makes us
look, and the seconds that looking takes.
"""

from __future__ import annotations

import os
import re

from nodedoctor.blackbox.samples.sample import Sample
from nodedoctor.record import record

NCCL, GLOO = 600.0, 1800.0
"""Seconds: torch's defaults of the two backends
(torch/distributed/constants.py: default_pg_nccl_timeout, default_pg_timeout)."""
CAPTURE = 20.0
"""Seconds to allow for the capture: two looks at eight ranks take ten."""

_LIMIT = re.compile(
    r"Timeout\(ms\)\s?=\s?(?P<ms>\d{4,9})\b"
    r"|\btimeout['\"]?\s?[:=]\s?(?:datetime\.)?timedelta\(seconds=(?P<s>\d{1,6})\)"
    r"|\bddp_timeout['\"]?\s?[:=]\s?(?P<ddp>\d{1,6})\b"
)


@record
class Timeout:
    """Seconds a collective may wait, and where that is known from."""

    seconds: float
    source: str


class Timeouts:
    """Collects what the output and the environment say about the limit."""

    def __init__(self, *, gpus: bool | None = None) -> None:
        self.has_gpus = os.path.exists("/dev/nvidiactl") if gpus is None else gpus
        self._default = (
            Timeout(NCCL, "NCCL's default in torch, assumed")
            if self.has_gpus
            else Timeout(GLOO, "Gloo's default in torch, assumed")
        )
        self._said: Timeout | None = None

    @property
    def in_force(self) -> Timeout:
        """The smallest that was seen, else the default."""
        return self._said or self._default

    def feed(self, sample: Sample) -> None:
        """Take in what the job printed, and what its ranks were started with."""
        for part in sample.output:
            for match in _LIMIT.finditer(part.text):
                seconds = float(match["ms"]) / 1000 if match["ms"] else float(match["s"] or match["ddp"])
                self._note_timeout(seconds, f"seen in {os.path.basename(part.path)}")
        for rank in sample.living:
            self._note_timeout(60.0 * (rank.minutes or 0), "DEEPSPEED_TIMEOUT of its ranks")

    def _note_timeout(self, seconds: float, source: str) -> None:
        if seconds and (self._said is None or seconds < self._said.seconds):
            self._said = Timeout(seconds, source)

    def before_watchdog(self, threshold: float) -> str:
        """Whether a hang will be looked at before the job's own watchdog ends it, as a sentence."""
        limit = self.in_force
        limit_text = f"the job's own limit is {limit.seconds:g} s ({limit.source})"
        if limit.seconds > threshold + CAPTURE:
            return f"a hang is looked at after {threshold:.0f} s without progress; {limit_text}"
        return (
            f"a hang is looked at after {threshold:.0f} s without progress, too late: {limit_text};"
            f" use --hang-after {max(1, int(limit.seconds / 2 - CAPTURE / 2))} or a longer limit"
        )
