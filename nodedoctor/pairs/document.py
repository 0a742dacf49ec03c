"""Tests between nodes as one JSON document, `nodedoctor.pairs/1`; within /1 keys are only added."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nodedoctor import __version__
from nodedoctor.model import Report
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.pairs.findings import fails, judge_pairs
from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.schedule import Plan

SCHEMA = "nodedoctor.pairs/1"


def plan_of(plan: Plan, size: int) -> dict[str, Any]:
    """The plan as plain data."""
    nodes = len(plan.nodes)
    return {
        "mode": plan.mode,
        "what": plan.what,
        "nodes": nodes,
        "rounds": len(plan.rounds),
        "rounds_again": plan.again,
        "pairs": plan.pairs,
        "of_pairs": nodes * (nodes - 1) // 2,
        "seconds_each": plan.seconds,
        "size_bytes": size,
        "algorithm": "ring" if plan.what == "collective" else "",
        "expected_seconds": round(plan.expected_s, 1),
        "longest_seconds": round(plan.longest_s, 1),
    }


def document(
    outcome: PlanOutcome,
    *,
    source: str,
    started: str,
    seconds: float,
    size: int,
    groups: Mapping[str, str],
    floors: Mapping[str, float] = MappingProxyType({}),
    preview: bool = False,
) -> dict[str, Any]:
    """Everything that was seen, judged."""
    from nodedoctor.report import json as report

    results, causes = judge_pairs(outcome, floors, preview=preview)
    judgement = report.document(Report(__version__, source, started, seconds, {}, results, causes=causes))
    findings = [finding for result in judgement["results"] for finding in result["findings"]]
    barred = sorted(
        name
        for one in outcome.fit.culprits
        if one.kind == "node" and (one.fault == "lost" or fails(one, outcome, preview))
        for name in one.names
    )
    silent = sorted(member.host for member in outcome.members if member.why)
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "source": source,
        "started": started,
        "seconds": round(seconds, 3),
        "verdict": judgement["verdict"],
        "interrupted": outcome.interrupted,
        "plan": {**plan_of(outcome.plan, size), "rounds_run": outcome.rounds},
        "reference_gbps": outcome.fit.reference_gbps,
        "slow_below": round(outcome.fit.slow_below, 3),
        "lossy_above": round(outcome.fit.lossy_above, 5),
        "late_above_us": None if outcome.fit.late_above is None else round(outcome.fit.late_above, 1),
        "nodes": [
            {
                "host": member.host,
                "state": "unreachable"
                if member.why
                else "lost"
                if member.host in outcome.gone
                else "measured"
                if member.host in outcome.plan.nodes
                else "busy",
                "note": member.why or ", ".join(member.busy) or None,
                "address": member.address or None,
                "interface": member.interface or None,
                "link_gbps": member.link_gbps,
                "leaf": groups.get(member.host),
                "gpus": member.gpus,
                "rails": list(member.rails),
            }
            for member in outcome.members
        ],
        "failing": list(dict.fromkeys([*barred, *silent])),
        "findings": findings,
        "causes": judgement["causes"],
        "next": [list(one) for one in outcome.fit.next],
        "seen_once": [list(one) for one in outcome.fit.once],
        "bisection": {
            "tries": [
                {"nodes": list(one.nodes), "failed": one.failed, "gbps": one.gbps} for one in outcome.tries
            ],
            "smallest": list(outcome.smallest),
        }
        if outcome.tries
        else None,
        "untried": _untried_notes(outcome),
        "measurements": [
            {
                "pair": list(one.pair),
                "round": one.round,
                "gbps": one.gbps,
                "loss": one.loss,
                "rtt_us": one.rtt_us,
                "fault": one.fault,
                "note": one.note or None,
                "rails": {name: round(rate, 2) for name, rate in one.rails.items()},
            }
            for one in outcome.measured
        ],
    }


def _untried_notes(outcome: PlanOutcome) -> list[str]:
    notes = [outcome.note] if outcome.note else []
    interfaces = {member.interfaces for member in outcome.members if member.host in outcome.plan.nodes}
    if outcome.plan.what == "tcp" and min(interfaces, default=0) > 1:
        notes.append(f"TCP used one of {min(interfaces)} interfaces of each node: --what rails measures each")
    untried = METHODS[outcome.plan.what].untried
    if outcome.plan.what == "collective" and not outcome.gpus:
        return [*notes, "gloo on CPUs was measured, neither GPUs nor RDMA", *untried[1:]]
    return [*notes, *untried]
