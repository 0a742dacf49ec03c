"""Where packages, requirements and libraries are in what the target Python said, or in a paste."""

from __future__ import annotations

import re

from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import LibraryCopy, Resolved
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.requirements import Requirement
from nodedoctor.model import Evidence, quoted_like, reading

LIVE = "target-python"
_BUILD = {"version": "PyTorch version", "cuda": "CUDA used to build PyTorch"}


def package_said(target: TargetPython, *packages: Package) -> list[Evidence]:
    """The versions of installed packages, or their lines in a paste."""
    if target.source == LIVE:
        return [reading(LIVE, f"{_entry_path(target, package)}.version") for package in packages]
    written = (re.escape(package.name).replace(r"\-", "[-_.]") for package in packages)
    return [
        quoted_like(source, rf"(?i)^.*(?<![\w-]){name}(?![\w-]).*$")
        for name in written
        for source in target.source.split(", ")
    ]


def requirement_said(target: TargetPython, need: Requirement) -> list[Evidence]:
    """A requirement as the package's metadata has it, and the version that is installed, or that none is."""
    if target.source != LIVE:
        return package_said(target, need.package, *([need.installed] if need.installed else []))
    evidence = [required_said(target, need.package, need.wanted.name)] if need.package.requires else []
    if need.installed:
        return [*evidence, *package_said(target, need.installed)]
    return [*evidence, reading(LIVE, f"distributions[name={need.wanted.name}]")]


def required_said(target: TargetPython, package: Package, name: str) -> Evidence:
    """The line of a package's metadata that requires another one."""
    same = re.compile(re.escape(name).replace(r"\-", "[-_.]") + r"(?![\w.-])", re.IGNORECASE)
    line = next((line for line in package.requires if same.match(line)), name)
    return reading(target.source, f"{_entry_path(target, package)}.requires[^{line.partition(']')[0]}]")


def pin_said(target: TargetPython, name: str) -> list[Evidence]:
    """What torch's metadata requires of a library; where only a table says it, torch's own version."""
    torch = target.package("torch")
    if target.source == LIVE and torch and any(line.startswith(name) for line in torch.requires):
        return [required_said(target, torch, name)]
    return torch_said(target, "version")


def torch_said(target: TargetPython, *keys: str) -> list[Evidence]:
    """What torch says of its build: version, cuda."""
    if target.source == LIVE:
        return [reading(LIVE, f"torch.{key}") for key in keys]
    lines = [
        quoted_like("collect-env", rf"^(?:{_BUILD[key]}[ \t]*|PyTorch): .*")
        for key in keys
        if "collect-env" in target.source
    ]
    torch = target.package("torch")
    return lines or (package_said(target, torch) if torch else [])


def library_said(copy: LibraryCopy) -> list[Evidence]:
    """The version a library file says it is, else the name it goes by."""
    here = f"libraries.copies[path={copy.path}]"
    return [reading(LIVE, f"{here}.{'version' if copy.version else 'soname'}")]


def resolved_said(library: Resolved) -> list[Evidence]:
    """Which file a library's name becomes, and by which rule of the loader."""
    here = f"libraries.resolved[name={library.name}]"
    return [reading(LIVE, f"{here}.path"), reading(LIVE, f"{here}.rule")]


def toolkit_said(target: TargetPython) -> list[Evidence]:
    """The CUDA toolkit that extensions would be compiled with."""
    if target.source == LIVE:
        return [reading(LIVE, "toolkit.version"), reading(LIVE, "toolkit.home")]
    return [quoted_like("collect-env", r"^(?:CUDA runtime version[ \t]*|NVCC): .*")]


def _entry_path(target: TargetPython, package: Package) -> str:
    """Where a package is in the list; of several copies the one in this folder."""
    where = f"&location={package.location}" if len(target.copies(package.name)) > 1 else ""
    return f"distributions[name={package.raw or package.name}{where}]"
