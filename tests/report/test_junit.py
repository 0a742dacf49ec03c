"""JUnit XML: what Jenkins, GitLab and the report actions of GitHub can read, whatever the node said."""

from __future__ import annotations

import json as plain_json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from any_report import documents
from hypothesis import given
from recorded import judged

from nodedoctor.fleet import document as fleet_document
from nodedoctor.fleet.model import Fleet, Node, Oddity, Problem, ValueGroup
from nodedoctor.model import Evidence, Finding, Fix, Report, Result, Status
from nodedoctor.report import json, junit
from nodedoctor.steps import repair

NODES = sorted(Path(__file__).parents[1].glob("nodes/*/manifest.json"))

RESET = Fix(
    "Reset it.", (repair("nvidia-smi --gpu-reset -i 3"),), "reset-gpu", "jobs on GPU 3", "nodedoctor a.b"
)

TIME = re.compile(r"\d+\.\d{3}")
REQUIRED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
"""Every element we write with exactly its attributes: the intersection of the schemas of Surefire and of the
xUnit plug-in of Jenkins, with hostname and timestamp of Ant's."""

CHILDREN = {
    "testsuites": "(testsuite )*",
    "testsuite": "properties (testcase )*",
    "properties": "(property )*",
    "testcase": "(failure |error |skipped )?(system-out )?",
}


def parsed(document: Mapping[str, Any]) -> xml.Element:
    """What a strict reader of the file gets; it must follow the schemas."""
    written = junit.render(document)
    assert written.startswith('<?xml version="1.0" encoding="UTF-8"?>\n') and written.endswith(
        "</testsuites>\n"
    )
    root = xml.fromstring(written.encode())
    for element in root.iter():
        assert set(element.attrib) == REQUIRED[element.tag], element.tag
        children = "".join(f"{child.tag} " for child in element)
        assert re.fullmatch(CHILDREN.get(element.tag, ""), children), (element.tag, children)
        assert TIME.fullmatch(element.get("time", "0.000"))
    for suite in root:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[total]) == len(suite.findall(f"testcase/{tag}"))
    for total in ("tests", "failures", "errors"):
        assert int(root.attrib[total]) == sum(int(suite.attrib[total]) for suite in root)
    # GitLab shows the first of cases that have class and name in common, and no other.
    named = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(named) == len(set(named))
    return root


def report(*results: Result, **node: object) -> Mapping[str, Any]:
    made = Report("0", "live", "2026-01-02T03:04:05Z", 1.25, {"hostname": "gpu-1", **node}, results)
    return json.document(made)


def only_case(*findings: Finding) -> xml.Element:
    case = parsed(report(Result("a.b", "Links are up", findings, 0.5, why="rings get slow"))).find(
        ".//testcase"
    )
    assert case is not None
    return case


def outcome(case: xml.Element) -> list[str]:
    return [child.tag for child in case]


def text(case: xml.Element, tag: str) -> str:
    found = case.find(tag)
    assert found is not None and found.text
    return found.text


def test_a_failure_says_what_the_evidence_is_and_what_repairs_it():
    bad = Finding.fail(
        "2 links down", subject="gpu:3", evidence=[Evidence("p", "Link 4\nLink 11")], fix=RESET
    )
    case = only_case(bad, Finding.ok("GPU 4 is well"))
    failure = case.find("failure")
    assert failure is not None and failure.attrib == {"message": "GPU 3: 2 links down", "type": "reset-gpu"}
    assert failure.text == (
        "GPU 3: 2 links down\n"
        "  | Link 4\n"
        "  | Link 11\n"
        "fix: Reset it.\n"
        "  repair: interrupts jobs on GPU 3\n"
        "  $ nvidia-smi --gpu-reset -i 3\n"
        "verify: nodedoctor a.b\n"
        "expected: Links are up\n"
        "why: rings get slow"
    )
    assert case.attrib == {"classname": "nodedoctor.a", "name": "a.b", "time": "0.500"}


def test_every_status_has_its_outcome():
    assert outcome(only_case(Finding.ok("fine"))) == []
    assert outcome(only_case(Finding.warn("slow"))) == ["system-out"]
    assert outcome(only_case(Finding.info("worth knowing"))) == ["system-out"]
    assert outcome(only_case(Finding.fail("bad"))) == ["failure"]
    assert outcome(only_case(Finding.unknown("stuck", "it hangs"))) == ["error"]
    assert outcome(only_case(Finding.unknown("denied", "not for you"))) == ["skipped"]
    assert outcome(only_case(Finding.skip("no GPU"))) == ["skipped"]


def test_the_worst_decides_and_the_rest_is_output():
    case = only_case(
        Finding.warn("slow", subject="gpu:1"),
        Finding.fail("bad", subject="gpu:2"),
        Finding.fail("bad too", subject="gpu:3"),
        Finding.unknown("stuck", "it hangs", subject="gpu:4"),
        Finding.ok("fine"),
    )
    assert outcome(case) == ["failure", "system-out"]
    failure = case.find("failure")
    assert failure is not None and failure.get("message") == "GPU 2: bad (and 1 more)"
    assert "GPU 3: bad too" in text(case, "failure")
    assert "GPU 4: it hangs" in text(case, "system-out") and "warning: GPU 1: slow" in text(
        case, "system-out"
    )
    assert "fine" not in text(case, "system-out")


