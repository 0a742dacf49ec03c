"""A document about many nodes (of a fleet or of pairs) with stand-ins for what names them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import Json
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction
from nodedoctor.redact.walk import every_text

_ALONE = frozenset(["host", "hostname", "alias"])
_LISTED = ("hosts", "odd", "pair", "nodes", "smallest", "next", "seen_once", "failing", "passing", "unjudged")
_NAMES = _ALONE.union(_LISTED)
"""Keys under which the names of nodes stand, alone or in lists."""
_OURS = frozenset(
    [
        "schema",
        "tool",
        "source",
        "verdict",
        "status",
        "state",
        "fault",
        "mode",
        "what",
        "action",
        "owner",
        "started",
        "kind",
        "probe",
        "role",
        "schedulable",
        "interface",
        "severity",
        "key",
        "check",
    ]
)
"""Keys whose values are the tool's own words, times, or names that every node has alike."""


def redacted_nodes(document: Json) -> dict[str, Any]:
    """The document as it may be sent away: nodes, switches, users, addresses and serials have stand-ins."""
    hosts = dict.fromkeys(name.rpartition("@")[2] for name in _under(document, _NAMES))
    leaves = dict.fromkeys(_under(document, frozenset(["leaf"])))
    named = "".join(f'"hostname": {json.dumps(name)}\n' for name in hosts)
    named += "".join(f'"ClusterName": {json.dumps(name)}\n' for name in leaves)
    texts = "\n".join((named, *every_text(document, keys=True)))
    # Taken for what `net` says: every dotted quad in such a document is an address.
    redaction = Redaction.of([Observation("net", text=texts)], {})
    return {key: _replaced(value, key, redaction) for key, value in document.items()}


def _under(value: Any, keys: frozenset[str], inside: bool = False) -> Iterator[str]:
    """Every text under one of these keys."""
    if isinstance(value, str):
        if inside:
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _under(inner, keys, key in keys and not isinstance(inner, Mapping))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _under(inner, keys, inside)


def _replaced(value: Any, key: str, redaction: Redaction) -> Any:
    if isinstance(value, Mapping):
        return {redaction.text(name): _replaced(inner, name, redaction) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, key, redaction) for inner in value]
    if not isinstance(value, str) or key in _OURS:
        return value
    if key in _NAMES:
        user, at, host = value.rpartition("@")
        return f"{redaction.document(user, 'user')}{at}{redaction.document(host, 'host')}"
    return redaction.document(value, {"leaf": "ClusterName"}.get(key, key))
