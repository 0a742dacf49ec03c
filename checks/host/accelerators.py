"""Are there accelerators here that nodedoctor does not judge?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look

_AMD = "1002"
_ACCELERATOR = ("1200", "0380")
"""PCI classes of AMD Instinct: processing accelerator (MI300), display controller, other (MI100, MI200);
a display adapter of a processor or workstation is 0300. pciutils/pciids, linux include/linux/pci_ids.h."""


@check("doctor.amd", "No accelerator here is left without a doctor", tags={"fast"}, stage="preview")
def amd(pci: Pci) -> Iterator[Finding]:
    """AMD Instinct accelerators on the PCI bus: nothing here judges them, which is said once.

    Why: a node full of skipped checks looks healthy, although nobody looked at its accelerators.
    Fix disturbs: nothing.
    Judges: UNKNOWN once, when AMD accelerators are on the PCI bus: no check here judges them.
    Fix: Use AMD's own tools (amd-smi) on that node.
    Threshold: PCI classes of AMD Instinct (pciutils/pciids).
    False positives: A display adapter with the class of an accelerator.
    """
    found = [
        device
        for device in pci.devices
        if device.vendor == _AMD and device.class_code.startswith(_ACCELERATOR) and device.physfn is None
    ]
    if not found:
        yield Finding.skip("no AMD Instinct accelerator on the PCI bus")
        return
    fix = Fix("Judge them with AMD's own tools.", (look("amd-smi list"), look("amd-smi metric")), "none")
    said = [Evidence("pci", f"{device.address} {device.pci_id}") for device in found]
    summary = f"{len(found)} AMD Instinct on the PCI bus: not judged here"
    yield Finding.unknown("missing-tool", summary, evidence=said, fix=fix)
