"""What the file-reading child saw: the one way facts get at files of the node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import answer
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

_MEMINFO = re.compile(r"^(?:Node \d+ )?(\w+):\s+(\d{1,15})(?: kB)?$", re.MULTILINE)
_SECTIONS = frozenset({"files", "links", "hex", "lists", "stats", "statvfs", "errors"})


@record
class Files:
    """Contents, links, directories and the reasons why something could not be read, by absolute path.

    A path that is nowhere was not asked for or not offered by a glob; `error` tells the rest apart.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    hex: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    statvfs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse_json(cls, observation: Observation) -> Files | Unseen:
        """Read the child's document; entries of a wrong shape are left out."""
        if not observation.answered:
            return Unseen.of(observation)
        try:
            document = answer(observation.text)
        except ValueError:
            return Unseen.of(observation)
        has_sections = isinstance(document, dict) and not _SECTIONS.isdisjoint(document)
        return cls.of(document) if has_sections else Unseen.of(observation)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Files:
        """Build from the document itself, for facts whose child wraps it."""
        names = {
            path: tuple(name for name in entries if isinstance(name, str))
            for path, entries in _document_section(document, "lists", list).items()
        }
        return cls(
            files=_document_section(document, "files", str),
            links=_document_section(document, "links", str),
            hex=_document_section(document, "hex", str),
            lists=names,
            stats=_document_section(document, "stats", dict),
            statvfs=_document_section(document, "statvfs", dict),
            errors=_document_section(document, "errors", str),
        )

    def text(self, path: str) -> str | None:
        """The text of a file without blanks and newlines around it; None when it was not read."""
        text = self.files.get(path)
        return None if text is None else text.strip()

    def number(self, path: str) -> int | None:
        """A file that holds one whole number, decimal or 0x; None when it does not."""
        return whole_number(self.text(path))

    def meminfo(self, folder: str = "/proc") -> Mapping[str, int]:
        """The lines of the machine's meminfo, or of a NUMA node's: sizes in KiB, counts of pages."""
        return {name: int(size) for name, size in _MEMINFO.findall(self.text(f"{folder}/meminfo") or "")}

    def link(self, path: str) -> str | None:
        """Where a symbolic link points."""
        return self.links.get(path)

    def leaf(self, path: str) -> str | None:
        """The last component of where a link points: a driver's or group's name in sysfs."""
        target = self.links.get(path)
        return None if target is None else target.rstrip("/").rpartition("/")[2]

    def names(self, path: str) -> tuple[str, ...] | None:
        """The names in a directory; None when it was not listed."""
        return self.lists.get(path)

    def error(self, path: str) -> str | None:
        """Why a path could not be read: ENOENT, EACCES, TIMEOUT, ...; None when nothing went wrong."""
        return self.errors.get(path)

    def under(self, prefix: str) -> dict[str, str]:
        """The stripped texts of all files below a directory, by their path relative to it."""
        start = prefix.rstrip("/") + "/"
        return {
            path[len(start) :]: text.strip() for path, text in self.files.items() if path.startswith(start)
        }

    def children(self, directory: str) -> tuple[str, ...]:
        """The entries of a directory of which anything is known, even only why not, sorted."""
        start = directory.rstrip("/") + "/"
        paths = (path[len(start) :] for path in self._all_paths() if path.startswith(start))
        return tuple(sorted({path.partition("/")[0] for path in paths}))

    def _all_paths(self) -> Iterator[str]:
        sections = (self.files, self.links, self.hex, self.lists, self.stats, self.statvfs, self.errors)
        for section in sections:
            yield from section


def whole_number(text: str | None) -> int | None:
    """A decimal or 0x number as int; None for anything else, and for what no kernel prints (over 64 bits)."""
    if text is None or len(text) > 20:
        return None
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None


def _document_section(document: Mapping[str, Any], name: str, shape: type) -> dict[str, Any]:
    section = document.get(name)
    if not isinstance(section, dict):
        return {}
    return {path: value for path, value in section.items() if isinstance(value, shape)}
