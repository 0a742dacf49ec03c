"""Is torch compiled for the GPUs of this node?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, nothing_here
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.facts.stack.places import LIVE, torch_said
from nodedoctor.facts.stack.probe import ImportedTorch
from nodedoctor.facts.stack.torch_build import Torch, torch_index
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.knowledge.versions.torch_pins import TorchWheel, torch_release, torch_wheel, wheels
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.record import replace
from nodedoctor.steps import look

# Release Compatibility Matrix in RELEASE.md of github.com/pytorch/pytorch: from 2.12 on wheels carry PTX of
# their newest architecture; cu126 builds have 5.0 to 9.0, the others begin at 7.5.
WITH_PTX = (2, 12)
FOR_OLD_GPUS, OLDEST, TURING = "cu126", (5, 0), (7, 5)


@check("stack.torch-arch", "GPU architectures in torch", without=(ImportedTorch, Driver, Gpus, Pci))
def torch_arch(
    target: TargetPython,
    torch: Torch,
    gpus: Gpus | None,
    imported: ImportedTorch | None,
    pci: Pci | None,
    driver: Driver | None,
) -> Iterator[Finding]:
    """The GPUs' compute capabilities against the architectures torch was compiled for.

    Why: without code for the GPU the first kernel raises "no kernel image is available for execution".
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when torch has no code for a GPU of the node, WARN when only code to be compiled at start
    fits.
    Fix: Install a torch built for this GPU's compute capability.
    Threshold: torch's list of architectures; NVIDIA's table of compute capabilities.
    False positives: None known.
    Error texts:
    - no kernel image is available for execution on the device
    """
    names = [(gpu.name or f"GPU {gpu.index}", gpu.compute_capability) for gpu in gpus.gpus] if gpus else []
    models = names or [(name, None) for name in target.gpu_names]
    archs, source = _built_archs(target, torch, imported)
    if not models and nothing_here(pci, driver):
        yield Finding.skip(NONE_HERE)
    elif not models:
        yield Finding.unknown("not-visible-here", "GPU models not visible")
    elif torch.cuda == "" or torch.hip:
        yield Finding.skip("this torch has no CUDA: see stack.torch-driver")
    elif not archs:
        fix = Fix("Query torch itself.", (look("nodedoctor --deep stack.torch-arch"),), "none")
        summary = f"architectures of torch {torch.version} could not be read"
        yield Finding.unknown("not-visible-here", summary, subject="package:torch", fix=fix)
    else:
        kinds = list(dict.fromkeys(models))
        for name, capability in kinds:
            subject = "package:torch" if len(kinds) == 1 else f"gpu:{models.index((name, capability))}"
            yield replace(_judge_arch(target, torch, name, capability, archs, source), subject=subject)


def _built_archs(
    target: TargetPython, torch: Torch, imported: ImportedTorch | None
) -> tuple[tuple[str, ...], str]:
    """sm_90, compute_90 ... and who says so: torch, its library, or the table of official wheels."""
    if imported is not None and imported.archs:
        return imported.archs, "torch.cuda.get_arch_list()"
    if torch.archs:
        return torch.archs, "libtorch_python.so"
    wheel = torch_wheel(torch.version, target.machine)
    return (tuple(f"sm_{a}{b}" for a, b in wheel.archs), wheel.source) if wheel else ((), "")


def _judge_arch(
    target: TargetPython, torch: Torch, name: str, capability: str | None, archs: tuple[str, ...], source: str
) -> Finding:
    model = gpu_model(name)
    gpu = _parse_capability(capability or "") or (model.compute_capability if model else None)
    live = target.source == LIVE and source == "libtorch_python.so"
    evidence = [reading(LIVE, "torch.archs")] if live else torch_said(target, "version")
    if gpu is None:
        return Finding.unknown("not-visible-here", f"compute capability of {name} unknown")
    what = f"{name} is sm_{gpu[0]}{gpu[1]}, torch {torch.version} is compiled for {' '.join(archs)}"
    fitting = [arch for arch in archs if _runs_on(arch, gpu)]
    compiled = [arch for arch in fitting if arch.startswith("sm_")]
    by = max(compiled or fitting, key=_parse_arch, default=None)
    if by is not None and by.startswith("sm_"):
        return Finding.ok(f"{name} (sm_{gpu[0]}{gpu[1]}) runs torch's code for {by}", evidence=evidence)
    fix = _arch_fix(target, torch, gpu)
    newest = max((_parse_arch(arch)[0] for arch in archs), default=(0, 0))
    if by is not None or (gpu > newest and numbers(torch.version) >= WITH_PTX):
        note = f"{what}: only PTX runs, compiled at first start"
        return Finding.warn(note, evidence=evidence, fix=fix)
    return Finding.fail(what, evidence=evidence, fix=fix)


def _runs_on(arch: str, gpu: tuple[int, int]) -> bool:
    """Code runs on its own compute capability and later minors, PTX on any later one, sm_90a nowhere else.

    CUDA C++ Programming Guide: Binary Compatibility, PTX Compatibility, Feature Set Compiler Targets.
    """
    built, suffix = _parse_arch(arch)
    if suffix == "a":
        return gpu == built
    if arch.startswith("compute_") and suffix == "":
        return gpu >= built
    return gpu[0] == built[0] and gpu[1] >= built[1]


def _parse_arch(arch: str) -> tuple[tuple[int, int], str]:
    """sm_100a as ((10, 0), "a")."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)([af]?)", arch)
    return ((int(match.group(1)), int(match.group(2))), match.group(3)) if match else ((0, 0), "")


def _parse_capability(text: str) -> tuple[int, int] | None:
    parts = numbers(text)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _arch_fix(target: TargetPython, torch: Torch, gpu: tuple[int, int]) -> Fix:
    """The build of the same release for old GPUs if that will do, else the newest wheel with code for it."""
    version, tag = _build_for_old_gpus(torch) if OLDEST <= gpu < TURING else ("", "")
    wheel = None if version else _newest_wheel(target.machine, gpu)
    if wheel is not None:
        version, tag = wheel.torch, wheel.tag
    if not version:
        return Fix(
            "Install a torch compiled for this GPU, or compile it.",
            (look("nvidia-smi --query-gpu=index,name,compute_cap --format=csv"),),
            action="config",
        )
    command = target.install(f"torch=={version}+{tag}", "--index-url", torch_index(tag))
    text = f"Install a torch compiled for this GPU: the {tag} build of {version}."
    return Fix(
        text, (command,), "config", "jobs that use this Python environment", "nodedoctor stack.torch-arch"
    )


def _build_for_old_gpus(torch: Torch) -> tuple[str, str]:
    release = torch_release(torch.version)
    tags = [variant.tag for variant in release.variants] if release else []
    return (torch.public_version, FOR_OLD_GPUS) if FOR_OLD_GPUS in tags else ("", "")


def _newest_wheel(machine: str, gpu: tuple[int, int]) -> TorchWheel | None:
    fitting = (wheel for wheel in reversed(wheels()) if wheel.machine == machine)
    return next((w for w in fitting if any(_runs_on(f"sm_{a}{b}", gpu) for a, b in w.archs)), None)
