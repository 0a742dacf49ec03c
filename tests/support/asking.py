"""Ask real probes of real trees, and judge facts with real checks."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Check, Command, Options
from nodedoctor.engine.plugins import discover
from nodedoctor.model import Expect, Finding, Observation, Outcome

PATIENCE = 60  # seconds; nothing here takes more than a few


def ask(
    plan: Callable[..., Command | Observation],
    *earlier: Observation,
    root: Path | str = "/",
    name: str = "probe",
    env: Mapping[str, str] | None = None,
) -> Observation:
    """Run the child a probe plans, below a root and with more environment, and see that it answered."""
    planned = plan(Options(root=str(root)), *earlier)
    assert isinstance(planned, Command)
    asked = Command(planned.argv, env=dict(env or {}))
    seen = asyncio.run(child_process.run(name, asked, PATIENCE))
    assert (seen.outcome, seen.rc) == (Outcome.OK, 0), seen.note
    json.loads(seen.text)
    return seen


def said(text: str, name: str = "probe") -> Observation:
    """An observation with this text."""
    return Observation(name, text=text)


def document(**sections: Any) -> Observation:
    """What the file-reading child would have said."""
    return said(json.dumps(sections))


@functools.cache
def checks() -> Mapping[str, Check]:
    """Every check that ships."""
    return discover().checks


def judge(id: str, *facts: Any) -> list[Finding]:
    """The findings of one check on facts given by type; what is not given is not known."""
    found = checks()[id]
    arguments = []
    for need in found.needs():
        given = next((fact for fact in facts if isinstance(fact, need.cls)), None)
        given = Expect() if given is None and need.cls is Expect else given
        assert given is not None or need.optional, f"{id} needs {need.cls.__name__}"
        arguments.append(given)
    return list(found.function(*arguments))


def brief(findings: list[Finding]) -> list[tuple[str, str]]:
    """Status and subject of each; a pass with a note is a note."""
    return [("note" if finding.note else finding.status.value, finding.subject) for finding in findings]


def write(path: Path, text: str | bytes = "") -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
