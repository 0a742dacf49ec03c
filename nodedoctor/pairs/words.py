"""How the words of `--size` and `--seconds` are read."""

from __future__ import annotations

import argparse

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(word: str) -> int:
    """`--size`: bytes each way, as 256M; ArgumentTypeError for anything else."""
    unit = _UNITS.get(word[-1:].lower(), 1)
    number = word[:-1] if unit > 1 else word
    if not number.isdecimal() or len(number) > 6 + 6 * (unit == 1) or not int(number):
        raise argparse.ArgumentTypeError(f"wants bytes like 256M, not {word!r}")
    return int(number) * unit


def load_seconds(word: str) -> float:
    """`--seconds`: from 1 to 60; ArgumentTypeError for anything else."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"wants seconds from 1 to 60, not {word!r}")
    return value
