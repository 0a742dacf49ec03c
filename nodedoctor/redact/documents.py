"""Documents about many nodes (of a fleet or of pairs) and of triage, with stand-ins for what names them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import Json, as_list, mapping, objects, words
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction

_NAMING = """
host hostname alias
hosts odd pair nodes smallest next seen_once failing passing unjudged"""
_NAMES = frozenset(_NAMING.split())
"""Keys under which the names of nodes are, alone or in lists."""
_OF_THE_TOOL = """
schema tool source verdict status state fault mode what action owner started kind probe role schedulable
interface severity key check"""
_OURS = frozenset(_OF_THE_TOOL.split())
"""Keys whose values are the tool's own words, times, or names that every node has alike."""
_OF_TRIAGE = """
schema outcome cause kind kinds_alike decision confidence owner state event op action time first last role
fate reason"""
_OURS_OF_TRIAGE = frozenset(_OF_TRIAGE.split())
"""Keys whose values are the tool's own words, the names of collectives, or times."""
_PEOPLE = ("culprits", "victims", "parties", "ranks")


def every_text(value: Any, *, keys: bool = False) -> Iterator[str]:
    """Every text as it is, and as JSON has it; with `keys` also the keys of objects."""
    if isinstance(value, str):
        yield value
        yield json.dumps(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if keys:
                yield str(key)
            yield from every_text(inner, keys=keys)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from every_text(inner, keys=keys)


def redacted_nodes(document: Json) -> dict[str, Any]:
    """The document as it may be sent away: nodes, switches, users, addresses and serials have stand-ins."""
    hosts = dict.fromkeys(name.rpartition("@")[2] for name in _texts_under(document, _NAMES))
    leaves = dict.fromkeys(_texts_under(document, frozenset(["leaf"])))
    lines = "".join(f'"hostname": {json.dumps(name)}\n' for name in hosts)
    lines += "".join(f'"ClusterName": {json.dumps(name)}\n' for name in leaves)
    texts = "\n".join((lines, *every_text(document, keys=True)))
    # Taken for what `net` says: every dotted quad in such a document is an address.
    redaction = Redaction.of([Observation("net", text=texts)], {})

    def stand_in(value: str, key: str) -> str:
        if key in _OURS:
            return value
        if key in _NAMES:
            user, at, host = value.rpartition("@")
            return f"{redaction.document(user, 'user')}{at}{redaction.document(host, 'host')}"
        return str(redaction.document(value, {"leaf": "ClusterName"}.get(key, key)))

    return {key: _replace_texts(value, key, stand_in, redaction.text) for key, value in document.items()}


def _texts_under(value: Any, keys: frozenset[str], inside: bool = False) -> Iterator[str]:
    """Every text under one of these keys."""
    if isinstance(value, str):
        if inside:
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts_under(inner, keys, key in keys and not isinstance(inner, Mapping))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_under(inner, keys, inside)


def redacted_triage(document: Json) -> dict[str, Any]:
    """The document as it may be sent away; it is judged as before."""
    lines = "".join(f'"hostname": "{host}"\n' for host in dict.fromkeys(_document_hosts(document)))
    quoted = "\n".join((lines, *every_text(document)))
    redaction = Redaction.of([Observation("triage", text=quoted)], {})

    def stand_in(value: str, key: str) -> str:
        if key in _OURS_OF_TRIAGE:
            return value
        return str(redaction.document(value, {"id": "job", "hosts": "host", "exclude": "host"}.get(key, key)))

    return {key: _replace_texts(value, key, stand_in, str) for key, value in document.items()}


def _document_hosts(document: Json) -> Iterator[str]:
    """The hosts that the document itself names."""
    for part in (document, *objects(document.get("earlier"))):
        for key in _PEOPLE:
            yield from (words(who["host"]) for who in objects(part.get(key)) if who.get("host"))
    yield from map(words, as_list(document.get("exclude")))
    for silent in objects(mapping(document.get("coverage")).get("silent")):
        yield words(silent.get("host"))
    for part in (*objects(document.get("jobs")), *objects(document.get("standings"))):
        yield from map(words, as_list(part.get("hosts")))


def _replace_texts(
    value: Any, key: str, stand_in: Callable[[str, str], str], rename: Callable[[str], str]
) -> Any:
    """A value with `stand_in` for each text in it by its key, and `rename` for the keys of objects."""
    if isinstance(value, Mapping):
        return {rename(name): _replace_texts(inner, name, stand_in, rename) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_texts(inner, key, stand_in, rename) for inner in value]
    return stand_in(value, key) if isinstance(value, str) else value
