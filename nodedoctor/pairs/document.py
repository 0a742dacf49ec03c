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


def plan_of(planned: Plan, size: int) -> dict[str, Any]:
    """The plan as plain data."""
    nodes = len(planned.nodes)
    return {
        "mode": planned.mode,
        "what": planned.what,
        "nodes": nodes,
        "rounds": len(planned.rounds),
        "rounds_again": planned.again,
        "pairs": planned.pairs,
        "of_pairs": nodes * (nodes - 1) // 2,
        "seconds_each": planned.seconds,
        "size_bytes": size,
        "algorithm": "ring" if planned.what == "collective" else "",
        "expected_seconds": round(planned.expected_s, 1),
        "longest_seconds": round(planned.longest_s, 1),
    }


def document(
    seen: PlanOutcome,
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

    results, causes = judge_pairs(seen, floors, preview=preview)
    told = report.document(Report(__version__, source, started, seconds, {}, results, causes=causes))
    findings = [finding for result in told["results"] for finding in result["findings"]]
    barred = sorted(
        name
        for one in seen.fit.culprits
        if one.kind == "node" and (one.fault == "lost" or fails(one, seen, preview))
        for name in one.names
    )
    silent = sorted(member.host for member in seen.members if member.why)
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "source": source,
        "started": started,
        "seconds": round(seconds, 3),
        "verdict": told["verdict"],
        "interrupted": seen.interrupted,
        "plan": {**plan_of(seen.plan, size), "rounds_run": seen.rounds},
        "reference_gbps": seen.fit.reference_gbps,
        "slow_below": round(seen.fit.slow_below, 3),
        "lossy_above": round(seen.fit.lossy_above, 5),
        "late_above_us": None if seen.fit.late_above is None else round(seen.fit.late_above, 1),
        "nodes": [
            {
                "host": member.host,
                "state": "unreachable"
                if member.why
                else "lost"
                if member.host in seen.gone
                else "measured"
                if member.host in seen.plan.nodes
                else "busy",
                "note": member.why or ", ".join(member.busy) or None,
                "address": member.address or None,
                "interface": member.interface or None,
                "link_gbps": member.link_gbps,
                "leaf": groups.get(member.host),
                "gpus": member.gpus,
                "rails": list(member.rails),
            }
            for member in seen.members
        ],
        "failing": list(dict.fromkeys([*barred, *silent])),
        "findings": findings,
        "causes": told["causes"],
        "next": [list(one) for one in seen.fit.next],
        "seen_once": [list(one) for one in seen.fit.once],
        "bisection": {
            "tries": [
                {"nodes": list(one.nodes), "failed": one.failed, "gbps": one.gbps} for one in seen.tries
            ],
            "smallest": list(seen.smallest),
        }
        if seen.tries
        else None,
        "untried": _untried(seen),
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
            for one in seen.measured
        ],
    }


def _untried(seen: PlanOutcome) -> list[str]:
    told = [seen.note] if seen.note else []
    interfaces = {member.interfaces for member in seen.members if member.host in seen.plan.nodes}
    if seen.plan.what == "tcp" and min(interfaces, default=0) > 1:
        told.append(f"TCP used one of {min(interfaces)} interfaces of each node: --what rails measures each")
    known = METHODS[seen.plan.what].untried
    if seen.plan.what == "collective" and not seen.gpus:
        return [*told, "gloo on CPUs was measured, neither GPUs nor RDMA", *known[1:]]
    return [*told, *known]
