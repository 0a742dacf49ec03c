"""Why a job died, as a page: what happened, who, the evidence, what it is not, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import as_list, objects, words
from nodedoctor.report import triage_view
from nodedoctor.report.html import blocks, ranks, shell
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces, lines
from nodedoctor.report.saved import fix
from nodedoctor.wording import decimal

_WORDS = {"failure": ("FAIL", "fail"), "clean": ("PASS", "pass"), "recovered": ("PASS", "pass")}
_UNKNOWN = ("UNKN", "unknown")


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.triage/1` document."""
    outcome, cause = words(document.get("outcome")), words(document.get("cause"))
    headline = words(document.get("headline")) or "(nothing is said)"
    word, tone = _WORDS.get(outcome, _UNKNOWN)
    why = "Seen" if outcome in triage_view.CALM else "Why"
    maybe = "Less likely" if outcome == "failure" else "What it may be"
    return shell.page(
        f"{word} {cause}: {headline}"[:120],
        _head(document, headline, blocks.mark(word, tone), cause, tone),
        blocks.section("ranks", "Ranks", ranks.grids(document)),
        blocks.section("evidence", why, each_piece(map(_evidence, objects(document.get("evidence"))))),
        blocks.section("do", "What to do", _fixes(document.get("fixes"))),
        blocks.section("next", "What would decide", _fixes(document.get("next"))),
        blocks.section("not", "What it is not", _reasons(document.get("not_the_cause"), "claim", "why")),
        blocks.section("others", maybe, _reasons(document.get("alternatives"), "cause", "why_less_likely")),
        blocks.section("also", "Errors that decided nothing", _pairs(triage_view.also_seen(document))),
        blocks.section("collective", "The collective", _collective(document.get("collective"))),
        blocks.section("timeline", "Timeline", _timeline(document)),
        blocks.section("earlier", "Earlier runs in these logs", _earlier(document)),
        blocks.section("jobs", "Jobs in these logs", _jobs(document)),
        blocks.section("coverage", "What was read", _coverage(document)),
    )


def _head(document: Mapping[str, Any], headline: str, word: Markup, cause: str, tone: str) -> Markup:
    confidence = words(document.get("confidence"))
    unsure = words(document.get("outcome")) in triage_view.UNSURE
    sure = f"confidence: {confidence}" if confidence and not unsure else ""
    earlier = triage_view.earlier_failures(document)
    again = (
        f"{earlier} earlier failure{'s' if earlier > 1 else ''} before this attempt" if earlier > 0 else ""
    )
    said = (element("span", part) for part in (sure, again) if part)
    return element(
        "header",
        element("h1", word, " ", cause or "undetermined"),
        element(
            "p",
            headline[:1].upper() + headline[1:] + ("" if headline.endswith(".") else "."),
            class_="headline",
        ),
        element("p", each_piece(said, between=" "), class_="when"),
        class_=f"head {tone}",
    )


def _fixes(value: Any) -> Markup:
    steps = (_step(item) for item in objects(value))
    shown = each_piece(steps)
    return element("ol", shown, class_="steps") if shown else shown


def _step(item: Mapping[str, Any]) -> Markup:
    step = fix(item)
    assert step is not None
    return element("li", blocks.remedy(step, ""), class_="item")


def _evidence(item: Mapping[str, Any]) -> Markup:
    """One line of evidence under the place it stands at."""
    line, rank = words(item.get("line")), words(item.get("rank"))
    folder, slash, name = words(item.get("source")).rpartition("/")
    return element(
        "div",
        element(
            "p",
            element("span", folder + slash, class_="quiet"),
            element("strong", name + (f":{line}" if line else "")),
            f"  rank {rank}" if rank else None,
            element("span", f"  {words(item.get('time'))}", class_="quiet"),
            class_="probe",
        ),
        element("pre", lines(words(item.get("text")))),
        class_="item line",
    )


