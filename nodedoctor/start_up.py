"""What every start leaves out or puts off, so that it takes little time."""

from __future__ import annotations

import gc
import sys

STARTED_S = 3.0
"""Seconds after which the start of the screen is over and garbage is collected."""


def import_asyncio() -> None:
    """Import asyncio without ssl, as in a Python that has none: we send nothing over it.

    It is an eighth of the time of that import and 4 MiB of memory; code that imports `ssl` later gets it.
    """
    if "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # what `import` takes for "not installed"
    import asyncio  # noqa: F401

    del sys.modules["ssl"]


def collect_from_now() -> None:
    """Collect garbage, but none among what was imported: to look for it takes a tenth of the start."""
    gc.freeze()
    gc.enable()
