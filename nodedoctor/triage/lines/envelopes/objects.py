"""JSON: an object for each line, and documents with texts anywhere in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import loaded
from nodedoctor.triage.lines.envelopes.field_names import (
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
from nodedoctor.triage.lines.envelopes.numbers import with_numbers
from nodedoctor.triage.lines.times import parse_time
from nodedoctor.triage.model import Identity
from nodedoctor.whole_numbers import json_integer

DEEPEST = 8
"""Levels of a document that are searched for texts."""
_PAIR = re.compile(r'^\s*"([@\w.]{1,40})"\s*:\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*)?$')
_CUT_TEXT = re.compile(r'"(?:log|message|MESSAGE|msg|textPayload|body|line)"\s*:\s*"((?:[^"\\]|\\.)*)')
_DOCKER = {"log", "stream", "time", "attrs"}
"""docker's json-file alone writes the end of a line into its text, and none where it cut a line."""


def line_records(text: str) -> list[EnvelopeRecord] | None:
    """The records of a line that is a JSON object; None for any other."""
    body = text.strip().lstrip("\x1e,[").rstrip(",]") if text[:1] in "{[ ,\x1e\t" else text
    if not (body.startswith("{") and body.endswith("}")):
        cut_text = _CUT_TEXT.search(body) if body.startswith('{"') else None
        return (
            [EnvelopeRecord(_unescape_text(cut_text[1]))] if cut_text else None
        )  # a collector cuts what is too long for it
    try:
        value = loaded(body, parse_int=json_integer)
    except ValueError:
        return None
    return order_records(_nested_records(value, Identity(), 0)) or None


def pair_text(text: str) -> EnvelopeRecord | None:
    """The text in one line of an object that is printed over several lines."""
    match = _PAIR.match(text)
    return EnvelopeRecord(loaded(match[2], strict=False)) if match and match[1].lower() in TEXT else None


def document_records(data: bytes) -> list[EnvelopeRecord] | None:
    """The records of a JSON document; None for one without text of a log."""
    try:
        document = loaded(data.decode("utf-8", "replace"), parse_int=json_integer, strict=False)
    except ValueError:
        return None
    if isinstance(document, str):
        return [EnvelopeRecord(line) for line in document.rstrip("\n").split("\n")]
    return order_records(_nested_records(document, Identity(), 0)) or None


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
    """True for a first line that ends inside a document or holds all of it."""
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
    fields = {str(key).lower(): item for key, item in value.items()}
    if _is_table(fields):
        return list(table_records(_table_rows(fields)))
    mine = who_of(fields, who)
    text = next((item for name in TEXT if (item := _text_value(fields.get(name)))), None)
    if text is not None and not _is_a_document(fields):
        return list(object_records(text, fields, mine))
    records: list[EnvelopeRecord] = []
    for name, item in value.items():
        if isinstance(item, dict) or (isinstance(item, list) and not _is_lines(item)):
            records += _nested_records(item, mine, depth + 1)
        else:
            is_text_field = str(name).lower() in (*TEXT, *STREAMS)
            records += [
                EnvelopeRecord(line, mine) for line in _text_lines(item, 1 if is_text_field else SEVERAL)
            ]
    return [fill_record(entry, fields) for entry in records] if len(records) == 1 else records


def has_streams(text: str) -> bool:
    """Whether a JSON text has a field for what a command printed."""
    return any(f'"{name}":' in text for name in STREAMS)


def _text_lines(value: Any, least: int = SEVERAL) -> list[str]:
    """The lines of a text or a list: one field may hold a whole log."""
    if isinstance(value, list) and _is_lines(value):
        value = "".join(line if line.endswith("\n") else line + "\n" for line in value)
    lines = value.rstrip("\n").split("\n") if isinstance(value, str) and value else []
    return [line.rstrip("\r") for line in lines] if len(lines) >= least else []


