"""Which variables are set for training, to what, and where: here, in files, in the ranks that run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.declare.registry import fact
from nodedoctor.facts.host.env import Env, EnvFile
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.grouping import group_pairs
from nodedoctor.knowledge.env_vars import family, is_env_var, suggest
from nodedoctor.model import Evidence, Unseen, reading
from nodedoctor.record import field, record

HERE = "the environment"
ROLES = ("rank", "ray-worker", "engine")
"""Processes that make collectives, or may."""

_OF_ONE_RANK = ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "MASTER_PORT")


@record
class Setting:
    """One value of a variable and everywhere it was found; `probe` has the first place."""

    name: str
    value: str
    places: tuple[str, ...]
    probe: str = "env"

    @property
    def said(self) -> Evidence:
        """Its value in the first place where it was found."""
        place = self.places[0]
        name, written = self.name, rf"^.*\b{re.escape(self.name)}=.*$"
        if self.probe == "processes":
            pid = re.search(r"pid (\d+)\)$", place)
            return reading("processes", f"processes[pid={pid[1] if pid else ''}].environment.{name}")
        if place == HERE:
            return reading("env", f"variables.{name}", like=written)
        return reading("env", f"files[{json.dumps(place)}].{name}")


@fact(Env, Processes, name="settings")
@record
class Settings:
    """The variables of libraries that training uses, by place.

    `here` is the environment nodedoctor was started in, `files` are NCCL's files and --env-file by path;
    `ranks` has the environment every process that trains was started with, by its label. What a program
    sets for itself later is in none of them. `jobs` are the labels of each job's ranks.
    `foreign` are the ranks somebody else started, by their HOME,
    which an export here was never meant for. `unread` are files that could not be read, `misread` names in
    NCCL's files that NCCL takes otherwise. `partly` says why there may be more variables.
    """

    here: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    jobs: tuple[tuple[str, ...], ...] = ()
    foreign: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    misread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partly: Unseen | None = None

    @classmethod
    def parse(cls, env: Env | Unseen, processes: Processes | Unseen) -> Settings | Unseen:
        """Put both together; unseen only when neither was seen."""
        running = processes.of(*ROLES) if isinstance(processes, Processes) else ()
        training = _training_processes(running)
        ranks = {process.label: _relevant_variables(process.environment) for process in training}
        jobs = tuple(_group_jobs(training, processes)) if isinstance(processes, Processes) else ()
        if isinstance(env, Unseen):
            return cls(ranks=ranks, jobs=jobs, partly=env) if ranks else env
        return cls(
            here=_relevant_variables(env.variables),
            files={
                file.path: _relevant_variables(file.variables) for file in env.files if file.error is None
            },
            ranks=ranks,
            jobs=jobs,
            foreign=frozenset(_foreign_processes(training, env.variables.get("HOME"))),
            unread={file.path: file.error or "" for file in env.files if _is_missed(file)},
            misread={file.path: file.misread for file in env.files if file.misread},
            partly=processes if isinstance(processes, Unseen) and processes.applies else env.partly,
        )

    def nccl_files(self) -> tuple[str, ...]:
        """The files NCCL reads itself: its two, and the one NCCL_CONF_FILE names."""
        conf_file = self.here.get("NCCL_CONF_FILE")
        return tuple(path for path in self.files if path == conf_file or path.endswith("nccl.conf"))

    def all(self) -> tuple[Setting, ...]:
        """Every variable with every value it has, sorted by name."""
        places_by_setting = group_pairs(((name, value), place) for place, name, value in self._occurrences())
        return tuple(
            Setting(name, value, _shorten_places(places), "processes" if places[0] in self.ranks else "env")
            for (name, value), places in sorted(places_by_setting.items())
        )

    def environments(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """What one process has or would have: every rank's own, and ours. NCCL's files fill in the rest."""
        own = self.nccl_files()
        below = {name: value for path in own for name, value in self.files[path].items()}
        for path in self.files:
            if path not in own:
                yield path, {**below, **self.files[path]}
        for place, variables in ((HERE, self.here), *self.ranks.items()):
            yield place, {**below, **variables}

    def value(self, name: str) -> str | None:
        """What a variable is set to: in a rank first, then here, then in a file; None when nowhere."""
        for variables in (*self.ranks.values(), self.here, *self.files.values()):
            if name in variables:
                return variables[name]
        return None

    def differing(self) -> Iterator[tuple[str, Mapping[str, tuple[str, ...]]]]:
        """Variables that ranks of one job have with different values; "" is the value where it is not set."""
        for job in self.jobs:
            ranks = {label: self.ranks[label] for label in job}
            names = {name for variables in ranks.values() for name in variables} - set(_OF_ONE_RANK)
            for name in sorted(name for name in names if name.startswith(("NCCL_", "TORCH_", "GLOO_"))):
                by_value = group_pairs((variables.get(name, ""), label) for label, variables in ranks.items())
                if len(by_value) > 1:
                    yield name, {value: tuple(labels) for value, labels in by_value.items()}

    def public(self) -> dict[str, Any]:
        """The names and values once, with their places."""
        return {"settings": [{"name": s.name, "value": s.value, "places": s.places} for s in self.all()]}

    def _occurrences(self) -> Iterator[tuple[str, str, str]]:
        for place, variables in ((HERE, self.here), *self.files.items(), *self.ranks.items()):
            for name, value in variables.items():
                yield place, name, value


def _training_processes(processes: tuple[Process, ...]) -> tuple[Process, ...]:
    """Those whose environment could be read; idle Ray workers count only where nothing else trains."""
    read = tuple(process for process in processes if process.environment)
    ranks = tuple(process for process in read if process.role != "ray-worker" or process.libraries)
    return ranks or read


def _group_jobs(training: tuple[Process, ...], processes: Processes) -> Iterator[tuple[str, ...]]:
    """The labels of the processes that were started together and do the same work.

    Two jobs may share a node, and two launchers a Slurm job: a rendezvous, a Ray job and a launcher belong to
    one job. Without any of them the parent does.
    """
    by_pid = {process.pid: process for process in processes.all}
    labels_by_job: dict[tuple[object, ...], list[str]] = {}
    for process in training:
        ray = process.environment.get("RAY_JOB_ID")
        job_marks = (process.job, process.master, ray, _nearest_launcher(process, by_pid))
        key = (process.role, process.uid, *job_marks, None if any(job_marks) else process.ppid)
        labels_by_job.setdefault(key, []).append(process.label)
    yield from map(tuple, labels_by_job.values())


def _nearest_launcher(process: Process, by_pid: Mapping[int, Process]) -> int | None:
    """The nearest launcher above a process."""
    pids = {process.pid}
    parent = by_pid.get(process.ppid)
    while parent and parent.pid not in pids:
        if parent.role == "launcher":
            return parent.pid
        pids.add(parent.pid)
        parent = by_pid.get(parent.ppid)
    return None


def _foreign_processes(processes: tuple[Process, ...], home: str | None) -> Iterator[str]:
    for process in processes:
        theirs = process.environment.get("HOME")
        if home and theirs and theirs != home:
            yield process.label


def _is_missed(file: EnvFile) -> bool:
    """NCCL's own files need not be there; one that was named must be."""
    return file.error is not None and (file.error != "ENOENT" or not file.path.endswith("nccl.conf"))


def _relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """What some library reads, or what looks as if one should."""
    return {name: value for name, value in variables.items() if is_relevant(name)}


def is_relevant(name: str) -> bool:
    """Whether a name is known, of a family that is, or a slip of a known one."""
    return is_env_var(name) or family(name) is not None or suggest(name) is not None


def _shorten_places(places: list[str]) -> tuple[str, ...]:
    """A few places instead of many."""
    return (*places[:3], f"{len(places) - 3} more") if len(places) > 4 else tuple(places)
