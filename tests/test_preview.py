"""Checks in preview: shown, at most WARN, never in the exit code, unless somebody asks with --preview."""

import asyncio
import json
from pathlib import Path

import jsonschema
import pytest
import recorded

from nodedoctor.cli.exit_codes import exit_code
from nodedoctor.declare.registry import Options
from nodedoctor.engine.session import Request, Session
from nodedoctor.fleet import text as fleet_text
from nodedoctor.fleet.cli import exit_code as fleet_code
from nodedoctor.fleet.document import document as fleet_document
from nodedoctor.fleet.model import Fleet
from nodedoctor.fleet.reports.reading import node as node_of
from nodedoctor.model import Finding, Observation, Severity, Status
from nodedoctor.report import brief, comparison, html, junit, prometheus, saved, summary, text
from nodedoctor.report import json as report_json

NODES = Path(__file__).parent / "nodes"
NAMES = sorted(path.parent.name for path in NODES.glob("*/manifest.json"))
SCHEMA = json.loads((Path(report_json.__file__).parent / "schemas" / "report.schema.json").read_text())
FLEET = json.loads((Path(report_json.__file__).parent / "schemas" / "fleet.schema.json").read_text())


def judged(name, *words, preview=False, expect=None):
    if words or expect:
        options = Options(expect=dict(expect or {}))
        request = Request(words=words, replay=NODES / name, preview=preview, options=options)
        report = asyncio.run(Session(request).diagnosis().run())
    else:
        report = recorded.judged(NODES / name, preview=preview)
    return json.loads(report_json.render(report_json.document(report)))


@pytest.fixture(scope="module")
def lost():
    """Seven of eight GPUs: a FAIL of a check that no real board has shown yet."""
    return judged("b200-seven-of-eight", "driver.board-complete")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_on_no_node_does_a_preview_fail_or_explain_what_counts(name):
    document = judged(name)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    previews = {result["check"] for result in document["results"] if result.get("stage") == "preview"}
    findings = [(r["check"], f) for r in document["results"] for f in r["findings"]]
    for check, finding in findings:
        if check in previews:
            assert finding["status"] != "fail", finding
            assert finding.get("preview", False) is (finding["status"] in ("warn", "unknown")), finding
    held_back = {finding["id"] for _, finding in findings if finding.get("preview")}
    for _, finding in findings:
        assert finding.get("preview") or finding.get("because_of") not in held_back, finding
    for cause in document["causes"]:
        if cause["id"] in held_back:
            assert cause["preview"] is True and cause["status"] != "fail" and cause["schedulable"] == "yes"
    order = [bool(cause.get("preview")) for cause in document["causes"]]
    assert order == sorted(order)
    rest = [
        {**result, "findings": [f for f in result["findings"] if not f.get("preview")]}
        for result in document["results"]
    ]
    for fail_on in ("fail", "unknown", "warn"):
        assert exit_code(document, fail_on) == exit_code({**document, "results": rest}, fail_on)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_with_preview_every_finding_counts(name):
    document = judged(name, preview=True)
    assert not any(f.get("preview") for result in document["results"] for f in result["findings"])
    assert not any(cause.get("preview") for cause in document["causes"])


def test_a_failure_is_a_warning_that_does_not_count(lost):
    result = lost["results"][0]
    assert (result["stage"], result["status"]) == ("preview", "warn")
    assert result["findings"][0]["preview"] is True
    assert lost["verdict"] == "pass"
    assert [exit_code(lost, fail_on) for fail_on in ("fail", "unknown", "warn")] == [0, 0, 0]
    asked = judged("b200-seven-of-eight", "driver.board-complete", preview=True)
    assert (asked["verdict"], exit_code(asked)) == ("fail", 2)


def test_a_saved_report_is_read_as_it_was_written(lost):
    assert saved.read(lost) == lost
    lost_again = {**lost, "verdict": "fail"}
    assert saved.read(lost_again)["verdict"] == "pass"


def test_every_view_shows_it_and_says_that_it_is_a_preview(lost):
    report = saved.read(lost)
    assert summary.render(report).startswith("WARN (preview): ")
    assert "(preview)" in brief.render(report)
    assert "(preview)" in text.render(report)
    assert "<em> (preview)</em>" in html.render(lost)
    cases = junit.render(lost)
    assert 'failures="0"' in cases and "preview, warning: " in cases
    metrics = prometheus.render(report)
    assert 'stage="preview"' in metrics
    assert 'nodedoctor_verdict{status="pass"} 1' in metrics


def test_a_fleet_bars_no_node_for_it(lost):
    node = node_of("gpu-1", Observation("gpu-1", text=report_json.render(lost)))
    assert node.verdict is Status.PASS and not node.severity.is_problem
    assert [problem.preview for problem in node.problems] == [True]
    fleet = Fleet("0", "reports", "2026-11-22T00:00:00Z", 1.0, (node,))
    assert fleet.failing == () and fleet.passing == ("gpu-1",)
    assert [fleet_code(fleet, fail_on) for fail_on in ("fail", "unknown", "warn")] == [0, 0, 0]
    assert "(preview)" in fleet_text.render(fleet_document(fleet), width=100)
    told = fleet_document(fleet)
    jsonschema.Draft202012Validator(FLEET).validate(told)
    assert told["nodes"][0]["problems"][0]["preview"] is True


def test_a_comparison_gets_no_worse_by_it(lost):
    well = json.loads(json.dumps(lost))
    well["results"][0]["status"] = "pass"
    well["results"][0]["findings"] = [
        {**lost["results"][0]["findings"][0], "status": "pass", "preview": False, "because_of": None}
    ]
    assert not comparison.compare(saved.read(well), saved.read(lost)).worse


def test_what_is_expected_may_fail_whatever_its_check_is():
    found = judged("h100-healthy", "driver.gpus-present", expect={"gpus": "9"})
    assert exit_code(found) == 2


def test_severity_of_a_preview_ends_at_warn_and_counts_as_pass():
    broken = Finding.unknown("timeout", "it hangs").in_preview()
    assert broken.severity is Severity.WARN and broken.severity.counted(True) is Severity.PASS
    assert Finding.fail("bad").in_preview().severity is Severity.WARN
    assert Finding.skip("none").in_preview().severity.counted(True) is Severity.SKIP
    assert Finding.fail("bad").severity.counted(False) is Severity.FAIL
