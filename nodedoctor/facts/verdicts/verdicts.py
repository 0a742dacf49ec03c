"""What other tools said of this node, where their outputs were pasted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodedoctor.declare.registry import fact
from nodedoctor.facts.verdicts import dcgm_health, kubernetes, mlxlink, scans
from nodedoctor.facts.verdicts.verdict import Verdict
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

READERS: Mapping[str, Callable[[str], Iterator[Verdict]]] = {
    dcgm_health.PROBE: dcgm_health.verdicts,
    mlxlink.PROBE: mlxlink.verdicts,
    kubernetes.PROBE: kubernetes.verdicts,
    scans.GPUD: scans.gpud,
    scans.IBDIAGNET: scans.ibdiagnet,
    scans.VALIDATION: scans.validation,
}
MOST = 200
"""Statements that are kept of one output; ours."""


@fact(*READERS, shown=False)
@record
class OtherTools:
    """What each of them says, in the order of its output."""

    verdicts: tuple[Verdict, ...]

    @classmethod
    def parse(cls, *seen: Observation) -> OtherTools | Unseen:
        """Read the outputs that were given; nothing applies where none was."""
        given = [one for one in seen if one.answered and one.text.strip()]
        found = tuple(verdict for one in given for verdict in _read(one))
        if found:
            return cls(found)
        return Unseen.of(given[0]) if given else Unseen.skip("no output of another health tool was given")


def _read(seen: Observation) -> Iterator[Verdict]:
    for number, verdict in enumerate(READERS[seen.probe](seen.text)):
        if number < MOST:
            yield verdict
