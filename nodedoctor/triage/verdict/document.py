"""The verdict as one JSON document, `nodedoctor.triage/1`; within /1 keys are only ever added.

One that `triage --json` wrote is shown again, and not read as a log.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import Json, loaded
from nodedoctor.model import Fix
from nodedoctor.triage.flight.transfer_time import transfer_time
from nodedoctor.triage.lines.times import clock_time
from nodedoctor.triage.model import (
    CollectiveCall,
    EarlierRun,
    Event,
    Identity,
    OtherJob,
    RankState,
    SideError,
    Verdict,
)
from nodedoctor.triage.rank_groups import RankGroupActivity
from nodedoctor.triage.read.sources import document_kind
from nodedoctor.triage.verdict.decision.kind import kind_of
from nodedoctor.triage.verdict.decision.resubmit import Witness, with_decision
from nodedoctor.whole_numbers import spans

SCHEMA = "nodedoctor.triage/1"

TIMELINE = 24
"""Entries of the timeline that are listed rank by rank; `moments` has all of them, in groups."""
RANKS_LISTED = 4096
"""Missing ranks that are listed one by one; the spans hold all of them."""

LineOf = Callable[[Event[Any]], int | None]


def make_document(verdict: Verdict, line_of: LineOf, witness: Witness | None = None) -> dict[str, Any]:
    """The verdict as plain data; `witness` are nodes that were looked at."""
    coverage = verdict.coverage
    missing = coverage.ranks_missing
    plain = {
        "schema": SCHEMA,
        "outcome": verdict.outcome,
        "cause": verdict.cause,
        "kind": kind_of(verdict.cause, verdict.evidence, verdict.owner, verdict.outcome),
        "kinds_alike": list(verdict.kinds_alike),
        "confidence": verdict.confidence,
        "headline": verdict.headline,
        "culprits": [_identity_document(who) for who in verdict.culprits],
        "victims": [_identity_document(who) for who in verdict.victims],
        "parties": [_identity_document(who) for who in verdict.parties],
        "collective": _collective_document(verdict.collective) if verdict.collective else None,
        "evidence": [_evidence_document(event, line_of) for event in verdict.evidence],
        "timeline": [
            {"time": clock_time(event.time), "rank": event.who.rank, "event": event.published_name}
            for event in verdict.timeline[:TIMELINE]
        ],
        "timeline_more": max(0, len(verdict.timeline) - TIMELINE),
        "moments": [_group_moments(group, line_of) for group in of_kind(verdict)],
        "alternatives": [{"cause": cause, "why_less_likely": why} for cause, why in verdict.alternatives],
        "fixes": [{**asdict(fix), **_next_document(fix)} for fix in verdict.fixes],
        "not_the_cause": [{"claim": claim, "why": why} for claim, why in verdict.not_the_cause],
        "next": [_next_document(fix) for fix in verdict.next],
        "owner": verdict.owner,
        "weighed": verdict.weighed,
        "also_seen": [_also_seen_document(error, line_of) for error in verdict.also_seen],
        "ranks": [_rank_document(state) for state in verdict.ranks],
        "standings": [_standing_document(standing) for standing in verdict.standings],
        "incidents": verdict.incidents,
        "coverage": {
            "files": coverage.files,
            "bytes": coverage.size,
            "ranks_seen": list(coverage.ranks_seen),
            "ranks_expected": coverage.ranks_expected,
            "ranks_missing": list(missing[:RANKS_LISTED]),
            "ranks_missing_spans": spans(missing),
            "notes": list(coverage.notes),
            "silent": [{"host": host, "why": why} for host, why in coverage.silent],
        },
        "unread_lines": coverage.unread,
        "earlier": [_earlier_document(run, line_of) for run in verdict.earlier],
        "jobs": [_job_document(job) for job in verdict.jobs],
    }
    return with_decision(plain, witness)


def render_text(document: Json) -> str:
    """The document as text. ASCII only: valid whatever the locale, and inert on a terminal."""
    return json.dumps(document, indent=1)


def _job_document(job: OtherJob) -> dict[str, Any]:
    fields = asdict(job)
    fields["judged"] = fields.pop("is_judged")
    return {**fields, "hosts": list(job.hosts), "first": clock_time(job.first), "last": clock_time(job.last)}


def _earlier_document(run: EarlierRun, line_of: LineOf) -> dict[str, Any]:
    return {
        "outcome": run.outcome,
        "cause": run.cause,
        "headline": run.headline,
        "culprits": [_identity_document(who) for who in run.culprits],
        "evidence": [_evidence_document(event, line_of) for event in run.evidence],
    }


def _identity_document(who: Identity) -> dict[str, Any]:
    return {
        "world": who.world,
        "rank": who.rank,
        "group_rank": who.group_rank,
        "host": who.host,
        "gpu": who.gpu,
        "pid": who.pid,
        "role": who.role or None,
    }


def _collective_document(work: CollectiveCall) -> dict[str, Any]:
    transfer = transfer_time(work)
    return {
        "op": work.op,
        "seq": work.seq,
        "group": work.group.name,
        "numel_in": work.numel_in,
        "numel_out": work.numel_out,
        "implied_ranks": transfer.implied_ranks,
        "timeout_seconds": work.timeout_ms / 1000 if work.timeout_ms is not None else None,
        "bytes_by_dtype": transfer.bytes_by_dtype,
        "expected_seconds": transfer.expected_seconds,
        "size_can_explain_wait": transfer.can_explain,
    }


def _evidence_document(event: Event[Any], line_of: LineOf) -> dict[str, Any]:
    return {
        "source": event.place.source,
        "line": line_of(event),
        "time": clock_time(event.time),
        "rank": event.who.rank,
        "text": event.text[:1000],
    }


def _also_seen_document(error: SideError, line_of: LineOf) -> dict[str, Any]:
    return {
        "event": error.event.published_name,
        "fate": error.fate,
        "reason": error.reason,
        "count": error.count,
        **_evidence_document(error.event, line_of),
    }


def _rank_document(state: RankState) -> dict[str, Any]:
    return {
        "rank": state.who.rank,
        "world": state.who.world,
        "host": state.who.host,
        "state": state.state,
        "event": state.last_event,
        "op": state.op,
        "seq": state.seq,
        "source": state.place.source if state.place else None,
        "step": state.step,
    }


def _standing_document(standing: RankGroupActivity) -> dict[str, Any]:
    return {
        "who": standing.who,
        "doing": standing.doing,
        "processes": standing.count,
        "ranks": spans(standing.ranks),
        "hosts": list(standing.hosts),
    }


def of_kind(verdict: Verdict) -> list[list[Event[Any]]]:
    """The whole timeline in groups: the same kind of event, within seconds of each other."""
    return group_moments((event.published_name, event) for event in verdict.timeline)


def _group_moments(group: list[Event[Any]], line_of: LineOf) -> dict[str, Any]:
    first, times = group[0], [event.time for event in group if event.time is not None]
    return {
        "event": first.published_name,
        "first": clock_time(min(times, default=None)),
        "last": clock_time(max(times, default=None)),
        "count": len(group),
        "ranks": spans(sorted({event.who.rank for event in group if event.who.rank is not None})),
        "source": first.place.source,
        "line": line_of(first),
    }


def _next_document(fix: Fix) -> dict[str, Any]:
    steps = [asdict(step) for step in fix.plan]
    return {"text": fix.text, "commands": list(fix.commands), "steps": steps}


TOGETHER = 5.0
"""Seconds between two reports of one moment: a watchdog wakes every second or so. Our threshold."""
MOST = 64
"""Moments kept apart; what comes later joins the latest one of its kind."""


def group_moments(events: Iterable[tuple[str, Event[Any]]]) -> list[list[Event[Any]]]:
    """Events in order of time, as groups: the same kind, each soon after the last.

    So a thousand ranks that time out are one group, and the rank that failed minutes earlier is another.
    """
    groups: list[list[Event[Any]]] = []
    latest: dict[str, list[Event[Any]]] = {}
    for kind, event in events:
        group = latest.get(kind)
        if group is None or (len(groups) < MOST and not _is_same_moment(group[-1].time, event.time)):
            group = latest[kind] = []
            groups.append(group)
        group.append(event)
    return groups


def _is_same_moment(earlier: float | None, later: float | None) -> bool:
    """Whether two times are of one moment; an unknown time is no difference."""
    return earlier is None or later is None or abs(later - earlier) <= TOGETHER


LARGEST = 16 << 20
"""Bytes of such a document; that of 4096 ranks has 2 MB. Ours."""


class UnreadableVerdict(NodeDoctorError):
    """A saved verdict that cannot be shown, in one line."""


def verdict_of(paths: Sequence[str]) -> Json | None:
    """The saved verdict at these paths, or None; UnreadableVerdict where it is damaged."""
    if len(paths) != 1:
        return None
    (path,) = paths
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        with open(path, "rb") as file:
            head = file.read(256)
        if document_kind(head) != "triage":
            return None
        data = input_files.read(path, largest=LARGEST)
    except OSError:
        return None  # the reader of logs says what is wrong with the path
    return _saved_verdict(path, data)


def _saved_verdict(path: str, data: bytes) -> Json:
    try:
        document = loaded(data)
    except ValueError:
        raise UnreadableVerdict(
            f"{path}: a saved verdict that was cut off or damaged; run triage on the logs again"
        ) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableVerdict(f"{path}: a saved verdict of another version than {SCHEMA}")
    return document
