"""Which collections of software the system's package manager brought: Lambda Stack."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.model import Evidence, Observation, Unseen, reading
from nodedoctor.record import record

_SOURCES = "/etc/apt/sources.list.d/*ambda*"
_LISTS = "/var/lib/dpkg/info/lambda-stack*.list"


@probe("system-packages", timeout=5, lane=Lane.FS)
def system_packages(options: Options) -> Command:
    """Lambda's apt sources, and the packages of its stack that are installed."""
    return Command(child("host/files", "--root", options.root, f"read:{_SOURCES}", f"stat:{_LISTS}"))


@fact("system-packages")
@record
class SystemPackages:
    """`lambda_stack` is what speaks for Lambda Stack: installed packages, apt sources; empty without it."""

    lambda_stack: tuple[str, ...] = ()
    said: tuple[Evidence, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> SystemPackages | Unseen:
        """Read the names of files; a source alone counts too, because images lack dpkg's lists."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        installed = [re.sub(r"\.list$", " is installed", path.rpartition("/")[2]) for path in files.stats]
        sources = [f"{path}: {_first_line(text)}" for path, text in files.files.items() if "ambda" in path]
        evidence = [reading(observation.probe, f'stats["{path}"]') for path in sorted(files.stats)]
        evidence += [
            Evidence(observation.probe, _first_line(text), f'files["{path}"]')
            for path, text in sorted(files.files.items())
            if "ambda" in path
        ]
        return cls((*sorted(installed), *sorted(sources)), tuple(evidence))

    def public(self) -> dict[str, Any]:
        """What speaks for Lambda Stack."""
        return {"lambda_stack": list(self.lambda_stack)}


def _first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")[:200]
