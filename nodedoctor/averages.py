"""Averages for checks: `statistics` brings fractions, decimals and random numbers, 4 ms of every start."""

from __future__ import annotations

from collections.abc import Iterable


def median(numbers: Iterable[float]) -> float:
    """The number in the middle, or the mean of the two; ValueError when there is none."""
    ordered = sorted(numbers)
    if not ordered:
        raise ValueError("no median of no numbers")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mean(numbers: Iterable[float]) -> float:
    """Their sum by their count; ValueError when there is none."""
    kept = list(numbers)
    if not kept:
        raise ValueError("no mean of no numbers")
    return sum(kept) / len(kept)
