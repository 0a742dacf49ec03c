"""What installed packages, torch above all, require: by their own metadata, else by the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package, Wanted, numbers
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions import stack
from nodedoctor.knowledge.versions.torch_pins import torch_wheel
from nodedoctor.record import record


@record
class Pin:
    """A requirement of torch on a library, and where it is written."""

    wanted: Wanted
    said_by: str


def torch_pin(target: TargetPython, torch: Torch, library: str) -> Pin | None:
    """What torch requires of `nccl`, `cudnn`, ...; None when it requires nothing or that is not known."""
    for wanted in target.wanted("torch"):
        if is_wheel_of(library, wanted.name):
            return Pin(wanted, "torch's own metadata")
    wheel = None if requirements_seen(target) else torch_wheel(torch.version, target.machine)
    name = wheel.distribution(library) if wheel else None
    if wheel is None or name is None:
        return None
    versions = wheel.pins[name]
    exact = f"=={versions}" if versions[:1].isdigit() else versions
    return Pin(Wanted(name, exact), f"the official torch {wheel.torch} wheel ({wheel.source})")


def requirements_seen(target: TargetPython) -> bool:
    """Whether torch's own requirements were read; if so, what they do not name is not required."""
    torch = target.package("torch")
    return torch is not None and bool(torch.requires)


def wheels_of(target: TargetPython, library: str) -> tuple[Package, ...]:
    """The installed packages that bring a library, of any CUDA major."""
    return tuple(package for package in target.packages if is_wheel_of(library, package.name))


def is_wheel_of(library: str, name: str) -> bool:
    """Whether a package is NVIDIA's wheel of a library: nvidia-nccl-cu12 for nccl."""
    return re.fullmatch(rf"nvidia-{library}(-cu\d+)?", name) is not None


def older(version: str, than: str, places: int = 2) -> bool:
    """Whether a version is behind another one in its first numbers (major and minor)."""
    return numbers(version)[:places] < numbers(than)[:places]


def same_release(version: str, other_version: str) -> bool:
    """Whether two versions name the same release: a repackaged 2.26.2.post1 is NCCL 2.26.2."""
    return numbers(version)[:3] == numbers(other_version)[:3]


@record
class Requirement:
    """What a package asks of another one, what is installed of that, and who says so."""

    package: Package
    wanted: Wanted
    installed: Package | None
    said_by: str

    @property
    def met(self) -> bool | None:
        """Whether it is; None when the installed version cannot be compared."""
        return self.installed is not None and self.wanted.allows(self.installed.version)

    def __str__(self) -> str:
        """As a sentence has it."""
        return f"{self.package} requires {self.wanted}"


def requirements(target: TargetPython, name: str) -> Iterator[Requirement]:
    """What the package of that name requires here; nothing where neither metadata nor a table says it."""
    package = target.package(name)
    if package is None:
        return
    said_by = f"{package.name}'s own metadata"
    needs = tuple(target.wanted(name))
    if not package.requires:
        row = stack.release(name, package.version)
        needs = tuple(Wanted(library, versions) for library, versions in row.requires.items()) if row else ()
        said_by = f"the table of releases ({row.source})" if row else ""
    for wanted in needs:
        yield Requirement(package, wanted, target.package(wanted.name), said_by)


def requirement(target: TargetPython, name: str, on: str) -> Requirement | None:
    """What one package requires of another; None when nothing, or when that is not known."""
    return next((candidate for candidate in requirements(target, name) if candidate.wanted.name == on), None)
