"""Many nodes as one JSON document, `nodedoctor.fleet/1`; within /1 keys are only ever added.

`document` makes it, and `fleet_of` takes it back: views show what it holds and nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any, get_args

from nodedoctor.fleet.compare.causes import SharedCause, shared_causes
from nodedoctor.fleet.compare.outliers import kinds
from nodedoctor.fleet.model import Fleet, Node, NodeCause, NodeState, Oddity, Problem, ValueGroup
from nodedoctor.model import Status
from nodedoctor.nodeset import expand, fold, natural_key

SCHEMA = "nodedoctor.fleet/1"

_RANK = {Status.FAIL: 5, Status.UNKNOWN: 4, Status.WARN: 3, Status.PASS: 1, Status.SKIP: 0}
_PROBLEMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)
_KEYS: Mapping[type, tuple[str, ...]] = {
    Node: (
        *("host", "state", "note", "verdict", "seconds", "started", "tool", "gpus", "hostname", "boot_id"),
        *("uptime", "serials", "name", "counts", "traits", "readings", "peers", "report", "cause", "gate"),
        *("replayed", "causes", "problems"),
    ),
    NodeCause: (
        *("check", "status", "said", "command", "explains", "headline", "owner", "action", "subjects"),
        "preview",
    ),
    Problem: (
        *("id", "check", "title", "subject", "status", "severity", "reason", "summary", "action", "fix"),
        "preview",
    ),
    Oddity: ("key", "title", "status", "summary", "why", "fix", "majority", "groups", "odd"),
}
"""What the document tells of each noun, in this order; a key has the name of what it tells."""
_NULL_IF_EMPTY = frozenset({"command", "subject", "reason", "fix", "report", "cause"})
_DERIVED = frozenset({"id", "severity", "name"})
"""Keys that follow from others: readers of the document need them, the nouns do not."""


def document(fleet: Fleet) -> dict[str, Any]:
    """The fleet as plain data, worst first."""
    nodes = fleet.worst_first()
    tables, places = _shared_tables(nodes)
    return {
        "schema": SCHEMA,
        "tool": fleet.tool,
        "source": fleet.source,
        "started": fleet.started,
        "seconds": fleet.seconds,
        "verdict": fleet.verdict.value,
        "counts": counts(fleet.nodes),
        "passing": fold(fleet.passing),
        "failing": fold(fleet.failing),
        "unjudged": fold(fleet.unjudged),
        "gated": fleet.gated,
        "kinds": [
            {"kind": kind, "nodes": fold(hosts), "count": len(hosts)}
            for kind, hosts in kinds_of(fleet).items()
        ],
        "causes": [_shared_cause(group) for group in shared_causes(nodes)],
        "oddities": [_noun_data(oddity) for oddity in fleet.oddities],
        "checks": checks(fleet),
        "statuses": tables,
        "nodes": [{**entry(node), "statuses": places[id(node.statuses)]} for node in nodes],
    }


def fleet_of(data: Mapping[str, Any]) -> Fleet:
    """The fleet that our own document tells of, its nodes worst first."""
    tables = [
        {intern(check): Status(status) for check, status in statuses.items()} for statuses in data["statuses"]
    ]
    return Fleet(
        tool=data["tool"],
        source=data["source"],
        started=data["started"],
        seconds=data["seconds"],
        nodes=tuple(node_of(node, tables[node["statuses"]]) for node in data["nodes"]),
        oddities=_tuple_of(Oddity)(data["oddities"]),
        titles={check["check"]: check["title"] for check in data["checks"]},
        gated=data.get("gated") is True,
    )


def render(document: Mapping[str, Any]) -> str:
    """The document as text, a node a line. ASCII only: valid in any locale, inert on a terminal."""
    lines = (f"{json.dumps(key)}: {_in_lines(value)}" for key, value in document.items())
    return "{" + ",\n".join(lines) + "}"


def kinds_of(fleet: Fleet) -> dict[str, list[str]]:
    """What kinds of nodes answered, by their GPUs, and which nodes these are."""
    answered = [node for node in fleet.nodes if node.state == "answered"]
    groups = {kind: [node.host for node in members] for kind, members in kinds(answered).items()}
    classified = {host for hosts in groups.values() for host in hosts}
    if others := [node.host for node in answered if node.host not in classified]:
        groups["no GPU seen"] = others
    return groups


def counts(nodes: Iterable[Node]) -> dict[str, int]:
    """How many nodes there are, in each state, and with each verdict among those that answered."""
    all_nodes = list(nodes)
    tally = {"nodes": len(all_nodes), **dict.fromkeys(get_args(NodeState), 0), **{s.value: 0 for s in Status}}
    for node in all_nodes:
        tally[node.state] += 1
        if node.state == "answered" and node.verdict is not None:
            tally[node.verdict.value] += 1
    return tally


def checks(fleet: Fleet) -> list[dict[str, Any]]:
    """Checks with a problem on some node, worst first: on which nodes, and how many are well."""
    tally: dict[str, dict[Status, int]] = {}
    where: dict[str, dict[Status, list[str]]] = {}
    for statuses, count in _status_tables(fleet.nodes):
        for check, status in statuses.items():
            tally.setdefault(check, dict.fromkeys(Status, 0))[status] += count
    for node in fleet.nodes:
        worst = {problem.check: problem.status for problem in reversed(node.problems)}
        for check, status in worst.items():
            where.setdefault(check, {}).setdefault(status, []).append(node.host)

    def badness(check: str) -> tuple[int, int, str]:
        worst = max(where[check], key=lambda status: _RANK[status])
        return -_RANK[worst], -len(where[check][worst]), check

    return [
        {
            "check": check,
            "title": fleet.titles.get(check, ""),
            "counts": {status.value: count for status, count in tally.get(check, {}).items()},
            **{status.value: fold(where[check].get(status, ())) for status in _PROBLEMS},
        }
        for check in sorted(where, key=badness)
    ]


def entry(node: Node) -> dict[str, Any]:
    """One node as the document has it."""
    return _noun_data(node)


def node_of(data: Mapping[str, Any], statuses: Mapping[str, Status]) -> Node:
    """A node out of its entry, as our own reader of reports printed it."""
    alias = data["name"] if data["name"] != data["host"] else ""
    return Node(**_read_values(Node, data), statuses=statuses, alias=alias)


def _noun_data(noun: Any) -> dict[str, Any]:
    """A noun as the document has it."""
    return {
        name: _plain_value(name, getattr(noun, name)) for name in _KEYS[type(noun)] if _has_key(name, noun)
    }


def _has_key(name: str, noun: Any) -> bool:
    """Whether a key is there: of problems only those of a rule in preview say so."""
    return name != "preview" or noun.preview or not isinstance(noun, Problem)


def _plain_value(name: str, value: Any) -> Any:
    if name in _NULL_IF_EMPTY:
        return value or None
    if name == "odd":
        return fold(value)
    if isinstance(value, Status):
        return value.value
    if isinstance(value, tuple):
        return [_plain_value("", item) for item in value]
    if isinstance(value, ValueGroup):
        return {"value": value.value, "nodes": fold(value.hosts), "count": len(value.hosts)}
    if isinstance(value, Mapping):
        return dict(value)
    return _noun_data(value) if type(value) in _KEYS else value


def _read_values(noun: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a noun out of what the document tells of it."""
    names = (name for name in _KEYS[noun] if name in data and name not in _DERIVED)
    return {name: _READERS[name](data[name]) if name in _READERS else data[name] for name in names}


