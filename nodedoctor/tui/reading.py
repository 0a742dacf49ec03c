"""Reports and recorded nodes read by a child, because the file may lie on a dead file system."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nodedoctor
from nodedoctor import command
from nodedoctor.compare import CompareError, read_report
from nodedoctor.model import Observation
from nodedoctor.registry import Command

PATIENCE = 30.0
"""Seconds that reading and diagnosing a recorded node may take."""

_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from nodedoctor.cli import main; sys.exit(main())"


async def document(path: str) -> dict[str, Any]:
    """The report in a JSON file, or the diagnosis of a recorded node; CompareError when there is none."""
    if path.endswith(".json"):
        seen = await text(path)
    else:
        seen = await command.run("recorded node", Command(_ourselves("--replay", path, "--json")), PATIENCE)
    if not seen.answered or (seen.rc or 0) >= 64 or not seen.text:
        raise CompareError(seen.note.strip() or f"{path}: nothing came back")
    return read_report(seen.text.encode(), path)


async def text(path: str) -> Observation:
    """The text of a file."""
    return await command.run(path, Command(("cat", "--", path)), PATIENCE)


def _ourselves(*words: str) -> tuple[str, ...]:
    """The argv that runs nodedoctor again, from wherever it was started."""
    return (sys.executable, "-c", _RUN, str(Path(nodedoctor.__file__).parent.parent), *words)
