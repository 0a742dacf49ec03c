"""One page, every view: text, HTML and the screen say the same of a cause or a job, in the same order."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import recorded

from nodedoctor.report import brief, html, job_text, text, ticket
from nodedoctor.report import json as report_json
from nodedoctor.report.document import Report, full_summary, is_blind, severity, worst
from nodedoctor.report.job_page import Advice, Entry, JobPage, Quote, job_page
from nodedoctor.report.page import VERIFY, CausePage, cause_pages
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict import document as verdict_document
from nodedoctor.tui.lines import card, diagnosis
from nodedoctor.tui.theme import UNICODE, Para

HERE = Path(__file__).parent.parent
DEMOS = HERE.parent / "nodedoctor" / "demo"
NODES = [path.parent for folder in (DEMOS, HERE / "nodes") for path in sorted(folder.glob("*/manifest.json"))]
NAMES = [path.name for path in NODES]
LOGS = sorted(path for path in (HERE / "triage" / "logs").rglob("*.log") if path.is_file())
WIDE = 100_000


@cache
def node(folder: Path) -> Report:
    return report_json.document(recorded.judged(folder))


@cache
def job(log: Path) -> Any:
    examined = examine_job([str(log)])
    made = verdict_document.make_document(examined.verdict, examined.lines.line_of)
    return json.loads(verdict_document.render_text(made))


def plain(text: str) -> str:
    """A text without blanks and marks of code: how a page is laid out is each view's own."""
    return "".join(text.replace("`", "").split())


def web(page: str) -> str:
    """What a browser shows of a page."""
    return plain(
        unescape(re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]*>", "", page, flags=re.DOTALL))
    )


def shown(paras: Sequence[Para]) -> str:
    return plain("\n".join(f"{para.lead} {para.text}" for para in paras))


def follow(page: str, parts: Sequence[str], view: str) -> None:
    """Every part is on the page, each behind the one before it."""
    place = 0
    for part in map(plain, parts):
        found = page.find(part, place)
        assert found >= 0, (view, part, page[place : place + 400])
        place = found + len(part)


def parts_of(cause: CausePage) -> Iterator[str]:
    """All that is said of a cause, in the order of every view."""
    yield cause.headline
    for part in cause.opening:
        yield f"{part.label} {part.text}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=NAMES)
def test_every_view_of_a_node_says_all_of_a_cause(folder: Path) -> None:
    report = node(folder)
    views = {"text": plain(text.render(report, width=WIDE)), "html": web(html.render(report))}
    for cause, page in zip(report["causes"], cause_pages(report), strict=True):
        views["screen"] = shown(card.card(report, cause))
        views["explained"] = shown(card.explained(report, cause))
        for view, seen in views.items():
            follow(seen, [*parts_of(page)], view)
            follow(seen, page.follows, view)
            closing = [part for part in page.closing if view != "explained" or part.label != VERIFY]
            assert plain(page.advice) in seen and all(plain(part.text) in seen for part in closing), view
        for view in ("text", "html", "screen"):
            last = [step for step in page.steps if step.last] if view == "screen" else []
            commands = [plain(step.command) for step in page.steps if step not in last]
            assert all(command in views[view] for command in commands), view
        assert all(plain(line) in views["text"] for line in page.proof)
        assert all(plain(line[2:]) in views["html"] for line in page.proof)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=NAMES)
def test_no_finding_that_is_not_well_is_missing_from_the_long_pages(folder: Path) -> None:
    """Also of checks that say what another one says, which is a cause."""
    report = node(folder)
    views = plain(text.render(report, width=WIDE)), web(html.render(report))
    for result in report["results"]:
        for finding in result["findings"]:
            if severity(finding).is_problem and not is_blind(worst(result)):
                summary = plain(full_summary(finding))
                assert all(summary in view and result["check"] in view for view in views), finding["id"]


def test_a_check_that_says_what_a_cause_says_keeps_its_entry() -> None:
    report = copy.deepcopy(node(DEMOS / "nvlinks-down"))
    cause, same = (
        next(r for r in report["results"] if r["check"] == c) for c in ("nvlink.links", "topo.matrix")
    )
    same["findings"][0]["summary"] = cause["findings"][0]["summary"]
    for page in (text.render(report, width=WIDE), html.render(report)):
        assert "topo.matrix" in page.lower().partition("every other finding")[2].partition("passed")[0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=NAMES)
def test_the_counts_of_a_page_lead_to_a_part_that_it_has(folder: Path) -> None:
    page = html.render(node(folder))
    assert all(f'id="{part}"' in page for part in re.findall(r'<a href="#(causes|problems|unseen)"', page))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=NAMES)
def test_a_short_page_begins_as_the_long_one_and_has_a_command(folder: Path) -> None:
    """What is short is a prefix in the order of the page, and says what to type."""
    report = node(folder)
    page = brief.render(report, width=80)
    for cause in cause_pages(report)[:1]:
        labels = [part.label for part in cause.opening]
        places = [page.find(f"\n     {label:<8} ") for label in labels]
        assert places == sorted(places) and min(places) >= 0
        assert plain(cause.headline[:40]) in plain(page)
        assert not cause.steps or "     $ " in page


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=NAMES)
def test_a_ticket_is_one_page_of_its_own_fields(folder: Path) -> None:
    report = node(folder)
    page = ticket.render(report)
    theirs = [cause for cause in report["causes"] if cause["owner"] not in ("you", "job-code")]
    assert len(page.splitlines()) <= 22 + 40 * max(len(theirs or report["causes"]), 1)
    assert "Owner:" not in page and "Consequences" not in page and "$ " not in page


def words_of(entry: Entry) -> list[str]:
    if isinstance(entry, Quote):
        return [entry.place, entry.text, entry.note]
    if isinstance(entry, Advice):
        return [entry.text, *(step.command for step in entry.steps), *(part.text for part in entry.closing)]
    return [entry.name, entry.text]


def every_word(page: JobPage, without: Sequence[str] = ()) -> Iterator[str]:
    for section in page.sections:
        if section.name not in without:
            for entry in section.entries:
                yield from filter(None, words_of(entry))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("log", LOGS, ids=[path.name for path in LOGS])
def test_every_view_of_a_job_says_all_of_its_verdict(log: Path) -> None:
    document = job(log)
    page = job_page(document)
    long = plain(job_text.render(document, width=WIDE, verbose=True))
    browser = web(html.render(document))
    items = diagnosis.items(document, job_page(document), 200, UNICODE)
    screen = "".join(shown(item.paras) for item in items)
    first = [page.headline, *(f"{part.label} {part.text}" for part in page.opening)]
    follow(long, [*first, *(section.title for section in page.sections)], "text")
    follow(browser, [page.headline, *(section.title for section in page.sections)], "html")
    follow(screen, first, "screen")
    for word in every_word(page):
        assert plain(word)[:200] in long and plain(word) in browser, word
    for word in every_word(page, without=("timeline",)):  # which the screen draws
        assert plain(word) in screen, word


@pytest.mark.sampled(6)
@pytest.mark.parametrize("log", LOGS, ids=[path.name for path in LOGS])
def test_the_first_screen_of_a_verdict_has_what_to_type(log: Path) -> None:
    document = job(log)
    page = job_page(document)
    lines = [
        "".join(text for text, _ in line)
        for para in diagnosis.items(document, job_page(document), 80, UNICODE)[0].paras
        for line in para.lines(80)
    ]
    seen = "\n".join(lines[:12])
    assert page.first is None or ("first" in seen and page.first.command.split()[0] in seen)
