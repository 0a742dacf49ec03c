"""What installed packages require of each other: by their own metadata, else by the tables."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package, Wanted
from nodedoctor.knowledge.versions import stack
from nodedoctor.record import record


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
    asked = tuple(target.wanted(name))
    if not package.requires:
        row = stack.release(name, package.version)
        asked = tuple(Wanted(other, versions) for other, versions in row.requires.items()) if row else ()
        said_by = f"the table of releases ({row.source})" if row else ""
    for wanted in asked:
        yield Requirement(package, wanted, target.package(wanted.name), said_by)


def requirement(target: TargetPython, name: str, on: str) -> Requirement | None:
    """What one package requires of another; None when nothing, or when that is not known."""
    return next((found for found in requirements(target, name) if found.wanted.name == on), None)
