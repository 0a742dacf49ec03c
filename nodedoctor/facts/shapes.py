"""Values out of text; some must look like what they are called before anybody rests on them.

A version is read from files that any user can write; it decides findings and gets into commands, so what has
no version's shape is not kept as one.
"""

from __future__ import annotations

import re

# PEP 440, dpkg's epochs and tildes, and builds of vendors (2.9.0a0+50eac811a6.nv25.09).
_VERSION = re.compile(r"[vV]?[0-9][0-9A-Za-z.+_!~:-]{0,79}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,126}[A-Za-z0-9+])?")


def version(text: str | None) -> str:
    """The text where it has the shape of a version, else ""."""
    return text if text and _VERSION.fullmatch(text) else ""


def package_name(text: str) -> str:
    """The text where it can be the name of a package, Python's or the system's, else ""."""
    return text if _NAME.fullmatch(text) else ""


def assignments(text: str, sign: str = ":") -> dict[str, str]:
    """The values behind the first sign of each line, by the names before it; the last of a name counts."""
    pairs = (line.partition(sign) for line in text.splitlines() if sign in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def kib_to_gib(kib: int | None) -> float | None:
    """A size of the kernel's in GiB, to a tenth."""
    return None if kib is None else round(kib / 1024**2, 1)
