"""The shape both long outputs of nvidia-smi share: named sections with a text and parts; and its XML in it.

Reading XML starts at the root element, so a DOCTYPE and its entities are never seen and nothing can be
expanded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from xml.parsers import expat

from nodedoctor.patterns import regex

UNREAD = "unread_line"
"""The name of a part that quotes a line of the text that is of no GPU, or of no section of one."""
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
        sections = (self.find(path) for path in paths)
        return next((section.text for section in sections if section), None)


def plain(name: str) -> str:
    """A name as sections carry it: `SW Power Cap` is sw_power_cap, `cliqueId` is cliqueid."""
    return _NO_WORD.sub("_", name.lower()).strip("_")


def inert(text: str) -> str:
    """Replace what no terminal and no XML parser should meet: control characters and lone surrogates."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


ROOT = "nvidia_smi_log"
_DEPTH = 32  # real documents nest seven deep; more is not from nvidia-smi


class _TooDeep(Exception):
    """Stops the parser; never leaves this module."""


class _Builder:
    """Collects elements; one is attached to its parent only when it ends, so cut-off ones fall away."""

    def __init__(self) -> None:
        self.open = [Section("")]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) > _DEPTH:
            raise _TooDeep
        self.open.append(Section(plain(name), attributes.get("id", "")))

    def end(self, _name: str) -> None:
        done = self.open.pop()
        done.text = done.text.strip()
        self.open[-1].parts.append(done)

    def data(self, text: str) -> None:
        self.open[-1].text += text

    def root(self) -> Section | None:
        """The root element, also when its end never came."""
        return self.open[1] if len(self.open) > 1 else self.open[0].find(ROOT)


def read_xml(text: str) -> Section | None:
    """The document's root with every element that was complete, None when there is no such document."""
    begin = text.find(f"<{ROOT}")
    if begin < 0:
        return None
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    with contextlib.suppress(expat.ExpatError, _TooDeep):  # cut off or damaged: what was complete is kept
        parser.Parse(inert(text[begin:]), True)
    return builder.root()
