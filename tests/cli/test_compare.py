"""Two reports side by side: what got worse, what merely cannot be seen any more, which facts differ."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.report.comparison import compare, render
from nodedoctor.report.document import Report
from nodedoctor.report.saved import read

DEMO = Path(__file__).parents[2] / "nodedoctor" / "demo"


def report(facts: dict[str, Any] | None = None, **results: list[dict[str, Any]]) -> Report:
    entries = [{"check": name.replace("_", "."), "findings": findings} for name, findings in results.items()]
    return read({"schema": "nodedoctor.report/1", "results": entries, "facts": facts or {}})


def found(status: str, subject: str = "", reason: str | None = None) -> dict[str, Any]:
    return {"status": status, "subject": subject, "summary": status, "reason": reason}


GPU3, GPU5 = found("fail", "gpu:3"), found("fail", "gpu:5")


@pytest.mark.parametrize(
    ("before", "after", "way"),
    [
        ([found("pass")], [found("pass")], None),
        ([found("pass")], [found("fail")], "worse"),
        ([found("warn")], [found("fail")], "worse"),
        ([found("fail")], [found("pass")], "better"),
        ([GPU3], [GPU3], None),
        ([GPU3], [GPU3, GPU5], "worse"),  # FAIL as before, and of one more
        ([GPU3], [GPU5], "worse"),
        ([GPU3, GPU5], [GPU3], "better"),
        ([found("pass")], [found("unknown", reason="stuck")], "worse"),
        ([found("pass")], [found("unknown", reason="denied")], "other"),  # not seen is not sick
        ([found("fail")], [found("unknown", reason="denied")], "other"),
        ([found("unknown", reason="denied")], [found("pass")], "other"),
        ([found("unknown", reason="denied")], [found("fail")], "worse"),
        ([found("pass")], [found("skip")], "other"),
        ([found("fail")], [{**found("fail"), "waived": "known"}], "better"),
        ([], [found("fail")], "other"),  # not run before: nothing is known to have changed
    ],
)
def test_ways(before: list[dict[str, Any]], after: list[dict[str, Any]], way: str | None):
    there = {"a_check": before} if before else {}
    (*changes,) = compare(report(**there), report(a_check=after)).changes
    assert [change.way for change in changes] == ([way] if way else [])


def test_what_only_one_side_knows_is_one_change():
    known = {"links": {"GPU0": {"GPU1": "NV18"}, "GPU1": {"GPU0": "NV18"}}, "gpus": ["GPU0", "GPU1"]}
    before = report({"topology": known, "rails": {"ports": [{"id": 1}]}})
    after = report({"rails": {"ports": []}})
    told = {change.name: change.words for change in compare(before, after).facts}
    assert told == {"topology": "(2 values) -> (none)", "rails.ports": "(1 entry) -> (none)"}


def test_facts_that_move_by_themselves_are_left_out():
    old = {
        "gpus": {"driver_version": "550", "gpus": [{"index": 0, "temperature_c": 30, "vbios_version": "a"}]}
    }
    new = {
        "gpus": {"driver_version": "570", "gpus": [{"index": 0, "temperature_c": 80, "vbios_version": "b"}]}
    }
    changes = {fact.name: fact.words for fact in compare(report(old), report(new)).facts}
    assert changes == {"gpus.driver_version": "550 -> 570", "gpus.gpus[0].vbios_version": "a -> b"}


def test_elements_are_told_apart_by_name_not_by_place():
    old = {"ports": [{"name": "mlx5_0", "firmware": "1"}, {"name": "mlx5_1", "firmware": "1"}]}
    new = {"ports": [{"name": "mlx5_1", "firmware": "2"}, {"name": "mlx5_0", "firmware": "1"}]}
    changes = [(fact.name, fact.words) for fact in compare(report(old), report(new)).facts]
    assert changes == [("ports[mlx5_1].firmware", "1 -> 2")]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*map(str, words), cwd=DEMO.parent.parent)


@pytest.mark.slow
def test_recorded_nodes_and_reports_can_be_mixed(tmp_path: Path):
    saved = tmp_path / "before.json"
    saved.write_text(run("--replay", DEMO / "healthy", "--json").stdout)
    worse = run("compare", saved, DEMO / "nvlinks-down")
    assert worse.returncode == 2
    assert "worse  PASS -> FAIL  nvlink.links  GPU 3" in worse.stdout
    back = run("compare", DEMO / "nvlinks-down", saved)
    assert back.returncode == 0 and "better FAIL -> PASS  nvlink.links" in back.stdout
    same = run("compare", saved, DEMO / "healthy")
    assert same.returncode == 0 and "nothing differs" in same.stdout


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([GPU3], [GPU3, GPU5], "FAIL -> FAIL  a.check  also GPU 5: fail"),
        ([GPU3, GPU5], [GPU3], "FAIL -> FAIL  a.check  no longer GPU 5: fail"),
        ([GPU3], [GPU5], "FAIL -> FAIL  a.check  also GPU 5: fail"),
        (
            [found("warn", "gpu:1"), GPU3],
            [found("fail", "gpu:1"), GPU3],
            "FAIL -> FAIL  a.check  also GPU 1: fail",
        ),
        ([found("pass")], [GPU3], "PASS -> FAIL  a.check  GPU 3: fail"),
        ([GPU3], [found("pass")], "FAIL -> PASS  a.check  pass"),
    ],
)
def test_the_news_is_told(before: list[dict[str, Any]], after: list[dict[str, Any]], says: str):
    text = render(compare(report(a_check=before), report(a_check=after)), "old", "new")
    assert text.startswith("old  ->  new\n") and f" {says}\n" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ({"results": "none"}, "results is no list"),
        ({"facts": []}, "facts is no object"),
        ({"node": "n1"}, "node is no object"),
        ({"results": [7]}, "results[0] names no check"),
        ({"results": [{"check": "a.b", "findings": 3}]}, "results[0] (a.b) has no findings"),
        ({"results": [{"check": "a.b", "findings": [{}]}]}, "(a.b) has a finding without a status"),
        ({"results": [{"check": "a.b", "findings": [{"status": ["pass"]}]}]}, "a finding without a status"),
        ({"results": None}, "results is no list"),
    ],
)
def test_a_damaged_report_is_refused(harm: dict[str, Any], says: str, tmp_path: Path):
    path = tmp_path / "harmed.json"
    path.write_text(json.dumps({**report(), **harm}))
    done = run("compare", DEMO / "healthy", path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1)
    assert "a damaged report" in done.stderr and says in done.stderr
    done = run("triage", "--text", "--node", path, __file__)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1)
    assert says in done.stderr


@pytest.mark.slow
def test_what_is_no_report_is_a_usage_error(tmp_path: Path):
    good = DEMO / "healthy"
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text("[/] \x1b[31m")
    for bad in (
        tmp_path / "list.json",
        tmp_path / "text.json",
        tmp_path / "absent.json",
        tmp_path / "absent.zip",
    ):
        done = run("compare", good, bad)
        assert done.returncode == 64 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["results", "facts", "check", "findings", "status", "name"]), inner)
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["results", "facts"]), JSON))
def test_any_shape_compares(document: dict[str, Any]):
    comparison = compare(read(document), read(json.loads(json.dumps(document))))
    assert comparison.changes == () and comparison.facts == ()
    assert "nothing differs" in render(comparison, "a", "b")
