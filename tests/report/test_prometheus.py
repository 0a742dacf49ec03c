"""Prometheus text: what the textfile collector takes, with as many series as there may be and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from any_report import documents
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families
from recorded import judged

from nodedoctor.model import Evidence, Finding, Fix, Report, Result
from nodedoctor.report import json, prometheus

NODES = sorted(Path(__file__).parents[1].glob("nodes/*/manifest.json"))

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ([0-9.e+-]+)")

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Series:
    """The samples by name and labels, as a reader that takes nothing but the grammar gets them.

    A metric is its help, then its type, then all of its samples
    (https://prometheus.io/docs/instrumenting/exposition_formats/).
    """
    text.encode()
    assert text.endswith("\n") and "\r" not in text
    found: Series = {}
    announced: list[str] = []
    lines = text.removesuffix("\n").split("\n")
    for place, line in enumerate(lines):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert re.fullmatch(rf"# HELP {NAME} [^\\]+", line) and name not in announced
            assert lines[place + 1] == f"# TYPE {name} gauge"
            announced.append(name)
        elif not line.startswith("# TYPE "):
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == announced[-1], line
            labels = tuple(
                (name, re.sub(r'\\(["\\n])', lambda escaped: escaped[1].replace("n", "\n"), value))
                for name, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")
            )
            assert len(dict(labels)) == len(labels) and (match[1], labels) not in found
            found[match[1], labels] = float(match[3])
    return found


def of(series: Series, metric: str, **labels: str) -> list[float]:
    """The values of a metric whose labels include these."""
    return [
        value
        for (name, own), value in series.items()
        if name == metric and labels.items() <= dict(own).items()
    ]


def told(*results: Result, **node: object) -> Series:
    report = Report("0.1.0", "live", "2026-01-02T03:04:05Z", 1.25, {"hostname": "gpu-1", **node}, results)
    return parsed(prometheus.render(json.document(report)))


def test_a_sick_node_tells_what_a_rule_needs():
    fix = Fix("Reset it.", action="reset-gpu")
    series = told(
        Result("nvlink.links", "t", (Finding.fail("2 down", subject="gpu:3", fix=fix), Finding.ok("fine"))),
        Result("thermal.margin", "t", (Finding.warn("hot", subject="gpu:1"),)),
        Result("driver.mode", "t", (Finding.unknown("stuck", "it hangs"),)),
        Result("kernel.xid", "t", (Finding.unknown("denied", "not for you"),)),
        Result("ib.rate", "t", (Finding.skip("none"),)),
        driver="580.95.05",
        gpus=8,
    )
    severities = {"nvlink.links": 5, "thermal.margin": 3, "driver.mode": 4, "kernel.xid": 2, "ib.rate": 0}
    for check, severity in severities.items():
        assert of(series, "nodedoctor_check_severity", check=check) == [severity]
    assert len(of(series, "nodedoctor_check_severity")) == 5
    assert of(series, "nodedoctor_finding", check="nvlink.links", subject="gpu:3", action="reset-gpu") == [1]
    assert of(series, "nodedoctor_finding", check="driver.mode", reason="stuck", status="unknown") == [1]
    assert (
        len(of(series, "nodedoctor_finding")) == 3
    )  # what could not be seen from here is no problem of the node
    assert (
        of(series, "nodedoctor_verdict", status="fail") == [1] and sum(of(series, "nodedoctor_verdict")) == 1
    )
    assert of(series, "nodedoctor_checks", status="fail") == [1]
    assert of(series, "nodedoctor_last_run_timestamp_seconds") == [1767323045]
    assert of(series, "nodedoctor_run_seconds") == [1.25]
    assert of(series, "nodedoctor_gpus") == [8]
    assert of(series, "nodedoctor_info", version="0.1.0", driver="580.95.05") == [1]


def test_gpus_that_could_not_be_counted_are_not_zero():
    assert of(told(gpus=None), "nodedoctor_gpus") == []


def test_what_is_waived_is_counted_and_no_problem():
    waived = Finding(Finding.fail("x").status, "2 links down", "gpu:3", waived="board is on order")
    series = told(Result("nvlink.links", "t", (waived,)))
    assert of(series, "nodedoctor_check_severity") == [1]
    assert of(series, "nodedoctor_finding") == [] and of(series, "nodedoctor_findings_waived") == [1]


def test_neither_evidence_nor_summary_nor_host_becomes_a_label():
    evidence = [Evidence("p", "serial 1655022005473")]
    report = Report(
        "0", "live", "2026-01-02T03:04:05Z", 1, {"hostname": "gpu-1", "boot_id": "b00t"},
        (Result("a.b", "t", (Finding.fail("GPU 3 died of heat", evidence=evidence),)),),
    )  # fmt: skip
    text = prometheus.render(json.document(report))
    assert not [word for word in ("serial", "heat", "gpu-1", "b00t") if word in text]


def test_subjects_of_one_name_are_one_series_of_the_worst():
    findings = (
        Finding.warn("old", subject="pid:12"),
        Finding.fail("in state D", subject="pid:13"),
        Finding.warn("old", subject="pid:14"),
    )
    series = told(Result("driver.processes", "t", findings))
    assert of(series, "nodedoctor_finding", subject="pid", status="fail") == [1]
    assert len(of(series, "nodedoctor_finding")) == 1


def test_thousands_of_problems_are_bounded_and_the_worst_are_told():
    findings = [Finding.warn("slow", subject=f"pair:{number}") for number in range(5000)]
    findings.append(Finding.fail("broken", subject="pair:0-1"))
    series = told(Result("p2p.status", "t", tuple(findings)))
    assert len(of(series, "nodedoctor_finding")) == prometheus.MOST_FINDINGS
    assert of(series, "nodedoctor_finding", subject="pair:0-1") == [1]
    assert of(series, "nodedoctor_findings_left_out") == [5001 - prometheus.MOST_FINDINGS]


def test_labels_are_escaped_and_hold_no_control_characters():
    hostile = Finding.fail("x", subject='mount:/a"b\\c\nd\x1b[31m')
    text = prometheus.render(
        json.document(Report("0", "live", "2026-01-02T03:04:05Z", 1, {}, (Result("a.b", "t", (hostile,)),)))
    )
    assert r'subject="mount:/a\"b\\c\\x0ad\\x1b[31m"' in text
    assert of(parsed(text), "nodedoctor_finding", subject=r'mount:/a"b\c\x0ad\x1b[31m') == [1]


@given(documents())
def test_whatever_a_report_says_the_text_is_valid_and_complete(document: Mapping[str, Any]):
    series = parsed(prometheus.render(document))
    assert len(of(series, "nodedoctor_check_severity")) == len(document["results"])
    failed = {result["check"] for result in document["results"] if result["status"] == "fail"}
    found = {dict(labels).get("check") for (name, labels) in series if name == "nodedoctor_finding"}
    assert failed <= found


@given(documents())
def test_the_library_of_prometheus_reads_the_same(document: Mapping[str, Any]):
    text = prometheus.render(document)
    read = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == parsed(text)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=lambda path: path.parent.name)
def test_every_recorded_node_can_be_told(node: Path):
    document = json.document(judged(node.parent))
    text = prometheus.render(document)
    assert len(of(parsed(text), "nodedoctor_check_severity")) == len(document["results"]) > 50
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
