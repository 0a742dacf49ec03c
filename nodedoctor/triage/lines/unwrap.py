"""Collectors put every line into an envelope: JSON of any logger, tables, journald's export.

No logger has a case of its own: an envelope is an object with a text under one of the usual names, wherever
it stands in a document, and beside it maybe a time, a host, a severity, a rank and a process.
"""

from __future__ import annotations

import ast
import csv
import html
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from nodedoctor.json_shapes import loaded
from nodedoctor.record import record
from nodedoctor.triage.lines.times import moment
from nodedoctor.triage.model import LARGEST_PID, LARGEST_WORLD, Who
from nodedoctor.whole_numbers import json_integer, whole

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a JSON document that is parsed as a whole; of a larger one, each line by itself."""
DEEPEST = 8
"""Levels of a document that are searched for texts."""

TEXT = (
    "log", "message", "msg", "textpayload", "@message", "body", "line", "event", "_raw", "short_message",
    "text", "full_message", "logmessage", "log_message", "log_s", "content", "output", "rendered",
    "stringvalue",
)  # fmt: skip
"""Names under which loggers and collectors keep the text, the surest first; case does not matter."""
STREAMS = ("stdout_lines", "stderr_lines", "stdout", "stderr", "logs", "log_tail")
"""Names under which what runs a command keeps the lines that it printed, beside a text of its own."""
SEVERAL = 3
"""Lines that make a text a log, whatever it is called."""
TRACES = ("exc_info", "exception", "exc_text", "stack_trace", "stacktrace", "traceback", "stack_info")
_TIME = (
    "asctime", "time", "timestamp", "@timestamp", "ts", "datetime", "date", "timegenerated", "@t",
    "_source_realtime_timestamp", "__realtime_timestamp", "timeunixnano", "timestampunixnano", "_time",
)  # fmt: skip
_HOST = (
    "hostname", "_hostname", "host", "pod_name", "podname", "pod", "node_name", "node", "computer",
    "instance",    "podname_s", "logstreamname", "container_name",
)  # fmt: skip
_LEVEL = ("levelname", "level", "severity", "priority", "loglevel", "severitytext", "@l", "log.level")
_RANK = ("rank", "global_rank", "rank_id")
_LEVELS = {
    "d": "D", "t": "D", "i": "I", "n": "I", "w": "W", "e": "E", "f": "F", "c": "F", "a": "F",
    "10": "D", "20": "I", "30": "W", "40": "E", "50": "F",
    "0": "F", "1": "F", "2": "F", "3": "E", "4": "W", "5": "I", "6": "I", "7": "D",
}  # fmt: skip
"""First letters of severities, the numbers of logging and those of syslog."""
_PAIR = re.compile(r'^\s*"([@\w.]{1,40})"\s*:\s*("(?:[^"\\]|\\.)*")\s*,?\s*$')
_TAGGED = re.compile(r"\s*<\w.*?<(message|msg|text|log|body|line|event)>(.*)</\1>[\s</>\w]*$")
_CUT = re.compile(r'"(?:log|message|MESSAGE|msg|textPayload|body|line)"\s*:\s*"((?:[^"\\]|\\.)*)')


_QUOTED = re.compile(r"""b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")$""")
_FIELD = re.compile(r"""([\w.@-]{1,40})=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']*)(?: +|$)""")
_FIELDS = re.compile(r"""[\w.@-]{1,40}=(?:\S.*?)?(?<=[^\\])\b(?:msg|message|event|log|line|text)=["']""")

_DOCKER = {"log", "stream", "time", "attrs"}
"""docker's json-file alone writes the end of a line into its text, and none where it cut a line."""


@record
class Record:
    """The text of one envelope and what it says beside it; not `whole` when the text goes on in the next."""

    text: str
    who: Who = Who()
    time: float | None = None
    level: str = ""
    whole: bool = True


def one(text: str) -> list[Record] | None:
    """The records of one line that is a JSON object by itself; None for any other line."""
    body = text.strip().lstrip("\x1e,[").rstrip(",]") if text[:1] in "{[ ,\x1e\t" else text
    if not (body.startswith("{") and body.endswith("}")):
        cut = _CUT.search(body) if body.startswith('{"') else None
        return [Record(_unescaped(cut[1]))] if cut else None  # a collector cuts what is too long for it
    try:
        found = loaded(body, parse_int=json_integer)
    except (ValueError, RecursionError):
        return None
    return _ordered(_records(found, Who(), 0)) or None


