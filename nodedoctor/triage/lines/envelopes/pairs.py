"""Lines of `key=value`, of an element of XML, texts in quotes, and logs printed as lists of these."""

from __future__ import annotations

import ast
import html
import re
from collections import Counter
from collections.abc import Callable, Sequence

from nodedoctor.triage.lines.envelopes.field_names import TEXT, TRACES, EnvelopeRecord, who_of
from nodedoctor.triage.lines.envelopes.objects import object_records
from nodedoctor.triage.lines.prefix_pattern import FEWEST, NEARLY_ALL
from nodedoctor.triage.model import Identity

_ELEMENT = re.compile(r"\s*<\w")
_OPENED = re.compile(r"<(message|msg|text|log|body|line|event)>")
_CLOSES = re.compile(r"[\s</>\w]*")
_QUOTED = re.compile(r"""b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")$""")
_FIELD = re.compile(r"""([\w.@-]{1,40})=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']*)(?: +|$)""")
_FIELDS = re.compile(
    r"""[\w.@-]{1,40}=(?:\S.*?)?(?<=[^\\])\b(?:msg|message|event|log|line|text|exc|exception|exc_info)=["']"""
)


def has_text(text: str) -> bool:
    """Whether a text begins like a line of `key=value` with a text among the values."""
    return "=" in text[:40] and _FIELDS.match(text) is not None


def parse_fields(text: str) -> list[EnvelopeRecord] | None:
    """The record in a line of only `key=value` pairs; None for others."""
    if not _FIELDS.match(text):
        return None
    fields: dict[str, str] = {}
    end = 0
    while end < len(text) and (match := _FIELD.match(text, end)):
        fields.setdefault(match[1].lower(), match[2])
        end = match.end()
    name = next((name for name in (*TEXT, *TRACES) if fields.get(name, "")[:1] in ("'", '"')), "")
    if end < len(text) or not name:
        return None
    plain = {key: unquote_text(value) or value for key, value in fields.items()}
    return list(object_records(plain[name], plain, who_of(plain, Identity())))


def unquote_text(text: str) -> str | None:
    """The text in quotes, as Python and Go write it; None without quotes."""
    match = _QUOTED.match(text)
    if match is None:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def element_text(text: str) -> EnvelopeRecord | None:
    """The text in a line that is an element of XML; None for others."""
    element = _ELEMENT.match(text)
    opened = _OPENED.search(text, element.end()) if element else None
    closed = text.rfind(f"</{opened[1]}>") if opened else -1
    if opened is None or closed < opened.end() or not _CLOSES.fullmatch(text, closed):
        return None
    return EnvelopeRecord(html.unescape(text[opened.end() : closed]))


FIELDS = 0.8
"""Share of the lines that are fields of records, from which a log is a list of these. Ours."""
_EMPTY = re.compile(r"[\[\](){},]*|(?:- )?[\w-]+:|</?\w+>|[-=]{3,}")
"""What such a list has between its texts, blanks aside."""
_ITEM = re.compile(r"\s*(?:- )?(?P<text>b?(?:'.*'|\".*\")),?[\])]*\s*$")
_RECORD_FIELD = re.compile(
    r"\s*(?:- )?(?P<name>[@\w.]{1,40})(?:=|:(?: |$))(?P<value>(?![|>][+-]?$).*)$"
    r"|\s*<(?P<tag>\w{1,40})>(?P<inner>.*)</(?P=tag)>\s*$"
)


def list_line_reader(texts: Sequence[str]) -> Callable[[str], str | None] | None:
    """The function that takes log lines out of such a list; None for other logs."""
    rows = [text for text in texts if not _EMPTY.fullmatch(text.strip())]
    quoted = sum(_quoted_line(text) is not None for text in rows if text.lstrip()[:1] in "b'\"-")
    framed = quoted == len(rows) < len([text for text in texts if text.strip()])
    if quoted >= NEARLY_ALL * len(rows) and (quoted > FEWEST or (quoted and framed)):
        return lambda text: None if _EMPTY.fullmatch(text.strip()) else _quoted_line(text) or text
    names = Counter(name for text in rows if (name := _record_field(text)[0]))
    if sum(names.values()) < FIELDS * len(rows):
        return None
    item_starts = sum(text.lstrip().startswith("- ") for text in rows)
    item_starts += texts.count("---")  # documents of YAML
    sure = item_starts > 0 and sum(names.values()) == len(rows)  # records of YAML, each with one text
    alone = len(names) == 1 and all(_record_field(text)[1][:1] in ("'", '"') for text in rows)
    least = 1 if alone else min(item_starts, FEWEST + 1) if sure else FEWEST + 1
    name = next((name for name in TEXT if names[name] >= least > 0), "")
    beside = alone or any(
        count * 2 >= names[name] for other_name, count in names.items() if other_name != name
    )
    return (lambda text: _record_text(text, name)) if name and beside else None


_NUMBERED = re.compile(r"(?=.{6}\t) {0,5}(?P<cat>\d{1,6})\t|(?P<grep>\d{1,9})[:-](?=[^\s\d])")
"""The number of a line in front of it, as `cat -n` and `grep -n` print it (coreutils, GNU grep)."""


def without_line_numbers(texts: Sequence[str]) -> Callable[[str], str | None] | None:
    """The function that takes the numbers of lines off them; None where they have none."""
    matches = [_NUMBERED.match(text) for text in texts if text.strip()]
    numbers = [int(match["cat"] or match["grep"]) for match in matches if match]
    if len(numbers) <= FEWEST or len(numbers) < len(matches) or sorted({*numbers}) != numbers:
        return None
    return lambda text: _NUMBERED.sub("", text, count=1)


def _quoted_line(text: str) -> str | None:
    """A line as Python prints it in a list, or YAML."""
    match = _ITEM.match(text)
    return _quoted_value(match["text"]).rstrip("\r\n") if match else None


def _quoted_value(text: str) -> str:
    """The quoted text; YAML doubles the quote mark, Python uses the other one."""
    if len(text) > 2 and text[0] == text[-1] == "'" and "''" in text[1:-1]:
        return text[1:-1].replace("''", "'")
    value = unquote_text(text)
    return text if value is None else value


def _record_field(text: str) -> tuple[str, str]:
    match = _RECORD_FIELD.match(text)
    if match is None:
        return "", ""
    return (match["name"] or match["tag"]).lower(), match["value"] if match["name"] else match["inner"]


def _record_text(text: str, name: str) -> str | None:
    """The text of a record; None for its other fields."""
    if _EMPTY.fullmatch(text.strip()):
        return None
    field, value = _record_field(text)
    return None if field and field != name else _quoted_value(value.strip()) if field else text
