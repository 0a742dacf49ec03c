"""What the drivers of network adapters counted: packets without a buffer, and pause frames (PFC)."""

from __future__ import annotations

from collections.abc import Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.json_shapes import document, mapping
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

NAME = "ethtool"
NO_ETHERNET = "no RDMA port here uses Ethernet"


@probe(NAME, timeout=6, lane=Lane.FS, after=("rdma",))
def ethtool(options: Options, rdma: Observation) -> Command | Observation:
    """Discards and pause frames of each network adapter (`ethtool -S`), where an RDMA port uses Ethernet."""
    if options.root not in ("", "/"):
        return skipped(NAME, "the kernel tells of its own interfaces, not of those of another root")
    if rdma.answered and '"Ethernet\\n"' not in rdma.text:
        return skipped(NAME, NO_ETHERNET)
    return Command(child("network/ethtool"))


@fact(NAME)
@record
class Ethtool:
    """The statistics of each physical interface by name; empty for a driver that keeps none we know."""

    interfaces: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, seen: Observation) -> Ethtool | Unseen:
        """Read the child's document."""
        if not seen.answered:
            return Unseen.skip(NO_ETHERNET) if NO_ETHERNET in seen.note else Unseen.of(seen)
        told = document(seen)
        if told is None or not isinstance(told.get("interfaces"), dict):
            return Unseen.of(seen)
        counts = {
            str(name): {str(key): value for key, value in mapping(counted).items() if type(value) is int}
            for name, counted in told["interfaces"].items()
        }
        return cls(counts)
