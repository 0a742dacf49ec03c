"""Are the requirements met that packages have of each other, and where did torch come from?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import UPGRADES_ON, Driver
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.system_packages import SystemPackages
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package, Wanted
from nodedoctor.facts.stack.places import package_said, requirement_said, torch_said
from nodedoctor.facts.stack.requirements import Requirement, is_wheel_of, requirement, requirements
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.stack import ray_range
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import repair
from nodedoctor.wording import comma_list, count_with_noun, first_few, singular_or_plural

DISTURBS = "jobs that use this Python environment"
_OF_TORCH = ("triton", "pytorch-triton")
_ON_TORCH = ("torchvision", "torchaudio", "xformers", "vllm", "bitsandbytes", "deepspeed")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\+(?:cu|rocm)[\d.]+)?")
_COMPILED = ("torchtext", "torch-tensorrt")
"""Compiled against one torch, built by images themselves, and judged by no check of their own."""
_SOURCE_BUILD = re.compile(r"0\.0\.0|\d+\.\d+(?:\.\d+)?a0(?:\+[\w.]+)?")
"""How setup.py of pytorch/text and of pytorch/TensorRT names what is no release and no nightly build."""
APT = "/usr/lib/python3/dist-packages"


@check("stack.metadata", "Package requirements", tags={"fast"})
def metadata(target: TargetPython, torch: Torch | None) -> Iterator[Finding]:
    """Requirements of training-related packages on other packages, from their metadata.

    Why: pip replaces a shared dependency for one package and breaks another; it fails only at import.
    Fix disturbs: jobs that use this Python environment.
    Judges: WARN when an installed package's requirement is not met, or packages that an image built for its
    own torch are beside a release of torch.
    Fix: Install the versions that the package asks for.
    Threshold: The packages' own metadata; the versions of source builds (0.16.0a0, 0.0.0).
    False positives: Requirements that a package lists and does not need.
    """
    built = _built_for_another_torch(target, torch)
    if built and torch:
        yield _over_an_image(target, torch, built)
    names = list(dict.fromkeys(package.name for package in target.packages if package.requires))
    count = 0
    for name in names:
        needs = [need for need in requirements(target, name) if not _judged_elsewhere(need)]
        count += len(needs)
        broken = [need for need in needs if _is_broken(target, need)]
        if broken:
            yield _judge_broken(target, broken)
    if not names:
        yield Finding.skip(f"{target.label} shows no package requirements")
    else:
        yield Finding.ok(
            f"{count_with_noun(count, 'requirement')} of {count_with_noun(len(names), 'package')} met",
            subject="count",
        )


def _built_for_another_torch(target: TargetPython, torch: Torch | None) -> list[Package]:
    """Packages compiled for a torch that an image brought, where a release was installed over it."""
    if torch is None or not _RELEASE.fullmatch(torch.version):
        return []
    return [
        package
        for name in _COMPILED
        if (package := target.package(name)) and _SOURCE_BUILD.fullmatch(package.version)
    ]


def _over_an_image(target: TargetPython, torch: Torch, built: list[Package]) -> Finding:
    packages = comma_list([str(package) for package in built])
    were = singular_or_plural(len(built), "was", "were")
    return Finding.warn(
        f"{packages} {were} built for another torch than {torch.version}, which is over an image's own",
        subject="build:torch",
        evidence=[*package_said(target, *built), *torch_said(target, "version")],
        fix=Fix(
            "Use the image's own torch, or an image without torch: beside a second one its libraries (NCCL, "
            "HPC-X) may be loaded first.",
            (target.listing(),),
            "config",
            DISTURBS,
            "nodedoctor stack.metadata",
        ),
    )


def _judged_elsewhere(need: Requirement) -> bool:
    """Pairs that have a check of their own, which says more."""
    name, dependency = need.package.name, need.wanted.name
    own = is_wheel_of("nccl", dependency) or is_wheel_of("cudnn", dependency) or dependency in _OF_TORCH
    return (
        (name == "torch" and own)
        or (name in _ON_TORCH and dependency == "torch")
        or (name == "ray" and dependency in ("protobuf", "click"))
    )


def _is_broken(target: TargetPython, need: Requirement) -> bool:
    """What conda or an image's builder put there often lacks metadata, so absence counts with pip only."""
    if need.installed is None:
        return target.complete and not target.conda and need.package.installer in ("pip", "uv")
    return need.met is False


def _judge_broken(target: TargetPython, broken: list[Requirement]) -> Finding:
    package = broken[0].package
    lines = [f"{need.wanted} ({_installed_instead(need)})" for need in broken]
    command = target.install(*(str(need.wanted) for need in broken[:8]))
    others = [need.wanted.name for need in broken if _wanted_by_others(target, need.wanted, package.name)]
    text = "Install the required version" + (
        f"; {comma_list(others)} {singular_or_plural(len(others), 'is', 'are')} also required by "
        "others: check "
        "again afterwards."
        if others
        else "."
    )
    missing = [entry.wanted.name for entry in broken if not entry.installed]
    summary = f"{package} requires {first_few(lines, 3, '; ')}"
    if len(missing) == len(broken):
        are = singular_or_plural(len(missing), "is", "are")
        summary = f"{comma_list(missing, 3)} {are} missing ({package} requires {comma_list(missing, 3)})"
    return Finding.warn(
        summary,
        subject=f"package:{package.name}",
        evidence=[quote for need in broken for quote in requirement_said(target, need)],
        fix=Fix(text, (command,), "config", DISTURBS, "nodedoctor stack.metadata"),
    )