def fields(text: str) -> list[Record] | None:
    """The record in a line of nothing but `key=value` pairs, one of them a quoted text; None for others."""
    if not _FIELDS.match(text):
        return None
    named: dict[str, str] = {}
    end = 0
    while end < len(text) and (found := _FIELD.match(text, end)):
        named.setdefault(found[1].lower(), found[2])
        end = found.end()
    name = next((name for name in TEXT if named.get(name, "")[:1] in ("'", '"')), "")
    if end < len(text) or not name:
        return None
    plain = {key: unquoted(value) or value for key, value in named.items()}
    return list(_said(plain[name], plain, _who(plain, Who())))


def unquoted(text: str) -> str | None:
    """What stands in quotes, as Python and Go write them; None for a text that is not one quoted thing."""
    found = _QUOTED.match(text)
    if found is None:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def pair(text: str) -> Record | None:
    """The text in one line of an object that is printed over several lines."""
    found = _PAIR.match(text)
    return Record(loaded(found[2], strict=False)) if found and found[1].lower() in TEXT else None


def document(data: bytes) -> list[Record] | None:
    """The records of a JSON document; None when it is none, or holds no text of a log."""
    try:
        found = loaded(data.decode("utf-8", "replace"), parse_int=json_integer, strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, str):
        return [Record(line) for line in found.rstrip("\n").split("\n")]
    return _ordered(_records(found, Who(), 0)) or None


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
    return one(first) is None and _opens(first)


def _opens(first: str) -> bool:
    """True for a first line that ends inside of a document, or holds all of one."""
    stripped = first.strip()
    return stripped[-1:] in ("{", "[", ",") or stripped[-1:] in ("}", "]") or len(stripped) > 2000


def _records(value: Any, who: Who, depth: int) -> list[Record]:
    """Every text in a document, in its order."""
    if depth > DEEPEST:
        return []
    if isinstance(value, list):
        return _listed(value, who, depth)
    if not isinstance(value, dict):
        return []
    named = {str(key).lower(): item for key, item in value.items()}
    if _is_table(named):
        return list(table(_rows(named)))
    mine = _who(named, who)
    text = next((item for name in TEXT if (item := _text(named.get(name)))), None)
    if text is not None and not _is_a_document(named):
        return list(_said(text, named, mine))
    found: list[Record] = []
    for name, item in value.items():
        if isinstance(item, dict) or (isinstance(item, list) and not _is_lines(item)):
            found += _records(item, mine, depth + 1)
        else:
            known = str(name).lower() in (*TEXT, *STREAMS)
            found += [Record(line, mine) for line in _lines(item, 1 if known else SEVERAL)]
    return [_filled(entry, named) for entry in found] if len(found) == 1 else found


def has_streams(text: str) -> bool:
    """Whether a JSON text has a field for what a command printed."""
    return any(f'"{name}":' in text for name in STREAMS)


def _lines(value: Any, least: int = SEVERAL) -> list[str]:
    """The lines of a text of several, and of a list of lines: a whole log may stand in one field."""
    if isinstance(value, list) and _is_lines(value):
        value = "".join(line if line.endswith("\n") else line + "\n" for line in value)
    lines = value.rstrip("\n").split("\n") if isinstance(value, str) and value else []
    return [line.rstrip("\r") for line in lines] if len(lines) >= least else []


