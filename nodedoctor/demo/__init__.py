"""Recorded nodes that ship with the tool, so that it can be seen at work on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

DEMOS = {
    "healthy": "eight H100, eight InfiniBand rails, nothing wrong",
    "nvlinks-down": "two NVLinks of one GPU are down: every collective runs at the speed of the rest",
    "raylet-1024-files": "Ray was started from a shell that allows 1024 open files, and is near it",
    "driver-mismatch": "an unattended upgrade replaced the driver's libraries under the loaded module",
}
"""Names and what is wrong there. Each is a folder beside this file; all of them are made up."""


def folder(name: str) -> Path:
    """Where the recording of a demo lies."""
    return Path(__file__).parent / name
