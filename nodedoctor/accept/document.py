"""An acceptance as one JSON document, `nodedoctor.accept/1`; within /1 keys are only added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.accept.judged_rates import FAIL, UNJUDGED, WARN, Row, as_document, make_rows
from nodedoctor.accept.measurements import measurements
from nodedoctor.journal import PastRate
from nodedoctor.json_shapes import part, parts
from nodedoctor.report.accept_page import ACCEPTED, LAGS, REFUSED, UNMEASURED

SCHEMA = "nodedoctor.accept/1"
CHECKS = (
    *("bandwidth", "compute.gemm", "collective.smoke"),
    *("deep.nccl-tests", "deep.wrong-results", "deep.ib-write-bw"),
)
"""What an acceptance runs: everything that measures a rate of this node alone."""
COPIES = {"p2p", "host-to-gpu", "gpu-to-host", "memory-copy"}
"""What is measured of GPUs without a Python that has torch: a node with GPUs is not accepted without it."""


def make_document(report: Mapping[str, Any], past: Mapping[str, PastRate]) -> dict[str, Any]:
    """What a report's rates are worth; `past` holds earlier rates of this node by key."""
    rows = make_rows(measurements(report["facts"]), past)
    faults = [_line_of(finding) for finding in _rate_findings(report) if finding["status"] == "fail"]
    missing = [
        _line_of(finding) for finding in _rate_findings(report) if finding["status"] in ("unknown", "skip")
    ]
    code = exit_code(rows, faults, _is_complete(report, rows))
    return {
        "schema": SCHEMA,
        "tool": report["tool"],
        "node": report["node"],
        "source": report["source"],
        "started": report["started"],
        "seconds": report["seconds"],
        "exit": code,
        "status": {ACCEPTED: "pass", REFUSED: "fail", LAGS: "warn"}.get(code, "unknown"),
        "rows": [as_document(row) for row in rows],
        "faults": faults,
        "not_measured": missing,
    }


def rates_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The lowest rate of each kind, by the key under which a journal keeps it."""
    return {row.key: row.lowest for row in make_rows(measurements(report["facts"]), {})}


def exit_code(rows: list[Row], faults: list[dict[str, str]], complete: bool) -> int:
    """A fault or a floor that is not met decides, then what was not measured, then a lag."""
    statuses = {row.status for row in rows}
    if faults or FAIL in statuses:
        return REFUSED
    if not complete or statuses <= {UNJUDGED}:
        return UNMEASURED
    return LAGS if WARN in statuses else ACCEPTED


def _is_complete(report: Mapping[str, Any], rows: list[Row]) -> bool:
    """Whether all GPUs were measured, their copies too, and nothing that was begun came to no end."""
    if any(finding["status"] == "unknown" for finding in _rate_findings(report)):
        return False
    facts = report["facts"]
    in_use = part(part(facts, "bandwidth"), "left_out")
    gpus = parts(part(facts, "gpus"), "gpus")
    wanted = COPIES - ({"p2p"} if len(gpus) < 2 else set())
    return not in_use and (not gpus or wanted <= {row.operation for row in rows})


def _rate_findings(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What the checks that measure say; a report of all checks has others."""
    for result in report["results"]:
        if result["check"] in CHECKS or result["check"].partition(".")[0] in CHECKS:
            yield from result["findings"]


def _line_of(finding: Mapping[str, Any]) -> dict[str, str]:
    return {"id": finding["id"], "status": finding["status"], "summary": finding["summary"]}