def _is_lines(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _text(value: Any) -> str:
    """A text; journald writes one with a control character in it as a list of bytes."""
    if isinstance(value, list) and value and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _is_a_document(named: Mapping[str, Any]) -> bool:
    """An answer of a service, with its own message beside a list of records."""
    return any(isinstance(item, list) and item and isinstance(item[0], dict) for item in named.values())


def _said(text: str, named: Mapping[str, Any], who: Who) -> Iterator[Record]:
    time, level = _when(named), _level(named)
    if text.lstrip().startswith("{"):
        inner = one(text)
        if inner is not None:
            yield from (_filled(entry, named) for entry in inner)
            return
    whole_line = not (_DOCKER >= named.keys() >= {"log", "stream", "time"}) or text.endswith("\n")
    for line in text.rstrip("\n").split("\n"):
        yield Record(line, who, time, level, whole_line)
    for name in STREAMS:
        yield from (Record(line, who, time, level) for line in _lines(named.get(name), 1))
    error = named.get("error")
    more = {**(error if isinstance(error, dict) else {}), **named}
    for name in TRACES:
        trace = more.get(name)
        if isinstance(trace, list) and all(isinstance(line, str) for line in trace):
            trace = "\n".join(trace)
        if isinstance(trace, str) and trace.strip() and trace.strip() not in text:
            yield from (Record(line, who, time, level) for line in trace.rstrip("\n").split("\n"))


def _filled(entry: Record, named: Mapping[str, Any]) -> Record:
    time = entry.time if entry.time is not None else _when(named)
    return Record(entry.text, entry.who, time, entry.level or _level(named), entry.whole)


def _listed(value: list[Any], who: Who, depth: int) -> list[Record]:
    """A list of records, or of pairs of a time and a text as Loki has them."""
    fields = [_field(item) for item in value]
    if fields and all(name for name, _ in fields):
        return _records(dict(fields), who, depth + 1)
    if _is_lines(value):
        return [Record(line, who) for line in _lines(value)]
    found: list[Record] = []
    for item in value:
        if isinstance(item, list) and len(item) in (2, 3) and isinstance(item[1], str) and moment(item[0]):
            found += [Record(line, who, moment(item[0])) for line in item[1].rstrip("\n").split("\n")]
        elif isinstance(item, (dict, list)):
            found += _records(item, who, depth + 1)
    return found


def _field(item: Any) -> tuple[str, Any]:
    """A field that is written as an object with its name and its value."""
    if isinstance(item, dict) and len(item) == 2 and "value" in item:
        name = next((text for key, text in item.items() if key != "value"), "")
        return (name, item["value"]) if isinstance(name, str) else ("", None)
    return "", None


def _is_table(named: Mapping[str, Any]) -> bool:
    return isinstance(named.get("columns"), list) and isinstance(named.get("rows"), list)


def _rows(named: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [str(item.get("name", "") if isinstance(item, dict) else item) for item in named["columns"]]
    for row in named["rows"]:
        if isinstance(row, list):
            yield ["" if cell is None else str(cell)[: 1 << 20] for cell in row]


def _ordered(found: list[Record]) -> list[Record]:
    """Consoles of clouds show the newest first: turned round when the times only fall."""
    times = [entry.time for entry in found if entry.time is not None]
    if len(times) > 1 and times[0] > times[-1] and all(a >= b for a, b in pairwise(times)):
        return _turned(found)
    return found


def _turned(found: list[Record]) -> list[Record]:
    """Newest last; lines of one text, which share its time, stay in their order."""
    groups: list[list[Record]] = []
    for entry in found:
        if groups and groups[-1][0].time == entry.time and entry.time is not None:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [entry for group in reversed(groups) for entry in group]


def _who(named: Mapping[str, Any], known: Who) -> Who:
    """Identity from the fields of an object, and of those in it that describe it."""
    fields = dict(named)
    for item in named.values():
        if isinstance(item, dict):
            for key, inner in item.items():
                fields.setdefault(str(key).lower(), inner)
                if isinstance(inner, dict):
                    fields.update(
                        {str(k).lower(): v for k, v in inner.items() if str(k).lower() not in fields}
                    )
    host = next((item for name in _HOST if isinstance(item := fields.get(name), str) and item), None)
    rank = next((n for name in _RANK if (n := whole(fields.get(name), LARGEST_WORLD - 1)) is not None), None)
    pid = next((n for name in ("_pid", "pid") if (n := whole(fields.get(name), LARGEST_PID))), None)
    told = Who(
        rank=rank,
        local_rank=whole(fields.get("local_rank"), LARGEST_WORLD - 1),
        host=host[:200] if host else None,
        pid=pid if rank is not None else None,  # else it may be the launcher's, who speaks for all ranks
    )
    return told.filled(known)


def _level(named: Mapping[str, Any]) -> str:
    for name in _LEVEL:
        item = named.get(name)
        if isinstance(item, dict):
            item = item.get("name")
        word = str(item).lower() if isinstance(item, (str, int)) else ""
        if word:
            return _LEVELS.get(word, _LEVELS.get(word[:1], ""))
    return ""


def _when(named: Mapping[str, Any]) -> float | None:
    return next((found for name in _TIME if (found := moment(named.get(name))) is not None), None)


def table(rows: Iterable[list[str]]) -> Iterator[Record]:
    """The records of a table whose first row names the columns."""
    rows = iter(rows)
    names = list(map(_column, next(rows, [])))
    found: list[Record] = []
    for row in rows:
        named = dict(zip(names, row, strict=False))
        text = next((named[name] for name in TEXT if named.get(name)), "")
        if text:
            found += _said(text, named, _who(named, Who()))
    yield from _ordered(found)


def _column(cell: str) -> str:
    """The name of a column; of a field within another, its own: `jsonPayload.message`."""
    return cell.strip().lower().rpartition(".")[2]


def rows(data: bytes, mark: str) -> Iterator[list[str]]:
    """The rows of a table with this separator; a cell may hold several lines."""
    csv.field_size_limit(1 << 24)
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "")
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    except csv.Error:
        return


LONGEST_HEADING = 4096
"""Characters of the first line of a table, at most."""


def separator(head: str) -> str:
    """What separates the columns of a table that begins like this; '' when it is none."""
    first, _, rest = head.partition("\n")
    if len(first) > LONGEST_HEADING or "\r" in first.rstrip("\r"):  # bars that are drawn again and again
        return ""
    for mark in (",", "\t", ";"):
        names = list(map(_column, next(csv.reader([first], delimiter=mark), [])))
        if len(names) > 1 and any(name in TEXT for name in names) and all(len(name) < 40 for name in names):
            row = _first_row(rest, mark)
            return mark if abs(len(row) - len(names)) < 2 else ""
    return ""


def _first_row(text: str, mark: str) -> list[str]:
    """The cells of a table's first row; none when the text is no table."""
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=mark), [])
    except csv.Error:
        return []