def _installed_instead(need: Requirement) -> str:
    return f"{need.installed} is installed" if need.installed else "not installed"


def _wanted_by_others(target: TargetPython, wanted: Wanted, name: str) -> bool:
    others = (package.name for package in target.packages if package.requires and package.name != name)
    return any(required.name == wanted.name for dependent in others for required in target.wanted(dependent))


@check("stack.ray-protobuf", "protobuf and click for Ray", tags={"fast", "ray"})
def ray_protobuf(target: TargetPython) -> Iterator[Finding]:
    """Ray's requirements on protobuf and click, from its metadata or the table of releases.

    Why: with a wrong protobuf, Ray fails at import ("Descriptors cannot be created directly"); with a wrong
    click, its command line fails.
    Fix disturbs: jobs that use this Python environment; a Ray that is restarted ends its jobs on this node.
    Judges: FAIL when protobuf or click are outside Ray's requirement.
    Fix: Install the versions that Ray asks for.
    Threshold: Ray's own metadata, and the stack_pins table.
    False positives: None known.
    Error texts:
    - Descriptors cannot be created directly
    """
    package = target.package("ray")
    if package is None:
        yield Finding.skip(f"Ray is not installed in {target.label}, as far as seen")
        return
    row = ray_range(package.version)
    count = 0
    absent: list[str] = []
    for name in ("protobuf", "click"):
        need = requirement(target, "ray", name)
        if need is None and not package.requires and row is not None:
            wanted = Wanted(name, getattr(row, name))
            need = Requirement(package, wanted, target.package(name), f"table of releases ({row.source})")
        if need is not None and (need.installed is not None or target.complete):
            count += 1
            yield _of_ray(target, need)
        elif need is not None:
            absent.append(name)
    if absent:
        yield Finding.skip(f"the list of packages has no {comma_list(absent)} and may be cut")
    elif not count:
        yield Finding.skip(f"{package} has no requirement on protobuf here")


def _of_ray(target: TargetPython, need: Requirement) -> Finding:
    subject = f"package:{need.wanted.name}"
    evidence = requirement_said(target, need)
    if need.met:
        return Finding.ok(f"{need.installed}, as {need.package} requires", subject=subject, evidence=evidence)
    if need.met is None:
        return Finding.unknown(
            "unparsable", f"{_installed_instead(need)}: no version to compare", subject=subject
        )
    fix = Fix(
        "Install a version that the package allows.", (target.install(str(need.wanted)),), "config", DISTURBS
    )
    summary = (
        f"{need}, but {_installed_instead(need)}"
        if need.installed
        else f"{need.wanted.name} is missing ({need})"
    )
    failed = Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    return failed.matters_as(_WITHOUT[need.wanted.name])


_WITHOUT = {
    "protobuf": 'Ray fails at import ("Descriptors cannot be created directly").',
    "click": "Ray's command line fails.",
}
"""What a wrong version of them does to Ray."""


@check("stack.lambda", "Lambda Stack and torch", tags={"fast"}, without=(Container,))
def lambda_stack(
    system: SystemPackages,
    target: TargetPython | None,
    torch: Torch | None,
    driver: Driver | None,
    packages: DriverPackages | None,
    container: Container | None,
) -> Iterator[Finding]:
    """torch from apt (Lambda Stack) against the environment's own; driver packages that upgrades may replace.

    Why: an environment made with --system-site-packages mixes apt's torch with pip's packages; an unattended
    upgrade of the driver breaks CUDA until the next boot.
    Fix disturbs: nothing that runs.
    Judges: WARN when two torches are visible, or unattended upgrades may replace the driver.
    Fix: Remove one torch; hold the driver packages.
    Threshold: Lambda Stack's packages as apt shows them.
    False positives: Environments that use the system's torch on purpose.
    """
    if not system.lambda_stack:
        yield Finding.skip("Lambda Stack is not installed")
        return
    evidence = system.said[:4]
    copies = target.copies("torch") if target else ()
    if target and torch and len(copies) > 1 and any(copy.location.startswith(APT) for copy in copies):
        second = next(copy for copy in copies if copy.location.startswith(APT))
        yield Finding.warn(
            f"{target.label} has two torch installations: {torch.version} in "
            f"{torch.location}, {second.version} from apt",
            subject="package:torch",
            evidence=[*evidence, *package_said(target, *copies)],
            fix=Fix(
                "Recreate the environment without --system-site-packages.",
                (target.listing(),),
                "config",
                DISTURBS,
            ),
        )
    elif target and torch and torch.location.startswith(APT):
        yield Finding.ok(
            f"torch {torch.version} from Lambda Stack", subject="package:torch", evidence=evidence
        )
    elif target and torch:
        yield Finding.info(
            f"torch {torch.version} from the environment ({torch.location}), not from Lambda Stack",
            subject="package:torch",
            evidence=evidence,
        )
    loose = [package.name for package in packages.packages if not package.held] if packages else []
    if driver is not None and driver.unattended_upgrades and loose:
        yield Finding.warn(
            f"unattended upgrades may replace {comma_list(loose, 3)} during a job",
            subject="driver-packages",
            evidence=[*evidence, UPGRADES_ON],
            fix=Fix(
                "Hold the driver packages; upgrade them when the node is drained.",
                (repair("sudo apt-mark hold {}", list(loose[:8])),),
                "config",
                "upgrades of the driver, until apt-mark unhold",
            ),
        )
    elif not torch:
        yield Finding.ok("Lambda Stack is installed", evidence=evidence)
