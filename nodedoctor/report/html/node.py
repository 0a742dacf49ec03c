"""One node's report as a page: what is wrong and what to do first, what is well folded away."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from nodedoctor.model import WORST_FIRST, Outcome, Status
from nodedoctor.report.document import (
    Finding,
    Fix,
    Probe,
    Report,
    Result,
    full_summary,
    in_preview,
    is_blind,
    is_broken,
    preview_mark,
    problems_first,
    severity_of,
    worst,
)
from nodedoctor.report.html import blocks, markup, topology
from nodedoctor.report.html.facts import facts
from nodedoctor.report.html.markup import Markup, Piece, each_piece, element, join_pieces, prose
from nodedoctor.report.page import (
    FIX,
    FOLLOWS,
    SEE_IT,
    WHY,
    CausePage,
    Labelled,
    cause_pages,
    group_results,
    identity,
    lead,
    other_problems,
)
from nodedoctor.wording import and_more, label_if_unnamed, utc_time

_PART = {Status.PASS: "passed", Status.SKIP: "skipped"}
_SOURCE = {"live": "looked at live", "replay": "from a recording"}


def render(report: Report) -> str:
    """The page of a `nodedoctor.report/1` document."""
    results = problems_first(report["results"])
    sick = [result for result in results if severity_of(result).is_problem]
    unseen = [result for result in sick if is_blind(worst(result))]
    problems = [result for result in sick if not is_blind(worst(result))]
    healthy = results[len(sick) :]
    passed = [result for result in healthy if result["status"] == Status.PASS.value]
    skipped = [result for result in healthy if result["status"] == Status.SKIP.value]
    noted = [result for result in passed if any(map(_worth_knowing, result["findings"]))]
    fixes, causes = _Fixes(), cause_pages(report)
    causes_part = blocks.section(
        "causes", "Causes", each_piece(_cause_block(cause, fixes) for cause in causes)
    )
    others = _problems_section(problems, causes, fixes)
    return markup.page(
        f"{Status(report['verdict']).word} {identity(report['node'])[0]}",
        _page_head(report, bool(problems), bool(unseen)),
        causes_part,
        others if causes_part or others else element("p", "No problem was found.", class_="calm"),
        blocks.section("unseen", "Could not be seen", _result_rows(unseen, fixes), count=len(unseen)),
        blocks.section("noted", "Worth knowing", _note_rows(noted)),
        blocks.folded("passed", "Passed", _result_rows(passed, fixes), count=len(passed)),
        blocks.folded("skipped", "Skipped", _result_rows(skipped, fixes), count=len(skipped)),
        blocks.section("topology", "Topology", topology.tables(report["facts"])),
        _probe_rows(report["probes"]),
        blocks.folded("facts", "Facts", facts(report["facts"]), count=len(report["facts"])),
    )


def _page_head(report: Report, problems: bool, unseen: bool) -> Markup:
    host, *rest = identity(report["node"])
    more = (report["node"].get(key) for key in ("product", "form", "kernel"))
    moment = [
        utc_time(report["started"]),
        f"in {report['seconds']:.1f} s",
        _SOURCE.get(report["source"], report["source"]),
        f"nodedoctor {report['tool']}" if report["tool"] else "",
    ]
    return element(
        "header",
        element("h1", blocks.word(Status(report["verdict"])), " ", host),
        element("p", lead(report), class_="headline") if report["causes"] else None,
        element("p", _dotted_line(rest), class_="what") if rest else None,
        element("p", _dotted_line([*(str(value) for value in more if value), *moment]), class_="when"),
        element("p", each_piece(_count_links(report, problems, unseen), between=" "), class_="counts"),
        class_=f"head {report['verdict']}",
    )


def _dotted_line(parts: Iterable[str]) -> Markup:
    return each_piece((element("span", part) for part in parts if part), between=" ")


def _count_links(report: Report, problems: bool, unseen: bool) -> Iterator[Markup]:
    """The counts, worst first, each leading to its part of the page."""
    counts = report["counts"]
    first = "causes" if report["causes"] else "problems"
    broken = any(is_broken(worst(result)) for result in report["results"])
    for status in WORST_FIRST:
        count = counts[status.value]
        if count:
            part = "unseen" if status is Status.UNKNOWN and unseen and not broken else first
            where = _PART.get(status, part)
            yield element("a", blocks.mark(str(count), status.value), f" {status.value}", href=f"#{where}")


def _cause_block(cause: CausePage, fixes: _Fixes) -> Markup:
    """A cause in the order of every view: whose move it is, why it matters, the proof, the steps."""
    finding = cause.finding
    evidence = blocks.evidence(finding["evidence"]) if finding else None
    done = fixes.remedy(cause.fix, cause.check, FIX, f"cause-{cause.id}", cause.closing)
    proof = element("div", evidence, class_="seen") if evidence else None
    follows = (element("li", text) for text in cause.follows)
    mark = element("em", cause.mark) if cause.mark else None
    return element(
        "article",
        element("h3", blocks.word(cause.status), " ", cause.headline, mark),
        *(blocks.labelled(part.label, prose(part.text)) for part in cause.opening),
        element("div", proof, done, class_="finding two" if proof and done else "finding"),
        blocks.labelled(FOLLOWS, element("ul", each_piece(follows)), "div") if cause.follows else None,
        class_=f"item problem {cause.status.value}",
        id=f"cause-{cause.id}",
    )


def _problems_section(results: list[Result], causes: list[CausePage], fixes: _Fixes) -> Markup:
    title = "Every other finding" if causes else "Problems"
    entries = (_problem_block(group, shown, fixes) for group, shown in other_problems(results, causes))
    return blocks.section("problems", title, each_piece(entries))


def _problem_block(group: list[Result], shown: list[Finding], fixes: _Fixes) -> Markup:
    result, *others = group
    names = join_pieces(*(element("code", peer["check"]) for peer in group), between=" ")
    title = None if others or not result["title"] else element("span", result["title"], class_="holds")
    return element(
        "article",
        element("h3", blocks.word(Status(result["status"])), " ", names, " ", title),
        *(_finding_block(result, finding, fixes) for finding in shown),
        blocks.labelled(WHY, None if others else prose(result["why"])),
        class_=f"item problem {result['status']}",
        id=f"check-{result['check']}",
    )


def _finding_block(result: Result, finding: Finding, fixes: _Fixes) -> Markup:
    status, evidence = finding["status"], finding["evidence"]
    own = blocks.word(Status(status)) if status != result["status"] else None
    reason = f" ({finding['reason']})" if finding["reason"] else None
    proof = element("div", blocks.evidence(evidence), class_="seen") if evidence else None
    done = fixes.remedy(finding["fix"], result["check"], FIX)
    return element(
        "div",
        element("p", own, " " if own else None, *_finding_text(finding), reason, class_="summary"),
        proof,
        done,
        class_="finding two" if proof and done else "finding",
    )


def _finding_text(finding: Finding) -> tuple[Piece, ...]:
    name = label_if_unnamed(finding["subject"] or "", full_summary(finding))
    subject = element("strong", name) if name else None
    waived = element("em", f" waived: {finding['waived']}") if finding["waived"] else None
    preview = element("em", preview_mark(finding)) if in_preview(finding) else None
    return subject, " " if subject else None, prose(full_summary(finding)), waived, preview


def _result_rows(results: Iterable[Result], fixes: _Fixes) -> Markup:
    """One entry a result; those that say the same (no GPU here, no permission) share one."""
    return blocks.rows(_result_row(group, fixes) for group in group_results(results).values())


def _result_row(group: list[Result], fixes: _Fixes) -> Markup:
    result, *others = group
    decisive, status = worst(result), Status(result["status"])
    rest = len(result["findings"]) - 1
    more = None if others else and_more(rest) or None
    many = (
        element("div", " ".join(peer["check"] for peer in group), class_="quiet checks") if others else None
    )
    unknown = decisive["status"] == Status.UNKNOWN.value
    fix = fixes.remedy(decisive["fix"], result["check"], SEE_IT) if unknown else None
    name = f"{len(group)} checks" if others else result["check"]
    anchor = f"check-{result['check']}" if fix else None
    return blocks.row(blocks.word(status), name, *_finding_text(decisive), more, many, fix, id_=anchor)


def _note_rows(results: Iterable[Result]) -> Markup:
    return blocks.rows(
        blocks.row(
            blocks.word(Status(result["status"])),
            result["check"],
            *_finding_text(finding),
            _folded_details(finding),
        )
        for result in results
        for finding in result["findings"]
        if _worth_knowing(finding)
    )


def _worth_knowing(finding: Finding) -> bool:
    return finding["note"] or finding["waived"] is not None


def _folded_details(finding: Finding) -> Markup | None:
    """What a note rests on and what could be done about it, folded, as it is optional."""
    fix = finding["fix"]
    shown = join_pieces(blocks.evidence(finding["evidence"]), blocks.remedy(fix) if fix else None)
    if not shown:
        return None
    head = "evidence and advice" if fix else "evidence"
    return element("details", element("summary", head), shown, class_="small")


class _Fixes:
    """Which fixes were written already: the same one is written once, and named after that."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}  # a fix written out, the first check that has it, where

    def remedy(
        self,
        fix: Fix | None,
        check: str,
        label: str,
        place: str = "",
        closing: Iterable[Labelled] | None = None,
    ) -> Markup | None:
        """The fix, or where it is."""
        if fix is None:
            return None
        if first := self._told.get(str(fix)):
            where = element("a", first[0], href=f"#{quote(first[1])}")
            return element("div", blocks.labelled(label, join_pieces("as for ", where)), class_="do")
        self._told[str(fix)] = (check, place or f"check-{check}")
        return blocks.remedy(fix, label, closing)


def _probe_rows(probes: list[Probe]) -> Markup:
    entries = (
        blocks.row(
            blocks.mark(probe["outcome"], "skip" if probe["outcome"] == Outcome.OK.value else "warn"),
            probe["name"],
            element("code", shlex.join(probe["argv"]), class_="argv") if probe["argv"] else None,
            element("span", _probe_ending(probe), class_="quiet"),
        )
        for probe in probes
    )
    return blocks.folded("probes", "Commands that were run", blocks.rows(entries), count=len(probes))


def _probe_ending(probe: Probe) -> str:
    parts = [
        f"{probe['seconds']:.2f} s",
        f"exit {probe['rc']}" if probe["rc"] else "",
        "cut off" if probe["truncated"] else "",
        probe["note"],
    ]
    return ", ".join(part for part in parts if part)
