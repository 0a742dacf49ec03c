"""Every recorded node under tests/nodes gives the results its expected.json names, and a valid report.

They hold the rules of checks in preview, too: those are judged as with --preview.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from recorded import judged

from nodedoctor.engine.plugins import discover
from nodedoctor.report import json as report_json
from nodedoctor.report import text

NODES = Path(__file__).parent / "nodes"
CHECKS = discover().checks
SCHEMA = Path(report_json.__file__).parent / "schemas" / "report.schema.json"
names = sorted(path.parent.name for path in NODES.glob("*/manifest.json"))


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


@pytest.mark.sampled(22)
@pytest.mark.parametrize("name", names)
def test_node(name):
    report = report_json.document(judged(NODES / name, preview=True))
    document = json.loads(report_json.render(report))
    expected = json.loads((NODES / name / "expected.json").read_text())
    statuses = {result["check"]: result["status"] for result in document["results"]}
    seen = {check: statuses.get(check) for check in expected["results"]}
    assert seen == expected["results"], text.render(report, width=110)
    # Subjects that must be named as sick, where the file lists them.
    sick = {f["id"] for r in document["results"] for f in r["findings"] if f["status"] in ("warn", "fail")}
    assert set(expected.get("findings", [])) <= sick
    # What a check can say, its documentation names.
    for result in document["results"]:
        said = {f["status"].upper() for f in result["findings"] if f["status"] in ("warn", "fail")}
        assert all(word in CHECKS[result["check"]].doc["Judges"] for word in said), result["check"]
    crashed = [f for r in document["results"] for f in r["findings"] if f["reason"] == "crash"]
    assert crashed == expected.get("crashed", []), crashed


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", names)
def test_its_report_fits_the_schema(name, validator):
    report = report_json.document(judged(NODES / name, preview=True))
    validator.validate(json.loads(report_json.render(report)))


def test_there_are_nodes():
    assert names
