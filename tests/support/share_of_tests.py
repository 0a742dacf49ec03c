"""`--share=K/N`: the K-th of N shares of the tests, drawn by their names; all shares together are all tests.

What only `make nightly` runs whole is run by one share with every change, drawn by the content of the tree.
"""

from __future__ import annotations

import re
import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="K/N", type=_share, help="run the K-th of N shares of the tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("share")
    if share:
        chosen = [item for item in items if share_of(item.nodeid, share[1]) == share[0]]
        config.hook.pytest_deselected(items=[*{*items}.difference(chosen)])
        items[:] = chosen


def share_of(name: str, shares: int) -> int:
    """The number, from 1, of the share that a test is in."""
    return zlib.crc32(name.encode()) % shares + 1


def _share(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(text)
    return int(found[1]), int(found[2])
