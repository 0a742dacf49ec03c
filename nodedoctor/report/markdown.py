"""Text from a node as Markdown: shown as it is, and inert."""

from __future__ import annotations

import re

from nodedoctor.report.inert import inert, inert_lines


def fenced(text: str, title: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    lines = [inert(title), *inert_lines(text.strip("\n"))] if title else inert_lines(text.strip("\n"))
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])
