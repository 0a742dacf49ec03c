"""JSON: an object for each line, and documents with texts anywhere in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import loaded
from nodedoctor.triage.lines.envelopes.records import (
    SEVERAL,
    STREAMS,
    TEXT,
    TRACES,
    EnvelopeRecord,
    fill_record,
    level_of,
    order_records,
    time_of,
    who_of,
)
from nodedoctor.triage.lines.times import parse_time
from nodedoctor.triage.model import Identity
from nodedoctor.whole_numbers import json_integer

DEEPEST = 8
"""Levels of a document that are searched for texts."""
_PAIR = re.compile(r'^\s*"([@\w.]{1,40})"\s*:\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*)?$')
_CUT = re.compile(r'"(?:log|message|MESSAGE|msg|textPayload|body|line)"\s*:\s*"((?:[^"\\]|\\.)*)')
_DOCKER = {"log", "stream", "time", "attrs"}
"""docker's json-file alone writes the end of a line into its text, and none where it cut a line."""


def line_records(text: str) -> list[EnvelopeRecord] | None:
    """The records of one line that is a JSON object by itself; None for any other line."""
    body = text.strip().lstrip("\x1e,[").rstrip(",]") if text[:1] in "{[ ,\x1e\t" else text
    if not (body.startswith("{") and body.endswith("}")):
        cut = _CUT.search(body) if body.startswith('{"') else None
        return (
            [EnvelopeRecord(_unescape_text(cut[1]))] if cut else None
        )  # a collector cuts what is too long for it
    try:
        found = loaded(body, parse_int=json_integer)
    except ValueError:
        return None
    return order_records(_nested_records(found, Identity(), 0)) or None


def pair_text(text: str) -> EnvelopeRecord | None:
    """The text in one line of an object that is printed over several lines."""
    found = _PAIR.match(text)
    return EnvelopeRecord(loaded(found[2], strict=False)) if found and found[1].lower() in TEXT else None


def document_records(data: bytes) -> list[EnvelopeRecord] | None:
    """The records of a JSON document; None when it is none, or holds no text of a log."""
    try:
        found = loaded(data.decode("utf-8", "replace"), parse_int=json_integer, strict=False)
    except ValueError:
        return None
    if isinstance(found, str):
        return [EnvelopeRecord(line) for line in found.rstrip("\n").split("\n")]
    return order_records(_nested_records(found, Identity(), 0)) or None


def is_document(head: str) -> bool:
    """Whether a file is one JSON document over several lines, or one without any line."""
    body = head.lstrip()
    if body[:1] == '"':
        return "\\n" in body and not _PAIR.match(body.split("\n", 1)[0])
    if body[:1] not in ("{", "["):
        return False
    if body[0] == "[" and body[1:].lstrip()[:1] not in ("{", "[", '"'):
        return False
    if body[0] == "{" and body[1:].lstrip()[:1] not in ('"', "}"):
        return False
    first = body.split("\n", 1)[0]
    return line_records(first) is None and _opens_document(first)


def _opens_document(first: str) -> bool:
    """True for a first line that ends inside of a document, or holds all of one."""
    stripped = first.strip()
    return stripped[-1:] in ("{", "[", ",") or stripped[-1:] in ("}", "]") or len(stripped) > 2000


def _nested_records(value: Any, who: Identity, depth: int) -> list[EnvelopeRecord]:
    """Every text in a document, in its order."""
    if depth > DEEPEST:
        return []
    if isinstance(value, list):
        return _list_records(value, who, depth)
    if not isinstance(value, dict):
        return []
    named = {str(key).lower(): item for key, item in value.items()}
    if _is_table(named):
        return list(table_records(_table_rows(named)))
    mine = who_of(named, who)
    text = next((item for name in TEXT if (item := _text_value(named.get(name)))), None)
    if text is not None and not _is_a_document(named):
        return list(object_records(text, named, mine))
    found: list[EnvelopeRecord] = []
    for name, item in value.items():
        if isinstance(item, dict) or (isinstance(item, list) and not _is_lines(item)):
            found += _nested_records(item, mine, depth + 1)
        else:
            known = str(name).lower() in (*TEXT, *STREAMS)
            found += [EnvelopeRecord(line, mine) for line in _text_lines(item, 1 if known else SEVERAL)]
    return [fill_record(entry, named) for entry in found] if len(found) == 1 else found


def has_streams(text: str) -> bool:
    """Whether a JSON text has a field for what a command printed."""
    return any(f'"{name}":' in text for name in STREAMS)


