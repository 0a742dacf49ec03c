"""The libnccl that running ranks have really mapped, and its version."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.requirements import wheels_of
from nodedoctor.json_shapes import document, parts, text
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record

ROLES = ("rank", "ray-worker", "engine")
_LIBNCCL = regex(r".*/libnccl(?:-[0-9a-f]{8})?\.so[\d.]*")
MOST = 64  # files asked about; eight ranks are usual


@record
class Mapped:
    """One process and one libnccl it has mapped.

    `version` is "" where it is not known; `asked` says that the file itself was asked.
    """

    pid: int
    label: str
    path: str
    version: str = ""
    job: str = ""
    asked: bool = False


@probe("mapped-nccl", timeout=6, lane=Lane.FS, after=("processes",))
def mapped_nccl(options: Options, processes: Observation) -> Command | Observation:
    """The versions of the libnccl files that running ranks have mapped."""
    running = Processes.parse(processes)
    pairs = list(_nccl_paths(running)) if isinstance(running, Processes) else []
    if not pairs or options.root != "/":  # processes of another root are numbered as that one sees them
        return skipped("mapped-nccl", "no process that trains has a libnccl mapped")
    return Command(child("stack/mapped_nccl", *(f"{process.pid}:{path}" for process, path in pairs[:MOST])))


@fact("mapped-nccl", Processes, name="loaded-nccl")
@record
class LoadedNccl:
    """What is mapped, by process; `unread` are processes whose memory map could not be read, with why."""

    mapped: tuple[Mapped, ...] = ()
    unread: tuple[str, ...] = ()

    @classmethod
    def parse(cls, observation: Observation, processes: Processes | Unseen) -> LoadedNccl | Unseen:
        """The processes say what is mapped, the probe which NCCL that is."""
        if isinstance(processes, Unseen):
            return processes
        entries = parts(document(observation) or {}, "mapped")
        versions = {(text(item, "pid"), text(item, "path")): text(item, "version") for item in entries}
        mapped = (
            Mapped(
                process.pid,
                process.label,
                path,
                versions.get((str(process.pid), path)) or _of_name(path),
                process.job or process.master or "",
                (str(process.pid), path) in versions,
            )
            for process, path in _nccl_paths(processes)
        )
        why = ((worker, worker.errors.get("maps") or worker.stuck_at) for worker in processes.of(*ROLES))
        return cls(tuple(mapped), tuple(f"{process.label}: {reason}" for process, reason in why if reason))

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that are mapped, each once."""
        return tuple(sorted({library.version for library in self.mapped if library.version}))


def versions_in_use(
    loaded: LoadedNccl | None, libraries: Libraries | None, target: TargetPython | None
) -> Iterator[tuple[str, str]]:
    """The version and where it is: mapped ones, else the one that would be loaded, else the package."""
    if loaded is not None and loaded.versions:
        for version in loaded.versions:
            yield version, "mapped by running ranks"
        return
    won = libraries.winner("libnccl.so") if libraries else None
    if won is not None and won[1] is not None and won[1].version:
        yield won[1].version, won[0].path
    elif libraries is not None and libraries.nccl_built_in:
        yield libraries.nccl_built_in, "linked into torch"
    elif target is not None and len(wheels_of(target, "nccl")) == 1:
        package = wheels_of(target, "nccl")[0]
        yield package.version, package.name


def _nccl_paths(processes: Processes) -> Iterator[tuple[Process, str]]:
    for process in processes.of(*ROLES):
        for path in process.libraries:
            if _LIBNCCL.fullmatch(path):
                yield process, path


def _of_name(path: str) -> str:
    """Distributions install libnccl.so.2.27.5."""
    match = re.search(r"\.so\.(\d+\.\d+\.\d+)$", path)
    return match.group(1) if match else ""
