"""Many nodes as one JSON document, `nodedoctor.fleet/1`; within /1 keys are only ever added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from nodedoctor.facts.documents import Document, part, parts, text, whole
from nodedoctor.fleet.model import Fleet, Group, Node, Oddity, Problem, State
from nodedoctor.fleet.nodeset import fold
from nodedoctor.model import Action, Status

SCHEMA = "nodedoctor.fleet/1"

_RANK = {Status.FAIL: 5, Status.UNKNOWN: 4, Status.WARN: 3, Status.PASS: 1, Status.SKIP: 0}
_PROBLEMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)


def document(fleet: Fleet) -> dict[str, Any]:
    """The fleet as plain data, worst first."""
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
        "oddities": [_oddity(oddity) for oddity in fleet.oddities],
        "checks": checks(fleet),
        "nodes": [entry(node) for node in fleet.worst_first()],
    }


def render(fleet: Fleet) -> str:
    """The document as text, a node a line. ASCII only: valid in any locale, inert on a terminal."""
    lines = (f"{json.dumps(key)}: {_lines(value)}" for key, value in document(fleet).items())
    return "{" + ",\n".join(lines) + "}"


def counts(nodes: Iterable[Node]) -> dict[str, int]:
    """How many nodes there are, in each state, and with each verdict among those that answered."""
    listed = list(nodes)
    found = {"nodes": len(listed), **dict.fromkeys(get_args(State), 0), **{s.value: 0 for s in Status}}
    for node in listed:
        found[node.state] += 1
        if node.state == "answered" and node.verdict is not None:
            found[node.verdict.value] += 1
    return found


def checks(fleet: Fleet) -> list[dict[str, Any]]:
    """Checks with a problem on some node, worst first: on which nodes, and how many are well."""
    tally: dict[str, dict[Status, int]] = {}
    where: dict[str, dict[Status, list[str]]] = {}
    for node in fleet.nodes:
        for check, status in node.statuses.items():
            counted = tally.setdefault(check, dict.fromkeys(Status, 0))
            counted[status] += 1
            if status in _PROBLEMS:
                where.setdefault(check, {}).setdefault(status, []).append(node.host)

    def badness(check: str) -> tuple[int, int, str]:
        worst = max(where[check], key=lambda status: _RANK[status])
        return -_RANK[worst], -len(where[check][worst]), check

    return [
        {
            "check": check,
            "title": fleet.titles.get(check, ""),
            "counts": {status.value: count for status, count in tally[check].items()},
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
        "counts": dict(node.counts),
        "traits": dict(node.traits),
        "readings": dict(node.readings),
        "peers": dict(node.peers),
        "report": node.report or None,
        "problems": [_problem(problem) for problem in node.problems],
    }


def node_of(told: Document, statuses: Mapping[str, Status] | None = None) -> Node:
    """A node out of its entry, which may come from another version."""
    problems = tuple(_problem_of(item) for item in parts(told, "problems"))
    if statuses is None:  # the document has those of problems only
        statuses = {problem.check: problem.status for problem in reversed(problems)}
    state = told.get("state")
    return Node(
        host=text(told, "host"),
        state=cast("State", state) if state in get_args(State) else "unreadable",
        note=text(told, "note"),
        seconds=_number(told.get("seconds")),
        started=text(told, "started"),
        tool=text(told, "tool"),
        gpus=whole(told, "gpus"),
        verdict=_status(told.get("verdict")) if told.get("verdict") is not None else None,
        counts={
            key: n for key in part(told, "counts") if (n := whole(part(told, "counts"), key)) is not None
        },
        statuses=statuses,
        problems=problems,
        traits={key: value for key, value in part(told, "traits").items() if isinstance(value, str)},
        readings={key: _number(value) for key, value in part(told, "readings").items()},
        report=text(told, "report"),
        hostname=text(told, "hostname"),
        boot_id=text(told, "boot_id"),
        peers={key: value for key, value in part(told, "peers").items() if isinstance(value, str)},
    )


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "check": problem.check,
        "title": problem.title,
        "subject": problem.subject or None,
        "status": problem.status.value,
        "severity": problem.severity,
        "reason": problem.reason or None,
        "summary": problem.summary,
        "action": problem.action,
        "fix": problem.fix or None,
    }


def _problem_of(told: Document) -> Problem:
    action, severity = told.get("action"), whole(told, "severity")
    return Problem(
        check=text(told, "check"),
        subject=text(told, "subject"),
        status=_status(told.get("status")),
        summary=text(told, "summary"),
        severity=min(severity, 5) if severity is not None else _RANK[_status(told.get("status"))],
        action=cast("Action", action) if action in get_args(Action) else "investigate",
        reason=text(told, "reason"),
        title=text(told, "title"),
        fix=text(told, "fix"),
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


def _group(group: Group) -> dict[str, Any]:
    return {"value": group.value, "nodes": fold(group.hosts), "count": len(group.hosts)}


def _status(value: Any) -> Status:
    try:
        return Status(value)
    except ValueError:
        return Status.UNKNOWN


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e18 else 0.0
