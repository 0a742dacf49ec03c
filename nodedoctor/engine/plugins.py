"""Where probes, facts and checks come from: the bundled folder, entry points, and folders that were named."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from nodedoctor.engine.registry import Check, Fact, Probe, declared
from nodedoctor.record import record

GROUP = "nodedoctor.checks"
SITE_FOLDER = Path("/etc/nodedoctor/checks.d")


class DiscoveryError(Exception):
    """Check files that contradict each other or must not be run; the message names the files."""


@record
class Broken:
    """A plug-in that could not be imported: it becomes one UNKNOWN finding."""

    name: str
    where: str
    error: str


@record
class Plugins:
    """What loading check files came to; given to checks that ask for it."""

    loaded: int = 0
    broken: tuple[Broken, ...] = ()


@dataclass(slots=True)
class Catalogue:
    """Everything that can be asked, read and judged."""

    probes: dict[str, Probe] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    def add(self, module: ModuleType) -> None:
        """Take over what a module declares; DiscoveryError when a check id is taken."""
        for item in declared(module):
            if isinstance(item, Probe):
                self.probes.setdefault(item.name, item)
            elif isinstance(item, Fact):
                self.facts.setdefault(item.name, item)
            elif item.id in self.checks:
                first = self.checks[item.id].where
                raise DiscoveryError(f"check {item.id} is declared twice: in {first} and in {item.where}")
            else:
                self.checks[item.id] = item


def discover(folders: Iterable[Path] = ()) -> Catalogue:
    """Load the bundled facts and checks, entry points, the site's folder, and the folders named.

    A plug-in that does not import is noted as broken; a folder that does not exist raises DiscoveryError.
    """
    catalogue = Catalogue()
    facts = importlib.import_module("nodedoctor.facts")
    for module in _modules("nodedoctor.facts", str(Path(facts.__file__ or "").parent), catalogue):
        catalogue.add(module)
    for module in load_folder(bundled_checks(), "nodedoctor.checks", catalogue):
        catalogue.add(module)
    for module in _entry_points(catalogue):
        catalogue.add(module)
    site = [SITE_FOLDER] if SITE_FOLDER.is_dir() else []
    for number, folder in enumerate([*site, *folders]):
        _refuse_if_writable_by_others(folder)
        for module in load_folder(folder, f"nodedoctor_checks_{number}", catalogue):
            catalogue.add(module)
    return catalogue


def bundled_checks() -> Path:
    """The folder with our own checks: inside the package when installed, beside it in a checkout."""
    here = Path(__file__).parents[1]
    installed, beside = here / "checks", here.parent / "checks"
    if installed.is_dir():
        return installed
    project = here.parent / "pyproject.toml"
    if project.is_file() and 'name = "nodedoctor"' in project.read_text(encoding="utf-8"):
        return beside
    raise DiscoveryError(f"the bundled checks are missing: neither {installed} nor a checkout's {beside}")


def load_folder(folder: Path, package: str, catalogue: Catalogue) -> Iterator[ModuleType]:
    """Import every module of a folder under the given package name; broken ones are noted, not raised.

    Sub-folders are walked, too. Names that start with `.` or `_`, and links to folders, are passed over. A
    module that declares nothing is a helper.
    """
    if not folder.is_dir():
        raise DiscoveryError(f"no folder of checks at {folder}")
    if package not in sys.modules:
        init = folder / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            package, init if init.exists() else None, submodule_search_locations=[str(folder)]
        )
        if spec is None:
            spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        if spec.loader is not None and init.exists():
            spec.loader.exec_module(module)
    yield from _modules(package, str(folder), catalogue)


def _modules(package: str, folder: str, catalogue: Catalogue) -> Iterator[ModuleType]:
    for file in _files(folder):
        name = ".".join(Path(file).relative_to(folder).with_suffix("").parts)
        try:
            yield importlib.import_module(f"{package}.{name}")
        except (Exception, SystemExit):  # somebody else's file: whatever it does, the other checks go on
            catalogue.broken.append(Broken(name, file, traceback.format_exc(limit=-1).strip()))


def _files(folder: str) -> Iterator[str]:
    """The Python files of a folder and of its sub-folders, in the order of names."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        if entry.name.endswith(".py"):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)


def _entry_points(catalogue: Catalogue) -> Iterator[ModuleType]:
    if not any(map(_offers_checks, sys.path)):
        return
    # Imported here because it costs 35 ms, which few need to pay.
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
        except (Exception, SystemExit):
            catalogue.broken.append(Broken(point.name, point.value, traceback.format_exc(limit=-1).strip()))
            continue
        if isinstance(loaded, ModuleType):
            yield loaded
        else:
            catalogue.broken.append(Broken(point.name, point.value, "the entry point must name a module"))


def _offers_checks(folder: str) -> bool:
    """Whether a distribution in a folder of sys.path names our group; an archive may always hold one."""
    try:
        names = os.listdir(folder or ".")
    except NotADirectoryError:
        return True
    except OSError:
        return False
    for name in names:
        if name.lower().endswith((".dist-info", "egg-info")):
            file = Path(folder, name, "entry_points.txt")
            with contextlib.suppress(OSError):
                if GROUP.encode() in file.read_bytes():
                    return True
    return False


def _refuse_if_writable_by_others(folder: Path) -> None:
    """As root, code that another user may change is not run."""
    if os.geteuid() != 0 or not folder.is_dir():
        return
    files = [Path(file) for file in _files(str(folder))]
    between = {parent for file in files for parent in file.parents if folder in parent.parents}
    for path in (folder, *sorted(between), *files):
        about = path.stat()
        if about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise DiscoveryError(f"{path} can be written by others; as root nodedoctor does not load it")
