"""The single file that this process runs from, to be copied to nodes where nodedoctor is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

_archives: list[Path] = []


def path() -> Path | None:
    """The nodedoctor.pyz we run from, absolute; None when nodedoctor is installed or runs from a checkout.

    The file is not looked at: it may be gone by now, or lie where nothing answers any more.
    """
    return _archives[0] if _archives else None


def programs() -> str:
    """The folder of the programs that came in the single file, which is unpacked; '' where we are none."""
    return str(Path(__file__).parents[1] / "bin") if _archives else ""


def ourselves() -> tuple[str, ...]:
    """The command that starts nodedoctor as we were started; nothing in the working directory is imported."""
    ours = path()
    return (sys.executable, str(ours)) if ours else (sys.executable, "-I", "-m", "nodedoctor")


def tell(archive: str) -> None:
    """Called by the archive's own first lines only: an environment variable could come from anybody."""
    _archives[:] = [Path(archive)]
