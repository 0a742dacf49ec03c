"""The tools an agent gets: each is one command of ours in a child, its document bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodedoctor.children import child_process
from nodedoctor.children.programs import nodedoctor_again
from nodedoctor.declare.registry import Command
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import Json, loaded
from nodedoctor.patterns import regex
from nodedoctor.record import record
from nodedoctor.spelling import COMMANDS

LARGEST = 256 << 10
"""Characters of a document that an agent gets; ours: a report of a node with eight GPUs has a third of it."""
SECONDS = 300.0
"""Seconds of one call; ours, as long as reading the logs of a dead job may take."""
PATHS, PATH = 64, 4096
"""Paths of one call, and characters of each; ours."""
_CHECK = regex(r"[a-z][a-z0-9-]{0,40}(?:\.[a-z0-9-]{1,60})?")
_WORD = regex(r"[\w.:/=@][\w.:/=@ -]{0,79}")
_CUTS = ((400, 4000), (100, 1000), (30, 500), (8, 200))
"""Entries of a list and characters of a text that are kept, until a document is small enough; ours."""


class Refused(NodeDoctorError):
    """Why a call is not carried out, in one line."""


@record
class Limits:
    """Folders whose files may be read, and whether names are replaced."""

    folders: tuple[str, ...] = ()
    redact: bool = True


@record
class Tool:
    """A tool: the words of the command for its arguments, and the document it returns ("" for text)."""

    name: str
    about: str
    schema: str
    arguments: Mapping[str, Any]
    required: tuple[str, ...]
    words: Callable[[Json, Limits], list[str]]


@record
class Answer:
    """What a tool says: a sentence, and the document or the text behind it."""

    sentence: str
    document: Json | None = None
    text: str = ""


async def call(tool: Tool, arguments: Json, limits: Limits) -> Answer:
    """Carry a call out; Refused when it may not be, or fails."""
    if unknown := sorted(set(arguments) - set(tool.arguments)):
        raise Refused(f"{tool.name}: unknown argument {unknown[0][:40]!r}")
    words = tool.words(arguments, limits)
    if tool.schema:
        words += ["--json", *(["--redact"] if limits.redact else [])]
    argv = nodedoctor_again(*words, isolated=True)
    observation = await child_process.run(tool.name, Command(argv), SECONDS)
    if not observation.answered or (observation.rc or 0) >= 64 or not observation.text.strip():
        raise Refused((observation.note.strip() or f"{tool.name} printed nothing")[-600:])
    if not tool.schema:
        return Answer(observation.text.strip().partition("\n")[0], text=observation.text[:LARGEST])
    try:
        document = bounded(loaded(observation.text))
    except ValueError:
        raise Refused(f"{tool.name}: its document cannot be read") from None
    return Answer(_lead_sentence(tool, document), document)


def bounded(document: Json) -> Json:
    """The document, its longest lists and texts cut where it is too large for an agent."""
    for entries, characters in _CUTS:
        if len(json.dumps(document)) <= LARGEST:
            break
        document = _shorten_texts(document, entries, characters)
    return document


def _shorten_texts(value: Any, entries: int, characters: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[: characters - 3]}..."
    if isinstance(value, list):
        return [_shorten_texts(item, entries, characters) for item in value[:entries]]
    return (
        {k: _shorten_texts(v, entries, characters) for k, v in value.items()}
        if isinstance(value, dict)
        else value
    )


def _lead_sentence(tool: Tool, document: Json) -> str:
    """What comes first: what is wrong, else that nothing is."""
    if tool.schema == "report":
        from nodedoctor.report.page import lead

        return lead(document) or f"no problem found: {document.get('verdict')}"  # type: ignore[arg-type]
    if tool.schema == "fleet":
        from nodedoctor.intake.document import of_fleet

        return of_fleet(document)
    return str(document.get("headline", ""))


def _allowed_paths(arguments: Json, limits: Limits) -> list[str]:
    """The paths of a call, resolved; Refused for one outside of the folders that were allowed."""
    paths = arguments.get("paths")
    if not isinstance(paths, list) or not paths or len(paths) > PATHS:
        raise Refused(f"paths: expected 1 to {PATHS} paths")
    return [_resolve_path(path, limits.folders) for path in paths]


def _resolve_path(path: object, folders: Sequence[str]) -> str:
    if not isinstance(path, str) or not 0 < len(path) <= PATH or "\0" in path:
        raise Refused("paths: expected texts")
    resolved = os.path.realpath(path)
    if not any(resolved == folder or resolved.startswith(f"{folder.rstrip('/')}/") for folder in folders):
        where = ", ".join(folders) or "no folder was allowed; start it with --allow DIR"
        raise Refused(f"{path[:200]}: outside of what may be read ({where})")
    return resolved


def _diagnose_argv(arguments: Json, limits: Limits) -> list[str]:
    checks = arguments.get("checks", [])
    if not isinstance(checks, list) or len(checks) > PATHS:
        raise Refused("checks: expected a list of checks and subjects")
    for check in checks:
        if not isinstance(check, str) or not _CHECK.fullmatch(check) or check in COMMANDS:
            raise Refused(
                f"checks: {str(check)[:60]!r} is no check or subject; explain lists what a word means"
            )
    return ["--passive", *checks]


def _explain_argv(arguments: Json, limits: Limits) -> list[str]:
    word = arguments.get("word")
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise Refused("word: expected a check, a cause, an Xid such as xid:79, a variable or a fact")
    return ["explain", word]


_PATHS: Mapping[str, Any] = {
    "paths": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": PATHS,
        "description": "absolute paths inside the folders that may be read",
    }
}

TOOLS: tuple[Tool, ...] = (
    Tool(
        "diagnose",
        "Diagnose the GPU node this runs on, without load: driver, GPUs, NVLink, RDMA, kernel log, versions.",
        "report",
        {
            "checks": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": PATHS,
                "description": "checks or subjects such as gpu, ib, nvlink.links; all without",
            }
        },
        (),
        _diagnose_argv,
    ),
    Tool(
        "explain",
        "What a word of a report means: a check, a cause, an Xid, an NCCL variable, a fact.",
        "",
        {"word": {"type": "string", "description": "such as nvlink.links, xid:79, NCCL_IB_HCA"}},
        ("word",),
        _explain_argv,
    ),
    Tool(
        "triage",
        "Why a training job died or hangs: the guilty rank, the evidence, the fix, from logs and dumps.",
        "triage",
        _PATHS,
        ("paths",),
        lambda arguments, limits: ["triage", "--no-node", *_allowed_paths(arguments, limits)],
    ),
    Tool(
        "read",
        "Judge saved outputs: nvidia-smi, dmesg, ibstat, bug reports, sosreports, other tools' verdicts.",
        "read",
        _PATHS,
        ("paths",),
        lambda arguments, limits: ["read", *_allowed_paths(arguments, limits)],
    ),
    Tool(
        "fleet_reports",
        "Put saved reports of many nodes side by side, and name the node that is different.",
        "fleet",
        _PATHS,
        ("paths",),
        lambda arguments, limits: ["fleet", "--report-only", "--reports", *_allowed_paths(arguments, limits)],
    ),
)
