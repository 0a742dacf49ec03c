"""What systemd says about the services a GPU node leans on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.facts.shapes import assignments
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like
from nodedoctor.record import record

UNITS = (
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-dcgm",
    "dcgm",
    "slurmd",
    "munge",
    "docker",
    "containerd",
    "chrony",
    "chronyd",
    "ntp",
    "ntpd",
    "systemd-timesyncd",
    "phc2sys",
    "unattended-upgrades",
)
_PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,Result"
_NOT_BOOTED = ("not been booted with systemd", "Failed to connect to bus", "Host is down")
WAY_OUT = "In a container: run on the host, whose services are not visible from inside."


@probe("services", timeout=5)
def services(options: Options) -> Command | Observation:
    """State of NVIDIA's, Slurm's, container and time services, in one call."""
    if options.root not in ("", "/"):
        return skipped("services", "systemctl queries the systemd of this root only, not of another one")
    units = tuple(f"{unit}.service" for unit in UNITS)
    return Command(("systemctl", "show", "--no-pager", "-p", _PROPERTIES, "--", *units))


@record
class Service:
    """One unit in systemd's words: active is active, inactive, failed, activating; enabled may be empty."""

    name: str
    loaded: str
    active: str
    sub: str = ""
    enabled: str = ""
    result: str = ""

    @property
    def installed(self) -> bool:
        """Whether there is such a unit on this node."""
        return self.loaded != "not-found"

    @property
    def running(self) -> bool:
        """Whether it is up."""
        return self.active == "active"

    @property
    def state(self) -> str:
        """What it does, as the end of a sentence: `has failed`, `is inactive (dead)`."""
        sub = f" ({self.sub})" if self.sub and self.sub != self.active else ""
        return "has failed" if self.active == "failed" else f"is {self.active}{sub}"

    @property
    def said(self) -> Evidence:
        """The block of `systemctl show` about the unit."""
        block = rf"^(?:[A-Za-z]+=.*\n)*Id={re.escape(self.name)}(?:\.service)?(?:\n[A-Za-z]+=.*)*"
        return quoted_like("services", block)


@fact("services")
@record
class Services:
    """The services that systemd knows, by name without `.service`; unknown names are not installed."""

    units: tuple[Service, ...]

    @classmethod
    def parse(cls, observation: Observation) -> Services | Unseen:
        """Read the blocks of `systemctl show`; a container without systemd cannot see the host's services."""
        units = tuple(_parse_units(observation.text)) if observation.answered else ()
        if units:
            return cls(units)
        message = f"{observation.text}\n{observation.note}"
        if any(words in message for words in _NOT_BOOTED):
            return Unseen(
                "not-visible-here", "services: systemd does not run here", WAY_OUT, observation.probe
            )
        return Unseen.of(observation, WAY_OUT)

    def reported(self, name: str) -> bool:
        """Whether systemd answered for this unit, if only that there is none; a cut answer does not."""
        return any(unit.name == name for unit in self.units)

    def get(self, name: str) -> Service | None:
        """The unit of a name, None when it is not installed or was not asked for."""
        units = (unit for unit in self.units if unit.name == name and unit.installed)
        return next(units, None)


def _parse_units(text: str) -> Iterator[Service]:
    for block in text.split("\n\n"):
        unit = assignments(block, "=")
        name, loaded, active = unit.get("Id", ""), unit.get("LoadState", ""), unit.get("ActiveState", "")
        if name and loaded and active:
            yield Service(
                name.removesuffix(".service"),
                loaded,
                active,
                unit.get("SubState", ""),
                unit.get("UnitFileState", ""),
                unit.get("Result", ""),
            )
