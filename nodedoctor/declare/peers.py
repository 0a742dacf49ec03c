"""Compared with its peers: which one of several like devices differs from the others, and in what.

A table knows what a model should be; its neighbours know what this machine is. So a fault that no table lists
still shows, as long as most of the devices do not have it. Used for anything of which a node has several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Generic, Literal, TypeVar

from nodedoctor.record import record

Kind = Literal["identity", "capability", "level", "rate", "growth"]
"""Identity and capability are values that are equal or not; the others are numbers with a spread."""

Side = Literal["low", "high"]

LEAST_PEERS = 2
"""A device is odd only against two others that agree: of two that differ either may be right."""
SPREADS = 6.0
"""Distances from the median, in median absolute deviations, from which a number is an outlier: about four
standard deviations of a normal distribution (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993,
take 3.5)."""
DEVIATION = 1.4826
"""A standard deviation of normal noise, in median absolute deviations."""

Device = TypeVar("Device")


@record
class Attribute(Generic[Device]):
    """One thing to compare: `read` gives its value, None where this device did not tell it.

    For numbers, `side` is where an outlier does harm. It must be more than `share` of the median away from
    it, at least `least` in the attribute's own unit, and `spreads` median absolute deviations: the first two
    guard against numbers with no spread at all. Counters, which a few healthy devices have too, are compared
    with a higher `quantile` than the median.
    """

    name: str
    kind: Kind
    read: Callable[[Device], object]
    side: Side = "high"
    share: float = 1.0
    least: float = 0.0
    spreads: float = SPREADS
    quantile: float = 0.5


@record
class Outlier(Generic[Device]):
    """A device whose value differs: `usual` is what `peers` others have in common, or their middle."""

    device: Device
    attribute: str
    kind: Kind
    value: object
    usual: object
    peers: int


def odd_ones(
    devices: Sequence[Device], attributes: Sequence[Attribute[Device]]
) -> tuple[Outlier[Device], ...]:
    """The devices that differ from most of their peers, by attribute in the order of the table.

    The caller gives devices that should be alike, levels and rates under like load. An attribute that fewer
    than three devices tell is not compared.
    """
    outliers: list[Outlier[Device]] = []
    for attribute in attributes:
        readings = [(device, value) for device in devices if (value := attribute.read(device)) is not None]
        if len(readings) > LEAST_PEERS:
            judge = _rare_devices if attribute.kind in ("identity", "capability") else _far_devices
            outliers += judge(attribute, readings)
    return tuple(outliers)


def decides(count: int, total: int, least: int = LEAST_PEERS) -> bool:
    """Whether so many that agree, of all, are enough to say what is usual: `least` of them, and most."""
    return count >= least and 2 * count > total


def quantile(numbers: Sequence[float], quantile: float = 0.5) -> float:
    """The median, or the number that a share of them does not exceed."""
    return median(numbers) if quantile == 0.5 else sorted(numbers)[int(quantile * (len(numbers) - 1))]


def compared(devices: Sequence[Device], attributes: Sequence[Attribute[Device]]) -> tuple[str, ...]:
    """The names of the attributes that enough devices have for a comparison."""
    counts = ((a.name, sum(a.read(device) is not None for device in devices)) for a in attributes)
    return tuple(name for name, count in counts if count > LEAST_PEERS)


def _rare_devices(
    attribute: Attribute[Device], readings: list[tuple[Device, object]]
) -> list[Outlier[Device]]:
    """Those that differ from what more than half have: halves against halves are a machine of two kinds."""
    (usual, count), *_ = Counter(value for _, value in readings).most_common(1)
    if not decides(count, len(readings)):
        return []
    pairs = ((device, value) for device, value in readings if value != usual)
    return [Outlier(device, attribute.name, attribute.kind, value, usual, count) for device, value in pairs]


def _far_devices(
    attribute: Attribute[Device], readings: list[tuple[Device, object]]
) -> list[Outlier[Device]]:
    """Those far from the middle of all, on the harmful side; a minority by definition."""
    shown = [(device, value) for device, value in readings if isinstance(value, (int, float))]
    if len(shown) <= LEAST_PEERS:
        return []
    numbers = [float(value) for _, value in shown]
    usual = quantile(numbers, attribute.quantile)
    spread = median(abs(number - usual) for number in numbers)
    far = max(attribute.share * usual, attribute.spreads * spread)
    sign = -1 if attribute.side == "low" else 1
    away = [sign * (number - usual) for number in numbers]
    is_odd = [distance > far and distance >= attribute.least for distance in away]
    if 2 * sum(is_odd) >= len(shown):
        return []
    rest = [number for number, flag in zip(numbers, is_odd, strict=True) if not flag]
    of_rest = quantile(rest, attribute.quantile)
    pairs = [pair for pair, flag in zip(shown, is_odd, strict=True) if flag]
    name, kind = attribute.name, attribute.kind
    return [Outlier(device, name, kind, value, of_rest, len(rest)) for device, value in pairs]
