"""Where a cloud's images keep NCCL's plug-ins and topology files for its machines."""

from __future__ import annotations

from nodedoctor.declare.registry import fact
from nodedoctor.facts.files import Files
from nodedoctor.knowledge.clouds import PLACES
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record


@fact("machine")
@record
class CloudPlugins:
    """The folders and files that are there, and those that were looked for and are not."""

    there: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> CloudPlugins | Unseen:
        """Read what the machine's files tell of them; older recordings tell nothing."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        there = tuple(place for place in PLACES if place in files.stats)
        return cls(there, tuple(place for place in PLACES if files.error(place) == "ENOENT"))
