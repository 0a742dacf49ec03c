"""The answer of one node read: what its report says as far as nodes are compared, or why there is none.

Answers come from other machines and other versions, and nothing in them raises.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from nodedoctor.facts.documents import Document, part, parts, text, whole
from nodedoctor.fleet.excuses import excuse
from nodedoctor.fleet.model import Node, Problem
from nodedoctor.fleet.skim import NoReport, Skimmed, skim
from nodedoctor.fleet.traits import FACTS, readings, traits
from nodedoctor.model import Action, Finding, Observation, Outcome, Reason, Status

LONGEST = 300
"""Characters kept of a summary; ours."""
LONGEST_FIX = 1500
"""Characters kept of a fix; ours."""
MOST = 200
"""Problems kept of one node, the worst; ours."""
_WELL = {"pass": Status.PASS, "skip": Status.SKIP}
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f:]*:[0-9A-Fa-f:.%\w]*")


def node(host: str, seen: Observation) -> Node:
    """What became of asking a node by this name; `seen` is what its `nodedoctor --json` printed."""
    try:
        found = skim(seen.text, FACTS)
    except NoReport as error:
        why = "longer than what is kept of an answer" if seen.truncated else str(error)
        state, note = excuse(seen, why)
        return Node(host, state, note=note, seconds=seen.seconds, raw=seen.text)
    return _answered(host, found, seen)


def _answered(host: str, found: Skimmed, seen: Observation) -> Node:
    document = found.document
    about, facts = part(document, "node"), part(document, "facts")
    results = [entry for entry in parts(document, "results") if text(entry, "check")]
    problems = sorted(
        (problem for entry in results for problem in _problems(entry)), key=lambda problem: -problem.severity
    )
    statuses = {text(entry, "check"): _status(entry.get("status")) for entry in results}
    statuses.update((check, _WELL[status]) for check, status in found.well.items())
    hostname = text(about, "hostname")
    notes = (_banner(found), _other_name(host, hostname), _end(seen))
    return Node(
        host=host,
        note="; ".join(filter(None, notes)),
        seconds=_seconds(document.get("seconds")),
        started=text(document, "started")[:40],
        tool=text(document, "tool")[:40],
        gpus=whole(about, "gpus"),
        verdict=_status(document.get("verdict")),
        counts={status.value: count for status, count in Counter(statuses.values()).items()},
        statuses=statuses,
        problems=tuple(problems[:MOST]),
        traits=traits(facts),
        readings=readings(facts),
        hostname=hostname[:255],
        boot_id=text(about, "boot_id")[:64],
        peers=dict(_peers(facts)),
        raw=seen.text,
    )


def _problems(entry: Document) -> Iterator[Problem]:
    check, title = text(entry, "check"), text(entry, "title")
    for item in parts(entry, "findings"):
        status, reason = _status(item.get("status")), item.get("reason")
        known = cast("Reason", reason) if reason in get_args(Reason) else "unparsable"
        waived = text(item, "waived") or None
        finding = Finding(status, "", reason=known if status is Status.UNKNOWN else None, waived=waived)
        if finding.severity < 2:
            continue
        fix = part(item, "fix")
        action = fix.get("action")
        yield Problem(
            check=check[:LONGEST],
            subject=text(item, "subject")[:LONGEST],
            status=status,
            summary=text(item, "summary")[:LONGEST],
            severity=finding.severity,
            action=cast("Action", action) if action in get_args(Action) else "investigate",
            reason=finding.reason or "",
            title=title[:LONGEST],
            fix=text(fix, "text")[:LONGEST_FIX],
        )


def _peers(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What came of trying the way to each other node: "" where it answered, else how it did not."""
    for peer in parts(part(facts, "peers"), "peers"):
        host, tcp, ping = text(peer, "host"), text(peer, "tcp"), part(peer, "ping")
        if not host or peer.get("finished") is not True:
            continue
        answers = bool(whole(ping, "received")) or tcp in ("open", "ECONNREFUSED")
        yield host[:255], "" if answers else text(peer, "name_error")[:LONGEST] or tcp or "no answer to ping"


def _status(value: Any) -> Status:
    """A status; what is none of ours is unknown, never well."""
    try:
        return Status(value)
    except ValueError:
        return Status.UNKNOWN


def _seconds(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if plain else 0.0


def _banner(found: Skimmed) -> str:
    told = []
    if found.before:
        lines = "a banner of 1 line" if found.before == 1 else f"a banner of {found.before} lines"
        told.append(f"{lines} stood before the report: it breaks scp and Slurm too")
    if found.after:
        told.append(f"{found.after} line{'s' if found.after > 1 else ''} stood behind the report")
    return "; ".join(told)


def _other_name(host: str, hostname: str) -> str:
    """The machine's own name, where it is not the one it was asked by; addresses have none."""
    asked = host.rpartition("@")[2]
    if not asked or not hostname or _ADDRESS.fullmatch(asked):
        return ""
    same = asked.split(".")[0].casefold() == hostname.split(".")[0].casefold()
    return "" if same else f"calls itself {hostname[:255]}"


def _end(seen: Observation) -> str:
    """What went wrong once the report was out."""
    return "" if seen.outcome is Outcome.OK else "the report came, but the connection did not end"
