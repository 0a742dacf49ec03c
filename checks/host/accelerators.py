"""Are there accelerators here that nodedoctor does not judge?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.pci.pci import Pci, device_evidence
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

_AMD = "1002"
_ACCELERATOR = ("1200", "0380")
"""PCI classes of AMD Instinct: processing accelerator (MI300), display controller, other (MI100, MI200);
a display adapter of a processor or workstation is 0300. pciutils/pciids, linux include/linux/pci_ids.h."""


@check("doctor.amd", "AMD accelerators (not judged)", tags={"fast"}, stage="preview")
def amd(pci: Pci) -> Iterator[Finding]:
    """AMD Instinct accelerators on the PCI bus: nodedoctor does not judge them, and says so once.

    Why: a node where all checks are skipped looks healthy, although its accelerators were not checked.
    Fix disturbs: nothing.
    Judges: UNKNOWN once, when AMD accelerators are on the PCI bus: no check here judges them.
    Fix: Use AMD's own tools (amd-smi) on that node.
    Threshold: PCI classes of AMD Instinct (pciutils/pciids).
    False positives: A display adapter with the class of an accelerator.
    """
    devices = [
        device
        for device in pci.devices
        if device.vendor == _AMD and device.class_code.startswith(_ACCELERATOR) and device.physfn is None
    ]
    if not devices:
        yield Finding.skip("no AMD Instinct accelerator on the PCI bus")
        return
    fix = Fix("Check them with AMD's own tools.", (look("amd-smi list"), look("amd-smi metric")), "none")
    evidence = [quote for device in devices for quote in device_evidence(device, "vendor", "device")]
    summary = f"{count_with_noun(len(devices), 'AMD Instinct accelerator')} on the PCI bus, not judged here"
    yield Finding.unknown("missing-tool", summary, evidence=evidence, fix=fix)
