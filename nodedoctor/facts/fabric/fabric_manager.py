"""The version of NVIDIA's fabric manager, which must be that of the driver to the last digit."""

from __future__ import annotations

import re

from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like
from nodedoctor.patterns import regex
from nodedoctor.record import record

NAME = "fabric-manager"
_VERSION = regex(r"version is\s*:\s*(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)", re.IGNORECASE)


@probe(NAME, timeout=5, after=("pci", "driver-files"))
def fabric_manager(options: Options, pci: Observation, files: Observation) -> Command | Observation:
    """`nv-fabricmanager --version`; the program reads nothing of the node for that."""
    if why := reason_not_to_ask(pci, files):
        return skipped(NAME, why)
    if options.root not in ("", "/"):
        return skipped(NAME, "the program of this root is not the one of the node")
    return Command(("nv-fabricmanager", "--version"))


@fact(NAME, DriverPackages)
@record
class FabricManager:
    """The installed fabric manager; `said_by` names the probe that knew its version."""

    version: str
    said_by: str
    said: tuple[Evidence, ...] = ()

    def public(self) -> dict[str, str]:
        """The version, and who said it."""
        return {"version": self.version, "said_by": self.said_by}

    @classmethod
    def parse(cls, observation: Observation, packages: DriverPackages | Unseen) -> FabricManager | Unseen:
        """What the program says, else what the package is."""
        match = _VERSION.search(f"{observation.text}\n{observation.note}") if observation.answered else None
        if match:
            return cls(match[1], NAME, (quoted_like(NAME, rf".*{re.escape(match[1])}.*"),))
        installed = packages.packages if isinstance(packages, DriverPackages) else ()
        for package in installed:
            if package.name.startswith("nvidia-fabric") and package.driver:
                return cls(
                    package.driver, f"driver-packages: {package.name} {package.version}", (package.said,)
                )
        way_out = "Run on the host: a container does not have the host's fabric manager."
        return Unseen("missing-tool", "no fabric manager found here", way_out, NAME)
