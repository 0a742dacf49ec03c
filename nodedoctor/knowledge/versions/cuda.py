"""Which driver runs which CUDA: minimum drivers, branches and their end of life.

Drivers are tuples of ints, (570, 86, 10); CUDA versions are (12, 8). Linux only.
"""

from __future__ import annotations

import re
from typing import Literal

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record

Driver = tuple[int, ...]
Cuda = tuple[int, int]

Fit = Literal["native", "minor", "forward-only", "too-old", "unknown"]
"""How a CUDA build runs on a driver: fully; by minor-version compatibility (no newer PTX); only with the
forward-compatibility package on a data-centre GPU; not at all; or the table does not know."""


@record
class ToolkitRelease:
    """A CUDA toolkit release and the driver it shipped with, a bare branch where no more is known."""

    version: tuple[int, int, int]
    driver: Driver


@record
class Branch:
    """A driver branch. `kind` is long-term, production, new-feature, developer or "" (not known any more).

    `ends` is the month NVIDIA names, "2026-02"; `ended` marks branches already listed as end of life.
    """

    branch: int
    max_cuda: Cuda
    source: str
    kind: str = ""
    ended: bool = False
    ends: str = ""

    def past(self, month: str) -> bool:
        """Whether the branch is beyond its end of life in a month written "2026-11"."""
        return self.ended or (self.ends != "" and self.ends < month)


@record
class MinorCompat:
    """The oldest driver for a CUDA major (`whole_major`) or, before CUDA 11, for one minor."""

    cuda: Cuda
    whole_major: bool
    driver: Driver


@record
class ImageRequirement:
    """The branches older than its own on which nvidia/cuda images of a CUDA run, with the compat package."""

    cuda: Cuda
    compat_branches: tuple[int, ...]


@record
class MinDriver:
    """What a CUDA version asks for: `native` runs everything, `minor` runs what needs no newer PTX."""

    native: Driver
    minor: Driver


toolkits = cached_rows("cuda_driver", "toolkits", ToolkitRelease)
"""All toolkits, newest first."""
branches = cached_rows("cuda_driver", "branches", Branch)
"""All driver branches, newest first."""
minor_compat = cached_rows("cuda_driver", "minor_compat", MinorCompat)
"""The oldest drivers, newest CUDA first."""
image_requirements = cached_rows("cuda_driver", "images", ImageRequirement)
"""What nvidia/cuda images require, newest first."""


def driver_version(text: str) -> Driver | None:
    """`570.86.10` as (570, 86, 10); None for text that is no driver version."""
    match = re.fullmatch(r"(\d{3,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?", text.strip())
    return tuple(int(part) for part in match.groups() if part is not None) if match else None


def driver_text(driver: Driver) -> str:
    """(580, 65, 6) as NVIDIA writes it, `580.65.06`."""
    return ".".join(str(part) if not place else f"{part:02d}" for place, part in enumerate(driver))


def cuda_version(text: str) -> Cuda | None:
    """`12.8`, `12.8.1`, `12.8.0.038` and `cu128` as (12, 8); None for anything else."""
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})(?:\.\d+)*|cu(\d{2})(\d)", text.strip())
    if match is None:
        return None
    major, minor = (part for part in match.groups() if part is not None)
    return int(major), int(minor)


def branch(driver: Driver) -> Branch | None:
    """The branch a driver belongs to; None for a branch the table does not know."""
    return next((row for row in branches() if driver[:1] == (row.branch,)), None)


def max_cuda_of_driver(driver: Driver) -> Cuda | None:
    """The newest CUDA a driver runs natively; None for one older than the table.

    A branch the table does not know supports at least what the branch before it did.
    """
    return next((row.max_cuda for row in branches() if driver[:1] >= (row.branch,)), None)


def min_driver_for_cuda(cuda: Cuda) -> MinDriver | None:
    """The drivers a CUDA version asks for; None when the table does not know that CUDA."""
    releases = [row for row in toolkits() if row.version[:2] == cuda]
    exact = [row for row in minor_compat() if row.cuda == cuda and not row.whole_major]
    majors = [row for row in minor_compat() if row.whole_major and row.cuda[0] == cuda[0]]
    if releases and majors:
        native = min(releases, key=lambda row: row.version)
        return MinDriver(native.driver, majors[0].driver)
    return MinDriver(exact[0].driver, exact[0].driver) if exact else None


def fit(driver: Driver, cuda: Cuda) -> Fit:
    """How code built for a CUDA version runs on a driver."""
    newest = max_cuda_of_driver(driver)
    if newest is not None and newest >= cuda:
        return "native"
    needed = min_driver_for_cuda(cuda)
    if needed is None:
        return "unknown"
    if driver >= needed.minor[: len(driver)]:  # of a driver known by its branch alone only that is compared
        return "minor"
    return "forward-only" if _forward_compat(driver, cuda) else "too-old"


def _forward_compat(driver: Driver, cuda: Cuda) -> bool:
    """Whether NVIDIA's images of that CUDA (or the nearest older one of its major) name this branch."""
    older = [row for row in image_requirements() if row.cuda <= cuda and row.cuda[0] == cuda[0]]
    return bool(older) and driver[0] in older[0].compat_branches
