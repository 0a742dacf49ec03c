"""Whether an IOMMU translates what devices send: units, kernel parameters, and the type of every group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

GROUPS, UNITS = "/sys/kernel/iommu_groups", "/sys/class/iommu"
_PARAMETER = re.compile(r"(?:intel_iommu|amd_iommu|iommu|iommu\.passthrough|iommu\.strict)=\S{1,60}")


@probe("iommu", timeout=5, lane=Lane.FS)
def iommu_files(options: Options) -> Command:
    """IOMMU units, the type of each IOMMU group, and the kernel's parameters."""
    words = (f"list:{UNITS}", f"read:{GROUPS}/*/type", "read:/proc/cmdline")
    return Command(child("host/files", "--root", options.root, *words))


@fact("iommu")
@record
class Iommu:
    """The IOMMU as the kernel uses it.

    `types` maps a group to its type: identity (passed through), DMA or DMA-FQ (translated). `parameters` are
    those of the kernel's command line that concern it. No `units` means that none is switched on.
    """

    units: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> Iommu | Unseen:
        """Read the files; unseen where sysfs is not there."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        units = files.names(UNITS)
        if units is None and files.error(UNITS) not in (None, "ENOENT"):
            return Unseen("denied", f"iommu: {UNITS}: {files.error(UNITS)}", probe=observation.probe)
        types = {path.partition("/")[0]: text for path, text in files.under(GROUPS).items()}
        command_line = files.text("/proc/cmdline") or ""
        return cls(units or (), types, tuple(_PARAMETER.findall(command_line)))

    def public(self) -> dict[str, Any]:
        """Groups only counted by type."""
        kinds = sorted(set(self.types.values()))
        counts = {kind: sum(value == kind for value in self.types.values()) for kind in kinds}
        return {"units": list(self.units), "groups": counts, "parameters": list(self.parameters)}
