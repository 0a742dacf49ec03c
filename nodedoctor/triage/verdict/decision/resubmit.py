"""What to do with a job: start it again, without which nodes, or not at all. From its document alone.

The kind's row proposes; what is not sure enough, or would take away too much, becomes a look.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nodedoctor.json_shapes import Json, objects, text, texts
from nodedoctor.knowledge.kinds import Decision, kind, kind_of_events
from nodedoctor.nodeset import fold
from nodedoctor.record import record
from nodedoctor.triage.identity.world import is_address, short_host

Witness = Mapping[str, str]
"""Nodes that were looked at, by their short name: why no new job may start there, '' where one may."""

SHARE = 10
"""One in so many of the job's nodes may be left out; of fewer nodes one. More of them have one thing in
common, and it is not in the nodes. Ours."""
_NOT_A_NODE = re.compile(r"localhost|[0-9a-f]{12}")
"""What is the same name on every node, and what a container calls itself by default."""


@record
class Decided:
    """The decision, the nodes to leave out, and a line that says why."""

    decision: Decision
    exclude: tuple[str, ...]
    line: str


def decide(document: Json, witness: Witness | None = None) -> Decided:
    """The decision on a `nodedoctor.triage/1` document; one without a kind has that of its cause."""
    row = kind(text(document, "kind")) or kind(kind_of_events(text(document, "cause"), ()))
    sure = text(document, "confidence")
    if row is None:
        return _look(document, "this verdict names no cause that is known here")
    if text(document, "outcome") in ("undetermined", "nothing") or row.decision == "look":
        return _look(document, row.why)
    if sure == "low":
        return _look(document, "the confidence is low")
    if row.decision == "restart-without":
        return _restart_without(document, witness or {})
    rivals = [rival for name in texts(document, "kinds_alike") if (rival := kind(name))]
    if differing := [rival.kind for rival in rivals if rival.decision != row.decision]:
        return _look(document, f"{differing[0]} weighs as much, and its decision is another one")
    return Decided(row.decision, (), _line(row.decision, document, row.why))


def with_decision(document: Json, witness: Witness | None = None) -> dict[str, Any]:
    """The document with what to do, behind its kind."""
    result = decide(document, witness)
    more = {"decision": result.decision, "exclude": list(result.exclude), "decision_line": result.line}
    pairs = [(key, value) for key, value in document.items() if key not in more]
    place = [key for key, _ in pairs].index("kind") + 1 if "kind" in document else len(pairs)
    return dict([*pairs[:place], *more.items(), *pairs[place:]])


def _restart_without(document: Json, witness: Witness) -> Decided:
    """Leave the culprits' nodes out, where they are known, few, and surely sick."""
    culprits, incomplete = _culprit_nodes(document)
    hosts = culprits or sorted(set(_sick(witness)) & set(_job_nodes(document)))
    sick = bool(hosts) and set(hosts) <= set(_sick(witness))
    most = max(1, len(_job_nodes(document)) // SHARE)
    if not hosts or (culprits and incomplete):
        return _look(document, "its node is not named" if culprits else "no node is named")
    if not sick and text(document, "confidence") != "high":
        return _look(document, f"not sure enough to leave out {fold(hosts)}, and no report shows it sick")
    if not sick and texts(document, "kinds_alike"):
        return _look(document, "another cause weighs as much")
    if len(hosts) > most:
        return _look(document, f"{len(hosts)} nodes are too many to leave out: they have one thing in common")
    return Decided("restart-without", tuple(hosts), _line(f"restart-without {','.join(hosts)}", document))


def _culprit_nodes(document: Json) -> tuple[list[str], bool]:
    """The culprits' nodes, and whether that of one of them is not known."""
    host_of_rank = {
        (text(who, "world"), who.get("rank")): text(who, "host") for who in objects(document.get("ranks"))
    }
    hosts = [
        text(who, "host") or host_of_rank.get((text(who, "world"), who.get("rank")), "")
        for who in objects(document.get("culprits"))
    ]
    return sorted({short_host(host) for host in hosts if is_node(host)}), not all(map(is_node, hosts))


def _nodes(document: Json, *keys: str) -> set[str]:
    """The nodes of these people, by the names that a scheduler knows."""
    hosts = (text(who, "host") for key in keys for who in objects(document.get(key)))
    return {short_host(host) for host in hosts if is_node(host)}


def is_node(host: str) -> bool:
    """True for a name that can be a node's: an address, or what a container calls itself, is none."""
    return bool(host) and not is_address(host) and not _NOT_A_NODE.fullmatch(short_host(host))


def _job_nodes(document: Json) -> list[str]:
    jobs = [job for job in objects(document.get("jobs")) if job.get("judged") is True]
    job_hosts = {short_host(host) for job in jobs for host in texts(job, "hosts") if is_node(host)}
    return sorted({*job_hosts, *_nodes(document, "culprits", "victims", "parties", "ranks")})


def _sick(witness: Witness) -> Sequence[str]:
    return [host for host, why in witness.items() if why]


def _look(document: Json, why: str) -> Decided:
    """Look first: the line is what to measure next, where there is anything."""
    steps = (*objects(document.get("next")), *objects(document.get("fixes")))
    first = next((step for item in steps if (step := text(item, "text"))), "")
    return Decided("look", (), _line("look", document, f"{why}. {first}".rstrip(". ")))


def _line(word: str, document: Json, why: str = "") -> str:
    """One line: what to do, the kind, how sure, what happened, why."""
    name = text(document, "kind") or text(document, "cause")
    line = f"{word}: {name} ({text(document, 'confidence')}): {text(document, 'headline')}"
    return " ".join((f"{line.rstrip('.')}; {why}" if why else line).split())
