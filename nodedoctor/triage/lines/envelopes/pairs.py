"""Lines of `key=value`, of an element of XML, and texts in quotes."""

from __future__ import annotations

import ast
import html
import re

from nodedoctor.triage.lines.envelopes.objects import object_records
from nodedoctor.triage.lines.envelopes.records import TEXT, EnvelopeRecord, who_of
from nodedoctor.triage.model import Identity

_ELEMENT = re.compile(r"\s*<\w")
_OPENED = re.compile(r"<(message|msg|text|log|body|line|event)>")
_CLOSES = re.compile(r"[\s</>\w]*")
_QUOTED = re.compile(r"""b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")$""")
_FIELD = re.compile(r"""([\w.@-]{1,40})=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']*)(?: +|$)""")
_FIELDS = re.compile(r"""[\w.@-]{1,40}=(?:\S.*?)?(?<=[^\\])\b(?:msg|message|event|log|line|text)=["']""")


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
    name = next((name for name in TEXT if fields.get(name, "")[:1] in ("'", '"')), "")
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
