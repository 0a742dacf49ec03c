"""Is the InfoROM of every GPU readable?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.fixes.gpu import replace_gpu
from nodedoctor.model import Finding

from ..unavailable import all_of, none_shown, not_reported

_FIELDS = ("inforom_image_version", "inforom_oem_version", "inforom_ecc_version", "inforom_power_version")
_CORRUPT = "CORRUPTED_INFOROM"


@check("gpu.inforom", "InfoROM integrity", tags={"fast", "gpu"})
def inforom(gpus: Gpus) -> Iterator[Finding]:
    """NVML's answers for the InfoROM versions: the error CORRUPTED_INFOROM (nvml.h) is a finding.

    Why: the InfoROM keeps the board's ECC counts, retired pages and limits; a corrupt one loses them, and
    nvidia-smi warns of it in every output.
    Fix disturbs: every job on this node while the card is replaced.
    Judges: WARN when NVML answers CORRUPTED_INFOROM for a part of the InfoROM.
    Fix: Reboot once; if it stays corrupt, replace the card.
    Threshold: nvml.h: NVML_ERROR_CORRUPTED_INFOROM.
    False positives: None known.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    any_corrupt = False
    for gpu in gpus.gpus:
        bad = sorted(field for field, error in gpu.errors.items() if error == _CORRUPT)
        if bad:
            any_corrupt = True
            evidence = values(gpus.source, gpu, *bad)
            text = "Reboot once; if the InfoROM is still corrupt, request a replacement."
            yield Finding.warn(
                "InfoROM corrupt",
                subject=gpu.subject,
                evidence=[*evidence, *identity_evidence(gpus.source, gpu)],
                fix=replace_gpu(gpu, text, "gpu.inforom"),
            )
    readable = [gpu for gpu in gpus.gpus if any(getattr(gpu, field) is not None for field in _FIELDS)]
    if not readable and not any_corrupt:
        yield not_reported("InfoROM", gpus.gpus, *_FIELDS)
    elif not any_corrupt:
        yield Finding.ok(f"InfoROM of {all_of(readable)} readable")