_MARKS = ("\u2028", "<br>", "<br/>", "<br />", "\\n")
"""What ends lines in a text that was copied out of a page, a database or a program's answer."""


def mark_of_lines(head: str) -> str:
    """What ends the lines of a log that has hardly any line feed; '' where line feeds do."""
    rows = head.rstrip().count("\n")
    if '{"' in head[:1000]:  # an envelope, which holds its text as it likes
        return ""
    if rows == 0 and unquoted(head.strip()) is not None:
        return "\\n"
    for mark in _MARKS:
        count = head.count(mark)
        if count >= SEVERAL and (rows == 0 if mark == "\\n" else count > 4 * rows):
            return mark
    return ""


def marked_lines(text: str, mark: str) -> Iterator[Record]:
    """The lines of such a log."""
    value = unquoted(text.strip()) if mark == "\\n" else None
    lines = text.replace(mark, "\n") if value is None else value
    yield from (Record(line.rstrip("\r")) for line in lines.rstrip("\n").split("\n"))


def is_screen(head: str) -> bool:
    """Whether this is a recorded terminal of asciinema, version 2 or 3."""
    return bool(re.match(r'\{(?=[^\n]*"version": ?[23]\b)(?=[^\n]*"(?:width|term)")[^\n]*\}\s*\n\[', head))


def screen(data: bytes) -> Iterator[Record]:
    """The lines that a recorded terminal showed: what was written stands there piece by piece."""
    shown: list[str] = []
    for row in data.split(b"\n")[1:]:
        try:
            event = loaded(row, parse_int=json_integer)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, list) and event[1:2] == ["o"] and isinstance(event[-1], str):
            shown.append(event[-1])
    yield from (Record(line.rstrip("\r")) for line in "".join(shown).split("\n"))


def is_journal(head: str) -> bool:
    """Whether this is what `journalctl -o export` prints."""
    return bool(re.match(r"__CURSOR=|__REALTIME_TIMESTAMP=", head))


def journal(data: bytes) -> Iterator[Record]:
    """The records of a journal export; a text of several lines has its length in front, in eight bytes."""
    fields: dict[str, Any] = {}
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        name, found, value = data[position:end].decode("utf-8", "replace").partition("=")
        position = end + 1
        if not name and not found:
            yield from _entry(fields)
            fields = {}
        elif found:
            fields[name.lower()] = value
        else:
            size = int.from_bytes(data[position : position + 8], "little")
            fields[name.lower()] = data[position + 8 : position + 8 + size].decode("utf-8", "replace")
            position += 9 + size
    yield from _entry(fields)


def _entry(fields: Mapping[str, Any]) -> Iterator[Record]:
    text = fields.get("message")
    if isinstance(text, str):
        yield from _said(text, fields, _who(fields, Who()))


def tagged(text: str) -> Record | None:
    """The text in a line that is an element of XML; None for others."""
    found = _TAGGED.match(text)
    return Record(html.unescape(found[2])) if found else None


def _unescaped(text: str) -> str:
    try:
        return str(loaded(f'"{text}"', strict=False))
    except ValueError:
        return text
