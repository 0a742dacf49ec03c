"""A fleet with stand-ins: the same one for a node in every list, finding and difference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodedoctor.fleet.model import Fleet, Node, Oddity, Problem, ValueGroup
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction


def redacted_fleet(fleet: Fleet) -> Fleet:
    """The fleet as it may be sent away; it is judged as before, and its nodes stay apart.

    Where reports lie is left out: files of nodes go by their names.
    """
    quoted = "\n".join((*_named(fleet), *_texts(fleet)))
    redaction = Redaction.of([Observation("fleet", text=quoted)], {})
    return replace(
        fleet,
        source=redaction.text(fleet.source),
        nodes=tuple(_node(node, redaction) for node in fleet.nodes),
        oddities=tuple(_oddity(oddity, redaction) for oddity in fleet.oddities),
    )


def _named(fleet: Fleet) -> Iterator[str]:
    """Names as documents have them, so that they are known for names in every other text."""
    for node in fleet.nodes:
        for name in dict.fromkeys((node.host, node.hostname, node.alias, *node.peers)):
            if name:
                yield f'"hostname": {json.dumps(name)}'
        yield from (f"Serial Number : {serial}" for serial in node.serials)


def _texts(fleet: Fleet) -> Iterator[str]:
    yield fleet.source
    for node in fleet.nodes:
        yield from (node.note, node.boot_id, *node.peers.values(), *node.traits.values())
        for problem in node.problems:
            yield from (problem.subject, problem.summary, problem.reason, problem.fix)
    for oddity in fleet.oddities:
        yield from (oddity.summary, oddity.why, oddity.fix, *(group.value for group in oddity.groups))


def _node(node: Node, redaction: Redaction) -> Node:
    text = redaction.text
    return replace(
        node,
        host=_host(node.host, redaction),
        hostname=_host(node.hostname, redaction),
        alias=_host(node.alias, redaction),
        note=text(node.note),
        boot_id=text(node.boot_id),
        serials=tuple(map(text, node.serials)),
        peers={_host(name, redaction): text(why) for name, why in node.peers.items()},
        traits=_values(node.traits, redaction),
        problems=tuple(_problem(problem, redaction) for problem in node.problems),
        report="",
        raw="",
    )


def _problem(problem: Problem, redaction: Redaction) -> Problem:
    text = redaction.text
    return replace(
        problem,
        subject=text(problem.subject),
        summary=text(problem.summary),
        reason=text(problem.reason),
        fix=text(problem.fix),
    )


def _oddity(oddity: Oddity, redaction: Redaction) -> Oddity:
    text = redaction.text
    return replace(
        oddity,
        summary=text(oddity.summary),
        why=text(oddity.why),
        fix=text(oddity.fix),
        groups=tuple(_group(group, redaction) for group in oddity.groups),
        majority=_group(oddity.majority, redaction) if oddity.majority else None,
        odd=tuple(_host(name, redaction) for name in oddity.odd),
    )


def _group(group: ValueGroup, redaction: Redaction) -> ValueGroup:
    return ValueGroup(redaction.text(group.value), tuple(_host(name, redaction) for name in group.hosts))


def _values(values: Mapping[str, str], redaction: Redaction) -> dict[str, str]:
    return {key: redaction.text(value) for key, value in values.items()}


def _host(name: str, redaction: Redaction) -> str:
    made = redaction.document(name, "host") if name else ""
    return str(made)
