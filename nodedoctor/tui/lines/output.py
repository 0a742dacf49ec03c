"""What a probe printed as lines to read: text as it is, JSON one value a line under its path.

The paths are those of evidence (`engine/evidence.py`), with places in place of the words that find a member,
so that a line of the output and the proof that was read from it can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.model import Observation
from nodedoctor.record import record
from nodedoctor.report.document import Evidence

SHORT = 60
"""Characters up to which a list of plain values is one line."""


@record
class Output:
    """Lines, and for each path of a value the number of its line, from 0; `document` where it is nested."""

    lines: tuple[str, ...]
    places: dict[str, int]
    document: Any = None

    def lines_of(self, evidence: Sequence[Evidence]) -> list[int]:
        """The lines that some evidence of this probe is on, each once, in the order of the evidence."""
        line_numbers = (line for entry in evidence for line in self._lines_of(entry))
        return list(dict.fromkeys(line for line in line_numbers if line < len(self.lines)))

    def _lines_of(self, entry: Evidence) -> Iterator[int]:
        from nodedoctor.engine.evidence import with_list_indices

        path, line = entry.get("path") or "", entry.get("line")
        count = entry["text"].strip("\n").count("\n") + 1
        base = (
            self.places.get(with_list_indices(self.document, path))
            if path and self.document is not None
            else None
        )
        if line is not None and (base is not None or not path):
            first = line - 1 if base is None else base + line
            yield from range(first, first + count)
        elif base is not None:
            yield base
        else:
            yield from self._matching_line(entry["text"])

    def _matching_line(self, text: str) -> Iterator[int]:
        """Evidence of older reports, and of sections of nvidia-smi, has its words only."""
        first = text.strip().partition("\n")[0]
        for words in (first, first.rpartition(" = ")[2], first.partition(": ")[2], first[:40]):
            at = next((at for at, line in enumerate(self.lines) if words and words in line), None)
            if at is not None:
                yield at
                return


def output(observation: Observation) -> Output:
    """The answer of a probe."""
    from nodedoctor.engine.evidence import parse_document

    text = observation.text
    document = parse_document(observation) if text.lstrip().startswith(("{", "[")) or "\n{" in text else None
    if not isinstance(document, dict | list):
        return Output(tuple(text.split("\n")) if text else (), {})
    lines: list[str] = []
    places: dict[str, int] = {}
    for path, block in _value_lines(document, ""):
        places.setdefault(path, len(lines))
        lines += block
    return Output(tuple(lines), places, document)


def _value_lines(value: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    from nodedoctor.engine.evidence import step_to

    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _value_lines(item, step_to(path, key))
    elif isinstance(value, list) and (
        any(isinstance(part, dict | list) for part in value) or _is_long(value)
    ):
        for place, item in enumerate(value):
            yield from _value_lines(item, f"{path}[{place}]")
    elif isinstance(value, str) and "\n" in value:
        yield path, [f"{path}:", *value.rstrip("\n").split("\n")]
    else:
        yield path, [f"{path} = {value if isinstance(value, str) else json.dumps(value)}"]


def _is_long(values: list[Any]) -> bool:
    return len(json.dumps(values)) > SHORT