def _is_lines(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _text_value(value: Any) -> str:
    """A text; journald writes one with control characters as a list of bytes."""
    if isinstance(value, list) and value and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _is_a_document(fields: Mapping[str, Any]) -> bool:
    """An answer of a service, with its own message beside a list of records."""
    return any(
        isinstance(item, list) and item and isinstance(item[0], dict)
        for name, item in fields.items()
        if name not in _ERROR_FIELDS
    )


def object_records(text: str, fields: Mapping[str, Any], who: Identity) -> Iterator[EnvelopeRecord]:
    """The records of an object with a text, each with the object's other fields."""
    time, level = time_of(fields), level_of(fields)
    if text.lstrip().startswith("{"):
        inner = line_records(text)
        if inner is not None:
            yield from (fill_record(entry, fields) for entry in inner)
            return
    whole_line = not (_DOCKER >= fields.keys() >= {"log", "stream", "time"}) or text.endswith("\n")
    stream = str(fields.get("stream", ""))[:16] if "stream" in fields else ""
    lines = text.rstrip("\n").split("\n")
    for line in lines if lines[1:] else [with_numbers(lines[0], fields)]:
        yield EnvelopeRecord(line, who, time, level, whole_line, stream)
    for name in STREAMS:
        yield from (EnvelopeRecord(line, who, time, level) for line in _text_lines(fields.get(name), 1))
    error = fields.get("error")
    more = {**(error if isinstance(error, dict) else {}), **fields}
    for name in TRACES:
        trace = more.get(name)
        if isinstance(trace, list) and all(isinstance(line, str) for line in trace):
            trace = "\n".join(trace)
        if isinstance(trace, str) and trace.strip() and trace.strip() not in text:
            yield from (EnvelopeRecord(line, who, time, level) for line in trace.rstrip("\n").split("\n"))
    for raised in _structured_errors(fields):
        if raised not in text:
            yield EnvelopeRecord(raised, who, time, level)


_ERROR_FIELDS = ("error", "err", "exception", "exc_info", "exc")
_CLASS = ("type", "exc_type", "exception.type", "class", "kind")
_MESSAGE = ("message", "exc_value", "exception.message", "value", "msg")
"""How loggers take an error apart: structlog's dict_tracebacks, OpenTelemetry's attributes, ECS."""


def _structured_errors(fields: Mapping[str, Any]) -> Iterator[str]:
    """The errors that an object keeps with class and message in fields of their own, as Python prints one."""
    holders = [fields.get(name) for name in _ERROR_FIELDS]
    attributes = fields.get("attributes")
    for holder in (fields, attributes, *holders):
        items = holder if isinstance(holder, list) else [holder]
        for item in items:
            if not isinstance(item, dict):
                continue
            names = [name for name in _CLASS if item is not fields or "." in name]
            error = next((item[name] for name in names if isinstance(item.get(name), str)), "")
            message = next((item[name] for name in _MESSAGE if isinstance(item.get(name), str)), "")
            if error and message and _ERROR_CLASS.search(error):
                yield f"{error}: {message}"


_ERROR_CLASS = re.compile(r"(?:Error|Exception|Exit|Interrupt|Timeout)$")


def _list_records(value: list[Any], who: Identity, depth: int) -> list[EnvelopeRecord]:
    """The records of a list, of objects or of Loki's pairs of time and text."""
    fields = [_named_field(item) for item in value]
    if fields and all(name for name, _ in fields):
        return _nested_records(dict(fields), who, depth + 1)
    if _is_lines(value):
        return [EnvelopeRecord(line, who) for line in _text_lines(value)]
    records: list[EnvelopeRecord] = []
    for item in value:
        if (
            isinstance(item, list)
            and len(item) in (2, 3)
            and isinstance(item[1], str)
            and parse_time(item[0])
        ):
            records += [
                EnvelopeRecord(line, who, parse_time(item[0])) for line in item[1].rstrip("\n").split("\n")
            ]
        elif isinstance(item, (dict, list)):
            records += _nested_records(item, who, depth + 1)
    return records


def _named_field(item: Any) -> tuple[str, Any]:
    """A field that is written as an object with its name and its value."""
    if isinstance(item, dict) and len(item) == 2 and "value" in item:
        name = next((text for key, text in item.items() if key != "value"), "")
        return (name, item["value"]) if isinstance(name, str) else ("", None)
    return "", None


def _is_table(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("columns"), list) and isinstance(fields.get("rows"), list)


def _table_rows(table: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [str(item.get("name", "") if isinstance(item, dict) else item) for item in table["columns"]]
    for row in table["rows"]:
        if isinstance(row, list):
            yield ["" if cell is None else str(cell)[: 1 << 20] for cell in row]


def table_records(rows: Iterable[list[str]]) -> Iterator[EnvelopeRecord]:
    """The records of a table whose first row names the columns."""
    rows = iter(rows)
    names = list(map(column_name, next(rows, [])))
    records: list[EnvelopeRecord] = []
    for row in rows:
        fields = dict(zip(names, row, strict=False))
        text = next((fields[name] for name in TEXT if fields.get(name)), "")
        if text:
            records += object_records(text, fields, who_of(fields, Identity()))
    yield from order_records(records)


def column_name(cell: str) -> str:
    """The name of a column; of a field within another, its own: `jsonPayload.message`."""
    return cell.strip().lower().rpartition(".")[2]


def _unescape_text(text: str) -> str:
    try:
        return str(loaded(f'"{text}"', strict=False))
    except ValueError:
        return text
