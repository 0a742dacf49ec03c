"""The report for people without a screen of ours: problems first, each with its evidence and its fix.

Linear on purpose: it reads well through a pipe, in a ticket and in a screen reader. Commands stand alone on
lines that start with `$`, so that they can be copied or grepped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from nodedoctor.model import Status
from nodedoctor.report.document import (
    Finding,
    Fix,
    Report,
    Result,
    asides,
    full_summary,
    in_preview,
    is_blind,
    marked,
    problems_first,
    severity,
    severity_of,
    word_of,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.lead import lead
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.wording import about, count_with_noun

EVIDENCE_LINES = 6
"""Lines of evidence shown per finding; the JSON has all of them."""

_INDENT = "     "
COLOUR = {Status.FAIL: "1;31", Status.WARN: "33", Status.UNKNOWN: "35", Status.PASS: "32", Status.SKIP: "2"}


def render(report: Report, *, width: int = 80, colour: bool = False, quiet: bool = False) -> str:
    """The whole report as lines; with `quiet` only what is not well."""
    page = _Page(max(width, 40), colour)
    results = problems_first(report["results"])
    sick = [result for result in results if severity_of(result).is_problem]
    unseen = [result for result in sick if is_blind(worst(result))]
    problems = [result for result in sick if not is_blind(worst(result))]
    page.head(report)
    for group in group_results(problems).values():
        page.problem(group)
    if unseen:
        page.line("", "could not be judged")
        page.rows(unseen)
    if not quiet:
        page.line("")
        page.rows(results[len(sick) :])
    return "\n".join(page.lines) + "\n"


def headline(node: Mapping[str, object]) -> str:
    """What this node is, in one line: name, GPUs, driver, CUDA, torch, container."""
    return inert("   ".join(identity(node)))


def identity(node: Mapping[str, object]) -> list[str]:
    """What this node is, the name first."""
    parts = [str(node.get("hostname") or "unnamed node")]
    if node.get("gpus"):
        parts.append(f"{node['gpus']}x {node.get('gpu') or 'GPU'}")
    elif node.get("gpus") == 0:
        parts.append("no NVIDIA GPU")
    elif node.get("gpus_on_bus"):
        parts.append(
            f"{count_with_noun(int(str(node['gpus_on_bus'])), 'GPU')} on the bus, none could be read"
        )
    for key, label in (("driver", "driver "), ("cuda", "CUDA "), ("torch", "torch "), ("container", "in ")):
        if node.get(key):
            parts.append(f"{label}{node[key]}")
    return parts


def tally(report: Report) -> str:
    """The counts in one line, worst first, without zeros; how many warnings are by rules in preview."""
    order = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)
    counts = report["counts"]
    few = sum(r["status"] == Status.WARN.value and in_preview(worst(r)) for r in report["results"])
    number = "" if few == counts[Status.WARN.value] else f"{few} "
    marks = {Status.WARN: f" ({number}preview)"} if few else {}
    return "  ".join(
        f"{counts[status.value]} {status.value}{marks.get(status, '')}"
        for status in order
        if counts[status.value]
    )


def group_results(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by what they say, in order; what passed always speaks for itself."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        said = sentence(worst(result))
        own = result["status"] == Status.PASS.value or len(result["findings"]) > 1
        groups.setdefault(f"{result['check']}  {said}" if own else said, []).append(result)
    return groups


def sentence(finding: Finding) -> str:
    """Subject, summary, waiver and stage in one line."""
    return about(finding["subject"] or "", full_summary(finding)) + asides(finding)


class _Page:
    """Lines under way, at one width."""

    def __init__(self, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self._width = width
        self._colour = colour
        self._fixes: dict[str, str] = {}  # a fix written out, and the first check that has it

    def line(self, *lines: str) -> None:
        self.lines += lines

    def head(self, report: Report) -> None:
        status = Status(report["verdict"])
        verdict = self._paint(status, status.word)
        self.line(*([lead(report)] if report["causes"] else []))
        self.line(headline(report["node"]), f"{verdict}  {tally(report)}   in {report['seconds']:.1f} s")

    def problem(self, group: list[Result]) -> None:
        """Every finding that is not well, then why it matters; checks that say the same share one entry."""
        result, *others = group
        shown = sorted((f for f in result["findings"] if severity(f).is_problem), key=lambda f: -severity(f))
        for finding in shown:
            name = "" if others else f"{result['check']}  "
            self.line("")
            self._status_line(Status(finding["status"]), f"{name}{sentence(finding)}")
            self._evidence(finding)
            if finding.get("why"):
                self._labelled("why", finding["why"])
            self._fix(finding, "fix", result["check"])
        if others:
            self._indented(" ".join(result["check"] for result in group))
        elif result["why"] and not all(finding.get("why") for finding in shown):
            self._labelled("why", result["why"])

    def rows(self, results: Iterable[Result]) -> None:
        """One entry a result; those that say the same (no GPU here, no permission) share one."""
        for said, group in group_results(results).items():
            if len(group) > 1:
                self._status_line(Status(group[0]["status"]), said)
                self._indented(" ".join(result["check"] for result in group))
            else:
                self._row(group[0])
            if group[0]["status"] == Status.UNKNOWN.value:
                self._fix(worst(group[0]), "see it", group[0]["check"])

    def _row(self, result: Result) -> None:
        """One line a result, and one more for each note worth knowing."""
        decisive = worst(result)
        notes = [f for f in result["findings"] if f is not decisive and (f["note"] or f["waived"])]
        others = len(result["findings"]) - 1 - len(notes)
        more = f" (and {others} more)" if others else ""
        text = f"{result['check']}  {sentence(decisive)}{more}"
        self._status_line(Status(result["status"]), text, word_of(result))
        for note in notes:
            self._labelled("note", sentence(note))

    def _evidence(self, finding: Finding) -> None:
        for evidence in finding["evidence"]:
            lines = inert_lines(evidence["text"].strip("\n"))
            self.line(*(f"{_INDENT}{line}" for line in marked(evidence, lines[:EVIDENCE_LINES])))
            if len(lines) > EVIDENCE_LINES:
                rest = len(lines) - EVIDENCE_LINES
                self.line(
                    f"{_INDENT}| ... {count_with_noun(rest, 'more line')} from {inert(evidence['probe'])}"
                )

    def _fix(self, finding: Finding, label: str, check: str) -> None:
        fix = finding["fix"]
        if fix is None:
            return
        if first := self._fixes.get(str(fix)):
            self._labelled(label, "as above" if first == check else f"as for {first}, above")
            return
        self._fixes[str(fix)] = check
        self._labelled(label, advice(fix))
        self._steps(fix)
        for name, value in (("verify", fix["verify"]), ("docs", fix["docs"])):
            if value:
                self._labelled(name, value)

    def _steps(self, fix: Fix) -> None:
        """Each command alone on its line, under what it is for; a last resort stands apart."""
        heading = ""
        for step in repair_steps(fix):
            if step.heading != heading:
                if step.last:
                    self.line("")
                self._indented(step.heading)
            heading = step.heading
            self.line(f"{_INDENT}$ {step.command}")

    def _labelled(self, label: str, text: str) -> None:
        lead = f"{_INDENT}{label:<9} "
        first, *rest = self._wrapped(text, len(lead))
        self.line(lead + first, *(" " * len(lead) + line for line in rest))

    def _status_line(self, status: Status, text: str, word: str = "") -> None:
        first, *rest = self._wrapped(text, len(_INDENT))
        self.line(f"{self._paint(status, word or status.word)} {first}")
        self.line(*(f"{_INDENT}{line}" for line in rest))

    def _indented(self, text: str) -> None:
        self.line(*(f"{_INDENT}{line}" for line in self._wrapped(text, len(_INDENT))))

    def _wrapped(self, text: str, indent: int) -> list[str]:
        """Lines that fit behind an indent; paths, ids and addresses stay whole."""
        room = self._width - indent
        return textwrap.wrap(inert(text), room, break_long_words=False, break_on_hyphens=False) or [""]

    def _paint(self, status: Status, word: str) -> str:
        return f"\x1b[{COLOUR[status]}m{word}\x1b[0m" if self._colour else word
