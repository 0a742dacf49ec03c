"""What the name of a training image promises about its inside, and what betrays an image from inside.

Versions are strings, CUDA is (12, 8), a driver branch is 570.
"""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.knowledge.versions.cuda import cuda_version
from nodedoctor.record import record, replace


@record
class Grammar:
    """How one family of images writes its tags: a regex whose group names are fields of `ImagePromise`."""

    kind: str
    example: str
    regex: str
    source: str
    note: str = ""
    unverified: bool = False


@record
class SkyrlImage:
    """A SkyRL image: what its name says, its base, and from when until when the documentation named it."""

    image: str
    ray: str
    python: str
    cuda: tuple[int, int]
    base: str
    source: str
    driver_branch: int | None = None
    since: str = ""
    until: str = ""
    torch: str = ""
    vllm: str = ""
    flash_attn: str = ""
    transformer_engine: str = ""
    nccl: str = ""
    note: str = ""
    unverified: bool = False


@record
class NgcRelease:
    """One month of NVIDIA's framework images.

    `driver_branch` runs it natively, `min_branch` by minor-version compatibility; `compat_driver` is the
    driver whose libcuda lies in the image.
    """

    release: str
    cuda: tuple[int, int]
    driver_branch: int
    min_branch: int
    source: str
    torch: str = ""
    nccl: str = ""
    compat_driver: tuple[int, ...] = ()
    note: str = ""
    unverified: bool = False


@record
class Marker:
    """Variables and files by which a kind of image or runtime is recognised from inside."""

    kind: str
    source: str
    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    note: str = ""
    unverified: bool = False


@record
class ImagePromise:
    """What an image name says is inside; "" and None mean that the name does not say.

    `torch` of an NGC image is the vendor's build, like 2.9.0a0+145a3a7bda. `python` is 3.12.
    """

    image: str
    kind: str
    source: str
    release: str = ""
    variant: str = ""
    tag: str = ""
    os: str = ""
    python: str = ""
    cuda: tuple[int, int] | None = None
    torch: str = ""
    nccl: str = ""
    cudnn: str = ""
    ray: str = ""
    vllm: str = ""
    flash_attn: str = ""
    driver_branch: int | None = None
    min_branch: int | None = None
    compat_driver: tuple[int, ...] = ()
    note: str = ""
    unverified: bool = False


grammars = cached_rows("containers", "grammars", Grammar)
skyrl_images = cached_rows("containers", "skyrl", SkyrlImage)
"""SkyRL's images, newest first."""
ngc_releases = cached_rows("containers", "ngc_pytorch", NgcRelease)
"""NVIDIA's monthly releases, oldest first."""
markers = cached_rows("containers", "markers", Marker)
"""How images and container runtimes are recognised."""


def ngc_release(release: str) -> NgcRelease | None:
    """The NVIDIA release `25.10`; None when the table does not know it."""
    return next((row for row in ngc_releases() if row.release == release), None)


def promise(image: str) -> ImagePromise | None:
    """What an image reference promises; None for a name of no known family.

    Digests, `docker://` and enroot's `registry#name` are understood.
    """
    name = re.sub(r"^\w+://", "", image.strip()).partition("@")[0].replace("#", "/")
    for grammar in grammars():
        found = re.match(grammar.regex, name)
        if found:
            said: dict[str, Any] = {key: value for key, value in found.groupdict().items() if value}
            return _with_release(_read(image, grammar, said))
    return None


def _read(image: str, grammar: Grammar, said: dict[str, Any]) -> ImagePromise:
    cuda = cuda_version(_cuda_text(said.pop("cuda", "") or said.get("variant", "")))
    python = _python(said.pop("python", ""))
    variant = said.pop("variant", "").lstrip("-")
    base = ImagePromise(image, grammar.kind, grammar.source, note=grammar.note, unverified=grammar.unverified)
    return replace(base, cuda=cuda, python=python, variant=variant, **said)


def _with_release(told: ImagePromise) -> ImagePromise:
    """Add what the table knows of a monthly NGC release."""
    month = ngc_release(told.release) if told.kind in ("ngc-pytorch", "cuda-dl-base") else None
    if month is None:
        return told
    torch = month.torch if told.kind == "ngc-pytorch" else ""
    return replace(
        told,
        cuda=told.cuda or month.cuda,
        torch=torch,
        nccl=month.nccl,
        driver_branch=month.driver_branch,
        min_branch=month.min_branch,
        compat_driver=month.compat_driver,
        unverified=month.unverified,
        source=f"{told.source}; {month.source}",
    )


def _cuda_text(text: str) -> str:
    """Tags write 12.8, 12.8.1, cu128 or 128."""
    return f"cu{text}" if re.fullmatch(r"\d{3}", text) else text


def _python(text: str) -> str:
    """Tags write 3.12, 312 or 39."""
    return text if "." in text or not text else f"{text[0]}.{text[1:]}"
