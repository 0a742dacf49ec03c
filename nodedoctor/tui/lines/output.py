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
        found = (line for one in evidence for line in self._lines_of(one))
        return list(dict.fromkeys(line for line in found if line < len(self.lines)))

    def _lines_of(self, one: Evidence) -> Iterator[int]:
        from nodedoctor.engine.evidence import with_list_indices

        path, line = one.get("path") or "", one.get("line")
        count = one["text"].strip("\n").count("\n") + 1
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
            yield from self._searched(one["text"])

    def _searched(self, text: str) -> Iterator[int]:
        """Evidence of older reports, and of sections of nvidia-smi, has its words only."""
        first = text.strip().partition("\n")[0]
        for words in (first, first.rpartition(" = ")[2], first.partition(": ")[2], first[:40]):
            at = next((at for at, line in enumerate(self.lines) if words and words in line), None)
            if at is not None:
                yield at
                return


def output(seen: Observation) -> Output:
    """The answer of a probe."""
    from nodedoctor.engine.evidence import parse_document

    text = seen.text
    document = parse_document(seen) if text.lstrip().startswith(("{", "[")) or "\n{" in text else None
    if not isinstance(document, dict | list):
        return Output(tuple(text.split("\n")) if text else (), {})
    lines: list[str] = []
    places: dict[str, int] = {}
    for path, said in _unfolded(document, ""):
        places.setdefault(path, len(lines))
        lines += said
    return Output(tuple(lines), places, document)


def _unfolded(value: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    from nodedoctor.engine.evidence import step_to

    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _unfolded(item, step_to(path, key))
    elif isinstance(value, list) and (any(isinstance(one, dict | list) for one in value) or _long(value)):
        for place, item in enumerate(value):
            yield from _unfolded(item, f"{path}[{place}]")
    elif isinstance(value, str) and "\n" in value:
        yield path, [f"{path}:", *value.rstrip("\n").split("\n")]
    else:
        yield path, [f"{path} = {value if isinstance(value, str) else json.dumps(value)}"]


def _long(values: list[Any]) -> bool:
    return len(json.dumps(values)) > SHORT
