"""How NVIDIA's driver answered those who asked it: how fast, with what error, or not at all."""

from __future__ import annotations

from nodedoctor.children.exhaustion import exhausted_in
from nodedoctor.declare.registry import fact
from nodedoctor.facts.gpu.gpu import GpuReading, InitError, SlowCall
from nodedoctor.facts.gpu.nvml.nvml import NVML, NvmlReading
from nodedoctor.facts.gpu.smi.smi import TABLE, XML, Q, SmiQ, SmiTable, SmiXml
from nodedoctor.model import Observation, Outcome, Reason, Unseen
from nodedoctor.record import record

_LANE_TRIPPED = "is stuck; not "  # how the engine words it (collect.py)
_NOT_ASKED = frozenset({Outcome.MISSING, Outcome.SKIPPED})


@record
class DriverAnswer:
    """One source's answer. `seconds` is how long it took, None for text that somebody pasted.

    `outcome` and `note` are those of the observation: for a hang the note holds pid, state and wait channel.
    `at` names the library call that did not return. `unseen` is why there is no reading,
    `reason` the class of that.
    """

    probe: str
    outcome: str
    seconds: float | None = None
    note: str = ""
    gpus: int = 0
    driver_version: str | None = None
    init_error: InitError | None = None
    at: str = ""
    slow_calls: tuple[SlowCall, ...] = ()
    unseen: str = ""
    reason: Reason | None = None


@fact(NVML, XML, Q, TABLE, NvmlReading, SmiXml, SmiQ, SmiTable)
@record
class DriverAnswers:
    """What became of every question put to the driver; a hang or a crash is an answer, too.

    `tripped` is the engine's note when another probe got stuck in the driver first, so none was asked.
    """

    answers: tuple[DriverAnswer, ...]
    tripped: str = ""

    @classmethod
    def parse(
        cls,
        nvml: Observation,
        xml: Observation,
        q: Observation,
        table: Observation,
        nvml_reading: NvmlReading | Unseen,
        xml_reading: SmiXml | Unseen,
        q_reading: SmiQ | Unseen,
        table_reading: SmiTable | Unseen,
    ) -> DriverAnswers | Unseen:
        """Join each observation with what was read of it; unseen only where nothing was asked."""
        pairs = ((nvml, nvml_reading), (xml, xml_reading), (q, q_reading), (table, table_reading))
        replies = [pair for pair in pairs if pair[0].outcome not in _NOT_ASKED and not exhausted_in(pair[0])]
        answers = tuple(_driver_answer(observation, reading) for observation, reading in replies)
        tripped = next(
            (observation.note for observation, _ in pairs if _LANE_TRIPPED in observation.note), ""
        )
        return cls(answers, tripped) if answers or tripped else Unseen.of(nvml)


def _driver_answer(
    observation: Observation, fact: NvmlReading | SmiXml | SmiQ | SmiTable | Unseen
) -> DriverAnswer:
    if isinstance(fact, Unseen):
        return DriverAnswer(
            observation.probe,
            observation.outcome.value,
            observation.seconds or None,
            observation.note,
            unseen=fact.note,
            reason=fact.reason,
        )
    reading: GpuReading = fact.gpus
    return DriverAnswer(
        probe=observation.probe,
        outcome=observation.outcome.value,
        # A child that stays open to keep the driver awake says itself when it had its answer.
        seconds=reading.seconds or observation.seconds or None,
        note=observation.note,
        gpus=len(reading.gpus) or (0 if reading.lost or reading.init_error else reading.counted or 0),
        driver_version=reading.driver_version,
        init_error=reading.init_error,
        at=reading.interrupted_note,
        slow_calls=reading.slow_calls,
    )
