"""The files of one log that was rotated, or begun again with its container, by their names.

A failure in an older file is over where a newer one of the same log works on, as it is within one file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from nodedoctor.grouping import group_by
from nodedoctor.record import record

_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_FORMS = (
    # logrotate, Python's RotatingFileHandler
    re.compile(r"\.(?P<number>\d{1,3})$"),
    # logrotate's dateext, Python's TimedRotatingFileHandler
    re.compile(r"[-.](?P<date>(?:19|20)\d\d-?\d\d-?\d\d(?:[-_T]?\d\d[-:]?\d\d(?:[-:]?\d\d)?)?)$"),
    # kubectl logs --previous, as people save it
    re.compile(r"[._-](?:previous|prev|old)(?P<ending>\.\w{1,6})?$"),
)
"""How an older file is named beside the newest one, by who renames it."""


@record
class OlderFile:
    """The log of which a file is an older part, and how old it is: of two the greater is older."""

    log: str
    age: tuple[int, ...]


def newer_files(paths: Iterable[str]) -> dict[str, list[str]]:
    """By older file of a log: the files of it that are newer, of which one has the log's own name."""
    names = {path: _PACKED.sub("", path) for path in paths}
    own = {name: path for path, name in names.items()}
    older = {path: part for path, name in names.items() if (part := _older_file(name, own)) is not None}
    newer: dict[str, list[str]] = {}
    for log, parts in group_by(older, lambda path: older[path].log).items():
        parts.sort(key=lambda path: older[path].age)
        for index, path in enumerate(parts):
            newer[path] = [own[log], *parts[:index]]
    return newer


def _older_file(name: str, own: Mapping[str, str]) -> OlderFile | None:
    """Of which log a file is an older part by its name, where the newest part is there, too."""
    folder, base = os.path.split(name)
    for form in _FORMS:
        match = form.search(base)
        if match is None:
            continue
        groups = match.groupdict()
        log = os.path.join(folder, base[: match.start()] + (groups.get("ending") or ""))
        if log in own and log != name:
            date = re.sub(r"\D", "", groups.get("date") or "").ljust(14, "0")
            return OlderFile(log, (int(groups.get("number") or 0), -int(date)))
    return None
