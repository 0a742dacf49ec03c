"""Whatever the node says, the screen shows it as plain text that fits."""

from __future__ import annotations

import re
from collections.abc import Iterable

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from nodedoctor.model import Evidence, Finding, Fix, Observation, Outcome, Report, Result, Step
from nodedoctor.report import json
from nodedoctor.report.job_page import job_page
from nodedoctor.tui.filter import Filter
from nodedoctor.tui.lines import detail, diagnosis
from nodedoctor.tui.lines.output import output
from nodedoctor.tui.lines.ticket import markdown, steps
from nodedoctor.tui.screens import probes
from nodedoctor.tui.state import State, Waiting
from nodedoctor.tui.theme import ASCII, UNICODE, Para, Row, fit

LIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
NASTY = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["[/]", "[bold]x[/bold]", "[@click=quit]x[/]", "\x1b[31mred", "\x1b]0;title\x07", "\u202eabc"]
    ),
    st.text("ab\t\n\r\x1b[]/ \u4e2d\U0001f600\u0301", max_size=200),
)
FINDINGS = st.builds(
    Finding,
    status=st.sampled_from(list(detail.STYLE)),
    summary=NASTY,
    subject=NASTY,
    evidence=st.lists(st.builds(Evidence, st.just("probe"), NASTY), max_size=2).map(tuple),
    fix=st.none()
    | st.builds(
        Fix,
        NASTY,
        st.lists(
            st.builds(Step, st.sampled_from(["look", "repair", "last-resort"]), NASTY, NASTY), max_size=2
        ).map(tuple),
        disturbs=NASTY,
        verify=NASTY,
    ),
    note=st.booleans(),
    reason=st.sampled_from([None, "denied", "stuck"]),
    waived=st.none() | NASTY,
)
RESULTS = st.builds(
    Result, st.just("a.check"), NASTY, st.lists(FINDINGS, min_size=1, max_size=3).map(tuple), why=NASTY
)
OBSERVATIONS = st.builds(
    Observation,
    st.just("probe"),
    st.sampled_from(list(Outcome)),
    NASTY,
    note=NASTY,
    argv=st.tuples(NASTY, NASTY),
)


def state(result: Result, seen: Observation, running: bool = False) -> State:
    report = Report("0", "live", "2026-11-14T09:11:00Z", 1.0, {"hostname": seen.text}, (result,), (seen,))
    waiting = {result.check: Waiting("probe", 3.0)} if running else {}
    return State(json.document(report), waiting, {}, {seen.probe: seen})


def plain(paras: Iterable[Para], width: int) -> None:
    for para in paras:
        for parts in para.lines(width):
            line = "".join(text for text, _ in parts)
            assert not LIVE.search(line) and "\n" not in line
            assert cell_len(line) <= max(width, cell_len(para.lead) + 8)


def plain_row(row: Row) -> None:
    for glyphs in (UNICODE, ASCII):
        for text in (row.name, row.text, row.end):
            assert not LIVE.search(text) and "\n" not in text
            assert cell_len(fit(text, 20, glyphs.more)) == 20


def test_ten_thousand_columns_are_cut_or_folded():
    wide = Finding.fail("wide " * 2000, evidence=[Evidence("probe", "x" * 10000)])
    result = Result("a.check", "", (wide,))
    now = state(result, Observation("probe", text="y" * 10000))
    (shown,), (probe,) = now.report["results"], now.report["probes"]
    plain(detail.detail(now, shown, None, full=False), 80)
    plain_row(detail.row(shown, None))
    plain(probes._told(probe, "", output(now.answers["probe"]), ()), 80)


def test_blanks_at_the_end_of_a_line_take_no_more_than_it_has():
    for text in ("0\x1f\t", "free -h" + " " * 300 + "next", " " * 50):
        steps = (Step("look", text, ""),)
        result = Result("a.check", "", (Finding.fail("x", fix=Fix("", steps)),))
        now = state(result, Observation("probe"))
        plain(detail.detail(now, now.report["results"][0], None, full=True), 12)


@settings(max_examples=examples(60))
@given(RESULTS, OBSERVATIONS, st.booleans(), st.integers(12, 200))
def test_a_result(result: Result, seen: Observation, running: bool, width: int):
    now = state(result, seen, running)
    (shown,) = now.report["results"]
    plain(detail.detail(now, shown, None, full=True), width)
    plain_row(detail.row(shown, now.running.get(result.check)))
    for line in detail.head(now):
        assert not LIVE.search("".join(text for text, _ in line))


@settings(max_examples=examples(60))
@given(OBSERVATIONS, st.integers(12, 200))
def test_an_observation(seen: Observation, width: int):
    now = state(Result("a.check", "", (Finding.ok("well"),)), seen)
    plain(probes._told(now.report["probes"][0], "what it is", output(seen), ()), width)
    for row in probes._rows(now):
        plain_row(row)


@settings(max_examples=examples(60))
@given(RESULTS, OBSERVATIONS)
def test_a_ticket(result: Result, seen: Observation):
    report = state(result, seen).report
    (shown,) = report["results"]
    text = markdown(shown, report)
    assert not LIVE.search(text)
    fences = [line for line in text.split("\n") if re.match("`{3,}", line)]
    assert len(fences) >= 2 * sum(len(f.evidence) for f in result.findings if f.severity.is_problem)
    assert all(isinstance(step["command"], str) for step in steps(shown))


KEYS = st.sampled_from(
    """
    headline culprits victims parties evidence coverage collective fixes next timeline alternatives
    claim why not_the_cause incidents outcome rank host gpu pid text source line ranks_missing
    ranks_seen ranks_expected bytes_by_dtype expected_seconds commands time event notes world
    """.split()  # noqa: SIM905
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(60))
@given(st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_a_triage_document_of_any_shape(document: dict[str, object]):
    for line in diagnosis.head(document, job_page(document)):
        assert not LIVE.search("".join(text for text, _ in line))
    for entry in diagnosis.items(document, job_page(document), 80, UNICODE):
        plain_row(entry.row)
        plain(entry.paras, 60)


@settings(max_examples=examples(60))
@given(NASTY, RESULTS, st.booleans())
def test_any_filter_is_a_filter(text: str, result: Result, running: bool):
    (shown,) = state(result, Observation("probe")).report["results"]
    assert Filter(text).fits(shown, running) in (True, False)
    assert Filter("").fits(shown, running) and not Filter("is:nothing").fits(shown, running)
