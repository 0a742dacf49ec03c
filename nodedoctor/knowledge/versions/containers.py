"""What the name of a training image promises about its inside, and what betrays an image from inside.

Versions are strings, CUDA is (12, 8), a driver branch is 570.
"""

from __future__ import annotations

import re

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.knowledge.versions.cuda import cuda_version
from nodedoctor.record import record, replace


@record
class Grammar:
    """How one family of images writes its tags: a regex whose groups are named for what they promise."""

    kind: str
    example: str
    regex: str
    source: str


@record
class NgcRelease:
    """One month of NVIDIA's framework images.

    `driver_branch` runs it natively, `min_branch` by minor-version compatibility.
    """

    release: str
    cuda: tuple[int, int]
    driver_branch: int
    min_branch: int
    source: str
    torch: str = ""


@record
class ImagePromise:
    """What an image name says is inside; "" and None mean that the name does not say.

    `torch` of an NGC image is the vendor's build, like 2.9.0a0+145a3a7bda. `python` is 3.12.
    """

    image: str
    kind: str
    source: str
    release: str = ""
    python: str = ""
    cuda: tuple[int, int] | None = None
    torch: str = ""
    ray: str = ""
    vllm: str = ""


grammars = cached_rows("containers", "grammars", Grammar)
ngc_releases = cached_rows("containers", "ngc_pytorch", NgcRelease)
"""NVIDIA's monthly releases, oldest first."""


def ngc_release(release: str) -> NgcRelease | None:
    """The NVIDIA release `25.10`; None when the table does not know it."""
    return next((row for row in ngc_releases() if row.release == release), None)


def promise(image: str) -> ImagePromise | None:
    """What an image reference promises; None for a name of no known family.

    Digests, `docker://` and enroot's `registry#name` are understood.
    """
    name = re.sub(r"^\w+://", "", image.strip()).partition("@")[0].replace("#", "/")
    for grammar in grammars():
        match = re.match(grammar.regex, name)
        if match:
            return _with_release(_image_promise(image, grammar, match.groupdict(default="")))
    return None


def _image_promise(image: str, grammar: Grammar, parts: dict[str, str]) -> ImagePromise:
    cuda = parts.get("cuda") or parts.get("variant", "")
    return ImagePromise(
        image,
        grammar.kind,
        grammar.source,
        release=parts.get("release", ""),
        python=_python_version(parts.get("python", "")),
        cuda=cuda_version(_cuda_text(cuda)),
        torch=parts.get("torch", ""),
        ray=parts.get("ray", ""),
        vllm=parts.get("vllm", ""),
    )


def _with_release(promise: ImagePromise) -> ImagePromise:
    """Add what the table knows of a monthly NGC release."""
    month = ngc_release(promise.release) if promise.kind in ("ngc-pytorch", "cuda-dl-base") else None
    if month is None:
        return promise
    torch = month.torch if promise.kind == "ngc-pytorch" else ""
    source = f"{promise.source}; {month.source}"
    return replace(promise, cuda=promise.cuda or month.cuda, torch=torch, source=source)


def _cuda_text(text: str) -> str:
    """Tags write 12.8, 12.8.1, cu128 or 128."""
    return f"cu{text}" if re.fullmatch(r"\d{3}", text) else text


def _python_version(text: str) -> str:
    """Tags write 3.12, 312 or 39."""
    return text if "." in text or not text else f"{text[0]}.{text[1:]}"
