"""Many nodes as one JSON document, `nodedoctor.fleet/1`; within /1 keys are only ever added.

`document` makes it, and `fleet_of` takes it back: views show what it holds and nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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


def document(fleet: Fleet) -> dict[str, Any]:
    """The fleet as plain data, worst first."""
    nodes = fleet.worst_first()
    tables, places = _shared(nodes)
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
        "oddities": [_oddity(oddity) for oddity in fleet.oddities],
        "checks": checks(fleet),
        "statuses": tables,
        "nodes": [{**entry(node), "statuses": places[id(node.statuses)]} for node in nodes],
    }


def fleet_of(told: Mapping[str, Any]) -> Fleet:
    """The fleet that our own document tells of, its nodes worst first."""
    tables = [
        {intern(check): Status(status) for check, status in statuses.items()} for statuses in told["statuses"]
    ]
    return Fleet(
        tool=told["tool"],
        source=told["source"],
        started=told["started"],
        seconds=told["seconds"],
        nodes=tuple(node_of(node, tables[node["statuses"]]) for node in told["nodes"]),
        oddities=tuple(map(_oddity_of, told["oddities"])),
        titles={check["check"]: check["title"] for check in told["checks"]},
        gated=told.get("gated") is True,
    )


def render(document: Mapping[str, Any]) -> str:
    """The document as text, a node a line. ASCII only: valid in any locale, inert on a terminal."""
    lines = (f"{json.dumps(key)}: {_lines(value)}" for key, value in document.items())
    return "{" + ",\n".join(lines) + "}"


def kinds_of(fleet: Fleet) -> dict[str, list[str]]:
    """What kinds of nodes answered, by their GPUs, and which nodes these are."""
    answered = [node for node in fleet.nodes if node.state == "answered"]
    groups = {kind: [node.host for node in members] for kind, members in kinds(answered).items()}
    told = {host for hosts in groups.values() for host in hosts}
    if others := [node.host for node in answered if node.host not in told]:
        groups["no GPU seen"] = others
    return groups


def counts(nodes: Iterable[Node]) -> dict[str, int]:
    """How many nodes there are, in each state, and with each verdict among those that answered."""
    listed = list(nodes)
    found = {"nodes": len(listed), **dict.fromkeys(get_args(NodeState), 0), **{s.value: 0 for s in Status}}
    for node in listed:
        found[node.state] += 1
        if node.state == "answered" and node.verdict is not None:
            found[node.verdict.value] += 1
    return found


def checks(fleet: Fleet) -> list[dict[str, Any]]:
    """Checks with a problem on some node, worst first: on which nodes, and how many are well."""
    tally: dict[str, dict[Status, int]] = {}
    where: dict[str, dict[Status, list[str]]] = {}
    for statuses, count in _tables(fleet.nodes):
        for check, status in statuses.items():
            tally.setdefault(check, dict.fromkeys(Status, 0))[status] += count
    for node in fleet.nodes:
        for check, status in _worst(node).items():
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
    return {
        "host": node.host,
        "state": node.state,
        "note": node.note,
        "verdict": node.verdict.value if node.verdict else None,
        "seconds": node.seconds,
        "started": node.started,
        "tool": node.tool,
        "gpus": node.gpus,
        "hostname": node.hostname,
        "boot_id": node.boot_id,
        "uptime": node.uptime,
        "serials": list(node.serials),
        "name": node.name,
        "counts": dict(node.counts),
        "traits": dict(node.traits),
        "readings": dict(node.readings),
        "peers": dict(node.peers),
        "report": node.report or None,
        "cause": node.cause or None,
        "gate": node.gate,
        "replayed": node.replayed,
        "causes": [_cause(cause) for cause in node.causes],
        "problems": [_problem(problem) for problem in node.problems],
    }


def node_of(told: Mapping[str, Any], statuses: Mapping[str, Status]) -> Node:
    """A node out of its entry, as our own reader of reports printed it."""
    verdict, problems = told["verdict"], told["problems"]
    return Node(
        host=told["host"],
        state=told["state"],
        note=told["note"],
        seconds=told["seconds"],
        started=told["started"],
        tool=told["tool"],
        gpus=told["gpus"],
        verdict=Status(verdict) if verdict else None,
        counts=told["counts"],
        statuses=statuses,
        problems=tuple(map(_problem_of, problems)) if problems else (),
        cause=told.get("cause") or "",
        causes=tuple(map(_cause_of, told.get("causes") or ())),
        traits={intern(key): intern(value) for key, value in told["traits"].items()},
        readings={intern(key): value for key, value in told["readings"].items()},
        report=told["report"] or "",
        hostname=told["hostname"],
        boot_id=told["boot_id"],
        uptime=told["uptime"],
        serials=tuple(told["serials"]),
        alias=told["name"] if told["name"] != told["host"] else "",
        peers=told["peers"],
        gate=told.get("gate"),
        replayed=told.get("replayed") is True,
    )


def _cause(cause: NodeCause) -> dict[str, Any]:
    return {
        "check": cause.check,
        "status": cause.status.value,
        "said": cause.said,
        "command": cause.command or None,
        "explains": list(cause.explains),
        "headline": cause.headline,
        "owner": cause.owner,
        "action": cause.action,
        "subjects": list(cause.subjects),
        "preview": cause.preview,
    }


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


def _cause_of(told: Mapping[str, Any]) -> NodeCause:
    return NodeCause(
        check=told["check"],
        status=Status(told["status"]),
        said=told["said"],
        command=told["command"] or "",
        explains=tuple(told["explains"]),
        headline=told["headline"],
        owner=intern(told["owner"]),
        action=intern(told["action"]),
        subjects=tuple(told["subjects"]),
        preview=told["preview"],
    )


def _tables(nodes: Iterable[Node]) -> Iterable[tuple[Mapping[str, Status], int]]:
    """The different tables of statuses, and how many nodes have each; thousands of nodes share a few."""
    times = Counter(id(node.statuses) for node in nodes)
    tables = {id(node.statuses): node.statuses for node in nodes}
    return ((tables[key], count) for key, count in times.items())


def _shared(nodes: Iterable[Node]) -> tuple[list[dict[str, str]], dict[int, int]]:
    """Every table of statuses once, and the place of each in that list, by its `id`."""
    found: dict[tuple[tuple[str, str], ...], int] = {}
    places: dict[int, int] = {}
    for statuses, _ in _tables(nodes):
        rows = tuple((check, status.value) for check, status in statuses.items())
        places[id(statuses)] = found.setdefault(rows, len(found))
    return [dict(rows) for rows in found], places


def _worst(node: Node) -> dict[str, Status]:
    """The status of each check that has a problem here: its worst."""
    return {problem.check: problem.status for problem in reversed(node.problems)}


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def _problem(problem: Problem) -> dict[str, Any]:
    told = {
        "id": problem.id,
        "check": problem.check,
        "title": problem.title,
        "subject": problem.subject or None,
        "status": problem.status.value,
        "severity": int(problem.severity),
        "reason": problem.reason or None,
        "summary": problem.summary,
        "action": problem.action,
        "fix": problem.fix or None,
    }
    return {**told, "preview": True} if problem.preview else told


def _problem_of(told: Mapping[str, Any]) -> Problem:
    return Problem(
        check=intern(told["check"]),
        subject=told["subject"] or "",
        status=Status(told["status"]),
        summary=told["summary"],
        action=told["action"],
        reason=told["reason"] or "",
        title=intern(told["title"]),
        fix=told["fix"] or "",
        preview=told.get("preview", False),
    )


def _oddity(oddity: Oddity) -> dict[str, Any]:
    return {
        "key": oddity.key,
        "title": oddity.title,
        "status": oddity.status.value,
        "summary": oddity.summary,
        "why": oddity.why,
        "fix": oddity.fix or None,
        "majority": _group(oddity.majority) if oddity.majority else None,
        "groups": [_group(group) for group in oddity.groups],
        "odd": fold(oddity.odd),
    }


def _oddity_of(told: Mapping[str, Any]) -> Oddity:
    groups, most = tuple(map(_group_of, told["groups"])), told["majority"]
    return Oddity(
        key=told["key"],
        title=told["title"],
        status=Status(told["status"]),
        summary=told["summary"],
        why=told["why"],
        groups=groups,
        majority=_group_of(most) if most else None,
        odd=_hosts(told["odd"]),
        fix=told["fix"] or "",
    )


def _group(group: ValueGroup) -> dict[str, Any]:
    return {"value": group.value, "nodes": fold(group.hosts), "count": len(group.hosts)}


def _group_of(told: Mapping[str, Any]) -> ValueGroup:
    return ValueGroup(told["value"], _hosts(told["nodes"]))


def _hosts(nodes: str) -> tuple[str, ...]:
    return tuple(sorted(expand(nodes), key=natural_key))
