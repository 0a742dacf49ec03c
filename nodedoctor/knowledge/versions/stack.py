"""What the packages on top of torch require of each other, so that a mixed stack can be named.

Versions and specifiers are strings as Python packages write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import field, record


@record
class PackageRelease:
    """One release of a package. `requires` maps a package to a specifier.

    `torch` lists the torch releases that pin it (triton).
    """

    package: str
    version: str
    source: str
    requires: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    torch: tuple[str, ...] = ()
    yanked: bool = False


@record
class RayRange:
    """Ray releases `first` to `last` and what they require."""

    first: str
    last: str
    protobuf: str
    click: str
    source: str
    python: str = ""


@record
class BuildTag:
    """How a compiled package writes what it was built for into its local version."""

    package: str
    example: str
    regex: str


@record
class Build:
    """What a local version says a package was built for; "" and None where it does not say."""

    version: str
    cuda_major: int
    torch: str = ""
    cxx11_abi: bool | None = None


releases = cached_rows("stack_pins", "packages", PackageRelease)
"""All releases of all packages, newest first within a package."""
ray_ranges = cached_rows("stack_pins", "ray", RayRange)
"""All ranges of Ray releases, oldest first."""
build_tags = cached_rows("stack_pins", "build_tags", BuildTag)
"""All grammars of local versions."""


def release(package: str, version: str) -> PackageRelease | None:
    """What one release requires (`vllm`, `0.11.0`; local versions are ignored); None when not known."""
    name, public = canonical(package), version.strip().partition("+")[0]
    return next((row for row in releases() if (row.package, row.version) == (name, public)), None)


def releases_of(package: str) -> tuple[PackageRelease, ...]:
    """All known releases of a package, newest first."""
    name = canonical(package)
    return tuple(row for row in releases() if row.package == name)


def releases_for_torch(package: str, torch: str) -> tuple[PackageRelease, ...]:
    """The releases of a package that admit this torch, newest first: what could be installed beside it."""
    return tuple(
        row for row in releases_of(package) if "torch" in row.requires and admits(row, "torch", torch)
    )


def admits(release: PackageRelease, package: str, version: str) -> bool:
    """Whether a release's requirement on a package is met by a version; True when it asks nothing of it."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    wanted = release.requires.get(canonical(package))
    if wanted is None:
        return True
    try:
        return SpecifierSet(wanted).contains(Version(version.partition("+")[0]), prereleases=True)
    except ValueError:  # no version, or one of thousands of digits
        return False


def ray_range(version: str) -> RayRange | None:
    """The requirements of a Ray release; None outside the table."""
    from packaging.version import Version

    try:
        wanted = Version(version)
    except ValueError:  # no version, or one of thousands of digits
        return None
    rows = (row for row in ray_ranges() if Version(row.first) <= wanted <= Version(row.last))
    return next(rows, None)


def build_of(package: str, version: str) -> Build | None:
    """What a compiled package was built for, from its local version; None when it does not say."""
    for tag in build_tags():
        match = re.match(tag.regex, version.strip()) if tag.package == canonical(package) else None
        if match:
            groups = match.groupdict()
            abi = None if groups.get("abi") is None else groups["abi"] == "TRUE"
            return Build(groups["version"], int(groups["cuda"]), groups.get("torch") or "", abi)
    return None


def canonical(package: str) -> str:
    """The name as package indexes compare it: `vllm_nccl_cu12` is `vllm-nccl-cu12`."""
    return re.sub(r"[-_.]+", "-", package.strip()).lower()
