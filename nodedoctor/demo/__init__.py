"""Recorded nodes that ship with the tool, so that it can be seen at work on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DEMOS = {
    "healthy": "eight H100, eight InfiniBand rails, nothing wrong",
    "nvlinks-down": "two NVLinks of one GPU are down: every collective runs at the speed of the rest",
    "raylet-1024-files": "Ray was started from a shell that allows 1024 open files, and is near it",
    "driver-mismatch": "an unattended upgrade replaced the driver's libraries under the loaded module",
}
"""Names and what is wrong there. Each is a folder beside this file; all of them are made up."""


def main(words: Sequence[str]) -> int:
    """`nodedoctor demo [NAME [options]]`: list the recorded nodes, or diagnose one."""
    from nodedoctor import cli

    if words and words[0] in DEMOS:
        return cli.diagnose(["--replay", str(Path(__file__).parent / words[0]), *words[1:]])
    if words and words[0] not in ("-h", "--help"):
        return cli.complain(f"no demo {words[0]!r}; there are {', '.join(DEMOS)}")
    width = max(map(len, DEMOS))
    for name, about in DEMOS.items():
        print(f"nodedoctor demo {name:<{width}}  {about}")
    return cli.Exit.OK
