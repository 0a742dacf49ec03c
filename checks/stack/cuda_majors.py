"""Are the packages built for one CUDA major, the one torch was built for?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package, numbers
from nodedoctor.facts.stack.places import package_said, required_said
from nodedoctor.facts.stack.requirements import torch_pin
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.wording import comma_list, count_with_noun, first_few, singular_or_plural

SHARED = ("nccl", "cudnn", "nvshmem", "cusparselt")
"""Wheels that write the same files for every CUDA major (nvidia/nccl/lib/libnccl.so.2, ...)."""

DISTURBS = "jobs that use this Python environment"

_SUFFIX = re.compile(r"(?:nvidia|transformer-engine|vllm-nccl|jax)-(?:[\w-]*-)?cu(?:da)?(\d{2})(?:-\w+)*")
_CUPY = re.compile(r"cupy-cuda(\d{2})x")
_UNSUFFIXED = ("nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "cuda-toolkit")
"""From CUDA 13 on NVIDIA's wheels carry no suffix; of these the version begins with CUDA's."""


@check("stack.cuda-mixed", "CUDA versions of packages", tags={"fast"})
def cuda_mixed(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """Packages built for CUDA 11, 12 or 13 side by side, and CuPy against torch's CUDA.

    Why: wheels of NCCL, cuDNN, NVSHMEM and cuSPARSELt overwrite each other's files; two CUDA runtimes in one
    process share no streams or memory; CuPy for another CUDA major does not find its libraries.
    Fix disturbs: jobs that use this Python environment.
    Judges: WARN when packages for several CUDA majors are side by side, or two builds of CuPy.
    Fix: Remove the packages of the other CUDA major and reinstall torch.
    Threshold: Wheels of NCCL, cuDNN, NVSHMEM and cuSPARSELt share file names.
    False positives: Packages that bring their own copy in a folder of their own.
    """
    majors = {package: major for package in target.packages if (major := cuda_major(package)) is not None}
    own = numbers(torch.cuda or "")[:1]
    cupys = [
        package for package in target.packages if package.name == "cupy" or _CUPY.fullmatch(package.name)
    ]
    strangers = {package: major for package, major in majors.items() if own and major != own[0]}
    findings = []
    if len({package.name for package in cupys}) > 1:
        findings.append(_two_cupys(target, cupys))
    else:
        findings += [_judge_cupy(target, torch, package) for package in cupys if package in strangers]
    for major in sorted(set(strangers.values())):
        packages = [package for package in majors if majors[package] == major and package not in cupys]
        findings += [_judge_leftovers(target, torch, major, packages, majors)] if packages else []
    if not own and len(set(majors.values())) > 1:
        findings.append(_several_majors(target, majors))
    yield from findings or [_same_major(target, torch, majors)]


def _same_major(target: TargetPython, torch: Torch, majors: dict[Package, int]) -> Finding:
    if majors:
        return Finding.ok(
            f"{count_with_noun(len(majors), 'package')} with a CUDA version, all for CUDA "
            f"{min(majors.values())}"
        )
    if not target.complete:
        return Finding.unknown("not-visible-here", "the paste lists no package with a CUDA version")
    return Finding.skip(
        "no package here has a CUDA version" + ("" if torch.cuda else ", and torch has no CUDA")
    )


def cuda_major(package: Package) -> int | None:
    """The CUDA major a package is built for; None when its name does not say."""
    match = _SUFFIX.fullmatch(package.name) or _CUPY.fullmatch(package.name)
    if match:
        return int(match.group(1))
    return numbers(package.version)[0] if package.name in _UNSUFFIXED and numbers(package.version) else None


def _judge_leftovers(
    target: TargetPython, torch: Torch, major: int, packages: list[Package], majors: dict[Package, int]
) -> Finding:
    """Wheels for another CUDA: an upgrade of torch leaves them behind, because pip removes no dependency."""
    own = numbers(torch.cuda or "")[0]
    stems = {_library_stem(package) for package in packages} & set(SHARED)
    rivals = [package for package in majors if majors[package] == own and _library_stem(package) in stems]
    wanting = sorted({name for package in packages for name in _wanted_by(target, package)})
    names = first_few(packages, 2)
    do = singular_or_plural(len(packages), "does", "do")
    what = f"{names} {do} not fit torch {torch.version} (CUDA {torch.cuda})"
    lead = f"{comma_list([package.name for package in packages], 2)} {do} not fit torch {torch.version}"
    evidence = [*package_said(target, *packages), *_requiring_evidence(target, packages)]
    commands = [target.uninstall(*(package.name for package in packages + rivals))]
    text = f"Uninstall {comma_list(package.name for package in packages + rivals)}"
    if rivals:
        commands.append(target.install(*(_required_version(target, torch, rival) for rival in rivals)))
        text += f", then reinstall {comma_list(rival.name for rival in rivals)}:"
        text += f" the packages for CUDA {major} have files of the same names and may have overwritten them"
    text += f". Required by {comma_list(wanting)}." if wanting else "."
    fix = Fix(text, tuple(commands), "config", DISTURBS, "nodedoctor stack.cuda-mixed")
    return Finding.warn(what, subject=f"cuda:{major}", evidence=evidence, fix=fix).led_by(lead)


def _required_version(target: TargetPython, torch: Torch, rival: Package) -> str:
    """The version torch requires, which need not be the one that is installed."""
    pin = torch_pin(target, torch, _library_stem(rival))
    return str(pin.wanted) if pin and pin.wanted.name == rival.name else f"{rival.name}=={rival.version}"


def _library_stem(package: Package) -> str:
    """The library a wheel of NVIDIA's brings: nccl of nvidia-nccl-cu12."""
    return re.sub(r"^nvidia-|-cu\d+$", "", package.name)


def _judge_cupy(target: TargetPython, torch: Torch, package: Package) -> Finding:
    evidence = _requiring_evidence(target, [package])
    own = f"cupy-cuda{numbers(torch.cuda or '')[0]}x"
    fix = Fix(
        f"Replace it by {own}.", (target.uninstall(package.name), target.install(own)), "config", DISTURBS
    )
    summary = f"{package} does not fit torch {torch.version} (CUDA {torch.cuda})"
    return Finding.warn(summary, subject=f"package:{package.name}", evidence=evidence, fix=fix)


def _wanted_by(target: TargetPython, package: Package) -> list[str]:
    return [
        dependent.name
        for dependent in target.packages
        if dependent.requires and any(wanted.name == package.name for wanted in target.wanted(dependent.name))
    ]


def _requiring_evidence(target: TargetPython, packages: list[Package]) -> list[Evidence]:
    """The lines by which others require these packages."""
    return [
        required_said(target, dependent, package.name)
        for package in packages
        for name in _wanted_by(target, package)
        if (dependent := target.package(name)) is not None
    ]


def _several_majors(target: TargetPython, majors: dict[Package, int]) -> Finding:
    kinds = ", ".join(f"CUDA {major}" for major in sorted(set(majors.values())))
    evidence = package_said(target, *majors)
    text = "Keep those for torch's CUDA version and remove the others."
    fix = Fix(text, (target.listing(),), action="config")
    return Finding.warn(
        f"packages for {kinds} side by side", subject="package:torch", evidence=evidence, fix=fix
    )


def _two_cupys(target: TargetPython, cupys: list[Package]) -> Finding:
    names = [package.name for package in cupys]
    return Finding.warn(
        f"{' and '.join(map(str, cupys))} share the module cupy: only the last one installed works",
        subject="package:cupy",
        evidence=package_said(target, *cupys),
        fix=Fix("Remove all of them and install one.", (target.uninstall(*names),), "config"),
    )
