"""`run --decide`: what to do with the command that ended, as an exit code and a list of nodes."""

from __future__ import annotations

import os

from nodedoctor.cli.console import write_stderr
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.json_shapes import Json, text, texts
from nodedoctor.triage.verdict.decision.cli_options import code_of, write_exclude

ON_PURPOSE = ("none/cancelled", "none/requeued")
"""Kinds of which nothing is to be done although the command failed; else its log was cut off."""


def end(status: int, verdict: Json | None, exclude: str) -> int:
    """The code of the decision on a command with this wait status; 0 where it ended well."""
    if verdict is None:
        return Exit.OK if os.WIFEXITED(status) and not os.WEXITSTATUS(status) else Exit.LOOK
    code = code_of(text(verdict, "decision"))
    if code == Exit.OK and text(verdict, "kind") not in ON_PURPOSE:
        write_stderr("run: look: the command failed, and nothing in its output says why")
        return Exit.LOOK
    write_stderr(f"run: {text(verdict, 'decision_line')}")
    if problem := write_exclude(exclude, texts(verdict, "exclude")):
        write_stderr(f"run: {problem}")
        return Exit.LOOK
    return code
