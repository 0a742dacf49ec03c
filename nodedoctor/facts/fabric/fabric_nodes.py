"""Files by which programs reach the NVLink fabric: management datagrams to NVSwitches, and IMEX channels."""

from __future__ import annotations

from nodedoctor.declare.registry import fact
from nodedoctor.facts.files import Files
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

MANAGEMENT = "/sys/class/infiniband_mad"
CHANNELS = "/dev/nvidia-caps-imex-channels"


@fact("machine")
@record
class FabricNodes:
    """What is there; None where it was not looked for (older recordings) or could not be seen.

    `management` is whether the kernel has ib_umad, loaded or built in: it makes /sys/class/infiniband_mad
    (linux, drivers/infiniband/core/user_mad.c). `channels` are the names in /dev/nvidia-caps-imex-channels.
    """

    management: bool | None = None
    channels: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, observation: Observation) -> FabricNodes | Unseen:
        """Read what the machine's files tell of them."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        there = True if MANAGEMENT in files.stats else None
        channels = files.children(CHANNELS)
        return cls(
            False if files.error(MANAGEMENT) == "ENOENT" else there,
            tuple(channels) if channels or files.error(CHANNELS) == "ENOENT" else None,
        )