def test_why_something_was_not_judged_is_told():
    assert text(only_case(Finding.skip("no InfiniBand here")), "skipped") == "no InfiniBand here"
    assert text(only_case(Finding.unknown("denied", "not for you")), "skipped").startswith(
        "not seen (denied): not for you"
    )
    error = only_case(Finding.unknown("stuck", "it hangs")).find("error")
    assert error is not None and error.get("type") == "stuck"


def test_what_is_waived_passes_and_says_so():
    waived = Finding(Finding.fail("x").status, "2 links down", "gpu:3", waived="board is on order")
    case = only_case(waived)
    assert outcome(case) == ["system-out"]
    assert text(case, "system-out") == "waived (board is on order): GPU 3: 2 links down"


def test_a_suite_is_a_node_with_its_properties():
    suite = parsed(report(gpus=8, driver="580.1", torch=None)).find("testsuite")
    assert suite is not None and (suite.get("name"), suite.get("hostname")) == ("gpu-1", "gpu-1")
    found = {entry.attrib["name"]: entry.attrib["value"] for entry in suite.iter("property")}
    assert found == {"nodedoctor": "0", "source": "live", "hostname": "gpu-1", "gpus": "8", "driver": "580.1"}


def test_control_characters_are_written_out_and_what_xml_cannot_hold_is_gone():
    case = only_case(Finding.fail("a\x1b[31mb\x00c\ufffed\ud800e ]]></failure>"))
    assert text(case, "failure").split("\n")[0] == r"a\x1b[31mb\x00cd\ud800e ]]></failure>"


def test_a_fleet_has_a_suite_per_node_and_one_for_what_sets_them_apart():
    down = Problem(
        "nvlink.links",
        "gpu:3",
        Status.FAIL,
        "2 of 18 links down: 4, 11",
        "reset-gpu",
        fix="Reset the GPU.",
    )
    second = Problem("nvlink.links", "gpu:4", Status.FAIL, "1 of 18 links down: 2", "reset-gpu")
    groups = ValueGroup("570.86.10", ("gpu-1", "gpu-3")), ValueGroup("550.54.15", ("gpu-2",))
    odd = Oddity(
        "driver", "NVIDIA driver", Status.FAIL, "gpu-2 has 550.54.15", "w", groups, groups[0], ("gpu-2",)
    )
    slow = Oddity("kernel", "Kernel", Status.WARN, "gpu-2 has 5.4", "w", groups, None, ("gpu-2",))
    began = "2026-01-02T03:04:05Z"
    nodes = (
        Node("gpu-1", started=began, seconds=3.1, verdict=Status.FAIL, problems=(down, second)),
        Node("gpu-2", started=began, seconds=3.1, verdict=Status.PASS, note="a banner was skipped"),
        Node("gpu-3", "silent", "no answer in 50 s", 50.0),
    )
    fleet = Fleet("0.1.0", "ssh", began, 12.1, nodes, (odd, slow), {"nvlink.links": "All NVLinks are active"})
    root = parsed(fleet_document.document(fleet))
    assert {
        suite.get("name"): (suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root
    } == {
        "fleet": ("2", "1", "0"),
        "gpu-1": ("2", "1", "0"),
        "gpu-2": ("1", "0", "0"),
        "gpu-3": ("1", "0", "1"),
    }
    failure = root.find("testsuite[@name='gpu-1']/testcase[@classname='gpu-1.nvlink']/failure")
    assert failure is not None and failure.get("type") == "reset-gpu"
    assert failure.get("message") == "GPU 3: 2 of 18 links down: 4, 11 (and 1 more)"
    assert failure.text and "fix: Reset the GPU." in failure.text.split("\n")
    driver = root.find("testsuite[@name='fleet']/testcase[@name='driver']/failure")
    assert driver is not None and driver.text and "  | 570.86.10: gpu-[1,3] (2)" in driver.text.split("\n")
    error = root.find("testsuite[@name='gpu-3']/testcase/error")
    assert error is not None and error.get("message") == "silent: no answer in 50 s"


@given(documents())
def test_whatever_a_report_says_the_file_parses_and_follows_the_schemas(document: dict[str, Any]):
    root = parsed(document)
    assert len(root.findall(".//testcase")) == len(document["results"])
    failed = {result["check"] for result in document["results"] if result["status"] == "fail"}
    assert {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None} == failed


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=lambda path: path.parent.name)
def test_every_recorded_node_can_be_told(node: Path):
    document = json.document(judged(node.parent))
    root = parsed(plain_json.loads(plain_json.dumps(document)))
    assert int(root.attrib["tests"]) == len(document["results"]) > 50
    assert int(root.attrib["failures"]) == document["counts"]["fail"]
