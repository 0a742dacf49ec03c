"""The shape both long outputs of nvidia-smi share: named sections with a text and parts."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.patterns import regex

_CONTROL = regex("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NO_WORD = regex(r"[^a-z0-9]+")


class Section:
    """One element of the XML or one line of `-q`: its name, its value, what is nested below it.

    Names are small letters and underscores (see `plain`), which makes most names of both outputs the same.
    """

    __slots__ = ("name", "parts", "text")

    def __init__(self, name: str, text: str = "", parts: list[Section] | None = None) -> None:
        self.name = name
        self.text = text
        self.parts = [] if parts is None else parts

    def all(self, name: str) -> Iterator[Section]:
        """The direct parts of that name; nvidia-smi repeats some (processes, MIG devices)."""
        return (part for part in self.parts if part.name == name)

    def find(self, path: str) -> Section | None:
        """The first part reached by the names of a path like `mig_mode/current`."""
        here: Section | None = self
        for name in path.split("/"):
            here = next(here.all(name), None) if here else None
        return here

    def value(self, *paths: str) -> str | None:
        """The text of the first path that exists; names changed between drivers, so several may be asked."""
        found = (self.find(path) for path in paths)
        return next((section.text for section in found if section), None)


def plain(name: str) -> str:
    """A name as sections carry it: `SW Power Cap` is sw_power_cap, `cliqueId` is cliqueid."""
    return _NO_WORD.sub("_", name.lower()).strip("_")


def inert(text: str) -> str:
    """Replace what no terminal and no XML parser should meet: control characters and lone surrogates."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
