"""Where probes, facts and checks come from: the bundled folder, entry points, and folders that were named."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from zlib import crc32

from nodedoctor.children.untrusted_files import Writer, Writers, is_root
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Check, Fact, Probe, declared
from nodedoctor.engine.plugin_code import (
    FromSource,
    PluginFailed,
    SourceFinder,
    contained,
    stdout_kept,
    tried,
    watching,
)
from nodedoctor.errors import NodeDoctorError
from nodedoctor.record import record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_log = Log(__name__)

GROUP = "nodedoctor.checks"
PATIENCE = 10.0  # seconds that importing all plug-ins may take: a cold network file system takes seconds
SITE_FOLDER = Path("/etc/nodedoctor/checks.d")


class DiscoveryError(NodeDoctorError):
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


class Catalogue:
    """Everything that can be asked, read and judged."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.probes: dict[str, Probe] = {}
        self.facts: dict[str, Fact] = {}
        self.checks: dict[str, Check] = {}
        self.broken: list[Broken] = []
        self.ends = time.monotonic() + patience
        self.spent = 0.0
        """Seconds that loading plug-ins took."""

    def add(self, module: ModuleType, *, bundled: bool = False) -> tuple[Check, ...]:
        """Take over what a module declares; returns its checks. DiscoveryError when a check id is taken."""
        checks = []
        for item in _own_declarations(module) if bundled else declared(module, foreign=True):
            if isinstance(item, Probe):
                self.probes.setdefault(item.name, item)
            elif isinstance(item, Fact):
                self.facts.setdefault(item.name, item)
            elif item.id in self.checks:
                first = self.checks[item.id].where
                raise DiscoveryError(f"check {item.id} is declared twice: in {first} and in {item.where}")
            else:
                self.checks[item.id] = item
                checks.append(item)
        return tuple(checks)

    def load(
        self, name: str, where: str, load: Callable[[], object], *, bundled: bool = False
    ) -> ModuleType | None:
        """The module that `load` gives; None where it fails, which is noted as a broken plug-in.

        Whatever a plug-in does while it is loaded, the other checks go on: a fork of ours loads it first.
        """
        began = time.monotonic()
        seconds = 0 if bundled else max(self.ends - began, 0.1)
        try:
            with contained(seconds), contextlib.nullcontext() if bundled else stdout_kept():
                if not bundled:
                    tried(load, seconds)
                loaded = load()
                return loaded if isinstance(loaded, ModuleType) else None
        except PluginFailed as failed:
            import traceback

            trace = "".join(traceback.format_exception(failed.error, limit=-1)).strip()
            self.broken.append(Broken(name, where, trace))
            return None
        finally:
            self.spent += 0.0 if bundled else time.monotonic() - began


@functools.cache
def _own_declarations(module: ModuleType) -> tuple[Probe | Fact | Check, ...]:
    """What one of our modules declares: a process that makes several catalogues looks once."""
    return tuple(declared(module))


CheckHook = Callable[[Check, Mapping[str, Probe]], None]


def discover(
    folders: Iterable[Path] = (), hook: CheckHook | None = None, patience: float = PATIENCE
) -> Catalogue:
    """Load the bundled facts and checks, entry points, the site's folder, and the folders named.

    `hook` is called with each bundled check as it is loaded, and with all our probes, known by then.
    `patience` are seconds for all plug-ins together.

    A plug-in that does not import is noted as broken; a folder that does not exist, or that root must not
    load because others can write there, raises DiscoveryError.
    """
    with watching():
        return _discover_checks(folders, hook, patience)


def _discover_checks(folders: Iterable[Path], hook: CheckHook | None, patience: float) -> Catalogue:
    catalogue = Catalogue(patience)
    add_bundled_facts(catalogue)
    for module in load_folder(bundled_checks(), "nodedoctor.checks", catalogue, bundled=True):
        for check in catalogue.add(module, bundled=True):
            if hook is not None:
                hook(check, catalogue.probes)
    for module in _entry_points(catalogue):
        catalogue.add(module)
    site = [SITE_FOLDER] if os.path.isdir(SITE_FOLDER) else []
    for folder in [*site, *folders]:
        _refuse_if_writable_by_others(folder)
        # Named after its place: another folder loaded by this process is another package.
        name = f"nodedoctor_checks_{crc32(os.fsencode(folder.absolute())):08x}"
        for module in load_folder(folder, name, catalogue):
            catalogue.add(module)
    return catalogue


def add_bundled_facts(catalogue: Catalogue) -> None:
    """Take over our own facts, and with them our own probes."""
    facts = importlib.import_module("nodedoctor.facts")
    folder = str(Path(facts.__file__ or "").parent)
    for module in _import_modules("nodedoctor.facts", folder, catalogue, bundled=True):
        catalogue.add(module, bundled=True)


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


