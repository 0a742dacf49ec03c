"""Is the InfoROM of every GPU readable?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.fixes.gpu import card, replace_gpu
from nodedoctor.model import Evidence, Finding

from ..unavailable import all_of, none_shown, not_reported

_FIELDS = ("inforom_image_version", "inforom_oem_version", "inforom_ecc_version", "inforom_power_version")
_CORRUPT = "CORRUPTED_INFOROM"


@check("gpu.inforom", "The InfoROM of every GPU can be read", tags={"fast", "gpu"})
def inforom(gpus: Gpus) -> Iterator[Finding]:
    """What NVML answers for the versions of the InfoROM's parts: CORRUPTED_INFOROM (nvml.h) is a finding.

    Why: the InfoROM keeps the board's ECC counts, retired pages and limits; a corrupt one loses them, and
    nvidia-smi warns of it in every output.
    Fix disturbs: every job on this node while the card is changed.
    Judges: WARN when NVML answers CORRUPTED_INFOROM for a part of the InfoROM.
    Fix: Reboot once; if it stays corrupt, replace the card.
    Threshold: nvml.h: NVML_ERROR_CORRUPTED_INFOROM.
    False positives: None known.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    found = False
    for gpu in gpus.gpus:
        bad = sorted(field for field, error in gpu.errors.items() if error == _CORRUPT)
        if bad:
            found = True
            said = [Evidence(gpus.source, f"GPU {gpu.index}: {', '.join(bad)}: {_CORRUPT}")]
            text = "Reboot once; an InfoROM that stays corrupt cannot be repaired in the field."
            yield Finding.warn(
                "the InfoROM is corrupt",
                subject=gpu.subject,
                evidence=[*said, card(gpus.source, gpu)],
                fix=replace_gpu(gpu, text, "gpu.inforom"),
            )
    told = [gpu for gpu in gpus.gpus if any(getattr(gpu, field) is not None for field in _FIELDS)]
    if not told and not found:
        yield not_reported("InfoROM", gpus.gpus, *_FIELDS)
    elif not found:
        yield Finding.ok(f"{all_of(told)} with a readable InfoROM")
