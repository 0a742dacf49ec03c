"""A report is shown alike whether it comes from the run or from a file, and any file has every view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from any_report import reports
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import judged
from test_html import JSON, KEYS

from nodedoctor import model
from nodedoctor.cli.compare import document_of
from nodedoctor.cli.exit_codes import exit_code
from nodedoctor.demo import DEMOS, folder
from nodedoctor.report import (
    comparison,
    comparison_views,
    html,
    job_text,
    junit,
    prometheus,
    summary,
    text,
)
from nodedoctor.report import json as report_json
from nodedoctor.report.document import Report, severity_of
from nodedoctor.report.matrix import matrices
from nodedoctor.report.saved import read
from nodedoctor.tui.filter import KINDS
from nodedoctor.tui.lines import detail
from nodedoctor.tui.lines.output import Output
from nodedoctor.tui.lines.ticket import markdown, steps
from nodedoctor.tui.screens import probes, topology
from nodedoctor.tui.state import State, file_name

HERE = Path(__file__).parents[1]
NODES = [*sorted(HERE.glob("nodes/*/")), *map(folder, DEMOS)]
NODES = [node for node in NODES if (node / "manifest.json").exists()]


def views(report: Report) -> Iterator[tuple[str, Any]]:
    """Everything that is shown of a report, and what the process exits with."""
    yield "text", text.render(report, width=100, colour=True)
    yield "quiet", text.render(report, quiet=True)
    yield "summary", summary.render(report)
    yield "html", html.render(report)
    yield "junit", junit.render(report)
    yield "prometheus", prometheus.render(report)
    yield "json", report_json.render(report)
    yield "exit codes", [exit_code(report, fail_on) for fail_on in ("fail", "warn", "unknown")]
    yield from screens(State(report))


def screens(state: State) -> Iterator[tuple[str, Any]]:
    """What the screens show of a report."""
    yield "head", detail.head(state)
    for result in state.report["results"]:
        yield f"row {result['check']}", detail.row(result, None)
        yield f"page {result['check']}", detail.detail(state, result, None, full=True)
        yield f"ticket {result['check']}", (markdown(result, state.report), steps(result))
        yield f"kinds {result['check']}", [name for name, fits in KINDS.items() if fits(result)]
    yield "probes", list(probes._rows(state))
    for probe in state.report["probes"]:
        yield f"probe {probe['name']}", list(probes._told(probe, "", Output((), {}), ()))
    for matrix in matrices(state.report["facts"]):
        yield matrix.title, [topology._row(matrix, gpu, topology._heads(matrix, 140)) for gpu in matrix.gpus]
    yield "file", file_name(state.report)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_saved_report_is_shown_as_the_run_was(node: Path):
    live = report_json.document(judged(node))
    saved = read(json.loads(report_json.render(live)))
    assert saved == live
    for (name, shown), (_, again) in zip(views(live), views(saved), strict=True):
        assert again == shown, name
    same = comparison.compare(live, saved)
    assert not same.changes and not same.facts


def test_a_comparison_with_a_saved_report_is_the_one_with_the_run(tmp_path: Path):
    before, after = folder("healthy"), folder("nvlinks-down")
    saved = tmp_path / "before.json"
    saved.write_text(report_json.render(report_json.document(judged(before))))
    live, read_back = (comparison.compare(document_of(one), document_of(after)) for one in (before, saved))
    assert read_back == live and live.worse
    names = comparison.heading(document_of(before)), comparison.heading(document_of(after))
    assert comparison_views.render(read_back, *names) == comparison_views.render(live, *names)
    assert html.render_comparison(read_back, *names) == html.render_comparison(live, *names)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_any_report_is_read_back_as_it_was(report: model.Report):
    live = report_json.document(report)
    assert read(json.loads(report_json.render(live))) == live
    assert [severity_of(result) for result in live["results"]] == [
        result.severity for result in report.results
    ]
    counted = [f.severity.counted(f.preview) for result in report.results for f in result.findings]
    assert live["verdict"] == max(counted, default=model.Severity.SKIP).status.value
    assert live["counts"] == {
        status.value: sum(result.status is status for result in report.results) for status in model.Status
    }


class Colour(str):
    """A text that is more than a text, as members of an enumeration are."""

    def __str__(self) -> str:
        return "Colour"


def test_facts_of_plug_ins_are_what_json_makes_of_them():
    told = {
        "of": {3: Colour("red"), None: 1, True: 2, Colour("green"): 0},
        "set": {"b", "a"},
        "pair": (1, (2.5, frozenset())),
        "odd": [Path("/dev/shm"), {"in": {("a", 1): 2}}],
    }
    live = report_json.document(model.Report("0", "live", "", 0, {}, (), facts=told))
    assert json.loads(report_json.render(live)) == live
    assert live["facts"] == {
        "of": {"3": "red", "null": 1, "true": 2, "green": 0},
        "set": ["a", "b"],
        "pair": [1, [2.5, []]],
        "odd": ["/dev/shm", {"in": {'["a", 1]': 2}}],
    }


DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=12)
RESULTS = st.fixed_dictionaries(
    {"check": st.sampled_from(["a.b", "c.d", ""]) | JSON, "findings": st.lists(DOCUMENTS | JSON, max_size=3)},
    optional={"title": JSON, "tags": JSON, "why": JSON, "seconds": JSON},
)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, st.lists(RESULTS | JSON, max_size=4), st.lists(DOCUMENTS, max_size=3))
def test_any_document_is_read_into_a_report_that_every_view_shows(
    document: dict[str, Any], results: list[Any], asked: list[Any]
):
    report = read({**document, "results": results, "probes": asked})
    assert read(report) == report
    assert all(shown is not None for _, shown in views(report))
    assert not comparison.compare(report, read(report)).changes


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, st.integers(0, 200))
def test_any_document_of_triage_has_a_page(document: dict[str, Any], width: int):
    shown = job_text.render(document, width=width)
    assert shown.endswith("\n")
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]
