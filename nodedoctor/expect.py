"""What a node must have (`--expect gpus=8`), so that its absence is a failure and not a skip."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor import foreign

KEYS = {
    "gpus": "number of GPUs this node must show, e.g. 8",
    "gpu": "part of the GPU model's name, e.g. H100",
    "driver": "driver version or its beginning, e.g. 570 or 570.86.10",
    "nvlinks": "number of NVLinks that must be up on every GPU, e.g. 18",
    "pcie": "PCIe generation and lanes every GPU must have at its best, e.g. 5x16",
    "torch": "yes, or a version or its beginning, e.g. 2.9: the target Python must have it",
    "ib": "count and rate in Gb/s of active InfiniBand or RoCE rails, e.g. 8x400 or 8",
    "image": "name of the container image, whose promise is then held against what is installed",
    "ray": "yes, or a version or its beginning, e.g. 2.51: the target Python must have it",
}
"""Known keys and what they mean; `nodedoctor expect --keys` prints them."""

LARGEST = 1 << 20
"""Bytes of a file of expectations that are read; ours."""


class ExpectError(Exception):
    """An expectation that cannot be read, in one line."""


def expectations(words: Iterable[str]) -> dict[str, str]:
    """Read `key=value` words and files of such lines; a later one replaces an earlier one."""
    values: dict[str, str] = {}
    for word in words:
        lines = [word] if "=" in word else _lines(word)
        for line in lines:
            key, _, value = (part.strip() for part in line.partition("="))
            values[_known(key)] = value
    return values


def _lines(path: str) -> list[str]:
    try:
        text = foreign.read(path, largest=LARGEST, pipes=True).decode("utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "not text"
        raise ExpectError(f"--expect wants key=value or a file of such lines; {path}: {why}") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _known(key: str) -> str:
    if key in KEYS:
        return key
    from difflib import get_close_matches

    close = get_close_matches(key, KEYS, 1)
    hint = f"; did you mean {close[0]}?" if close else f"; known keys: {' '.join(KEYS)}"
    raise ExpectError(f"nothing is known about expecting {key!r}{hint}")
