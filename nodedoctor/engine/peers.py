"""Compared with its peers: which one of several like devices differs from the others, and in what.

A table knows what a model should be; its neighbours know what this machine is. So a fault that no table lists
still shows, as long as most of the devices do not have it. Used for anything of which a node has several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, Literal, TypeVar

Kind = Literal["identity", "capability", "level", "rate", "growth"]
"""Identity and capability are values that are equal or not; the others are numbers with a spread."""

Side = Literal["low", "high"]

LEAST_PEERS = 2
"""A device is odd only against two others that agree: of two that differ nobody knows which one is right."""
SPREADS = 6.0
"""Distances from the median, in median absolute deviations, from which a number is an outlier: about four
standard deviations of a normal distribution (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993,
take 3.5)."""

Device = TypeVar("Device")


@dataclass(frozen=True)
class Attribute(Generic[Device]):
    """One thing to compare: `read` gives its value, None where this device did not tell it.

    For numbers, `side` is where an outlier does harm; it must lie beyond `ratio` times the median of its
    peers and at least `least` away from it, both in the attribute's own unit, which guards against a median
    with no spread at all.
    """

    name: str
    kind: Kind
    read: Callable[[Device], object]
    side: Side = "high"
    ratio: float = 2.0
    least: float = 0.0


@dataclass(frozen=True)
class Odd(Generic[Device]):
    """A device whose value differs: `usual` is what `peers` others have in common, or their median."""

    device: Device
    attribute: str
    kind: Kind
    value: object
    usual: object
    peers: int


def odd_ones(devices: Sequence[Device], attributes: Sequence[Attribute[Device]]) -> tuple[Odd[Device], ...]:
    """The devices that differ from most of their peers, by attribute in the order of the table.

    The caller gives devices that should be alike, levels and rates under like load. An attribute that fewer
    than three devices tell is not compared.
    """
    found: list[Odd[Device]] = []
    for attribute in attributes:
        told = [(device, value) for device in devices if (value := attribute.read(device)) is not None]
        if len(told) > LEAST_PEERS:
            judge = _minority if attribute.kind in ("identity", "capability") else _outliers
            found += judge(attribute, told)
    return tuple(found)


def compared(devices: Sequence[Device], attributes: Sequence[Attribute[Device]]) -> tuple[str, ...]:
    """The names of the attributes that enough devices told for a comparison."""
    counts = ((a.name, sum(a.read(device) is not None for device in devices)) for a in attributes)
    return tuple(name for name, count in counts if count > LEAST_PEERS)


def _minority(attribute: Attribute[Device], told: list[tuple[Device, object]]) -> list[Odd[Device]]:
    """Those that differ from what more than half have: halves against halves are a machine of two kinds."""
    (usual, count), *_ = Counter(value for _, value in told).most_common(1)
    if count < LEAST_PEERS or count * 2 <= len(told):
        return []
    odd = ((device, value) for device, value in told if value != usual)
    return [Odd(device, attribute.name, attribute.kind, value, usual, count) for device, value in odd]


def _outliers(attribute: Attribute[Device], told: list[tuple[Device, object]]) -> list[Odd[Device]]:
    """Those far from the median of the others, on the harmful side; a minority by definition."""
    numbers = [(device, float(value)) for device, value in told if isinstance(value, (int, float))]
    found: list[Odd[Device]] = []
    for place, (device, value) in enumerate(numbers):
        others = [number for at, (_, number) in enumerate(numbers) if at != place]
        if len(others) < LEAST_PEERS:
            continue
        middle = median(others)
        spread = median(abs(number - middle) for number in others)
        away = middle - value if attribute.side == "low" else value - middle
        beyond = (
            value * attribute.ratio < middle if attribute.side == "low" else value > middle * attribute.ratio
        )
        if beyond and away > 0 and away >= max(attribute.least, SPREADS * spread):
            found.append(Odd(device, attribute.name, attribute.kind, value, middle, len(others)))
    return found if len(found) * 2 < len(numbers) else []