def _reasons(value: Any, left: str, right: str) -> Markup:
    return _pairs((words(item.get(left)), words(item.get(right))) for item in objects(value))


def _pairs(pairs: Iterable[tuple[str, str]]) -> Markup:
    told = (element("li", element("strong", left), ": ", right, class_="item") for left, right in pairs)
    shown = each_piece(told)
    return element("ul", shown, class_="reasons") if shown else shown


def _collective(value: Any) -> Markup:
    if not isinstance(value, dict):
        return Markup()
    told = value.get("size_can_explain_wait")
    explains = ("yes" if told else "no") if isinstance(told, bool) else ""
    return blocks.pairs(
        (
            ("operation", words(value.get("op"))),
            ("sequence number", words(value.get("seq"))),
            ("group", words(value.get("group"))),
            ("elements in", _count(value.get("numel_in"))),
            ("elements out", _count(value.get("numel_out"))),
            ("ranks, by its sizes", words(value.get("implied_ranks"))),
            ("timeout", _seconds(value.get("timeout_seconds"))),
            ("bytes", _each(value.get("bytes_by_dtype"), _count)),
            ("takes", _each(value.get("expected_seconds"), _seconds)),
            ("its size explains the wait", explains),
        )
    )


def _each(value: Any, shown: Any) -> str:
    told = value.items() if isinstance(value, dict) else ()
    return ", ".join(f"{shown(number)} {key}" for key, number in told)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else words(value)


def _seconds(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return words(value)
    return f"{decimal(value)} s" if value >= 1 or not value else f"{decimal(1000 * value, 2)} ms"


def _timeline(document: Mapping[str, Any]) -> Markup:
    body = each_piece(
        element(
            "tr",
            element("td", moment.first or "-"),
            element("td", moment.who),
            element("td", moment.event, f" until {moment.last}" if moment.last != moment.first else None),
            class_="item",
        )
        for moment in triage_view.moments(document)
    )
    return element("table", element("tbody", body), class_="timeline") if body else body


def _earlier(document: Mapping[str, Any]) -> Markup:
    told = (
        element(
            "li", element("strong", cause), ": ", said,
            element("span", f"  {where}", class_="quiet") if where else None, class_="item",
        )
        for cause, said, where in triage_view.earlier(document)
    )  # fmt: skip
    shown = each_piece(told)
    return element("ul", shown, class_="reasons") if shown else shown


def _jobs(document: Mapping[str, Any]) -> Markup:
    told = (
        element("li", element("strong", name), ": ", known, " (judged here)" if judged else "", class_="item")
        for name, known, judged in triage_view.jobs(document)
    )
    shown = each_piece(told)
    return element("ul", shown, class_="reasons") if shown else shown


def _coverage(document: Mapping[str, Any]) -> Markup:
    told = document.get("coverage")
    if not isinstance(told, dict):
        return Markup()
    seen = len(as_list(told.get("ranks_seen")))
    expected = words(told.get("ranks_expected"))
    return join_pieces(
        element("p", ", ".join(_read(told, seen, expected))),
        _notes((*_gaps(document), *map(words, as_list(told.get("notes"))))),
    )


def _gaps(document: Mapping[str, Any]) -> Iterator[str]:
    if absent := triage_view.unheard(document):
        yield absent
    if lost := triage_view.unread(document):
        yield f"{lost} lines or files could not be opened"


def _read(told: Mapping[str, Any], seen: int, expected: str) -> Iterator[str]:
    files = words(told.get("files"))
    yield f"{files or 'an unknown number of'} file{'' if files == '1' else 's'}"
    if told.get("bytes") is not None:
        yield f"{_count(told.get('bytes'))} bytes"
    if expected:
        yield f"{seen} of {expected} ranks"


def _notes(notes: Iterable[str]) -> Markup:
    shown = each_piece(element("li", note) for note in notes if note)
    return element("ul", shown, class_="reasons") if shown else shown
