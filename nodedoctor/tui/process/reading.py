"""Reports, recorded nodes and logs read by a child, because the file may lie on a dead file system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodedoctor.children import child_process
from nodedoctor.children.programs import nodedoctor_again
from nodedoctor.cli.compare import CompareError, read_report, report_of
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document as json_document
from nodedoctor.json_shapes import loaded
from nodedoctor.model import Observation
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert_lines

READ_TIMEOUT_S = 30.0
"""Seconds that reading and diagnosing a recorded node may take."""

TRIAGE_TIMEOUT_S = 300.0
"""Seconds that reading the logs of a dead job may take: they are gigabytes at times."""


async def document(path: str) -> Report:
    """The report in a JSON file, or the diagnosis of a recorded node; CompareError when there is none."""
    if path.endswith(".json"):
        observation = await text(path)
    else:
        observation = await child_process.run(
            "recorded node", Command(nodedoctor_again("--replay", path, "--json")), READ_TIMEOUT_S
        )
    if not observation.answered or (observation.rc or 0) >= 64 or not observation.text:
        raise CompareError(observation.note.strip() or f"{path}: nothing came back")
    return read_report(observation.text.encode(), path)


async def triage(path: str) -> dict[str, Any]:
    """The triage document in a JSON file, or the triage of logs; CompareError when there is none."""
    if path.endswith(".json"):
        document = _triage_document((await text(path)).text)
        if document is not None:
            return document
    return await triage_again((path,))


async def triage_again(words: Sequence[str]) -> dict[str, Any]:
    """The document of `nodedoctor triage` with these words; CompareError when there is none."""
    argv = nodedoctor_again("triage", *words, "--json")
    observation = await child_process.run("triage", Command(argv), TRIAGE_TIMEOUT_S)
    document = _triage_document(observation.text) if observation.answered else None
    if document is None:
        raise CompareError(observation.note.strip() or f"{' '.join(words)}: triage printed nothing")
    return document


async def pasted(path: str) -> Report | None:
    """The report that `nodedoctor read` makes of outputs or a bundle; None where it makes none."""
    argv = nodedoctor_again("read", path, "--json")
    observation = await child_process.run("read", Command(argv), TRIAGE_TIMEOUT_S)
    report = (json_document(observation) or {}).get("report")
    return report_of(report, path) if isinstance(report, dict) else None


async def lines(path: str, first: int, last: int) -> list[tuple[int, str]]:
    """Some lines of a file with their numbers, inert; none when it cannot be read."""
    observation = await child_process.run(
        path, Command(("sed", "-n", f"{first},{last}p;{last}q", "--", path)), 5.0
    )
    if not observation.answered or observation.rc:
        return []
    return [(first + at, text[:4000]) for at, text in enumerate(inert_lines(observation.text.rstrip("\n")))]


def _triage_document(text: str) -> dict[str, Any] | None:
    try:
        document = loaded(text)
    except ValueError:
        return None
    good = isinstance(document, dict) and str(document.get("schema", "")).startswith("nodedoctor.triage/1")
    return document if good else None


async def text(path: str) -> Observation:
    """The text of a file."""
    return await child_process.run(path, Command(("cat", "--", path)), READ_TIMEOUT_S)