def _text_lines(value: Any, least: int = SEVERAL) -> list[str]:
    """The lines of a text of several, and of a list of lines: a whole log may stand in one field."""
    if isinstance(value, list) and _is_lines(value):
        value = "".join(line if line.endswith("\n") else line + "\n" for line in value)
    lines = value.rstrip("\n").split("\n") if isinstance(value, str) and value else []
    return [line.rstrip("\r") for line in lines] if len(lines) >= least else []


def _is_lines(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _text_value(value: Any) -> str:
    """A text; journald writes one with a control character in it as a list of bytes."""
    if isinstance(value, list) and value and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _is_a_document(named: Mapping[str, Any]) -> bool:
    """An answer of a service, with its own message beside a list of records."""
    return any(isinstance(item, list) and item and isinstance(item[0], dict) for item in named.values())


def object_records(text: str, named: Mapping[str, Any], who: Identity) -> Iterator[EnvelopeRecord]:
    """The records of an object with a text: what it says beside it holds for each line of the text."""
    time, level = time_of(named), level_of(named)
    if text.lstrip().startswith("{"):
        inner = line_records(text)
        if inner is not None:
            yield from (fill_record(entry, named) for entry in inner)
            return
    whole_line = not (_DOCKER >= named.keys() >= {"log", "stream", "time"}) or text.endswith("\n")
    stream = str(named.get("stream", ""))[:16] if "stream" in named else ""
    for line in text.rstrip("\n").split("\n"):
        yield EnvelopeRecord(line, who, time, level, whole_line, stream)
    for name in STREAMS:
        yield from (EnvelopeRecord(line, who, time, level) for line in _text_lines(named.get(name), 1))
    error = named.get("error")
    more = {**(error if isinstance(error, dict) else {}), **named}
    for name in TRACES:
        trace = more.get(name)
        if isinstance(trace, list) and all(isinstance(line, str) for line in trace):
            trace = "\n".join(trace)
        if isinstance(trace, str) and trace.strip() and trace.strip() not in text:
            yield from (EnvelopeRecord(line, who, time, level) for line in trace.rstrip("\n").split("\n"))


def _list_records(value: list[Any], who: Identity, depth: int) -> list[EnvelopeRecord]:
    """A list of records, or of pairs of a time and a text as Loki has them."""
    fields = [_named_field(item) for item in value]
    if fields and all(name for name, _ in fields):
        return _nested_records(dict(fields), who, depth + 1)
    if _is_lines(value):
        return [EnvelopeRecord(line, who) for line in _text_lines(value)]
    found: list[EnvelopeRecord] = []
    for item in value:
        if (
            isinstance(item, list)
            and len(item) in (2, 3)
            and isinstance(item[1], str)
            and parse_time(item[0])
        ):
            found += [
                EnvelopeRecord(line, who, parse_time(item[0])) for line in item[1].rstrip("\n").split("\n")
            ]
        elif isinstance(item, (dict, list)):
            found += _nested_records(item, who, depth + 1)
    return found


def _named_field(item: Any) -> tuple[str, Any]:
    """A field that is written as an object with its name and its value."""
    if isinstance(item, dict) and len(item) == 2 and "value" in item:
        name = next((text for key, text in item.items() if key != "value"), "")
        return (name, item["value"]) if isinstance(name, str) else ("", None)
    return "", None


def _is_table(named: Mapping[str, Any]) -> bool:
    return isinstance(named.get("columns"), list) and isinstance(named.get("rows"), list)


def _table_rows(named: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [str(item.get("name", "") if isinstance(item, dict) else item) for item in named["columns"]]
    for row in named["rows"]:
        if isinstance(row, list):
            yield ["" if cell is None else str(cell)[: 1 << 20] for cell in row]


def table_records(rows: Iterable[list[str]]) -> Iterator[EnvelopeRecord]:
    """The records of a table whose first row names the columns."""
    rows = iter(rows)
    names = list(map(column_name, next(rows, [])))
    found: list[EnvelopeRecord] = []
    for row in rows:
        named = dict(zip(names, row, strict=False))
        text = next((named[name] for name in TEXT if named.get(name)), "")
        if text:
            found += object_records(text, named, who_of(named, Identity()))
    yield from order_records(found)


def column_name(cell: str) -> str:
    """The name of a column; of a field within another, its own: `jsonPayload.message`."""
    return cell.strip().lower().rpartition(".")[2]


def _unescape_text(text: str) -> str:
    try:
        return str(loaded(f'"{text}"', strict=False))
    except ValueError:
        return text
