"""How fast the error counters of RDMA ports grow: totals only say what once happened."""

from __future__ import annotations

from collections.abc import Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.files import Files
from nodedoctor.json_shapes import document as document_of
from nodedoctor.json_shapes import number
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

NO_COUNTERS = "no RDMA port here has error counters"


@probe("rdma-growth", timeout=6, lane=Lane.FS, after=("rdma",))
def rdma_growth(options: Options, rdma: Observation) -> Command | Observation:
    """Error counters of every RDMA port, read twice one second apart, where there are any."""
    files = Files.parse_json(rdma)
    if isinstance(files, Files):
        if not any("/counters/" in path or "/hw_counters/" in path for path in files.files):
            return skipped("rdma-growth", NO_COUNTERS)
        if "TIMEOUT" in files.errors.values():
            return skipped("rdma-growth", "an adapter does not answer")
    return Command(child("rdma/rdma_growth", "--root", options.root))


@fact("rdma-growth")
@record
class RdmaGrowth:
    """By how much each error counter (`mlx5_0/1/symbol_error`) grew within `seconds`."""

    seconds: float
    growth: Mapping[str, int] = field(default_factory=dict)
    uptime_seconds: float | None = None

    @classmethod
    def parse(cls, observation: Observation) -> RdmaGrowth | Unseen:
        """Read the child's document."""
        if not observation.answered:
            return Unseen.skip(NO_COUNTERS) if NO_COUNTERS in observation.note else Unseen.of(observation)
        document = document_of(observation)
        if document is None or not isinstance(document.get("growth"), dict):
            return Unseen.of(observation)
        seconds, uptime = number(document.get("seconds")), number(document.get("uptime_seconds"))
        if not seconds:
            return Unseen.of(observation)
        counts = {str(k): v for k, v in document["growth"].items() if type(v) is int and v >= 0}
        return cls(seconds, counts, uptime or None)
