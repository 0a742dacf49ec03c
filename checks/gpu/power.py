"""May every GPU draw the power its board was built for?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.gpus import is_datacentre
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list

from ..unavailable import all_of, none_shown, not_reported

TOLERANCE_W = 1.0
"""Sources report limits in whole or hundredths of watts, and round them differently."""


@check("power.limit", "GPU power limits", tags={"fast", "gpu"})
def power_limit(gpus: Gpus) -> Iterator[Finding]:
    """The enforced power limit of every GPU against its own default (nvidia-smi(1)), or against its peers.

    Why: a GPU with a lower power limit has lower clocks under load, and the slowest GPU sets the pace.
    Fix disturbs: nothing.
    Judges: WARN when the enforced power limit is below the GPU's default or its peers'; a note when all of
    several GPUs have the same limit.
    Fix: Set it with `nvidia-smi -pl`, and find the service that lowers it at boot.
    Threshold: The GPU's own default (nvidia-smi(1)); 1 W of tolerance is ours.
    False positives: One limit for all GPUs is a site's choice, and slows none of them against the others.
    Cards of workstations share an office's power and cooling, and a laptop moves its limit itself.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.power_limit_w is not None]
    defaults = [gpu for gpu in readable if gpu.power_limit_default_w]
    low = [
        (gpu, usual) for gpu in readable if (usual := _usual_limit(gpu, readable)) and _is_below(gpu, usual)
    ]
    if (
        low
        and len(low) == len(gpus.gpus)
        and (
            _same_limits(readable)
            or not any(is_datacentre(gpu.name or "", gpu.pci_device_id or "") for gpu in gpus.gpus)
        )
    ):
        watts = sorted({f"{gpu.power_limit_w:.0f}" for gpu, _ in low})
        yield Finding.info(f"{all_of(readable)} limited to {comma_list(watts)} W, below the default")
        return
    for gpu, usual in low:
        yield _low_limit(gpu, usual, gpus.source)
    if not readable:
        yield not_reported("power limit", gpus.gpus, "power_limit_w")
    elif not low and not defaults:
        note = f"{all_of(readable)} at {readable[0].power_limit_w:.0f} W, default not reported"
        same_limit = len({gpu.power_limit_w for gpu in readable}) == 1
        yield (
            Finding.info(note)
            if same_limit and len(readable) > 1
            else not_reported("default power limit", readable)
        )
    elif not low:
        yield Finding.ok(f"{all_of(readable)} at the default power limit or above")


def _same_limits(gpus: list[Gpu]) -> bool:
    """Whether several GPUs have one limit for each model: no accident does that."""
    limits = {(gpu.name, round(gpu.power_limit_w or 0.0)) for gpu in gpus}
    return len(gpus) > 1 and len(limits) == len({gpu.name for gpu in gpus})


def _usual_limit(gpu: Gpu, gpus: list[Gpu]) -> float | None:
    """Its own default; where a source does not tell it, what most of at least three like it have."""
    if gpu.power_limit_default_w:
        return gpu.power_limit_default_w
    limits = [peer.power_limit_w for peer in gpus if peer.name == gpu.name and peer.power_limit_w]
    common = max(set(limits), key=limits.count, default=None)
    return common if len(limits) > 2 and limits.count(common or 0) * 2 > len(limits) else None


def _is_below(gpu: Gpu, usual: float) -> bool:
    return gpu.power_limit_w is not None and gpu.power_limit_w < usual - TOLERANCE_W


def _low_limit(gpu: Gpu, usual: float, source: str) -> Finding:
    whose = "the default" if gpu.power_limit_default_w else "its peers' limit"
    fix = Fix(
        "Restore the limit, unless it was lowered on purpose. Limits set with nvidia-smi are lost at a "
        "reset: find the service that sets it at boot. If it returns at once, the chassis (BMC) sets it.",
        (
            repair("sudo nvidia-smi -i {} -pl {}", gpu.index, f"{usual:.0f}"),
            look("grep -rl 'nvidia-smi.*-pl' /etc/systemd /etc/cron*"),
        ),
        "config",
        "nothing",
        "nodedoctor power.limit",
        "https://docs.nvidia.com/deploy/nvidia-smi/",
    )
    evidence = values(source, gpu, "power_limit_w", "power_limit_default_w")
    summary = f"power limit {gpu.power_limit_w:.0f} W, below {whose} of {usual:.0f} W"
    return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
