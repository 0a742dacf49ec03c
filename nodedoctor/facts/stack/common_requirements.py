"""Requirements in the forms that nearly all have, read without `packaging`, which reads all others.

What a healthy node's wheels ask of each other is `name==2.27.5; platform_system == "Linux"` and the like. To
read that needs no grammar, and to import one takes a fifteenth of a replay. A test holds that both say the
same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping

_RELEASE = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}")
_LINE = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?)\s*"
    r"(?P<versions>(?:(?:[<>]=?|[!=]=)\s*[\d.]{1,40}\s*(?:,\s*(?=[<>!=])|(?=;|$))){0,6})"
    r"(?:;(?P<marker>.{1,300}))?",
    re.ASCII,
)
_CLAUSE = re.compile(r"([<>]=?|[!=]=)\s*([\d.]+)", re.ASCII)
_TERM = re.compile(r"\s*(\w+)\s*([<>]=?|[!=]=)\s*(\"[\w.]{1,30}\"|'[\w.]{1,30}')\s*", re.ASCII)
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = ("platform_system", "platform_machine", "sys_platform", "os_name", "implementation_name")
"""Marker variables that hold a word; `packaging` compares what looks like a version as one."""
_WORD = re.compile(r"(?!v\d)[A-Za-z]\w*", re.ASCII)
_PYTHON = re.compile(r"\d{1,3}\.\d{1,3}")


def read(line: str, environment: Mapping[str, str]) -> tuple[str, str, bool] | None:
    """The name, the versions as `packaging` writes them, and whether it applies; None where it must say."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    clauses = _CLAUSE.findall(match["versions"])
    distinct = {(sign, _release_numbers(version)) for sign, version in clauses}
    if len(distinct) < len(clauses) or any(release is None for _, release in distinct):
        return None
    applies = _marker_holds(match["marker"], environment) if match["marker"] else True
    if applies is None:
        return None
    return match["name"], ",".join(sorted(sign + version for sign, version in clauses)), applies


def allows(versions: str, version: str) -> bool | None:
    """Whether a release is among the versions asked for; None where `packaging` must say."""
    ours = _release_numbers(version)
    if ours is None:
        return None
    allowed = True
    for clause in filter(None, versions.split(",")):
        match = _CLAUSE.fullmatch(clause.strip())
        theirs = _release_numbers(match[2]) if match else None
        if match is None or theirs is None:
            return None
        allowed = _COMPARED[match[1]](ours, theirs) and allowed
    return allowed


def _release_numbers(version: str) -> tuple[int, ...] | None:
    """The numbers of a plain release, without the zeros at its end: 2.0 is 2."""
    if not _RELEASE.fullmatch(version):
        return None
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _marker_holds(marker: str, environment: Mapping[str, str]) -> bool | None:
    """Whether all terms of a marker hold; None for any other marker than such a list."""
    applies = True
    for term in re.split(r"\band\b", marker):
        match = _TERM.fullmatch(term)
        if match is None:
            return None
        name, sign, wanted = match[1], match[2], match[3][1:-1]
        ours = environment.get(name, "")
        if name == "python_version" and _PYTHON.fullmatch(wanted) and _PYTHON.fullmatch(ours):
            applies = (
                _COMPARED[sign](_release_numbers(ours) or (), _release_numbers(wanted) or ()) and applies
            )
        elif name in _WORDS and sign in ("==", "!=") and _WORD.fullmatch(wanted) and ours:
            applies = _COMPARED[sign](ours, wanted) and applies
        else:
            return None
    return applies