def _tuple_of(noun: type) -> Callable[[Any], tuple[Any, ...]]:
    return lambda data: tuple(noun(**_read_values(noun, entry)) for entry in data or ())


def _group_of(data: Mapping[str, Any]) -> ValueGroup:
    return ValueGroup(data["value"], _sorted_hosts(data["nodes"]))


def _sorted_hosts(nodes: str) -> tuple[str, ...]:
    return tuple(sorted(expand(nodes), key=natural_key))


# Thousands of nodes have the same words: each is stored once.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "verdict": lambda data: Status(data) if data else None,
    "status": Status,
    **dict.fromkeys(_NULL_IF_EMPTY, lambda data: data or ""),
    **dict.fromkeys(("serials", "explains", "subjects"), tuple),
    **dict.fromkeys(("check", "owner", "title"), intern),
    "causes": _tuple_of(NodeCause),
    "problems": _tuple_of(Problem),
    "traits": lambda data: {intern(key): intern(value) for key, value in data.items()},
    "readings": lambda data: {intern(key): value for key, value in data.items()},
    "replayed": lambda data: data is True,
    "groups": lambda data: tuple(map(_group_of, data)),
    "majority": lambda data: _group_of(data) if data else None,
    "odd": _sorted_hosts,
}
"""How what JSON has for a key becomes the value it was made of; the others are what they were."""


def _shared_cause(group: SharedCause) -> dict[str, Any]:
    cause = group.cause
    return {
        "check": cause.check,
        "status": cause.status.value,
        "owner": cause.owner,
        "action": cause.action,
        "todo": group.todo,
        "headline": cause.headline,
        "alike": group.same_words,
        "preview": cause.preview,
        "host": group.host,
        "command": group.command or None,
        "fix": group.fix or None,
        "follows": list(group.follows),
        "nodes": fold(group.hosts),
        "count": len(group.hosts),
    }


def _status_tables(nodes: Iterable[Node]) -> Iterable[tuple[Mapping[str, Status], int]]:
    """The different tables of statuses, and how many nodes have each; thousands of nodes share a few."""
    times = Counter(id(node.statuses) for node in nodes)
    tables = {id(node.statuses): node.statuses for node in nodes}
    return ((tables[key], count) for key, count in times.items())


def _shared_tables(nodes: Iterable[Node]) -> tuple[list[dict[str, str]], dict[int, int]]:
    """Every table of statuses once, and the place of each in that list, by its `id`."""
    indexes: dict[tuple[tuple[str, str], ...], int] = {}
    places: dict[int, int] = {}
    for statuses, _ in _status_tables(nodes):
        rows = tuple((check, status.value) for check, status in statuses.items())
        places[id(statuses)] = indexes.setdefault(rows, len(indexes))
    return [dict(rows) for rows in indexes], places


def _in_lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)
