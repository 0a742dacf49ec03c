"""Are the packages built for one CUDA major, the one torch was built for?"""

import re
from collections.abc import Iterator

from nodedoctor.facts.packages import Package, numbers
from nodedoctor.facts.target import TargetPython
from nodedoctor.facts.torch_build import Torch
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.registry import check

SHARED = ("nccl", "cudnn", "nvshmem", "cusparselt")
"""Wheels that write the same files for every CUDA major (nvidia/nccl/lib/libnccl.so.2, ...)."""

DISTURBS = "the Python environment"

_SUFFIX = re.compile(r"(?:nvidia|transformer-engine|vllm-nccl|jax)-(?:[\w-]*-)?cu(?:da)?(\d{2})(?:-\w+)*")
_CUPY = re.compile(r"cupy-cuda(\d{2})x")
_UNSUFFIXED = ("nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "cuda-toolkit")
"""From CUDA 13 on NVIDIA's wheels carry no suffix; of these the version begins with CUDA's."""


@check("stack.cuda-mixed", "All packages are for torch's CUDA major", tags={"fast"})
def cuda_mixed(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """Packages built for CUDA 11, 12 or 13 side by side, and CuPy against torch's CUDA.

    Why: wheels of NCCL, cuDNN, NVSHMEM and cuSPARSELt overwrite each other's files; two CUDA runtimes in one
    process do not share streams and memory, and CuPy for another major does not find its libraries.
    Fix disturbs: the Python environment.
    """
    majors = {package: major for package in target.packages if (major := cuda_major(package)) is not None}
    own = numbers(torch.cuda or "")[:1]
    if torch.cuda == "" and not majors:
        yield Finding.skip("neither torch nor any package here is for CUDA")
        return
    strangers = {p: major for p, major in majors.items() if own and major != own[0]}
    if not own and len(set(majors.values())) > 1:
        yield _undecided(target, majors)
    for package, major in strangers.items():
        yield _judge(target, torch, package, major, majors)
    cupys = [
        package for package in target.packages if package.name == "cupy" or _CUPY.fullmatch(package.name)
    ]
    if len({package.name for package in cupys}) > 1:
        yield _two_cupys(target, cupys)
    if (
        not strangers
        and len({package.name for package in cupys}) < 2
        and (own or len(set(majors.values())) < 2)
    ):
        yield Finding.ok(
            f"{len(majors)} packages, all for CUDA {own[0] if own else next(iter(majors.values()), '?')}"
        )


def cuda_major(package: Package) -> int | None:
    """The CUDA major a package is built for; None when its name does not say."""
    found = _SUFFIX.fullmatch(package.name) or _CUPY.fullmatch(package.name)
    if found:
        return int(found.group(1))
    return numbers(package.version)[0] if package.name in _UNSUFFIXED and numbers(package.version) else None


def _judge(
    target: TargetPython, torch: Torch, package: Package, major: int, majors: dict[Package, int]
) -> Finding:
    """One package for another CUDA; a FAIL only where it shares its files with the one torch uses."""
    subject = f"package:{package.name}"
    stem = re.sub(r"^nvidia-|-cu\d+$", "", package.name)
    rival = next(
        (o for o in majors if o is not package and re.fullmatch(rf"nvidia-{stem}(-cu\d+)?", o.name)), None
    )
    wanting = _wanted_by(target, package)
    what = f"{package} is for CUDA {major}, torch {torch.version} for CUDA {torch.cuda}"
    evidence = [
        Evidence(target.source, f"{package} in {package.location}" if package.location else str(package))
    ]
    evidence += [Evidence(target.source, f"{name} requires {package.name}") for name in wanting]
    if stem in SHARED and rival is not None:
        again = (target.uninstall(package.name, rival.name), target.install(f"{rival.name}=={rival.version}"))
        fix = Fix(f"Remove both and install {rival} again.", again, "config", DISTURBS)
        summary = f"{what}; they overwrite each other's files ({rival})"
        return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    commands = [target.uninstall(package.name)]
    text = "Remove it" + (f"; {' and '.join(wanting)} asked for it." if wanting else ".")
    if package.name.startswith("cupy"):
        commands.append(target.install(f"cupy-cuda{numbers(torch.cuda or '')[0]}x"))
        text = f"Replace it by the CuPy for CUDA {torch.cuda}."
    return Finding.warn(
        what, subject=subject, evidence=evidence, fix=Fix(text, tuple(commands), "config", DISTURBS)
    )


def _wanted_by(target: TargetPython, package: Package) -> list[str]:
    return [
        other.name
        for other in target.packages
        if other.requires and any(wanted.name == package.name for wanted in target.wanted(other.name))
    ]


def _undecided(target: TargetPython, majors: dict[Package, int]) -> Finding:
    kinds = ", ".join(f"CUDA {major}" for major in sorted(set(majors.values())))
    evidence = [Evidence(target.source, f"{package}: CUDA {major}") for package, major in majors.items()]
    fix = Fix("Keep those of the CUDA that torch was built with and remove the others.", action="config")
    return Finding.warn(
        f"packages for {kinds} side by side", subject="package:torch", evidence=evidence, fix=fix
    )


def _two_cupys(target: TargetPython, cupys: list[Package]) -> Finding:
    names = [package.name for package in cupys]
    return Finding.warn(
        f"{' and '.join(map(str, cupys))} share the module cupy: the last one installed is what is left",
        subject="package:cupy",
        evidence=[Evidence(target.source, str(package)) for package in cupys],
        fix=Fix("Remove all of them and install one.", (target.uninstall(*names),), "config"),
    )
