"""The whole report for people without a screen of ours: causes first, then every finding with its evidence.

Linear on purpose: it reads well through a pipe, in a ticket and in a screen reader. Commands are alone on
lines that start with `$`, so that they can be copied or grepped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodedoctor.model import Status
from nodedoctor.report.cause_text import write_cause, write_steps
from nodedoctor.report.document import (
    Finding,
    Report,
    Result,
    is_blind,
    marked,
    problems_first,
    severity_of,
    word_of,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.page import (
    FIX,
    SEE_IT,
    WHY,
    CausePage,
    after_steps,
    cause_pages,
    group_results,
    headline,
    lead,
    moment,
    other_problems,
    sentence,
    tally,
)
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.report.writer import INDENT, Writer
from nodedoctor.wording import and_more, count_with_noun

EVIDENCE_LINES = 6
"""Lines of evidence shown per finding that is no cause; the JSON has all of them."""


def render(report: Report, *, width: int = 80, colour: bool = False, quiet: bool = False) -> str:
    """The whole report as lines; with `quiet` only what is not well."""
    page = _Page(Writer(width, colour))
    causes = cause_pages(report)
    results = problems_first(report["results"])
    sick = [result for result in results if severity_of(result).is_problem]
    unseen = [result for result in sick if is_blind(worst(result))]
    page.head(report)
    page.causes(causes)
    page.others([result for result in sick if not is_blind(worst(result))], causes)
    if unseen:
        page.to.line("", "could not be judged")
        page.rows(unseen)
    if not quiet:
        page.to.line("")
        page.rows(results[len(sick) :])
    return page.to.page()


class _Page:
    """A page under way, and the fixes that are written out on it."""

    def __init__(self, to: Writer) -> None:
        self.to = to
        self._fixes: dict[str, str] = {}  # a fix written out, and the first check that has it

    def head(self, report: Report) -> None:
        status = Status(report["verdict"])
        self.to.line(*([lead(report)] if report["causes"] else []), headline(report["node"]))
        self.to.line(f"{self.to.paint(status, status.word)}  {tally(report)}   {moment(report)}")

    def causes(self, causes: Iterable[CausePage]) -> None:
        for cause in causes:
            self.to.line("")
            write_cause(self.to, cause)
            self._fixes.setdefault(str(cause.fix), cause.check)

    def others(self, results: Sequence[Result], causes: Sequence[CausePage]) -> None:
        """The findings that are no cause, with what each rests on."""
        problems = other_problems(results, causes)
        if problems and causes:
            self.to.line("", "every other finding")
        for group, shown in problems:
            self._write_problem(group, shown)

    def _write_problem(self, group: list[Result], shown: list[Finding]) -> None:
        result, *others = group
        for finding in shown:
            name = "" if others else f"{result['check']}  "
            self.to.line("")
            self.to.status(Status(finding["status"]), f"{name}{sentence(finding)}")
            self._write_evidence(finding)
            self.to.labelled(WHY, finding.get("why") or "")
            self._write_fix(finding, FIX, result["check"])
        if others:
            self.to.indented(" ".join(peer["check"] for peer in group))
        elif not all(finding.get("why") for finding in shown):
            self.to.labelled(WHY, result["why"])

    def rows(self, results: Iterable[Result]) -> None:
        """One entry a result; those that say the same (no GPU here, no permission) share one."""
        for summary, group in group_results(results).items():
            if len(group) > 1:
                self.to.status(Status(group[0]["status"]), summary)
                self.to.indented(" ".join(result["check"] for result in group))
            else:
                self._row(group[0])
            if group[0]["status"] == Status.UNKNOWN.value:
                self._write_fix(worst(group[0]), SEE_IT, group[0]["check"])

    def _row(self, result: Result) -> None:
        """One line a result, and one more for each note worth knowing."""
        decisive = worst(result)
        notes = [f for f in result["findings"] if f is not decisive and (f["note"] or f["waived"])]
        others = len(result["findings"]) - 1 - len(notes)
        text = f"{result['check']}  {sentence(decisive)}{and_more(others)}"
        self.to.status(Status(result["status"]), text, word_of(result))
        for note in notes:
            self.to.labelled("note", sentence(note))

    def _write_evidence(self, finding: Finding) -> None:
        for evidence in finding["evidence"]:
            lines = inert_lines(evidence["text"].strip("\n"))
            self.to.line(*(f"{INDENT}{line}" for line in marked(evidence, lines[:EVIDENCE_LINES])))
            if len(lines) > EVIDENCE_LINES:
                rest = count_with_noun(len(lines) - EVIDENCE_LINES, "more line")
                self.to.line(f"{INDENT}| ... {rest} from {inert(evidence['probe'])}")

    def _write_fix(self, finding: Finding, label: str, check: str) -> None:
        """A fix in full the first time, and where it is after that."""
        fix = finding["fix"]
        if fix is None:
            return
        if first := self._fixes.get(str(fix)):
            self.to.labelled(label, "as above" if first == check else f"as for {first}, above")
            return
        self._fixes[str(fix)] = check
        self.to.labelled(label, advice(fix))
        write_steps(self.to, repair_steps(fix))
        for part in after_steps(fix):
            self.to.labelled(part.label, part.text)
