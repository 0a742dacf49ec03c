"""Are the requirements met that packages have of each other, and where did torch come from?"""

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.system_packages import SystemPackages
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Wanted
from nodedoctor.facts.stack.pins import is_wheel_of
from nodedoctor.facts.stack.requirements import Requirement, requirement, requirements
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.stack import ray_range
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import repair

DISTURBS = "the Python environment"
_OF_TORCH = ("triton", "pytorch-triton")
_ON_TORCH = ("torchvision", "torchaudio", "xformers", "vllm", "bitsandbytes", "deepspeed")
APT = "/usr/lib/python3/dist-packages"


@check("stack.metadata", "Requirements among installed packages are met", tags={"fast"})
def metadata(target: TargetPython) -> Iterator[Finding]:
    """What the packages that matter to training require of others, by their own metadata.

    Why: pip replaces a shared dependency for one package and breaks another one; nothing fails until import.
    Fix disturbs: the Python environment.
    Judges: WARN when an installed package's requirement is not met.
    Fix: Install the versions that the package asks for.
    Threshold: The packages' own metadata.
    False positives: Requirements that a package lists and does not need.
    """
    names = list(dict.fromkeys(package.name for package in target.packages if package.requires))
    count = 0
    for name in names:
        told = [found for found in requirements(target, name) if not _judged_elsewhere(found)]
        count += len(told)
        broken = [found for found in told if _is_broken(target, found)]
        if broken:
            yield _broken(target, broken)
    if not names:
        yield Finding.skip(f"{target.label} does not say what packages require of each other")
    else:
        yield Finding.ok(f"{count} requirements of {len(names)} packages were looked at", subject="count")


def _judged_elsewhere(found: Requirement) -> bool:
    """Pairs that have a check of their own, which says more."""
    name, other = found.package.name, found.wanted.name
    own = is_wheel_of("nccl", other) or is_wheel_of("cudnn", other) or other in _OF_TORCH
    return (
        (name == "torch" and own)
        or (name in _ON_TORCH and other == "torch")
        or (name == "ray" and other in ("protobuf", "click"))
    )


def _is_broken(target: TargetPython, found: Requirement) -> bool:
    """What conda or an image's builder put there often lacks metadata, so absence counts with pip only."""
    if found.installed is None:
        return target.complete and not target.conda and found.package.installer in ("pip", "uv")
    return found.met is False


def _broken(target: TargetPython, broken: list[Requirement]) -> Finding:
    package = broken[0].package
    lines = [f"{one.wanted} ({_instead(one)})" for one in broken]
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    command = target.install(*(str(one.wanted) for one in broken[:8]))
    others = [one.wanted.name for one in broken if _wanted_by_others(target, one.wanted, package.name)]
    text = "Install what it requires" + (
        f"; {', '.join(others)} is also required by others, so check again afterwards." if others else "."
    )
    return Finding.warn(
        f"{package} requires {'; '.join(lines[:3])}{more}",
        subject=f"package:{package.name}",
        evidence=[Evidence(target.source, f"{one.said_by}: {one.wanted}; {_instead(one)}") for one in broken],
        fix=Fix(text, (command,), "config", DISTURBS, "nodedoctor stack.metadata"),
    )


def _instead(one: Requirement) -> str:
    return f"{one.installed} is installed" if one.installed else "not installed"


def _wanted_by_others(target: TargetPython, wanted: Wanted, name: str) -> bool:
    others = (package.name for package in target.packages if package.requires and package.name != name)
    return any(one.name == wanted.name for other in others for one in target.wanted(other))


@check("stack.ray-protobuf", "protobuf and click are what Ray requires", tags={"fast", "ray"})
def ray_protobuf(target: TargetPython) -> Iterator[Finding]:
    """Ray's requirements on protobuf and click, by its metadata or the table of releases.

    Why: with another protobuf Ray's modules fail at import ("Descriptors cannot be created directly"), with
    another click its command line does.
    Fix disturbs: the Python environment; a Ray that is restarted ends its jobs on this node.
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
    told = 0
    for name in ("protobuf", "click"):
        asked = requirement(target, "ray", name)
        if asked is None and not package.requires and row is not None:
            wanted = Wanted(name, getattr(row, name))
            asked = Requirement(package, wanted, target.package(name), f"table of releases ({row.source})")
        if asked is not None and (asked.installed is not None or target.complete):
            told += 1
            yield _of_ray(target, asked)
    if not told:
        yield Finding.skip(f"{package} says nothing of protobuf here")


def _of_ray(target: TargetPython, asked: Requirement) -> Finding:
    subject = f"package:{asked.wanted.name}"
    evidence = [Evidence(target.source, f"{asked.said_by}: {asked.wanted}; {_instead(asked)}")]
    if asked.met:
        return Finding.ok(
            f"{asked.installed}, as {asked.package} requires", subject=subject, evidence=evidence
        )
    if asked.met is None:
        return Finding.unknown("unparsable", f"{_instead(asked)}: no version to compare", subject=subject)
    fix = Fix("Install one it allows.", (target.install(str(asked.wanted)),), "config", DISTURBS)
    summary = f"{asked}, and {_instead(asked)}"
    return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)


@check(
    "stack.lambda",
    "Lambda Stack and other sources of torch do not mix",
    tags={"fast"},
    without=(Container,),
)
def lambda_stack(
    system: SystemPackages,
    target: TargetPython | None,
    torch: Torch | None,
    driver: Driver | None,
    packages: DriverPackages | None,
    container: Container | None,
) -> Iterator[Finding]:
    """Lambda Stack: torch from apt against an environment's own, and driver packages an upgrade may replace.

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
    evidence = [Evidence("system-packages", line) for line in system.lambda_stack[:4]]
    copies = target.copies("torch") if target else ()
    if target and torch and len(copies) > 1 and any(copy.location.startswith(APT) for copy in copies):
        second = next(copy for copy in copies if copy.location.startswith(APT))
        yield Finding.warn(
            f"{target.label} sees two torches: {torch.version} in {torch.location}, {second.version} of apt",
            subject="package:torch",
            evidence=[*evidence, *(Evidence(target.source, f"{c} in {c.location}") for c in copies)],
            fix=Fix("Make the environment without --system-site-packages.", (), "config", DISTURBS),
        )
    elif target and torch and torch.location.startswith(APT):
        yield Finding.ok(
            f"torch {torch.version} is Lambda Stack's", subject="package:torch", evidence=evidence
        )
    elif target and torch:
        yield Finding.info(
            f"torch {torch.version} is the environment's own ({torch.location}), not Lambda Stack's",
            subject="package:torch",
            evidence=evidence,
        )
    loose = [package.name for package in packages.packages if not package.held] if packages else []
    if driver is not None and driver.unattended_upgrades and loose:
        yield Finding.warn(
            f"unattended upgrades may replace {', '.join(loose[:3])} under a running job",
            subject="driver-packages",
            evidence=[*evidence, Evidence("driver-files", "20auto-upgrades: unattended upgrades are on")],
            fix=Fix(
                "Hold the driver's packages, and upgrade them with the node drained.",
                (repair("sudo apt-mark hold {}", list(loose[:8])),),
                "config",
                "upgrades of the driver, until apt-mark unhold",
            ),
        )
    elif not torch:
        yield Finding.ok("Lambda Stack is installed", evidence=evidence)
