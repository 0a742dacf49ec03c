"""A triage document with stand-ins: hosts, paths, addresses, users and numbers of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import Json, as_list, mapping, objects, words
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction
from nodedoctor.redact.walk import every_text

_OURS = frozenset(
    [
        "schema",
        "outcome",
        "cause",
        "kind",
        "kinds_alike",
        "decision",
        "confidence",
        "owner",
        "state",
        "event",
        "op",
        "action",
        "time",
        "first",
        "last",
        "role",
        "fate",
        "reason",
    ]
)
"""Keys whose values are the tool's own words, the names of collectives, or times."""
_PEOPLE = ("culprits", "victims", "parties", "ranks")


def redacted_triage(document: Json) -> dict[str, Any]:
    """The document as it may be sent away; it is judged as before."""
    named = "".join(f'"hostname": "{host}"\n' for host in dict.fromkeys(_hosts(document)))
    quoted = "\n".join((named, *every_text(document)))
    redaction = Redaction.of([Observation("triage", text=quoted)], {})
    return {key: _replaced(value, key, redaction) for key, value in document.items()}


def _hosts(document: Json) -> Iterator[str]:
    """The hosts that the document itself names."""
    for part in (document, *objects(document.get("earlier"))):
        for key in _PEOPLE:
            yield from (words(who["host"]) for who in objects(part.get(key)) if who.get("host"))
    yield from map(words, as_list(document.get("exclude")))
    for silent in objects(mapping(document.get("coverage")).get("silent")):
        yield words(silent.get("host"))
    for part in (*objects(document.get("jobs")), *objects(document.get("standings"))):
        yield from map(words, as_list(part.get("hosts")))


def _replaced(value: Any, key: str, redaction: Redaction) -> Any:
    if isinstance(value, Mapping):
        return {name: _replaced(inner, name, redaction) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, key, redaction) for inner in value]
    if not isinstance(value, str) or key in _OURS:
        return value
    return redaction.document(value, {"id": "job", "hosts": "host", "exclude": "host"}.get(key, key))