def load_folder(
    folder: Path, package: str, catalogue: Catalogue, *, bundled: bool = False
) -> Iterator[ModuleType]:
    """Import every module of a folder under the given package name; broken ones are noted, not raised.

    Sub-folders are walked, too. Names that start with `.` or `_`, and links to folders, are passed over. A
    module that declares nothing is a helper. Only bundled ones are loaded as any package; of other folders
    only source files are.
    """
    if not os.path.isdir(folder):  # Path.is_dir raises where it may not look
        raise DiscoveryError(f"no folder of checks at {folder}")
    if package not in sys.modules:
        init = folder / "__init__.py"
        if not bundled:
            sys.meta_path.insert(0, SourceFinder(package))
        loader = FromSource(package, str(init)) if init.exists() else None
        spec = importlib.machinery.ModuleSpec(package, loader, origin=str(init), is_package=True)
        spec.submodule_search_locations = [str(folder)]
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        if loader is not None:
            catalogue.load("__init__", str(init), lambda: loader.exec_module(module), bundled=bundled)
    yield from _import_modules(package, str(folder), catalogue, bundled=bundled)


def _import_modules(
    package: str, folder: str, catalogue: Catalogue, *, bundled: bool
) -> Iterator[ModuleType]:
    for name, file in {_module_name(folder, file): file for file in _importable_files(folder)}.items():
        load = functools.partial(importlib.import_module, f"{package}.{name}")
        module = catalogue.load(name, file, load, bundled=bundled)
        if module is not None:
            yield module


_MODULES = (".py", ".pyc", ".so")


def _importable_files(folder: str) -> Iterator[str]:
    """What can be imported in a folder and its sub-folders, in the order of names."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        raise DiscoveryError(f"folder of checks {folder}: {error.strerror}") from None
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        if entry.name.endswith(_MODULES):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _importable_files(entry.path)


def _module_name(folder: str, file: str) -> str:
    """The module's name below its package; of `fast.abi3.so` it is `fast`."""
    within, _, name = file.removeprefix(folder).rpartition(os.sep)
    return ".".join([*filter(None, within.split(os.sep)), name.partition(".")[0]])


def _entry_points(catalogue: Catalogue) -> Iterator[ModuleType]:
    if not any(map(_offers_checks, sys.path)):
        return
    # Imported here because it costs 35 ms, which few need to pay.
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        loaded = catalogue.load(point.name, point.value, functools.partial(_module_of, point))
        if loaded is not None:
            yield loaded


def _module_of(point: EntryPoint) -> ModuleType:
    if writer := _who_else_writes(point):
        raise PermissionError(f"as root nodedoctor does not load it: {writer}")
    loaded = point.load()
    if not isinstance(loaded, ModuleType):
        raise TypeError("the entry point must name a module")
    return loaded


def _who_else_writes(point: EntryPoint) -> Writer | None:
    """As root, who can write the files of a plug-in's distribution, other than who can write our own."""
    if not is_root():
        return None
    ours, theirs = Writers(), Writers()
    ours.path(str(Path(__file__).parents[1]))
    if point.dist is not None:
        for file in ("", *(point.dist.files or ())):
            theirs.path(_absolute_path(point.dist.locate_file(file)))
        theirs.tree(_absolute_path(getattr(point.dist, "_path", ".")))  # its metadata
    spec = importlib.util.find_spec(point.value.partition(":")[0].partition(".")[0].strip())
    if spec is not None:
        folders = list(spec.submodule_search_locations or ())
        for place in folders or [spec.origin or ""]:
            theirs.tree(_absolute_path(place))
        if spec.cached and not folders:
            theirs.path(_absolute_path(spec.cached))
    paths, uids = {writer.path for writer in ours.found}, {writer.uid for writer in ours.found} - {0}
    return next(
        (writer for writer in theirs.found if writer.path not in paths and writer.uid not in uids), None
    )


def _offers_checks(folder: str) -> bool:
    """Whether a distribution in a folder of sys.path names our group; an archive may always hold one."""
    try:
        names = os.listdir(folder or ".")
    except NotADirectoryError:
        return True
    except OSError:
        return False  # what cannot be listed offers nothing that could be imported
    for name in names:
        if name.lower().endswith((".dist-info", "egg-info")):
            file = Path(folder, name, "entry_points.txt")
            try:
                if GROUP.encode() in file.read_bytes():
                    return True
            except FileNotFoundError:  # a distribution without entry points
                continue
            except OSError as error:
                _log.debug("what %s offers is not known: %s", file, error)
    return False


def _absolute_path(path: object) -> str:
    """Not normalized: `..` after a link leads elsewhere than it reads."""
    return os.path.join(os.getcwd(), str(path))


def _refuse_if_writable_by_others(folder: Path) -> None:
    """As root, code that another user may change is not run."""
    if not is_root() or not os.path.isdir(folder):
        return
    writers = Writers()
    writers.tree(_absolute_path(folder))
    if writers.found:
        why = writers.found[0]
        way_out = "run nodedoctor as yourself, or copy the folder to where only root can write"
        raise DiscoveryError(
            f"{why.path} can be written by others: as root nodedoctor does not load it ({why}); {way_out}"
        )
