"""JSON without importing json, whose import takes longer than reading the files of a typical probe."""

from __future__ import annotations

from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def dumps(value: Any) -> str:
    """Text, numbers, truth, None, lists and dictionaries with text keys (sorted), as ASCII on one line."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        pairs = (f"{encode_basestring_ascii(key)}: {dumps(value[key])}" for key in sorted(value))
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return repr(value)


def members(value: Any) -> int:
    """How many members lists and objects have, those within each other included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(1 + members(member) for member in inner)


def with_count(document: dict[str, Any]) -> dict[str, Any]:
    """A document that says how many members it has: one that lost some later is read as cut off."""
    return {**document, "members": members(document)}
