"""Tools that look after a job or a cluster: NVRx, NVIDIA Cluster Readiness Engine.

Formats: NVIDIA/nvidia-resiliency-ext 0.4 to 0.7, shared_utils/health_check.py (its warnings); NVIDIA/
cluster-readiness-engine 0.7 to 0.13, pkg/report (CertReport as JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import WORDS, Result, Verdict, in_json
from nodedoctor.json_shapes import loaded, mapping, objects, text, texts
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list, count_with_noun

NVRX, NVCRE = "nvrx-health", "nvcre-report"
nvrx_health = pasted(NVRX, "What the health checks of NVIDIA's resiliency extension logged.")
nvcre_report = pasted(NVCRE, "A report of NVIDIA Cluster Readiness Engine (nvcrectl, JSON).")

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
                yield Verdict(NVRX, "NVRx", result, match[0].rstrip("."), subject, match[0])


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
    verdict = _RESULTS.get(result, "unknown")
    yield Verdict(NVCRE, "NVCRE", verdict, words[:WORDS], "certification", in_json(result, output))
    for item in objects(document.get("categories")):
        if text(item, "status") == "Failed":
            kind = "/".join(filter(None, (text(item, "domain"), text(item, "variant"))))
            why = text(item, "failureReason") or "no reason given"
            quote = in_json(text(item, "failureReason"), output)
            yield Verdict(NVCRE, "NVCRE", "fail", f"{kind}: {why}"[:WORDS], f"category:{kind}"[:80], quote)
