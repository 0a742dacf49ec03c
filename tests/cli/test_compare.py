"""Two reports side by side: what got worse, what merely cannot be seen any more, which facts differ."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.report.comparison import compare
from nodedoctor.report.comparison_groups import change_groups, fact_groups
from nodedoctor.report.comparison_views import document, render
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
    both = "links GPU0 GPU1 NV18, GPU1 GPU0 NV18, gpus GPU0, GPU1"
    assert told == {"topology": f"{both} -> (none)", "rails.ports": "id 1 -> (none)"}
    many = compare(report({"rails": {f"setting-{n}": "a value" for n in range(9)}}), report({}))
    assert [change.words for change in many.facts] == ["rails (9 values) -> (none)"]


def gpus(count: int, **of_3: Any) -> dict[str, Any]:
    """GPUs with one name, as they are, of which GPU 3 may differ."""
    return {
        "gpus": {
            "gpus": [
                {"name": "H100", "uuid": f"GPU-{n}", "index": n, "vbios": "1", **(of_3 if n == 3 else {})}
                for n in range(count)
            ]
        }
    }


def test_every_gpu_is_compared_though_all_have_one_name():
    (change,) = compare(report(gpus(8)), report(gpus(8, vbios="2"))).facts
    assert (change.name, change.words) == ("gpus.gpus[3].vbios", "1 -> 2")
    moved = compare(report(gpus(8)), report(gpus(8, uuid="GPU-new"))).facts
    assert [(one.name, one.after is None) for one in moved] == [
        ("gpus.gpus[3]", True),
        ("gpus.gpus[3]", False),
    ]


def test_many_values_of_one_gpu_are_one_entry():
    links = {f"GPU{a}": {f"GPU{b}": "NV18" for b in range(8) if a != b} for a in range(8)}
    cut = {a: {b: "NV16" if "GPU3" in (a, b) else "NV18" for b in row} for a, row in links.items()}
    (group,) = fact_groups(
        compare(report({"topology": {"links": links}}), report({"topology": {"links": cut}})).facts
    )
    assert (group.name, group.words, len(group.facts)) == (
        "topology.links.GPU3.GPU*",
        "NV18 -> NV16 (14 values)",
        14,
    )
    (group,) = fact_groups(compare(report(gpus(8)), report(gpus(8, vbios="2", ecc=True))).facts)
    assert (group.name, group.words) == ("gpus.gpus[3]", "ecc (none) -> True, vbios 1 -> 2")
    kinds = {
        "reads": dict.fromkeys(["3-1", "3-2", "1-3"], "ok"),
        "writes": dict.fromkeys(["3-1", "3-2", "1-3"], "ok"),
    }
    none = {kind: dict.fromkeys(pairs, "no") for kind, pairs in kinds.items()}
    (group,) = fact_groups(compare(report({"p2p": {"s": kinds}}), report({"p2p": {"s": none}})).facts)
    assert (group.name, len(group.facts)) == ("p2p.s.*.3-*", 6)


def test_of_a_long_list_what_differs_is_shown():
    old, new = ([f"/dev/nvidia-number-{n}" for n in range(20) if n != gone] for gone in (3, 5))
    (change,) = compare(report({"driver": {"nodes": old}}), report({"driver": {"nodes": new}})).facts
    assert change.words == "/dev/nvidia-number-5, (18 alike) -> /dev/nvidia-number-3, (18 alike)"


def test_checks_that_lost_the_same_device_are_one_entry():
    lost = [{**found("unknown", reason="not-visible-here"), "judged_without": "GPU 5 (GPU_IS_LOST)"}]
    well = {f"gpu_{name}": [found("pass")] for name in "abc"}
    both = compare(report(**well), report(**dict.fromkeys(well, lost)))
    (group,) = change_groups(both.changes)
    assert (group.name, group.summary) == ("3 checks", "judged without GPU 5 (GPU_IS_LOST)")
    assert "PASS -> UNKN  3 checks  judged without GPU 5 (GPU_IS_LOST): gpu.a, gpu.b, gpu.c" in render(
        both, "a", "b"
    )


def test_lines_end_between_words_and_colours_are_asked_for():
    long = [{**found("fail"), "summary": "word " * 60}]
    both = compare(report(a_check=[found("pass")]), report(a_check=long))
    plain = render(both, "a", "b", width=80)
    assert all(len(line) <= 80 and not line.endswith("wor") for line in plain.splitlines())
    assert plain.splitlines()[2].startswith("       word") and "\x1b" not in plain
    assert (
        render(both, "a", "b", colour=True).splitlines()[1].startswith("\x1b[1;31mworse\x1b[0m  PASS -> FAIL")
    )


def test_the_document_follows_its_schema_and_loses_nothing():
    schema = json.loads((DEMO.parent / "report" / "schemas" / "compare.schema.json").read_text())
    before, after = (
        report(gpus(8), a_check=[found("pass")]),
        report(gpus(8, vbios="2", ecc=True), b_check=[GPU3]),
    )
    both = compare(before, after)
    told = document(both, before, after)
    jsonschema.validate(told, schema)
    assert [one for group in told["facts"] for one in group["values"]] == [
        {"fact": fact.name, "before": fact.before, "after": fact.after} for fact in both.facts
    ]
    assert {check for group in told["changes"] for check in group["checks"]} == {"a.check", "b.check"}
    assert told["worse"] is both.worse


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
    data = json.loads(run("compare", "--json", saved, DEMO / "nvlinks-down").stdout)
    assert data["schema"] == "nodedoctor.compare/1" and data["worse"] and "nvlink.links" in str(data)
    assert run("compare", "--text", saved, DEMO / "nvlinks-down").stdout == worse.stdout
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
