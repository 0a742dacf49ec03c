"""Official torch wheels for Linux: the CUDA they carry, what they require, what they were compiled for.

Versions are strings as Python packages write them; CUDA is (12, 8), a compute capability (9, 0).
"""

from __future__ import annotations

from collections.abc import Mapping

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import field, record

CUDA_SUFFIXES = ("", "-cu13", "-cu12", "-cu11")
"""How NVIDIA's wheels of one library are called across CUDA majors."""


@record
class TorchWheel:
    """The PyPI wheel of one release for one machine; `cuda` is None for a wheel that is CPU only.

    `archs` are the compute capabilities with native code (PTX is not listed). `pins` maps a distribution to
    what the wheel's metadata asks of it: a bare version means exactly that one, else a specifier.
    """

    torch: str
    machine: str
    python: str
    source: str
    cuda: tuple[int, int] | None = None
    archs: tuple[tuple[int, int], ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)

    def distribution(self, library: str) -> str | None:
        """The distribution that brings a library, `nvidia-nccl-cu12` for `nccl`; None when not required."""
        names = [library, *(f"nvidia-{library}{suffix}" for suffix in CUDA_SUFFIXES)]
        return next((name for name in names if name in self.pins), None)

    @property
    def tag(self) -> str:
        """The build as a local version writes it, `cu128` or `cpu`."""
        return f"cu{self.cuda[0]}{self.cuda[1]}" if self.cuda else "cpu"


@record
class TorchVariant:
    """Another build of a release on download.pytorch.org/whl; its exact requirements are not in the table."""

    torch: str
    tag: str
    cuda: tuple[int, int]


@record
class TorchRelease:
    """A release, and the torchvision and torchaudio that pin exactly this torch ("" when none does).

    `cxx11_abi` is the C++ ABI extensions are built for, None where the wheel no longer says (the new ABI).
    """

    torch: str
    torchvision: str = ""
    torchaudio: str = ""
    cxx11_abi: bool | None = None

    def wheel(self, machine: str = "x86_64") -> TorchWheel | None:
        """The wheel PyPI serves for a machine (`x86_64`, `aarch64`)."""
        matching = (wheel for wheel in wheels() if (wheel.torch, wheel.machine) == (self.torch, machine))
        return next(matching, None)

    @property
    def variants(self) -> tuple[TorchVariant, ...]:
        """The other builds of this release."""
        return tuple(variant for variant in variants() if variant.torch == self.torch)


releases = cached_rows("torch_pins", "releases", TorchRelease)
"""All releases, oldest first."""
wheels = cached_rows("torch_pins", "wheels", TorchWheel)
"""All wheels, oldest first, x86_64 before aarch64."""
variants = cached_rows("torch_pins", "variants", TorchVariant)
"""All other builds, oldest first."""


def torch_release(version: str) -> TorchRelease | None:
    """The release behind `2.9.0`, `2.9.0+cu128` or `2.9`; None for vendor and nightly builds."""
    public = version.strip().partition("+")[0]
    public = f"{public}.0" if public.count(".") == 1 else public
    return next((release for release in releases() if release.torch == public), None)


def torch_wheel(version: str, machine: str = "x86_64") -> TorchWheel | None:
    """The PyPI wheel an installed version is; None when its local tag (`+cu126`, `+cpu`) is another build."""
    release = torch_release(version)
    wheel = release.wheel(machine) if release else None
    local = version.strip().partition("+")[2]
    return wheel if wheel and local in ("", wheel.tag) else None
