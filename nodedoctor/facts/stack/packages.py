"""Installed Python packages, their versions and what they require of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.facts.stack import common_requirements
from nodedoctor.knowledge.versions.stack import canonical
from nodedoctor.patterns import regex
from nodedoctor.record import record


@record
class Package:
    """One installed distribution; `name` is canonical (nvidia-nccl-cu12), `location` its folder.

    `requires` holds the raw requirement lines, read only of packages that matter to training. `url` is where
    a direct install came from, `installer` the tool that did it (uv, pip, conda), `raw` the name as written.
    """

    name: str
    version: str
    location: str = ""
    requires: tuple[str, ...] = ()
    installer: str = ""
    url: str = ""
    raw: str = ""

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.name} {self.version}"


@record
class Wanted:
    """One requirement that applies: the package, the versions allowed (`==2.27.5`, "" for any)."""

    name: str
    versions: str

    def allows(self, version: str) -> bool | None:
        """Whether a version will do; None when it cannot be read as one."""
        if (plainly := common_requirements.allows(self.versions, version)) is not None:
            return plainly
        from packaging.specifiers import SpecifierSet
        from packaging.version import Version

        try:
            return Version(version) in SpecifierSet(self.versions, prereleases=True)
        except ValueError:  # no version, or one of thousands of digits
            return None

    @property
    def exact(self) -> str | None:
        """The one version allowed; None when there are several."""
        match = re.fullmatch(r"==\s*([^,*\s]+)", self.versions)
        return match.group(1) if match else None

    def __str__(self) -> str:
        """As a requirement is written."""
        return f"{self.name}{self.versions}"


_FOR_AN_EXTRA = regex(r"^[^;]*;(?!.*\bor\b).*\bextra\s*==\s*['\"][^'\"]+['\"][)\s]*$")
"""The end of a line that asks only for those who chose an extra; Ray alone has hundreds of them."""


def wanted(package: Package, environment: Mapping[str, str]) -> Iterator[Wanted]:
    """The requirements of a package that apply in an environment; extras and unreadable lines are left out.

    `environment` are marker variables: python_version, platform_machine, ...
    """
    for line in package.requires:
        if _FOR_AN_EXTRA.search(line):
            continue
        requirement = common_requirements.read(line, environment) or _parse_requirement(line, environment)
        if requirement and requirement[2]:
            yield Wanted(canonical(requirement[0]), requirement[1])


def _parse_requirement(line: str, environment: Mapping[str, str]) -> tuple[str, str, bool] | None:
    """The name, the versions and whether it applies, of a requirement in any form; None if it is none."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""})
    except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
        return None
    return requirement.name, str(requirement.specifier), applies


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, (2, 27, 5) of `2.27.5+cuda12.9`; empty when there are none."""
    match = re.match(r"\s*v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()
