"""Reads `nvidia-smi -q -x` into sections; keeps the complete GPUs of a document that was cut off.

Reading starts at the root element, so a DOCTYPE and its entities are never seen and nothing can be expanded.
"""

from __future__ import annotations

import contextlib
from xml.parsers import expat

from nodedoctor.facts.gpu.smi.sections import Section, inert, plain

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
    with contextlib.suppress(expat.ExpatError, _TooDeep):  # cut off or damaged: what was complete stands
        parser.Parse(inert(text[begin:]), True)
    return builder.root()
