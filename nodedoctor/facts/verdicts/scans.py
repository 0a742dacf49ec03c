"""Tools that look at a node or fabric: gpud, ibdiagnet, NVIDIA Health Validation, NVRx and Cluster Readiness.

Formats: leptonai/gpud 0.1 to 0.9, pkg/scan/scan.go (printSummary); ibdiagnet2.log of UFM and MLNX_OFED 4 to
24 (its summary table); docs.nvidia.com/health-validation/reference/verdict-schema (AffectedComponent);
NVIDIA/nvidia-resiliency-ext 0.4 to 0.7, shared_utils/health_check.py (its warnings); NVIDIA/
cluster-readiness-engine 0.7 to 0.13, pkg/report (CertReport as JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, in_json, make_verdict
from nodedoctor.json_shapes import loaded, mapping, objects, text, texts
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list, count_with_noun

GPUD, IBDIAGNET, VALIDATION = "gpud-scan", "ibdiagnet", "health-validation"
gpud_scan = pasted(GPUD, "The output of gpud scan.")
ibdiagnet_log = pasted(IBDIAGNET, "ibdiagnet2.log, or what ibdiagnet printed.")
health_validation = pasted(VALIDATION, "The node verdict of NVIDIA Health Validation (JSON).")

_of_gpud = partial(make_verdict, GPUD, "gpud")
_of_ibdiagnet = partial(make_verdict, IBDIAGNET, "ibdiagnet")
_of_validation = partial(make_verdict, VALIDATION, "Health Validation")

_MARKED = regex(r"^[ \t]{0,8}(?P<mark>[\u2714\u2718]) (?P<words>[^\n]{1,600})$", re.MULTILINE)
_NO_COMPONENT = ("machine info", "provider info", "scan complete")
_STAGE = regex(
    r"^(?:-I- )?(?P<stage>[A-Z][\w /()&-]{1,40}?)[ \t]{2,60}(?P<warnings>\d{1,9})"
    r"[ \t]{1,40}(?P<errors>\d{1,9})(?:[ \t]|$)",
    re.MULTILINE,
)
_SEVERITIES: Mapping[str, Result] = {
    "PASS": "pass", "INFO": "pass", "WARNING": "warn", "CRITICAL": "fail", "UNKNOWN": "unknown",
}  # fmt: skip


def gpud(output: str) -> Iterator[Verdict]:
    """Each component that gpud marks. Its mark is one for degraded and for unhealthy: a warning."""
    rows = [*_MARKED.finditer(output)]
    for number, row in enumerate(rows):
        if row["mark"] == "\u2718":
            yield _of_gpud("warn", row["words"].strip(), f"component:{number}", row[0])
    healthy = [row for row in rows if row["mark"] == "\u2714" and row["words"].strip() not in _NO_COMPONENT]
    if healthy:
        words = f"{count_with_noun(len(healthy), 'component')} healthy"
        yield _of_gpud("pass", words, quote=healthy[0][0])


def ibdiagnet(output: str) -> Iterator[Verdict]:
    """Stages with errors. They are of the fabric, and none names this node: warnings."""
    stages = [*_STAGE.finditer(output)]
    sick = [row for row in stages if int(row["errors"])]
    for row in sick:
        words = f"stage {row['stage']}: {count_with_noun(int(row['errors']), 'error')} in the fabric"
        yield _of_ibdiagnet("warn", words, f"stage:{row['stage'].replace(' ', '-')}", row[0])
    if stages and not sick:
        warnings = sum(int(row["warnings"]) for row in stages)
        words = f"no error in {count_with_noun(len(stages), 'stage')}, {count_with_noun(warnings, 'warning')}"
        yield _of_ibdiagnet("pass", words, quote=stages[0][0])


def validation(output: str) -> Iterator[Verdict]:
    """The components that it names, each with its worst severity and the checks that failed."""
    try:
        document = mapping(loaded(output))
    except ValueError:
        return
    for item in _affected_components(document):
        category, severity = text(item, "category"), text(item, "max_severity")
        checks = comma_list(texts(item, "check_ids")[:6]) or "no check named"
        where = comma_list(texts(item, "entities")[:6])
        words = f"{category or 'component'} {severity}: {checks}{f' ({where})' if where else ''}"
        result = _SEVERITIES.get(severity.upper(), "unknown")
        yield _of_validation(result, words, f"category:{category}", in_json(severity, output))


def _affected_components(document: Any) -> Iterator[Mapping[str, Any]]:
    """The objects that are AffectedComponents, in any list of the document."""
    for value in document.values():
        for item in objects(value) if isinstance(value, list) else ():
            if "max_severity" in item and "check_ids" in item:
                yield item


NVRX, NVCRE = "nvrx-health", "nvcre-report"
nvrx_health = pasted(NVRX, "What the health checks of NVIDIA's resiliency extension logged.")
nvcre_report = pasted(NVCRE, "A report of NVIDIA Cluster Readiness Engine (nvcrectl, JSON).")
_of_nvrx = partial(make_verdict, NVRX, "NVRx")
_of_nvcre = partial(make_verdict, NVCRE, "NVCRE")

_FINDINGS: tuple[tuple[re.Pattern[str], Result], ...] = (
    (regex(r"GPU (?P<gpu>\d{1,3}): Requires (?:a reset|a node reboot) to recover\."), "fail"),
    (regex(r"GPU (?P<gpu>\d{1,3}): Requires peer-to-peer traffic to be drained\."), "fail"),
    (regex(r"GPU (?P<gpu>\d{1,3}): Operating at reduced capacity\."), "warn"),
    (regex(r"GPU (?P<gpu>\d{1,3}): NVL link \d{1,2} is in DISABLED state"), "warn"),
    (
        regex(r"GPU (?P<gpu>\d{1,3}) NIC/IB \S{1,40} link down counter has been incremented: [^\n]{3,50}"),
        "warn",
    ),
    (regex(r"GPU (?P<gpu>\d{1,3}): Unknown recovery action status: \S{1,20}"), "unknown"),
    (regex(r"Health checks disabled: GPU driver version r\d{1,4} is older"), "note"),
)
_RESULTS: Mapping[str, Result] = {"PASSED": "pass", "FAILED": "fail", "RUNNING": "note", "INCOMPLETE": "warn"}


def nvrx(output: str) -> Iterator[Verdict]:
    """What the checks found, each once for a GPU: they run every minute."""
    repeated: set[tuple[str, str]] = set()
    for line in output.splitlines():
        for pattern, result in _FINDINGS:
            if not (match := pattern.search(line)):
                continue
            subject = f"gpu:{match['gpu']}" if "gpu" in match.groupdict() else ""
            if (subject, pattern.pattern) not in repeated:
                repeated.add((subject, pattern.pattern))
                yield _of_nvrx(result, match[0].rstrip("."), subject, match[0])


def nvcre(output: str) -> Iterator[Verdict]:
    """The result of a certification with the nodes that failed, and each category that did.

    It is of many nodes, and names those that are bad: a failure is one of the node only where that is named.
    """
    try:
        document = mapping(loaded(output))
    except ValueError:
        return
    result = text(document, "result")
    failed, excluded = texts(document, "failedNodes"), texts(document, "excludedNodes")
    words = f"{text(document, 'name') or 'the certification'} {result or 'has no result'}"
    words += f", failed: {comma_list(failed[:8])}" if failed else ""
    words += f", {count_with_noun(len(excluded), 'node')} not tested" if excluded else ""
    yield _of_nvcre(_RESULTS.get(result, "unknown"), words, "certification", in_json(result, output))
    for item in objects(document.get("categories")):
        if text(item, "status") == "Failed":
            kind = "/".join(filter(None, (text(item, "domain"), text(item, "variant"))))
            why = text(item, "failureReason") or "no reason given"
            quote = in_json(text(item, "failureReason"), output)
            yield _of_nvcre("fail", f"{kind}: {why}", f"category:{kind}", quote)
