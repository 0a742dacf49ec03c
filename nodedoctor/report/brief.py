"""The report in one screen: each cause with why it matters, the proof and the steps; `-v` has the rest.

Linear like the long form, and no longer than a terminal is high where one thing is wrong. Commands stand
alone on lines that start with `$`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from nodedoctor.knowledge.ownership import carries_out
from nodedoctor.model import Status
from nodedoctor.report.document import (
    Cause,
    Finding,
    Fix,
    Report,
    Result,
    full_summary,
    is_blind,
    marked,
    severity_of,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.lead import first_command, healthy_headline, lead, of_cause, root, whose
from nodedoctor.report.steps import REPAIR, StepText, advice, repair_steps
from nodedoctor.report.text import COLOUR, group_results, headline, sentence, tally
from nodedoctor.wording import count_with_noun, short_name

LINES = 24
"""Lines of a report with one cause: the height of a terminal."""
_FULL = 3
"""Causes that are written out; the others get a line and what to type first."""
_BLOCK = LINES - 6
"""Lines of one cause: what the head, the foot and the blank lines around it leave."""
_MOST = {"why": 2, "proof": 3, "fix": 3, "also": 2}
"""Lines of each part of a cause; the steps have the rest."""
_BLIND_GROUPS = 3
_INDENT = "     "
_SENTENCE = re.compile(r"(?<=[.])(?= [A-Z`])")


def render(report: Report, *, width: int = 80, colour: bool = False, quiet: bool = False) -> str:
    """The causes, the worst first; with `quiet` nothing else."""
    page = _Page(report, max(width, 40), colour)
    page.head()
    causes = report["causes"]
    worst_first = (
        [cause for cause in causes if cause["status"] == causes[0]["status"]][:_FULL] if causes else []
    )
    for cause in worst_first:
        page.cause(cause)
    page.others(causes[len(worst_first) :])
    if not quiet:
        page.foot()
    return "\n".join(page.lines) + "\n"


class _Page:
    """Lines under way, at one width."""

    def __init__(self, report: Report, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self._report, self._width, self._colour = report, width, colour

    def head(self) -> None:
        """What is broken, which node it is, how the checks ended."""
        report, status = self._report, Status(self._report["verdict"])
        self.lines.append(lead(report) or healthy_headline(report))
        self.lines.append(headline(report["node"]))
        word = self._paint(status.value, status.word)
        self.lines.append(f"{word}  {tally(report)}   in {report['seconds']:.1f} s")

    def cause(self, cause: Cause) -> None:
        """One cause: what was found, why it matters, the proof, what to do, what follows from it."""
        self.lines.append("")
        start = len(self.lines)
        found = root(self._report, cause)
        if found is None:
            self._status(cause, inert(cause["headline"]))
            return
        check, finding, why = found
        name = cause["id"] if cause["id"].startswith("probe:") else check
        shared = len(cause["subjects"]) > 1
        self._status(cause, f"{name}  {inert(cause['headline']) if shared else sentence(finding)}")
        self._labelled("owner", whose(self._report, cause), 1)
        self._prose("why", why, _MOST["why"])
        self._proof(finding)
        follows, fix = ", ".join(self._follows(cause)), finding["fix"]
        also = 1 if fix and _goal(cause, fix) else _MOST["also"]
        if fix:
            self._prose("fix", advice(fix), _MOST["fix"])
            self._steps(fix, _BLOCK - (len(self.lines) - start) - also * bool(follows), cause)
        self._labelled("also", follows, also)

    def others(self, causes: Sequence[Cause]) -> None:
        """The causes that are not written out, two lines each."""
        if causes:
            self.lines.append("")
        for cause in causes:
            self._status(cause, of_cause(cause))
            if command := first_command(cause):
                self.lines.append(f"{_INDENT}$ {command}")

    def foot(self) -> None:
        """What could not be seen, what is waived, and where the rest is."""
        results = self._report["results"]
        unseen = [r for r in results if r["status"] == Status.UNKNOWN.value and is_blind(worst(r))]
        waived = [f for result in results for f in result["findings"] if f["waived"] is not None]
        if waived:
            self.lines.append("")
            self._labelled("waived", ", ".join(f"{f['id']} ({f['waived']})" for f in waived), 2)
        if unseen and not self._report["causes"]:
            self.lines.append("")
            self._unseen(unseen)
        few = (
            [f"{count_with_noun(len(unseen), 'check')} could not judge (no access or no data)"]
            if unseen
            else []
        )
        well = [result for result in results if not severity_of(result).is_problem]
        self.lines += ["", "; ".join([*few, f"{len(well)} passed or do not apply", "-v shows everything"])]

    def _unseen(self, unseen: Sequence[Result]) -> None:
        """The reasons most checks share for not seeing enough, and the way out of each."""
        groups = sorted(group_results(unseen).values(), key=len, reverse=True)
        for group in groups[:_BLIND_GROUPS]:
            finding = worst(group[0])
            count = count_with_noun(len(group), "check") if len(group) > 1 else group[0]["check"]
            self._wrapped(
                f"{self._paint('unknown', 'UNKN')} ", f"{count}: {full_summary(finding)}", 2, len(_INDENT)
            )
            if finding["fix"]:
                self._labelled("see it", finding["fix"]["text"], 2)

    def _follows(self, cause: Cause) -> Iterator[str]:
        """What else is so because of it."""
        shared = {f"{cause['id'].partition('@')[0]}@{subject}" for subject in cause["subjects"]}
        yield from (inert(id) for id in cause["explains"] if id not in shared)
        if cause["unjudged"]:
            yield f"{count_with_noun(cause['unjudged'], 'check')} not judged"

    def _proof(self, finding: Finding) -> None:
        lines = [
            line for one in finding["evidence"] for line in marked(one, inert_lines(one["text"].strip("\n")))
        ]
        room = self._width - len(_INDENT)
        shown = lines[: _MOST["proof"]] if len(lines) <= _MOST["proof"] else lines[: _MOST["proof"] - 1]
        self.lines += [
            f"{_INDENT}{line if len(line) <= room else line[: room - 3] + '...'}" for line in shown
        ]
        if len(lines) > len(shown):
            self.lines.append(
                f"{_INDENT}| ... {count_with_noun(len(lines) - len(shown), 'more line')} with -v"
            )

    def _steps(self, fix: Fix, room: int, cause: Cause) -> None:
        """Whole commands in at most so many lines, each under what it is for.

        The first ones, in their order: none before a reset is left out while the reset shows. Where the one
        that does what the headline says does not fit, the last line names it. Last resorts are for -v.
        """
        steps, goal = repair_steps(fix), _goal(cause, fix)
        ticket = cause["action"] == "replace-node"
        room -= bool(fix["verify"]) + ticket
        shown = _fitting(steps, room, goal)
        for before, step in zip([None, *shown], shown, strict=False):
            if before is None or before.heading != step.heading:
                self._wrapped(_INDENT, step.heading, 1)
            self.lines.append(f"{_INDENT}$ {step.command}")
        self._more(steps[len(shown) :], goal)
        if ticket:
            self._labelled("ticket", "nodedoctor --ticket ticket.md", 1)
        self._labelled("verify", fix["verify"] or "", 1)

    def _more(self, hidden: Sequence[StepText], goal: StepText | None) -> None:
        """How many steps are for -v, and whether the one that counts is among them."""
        if hidden:
            last = ", also the last resort" if hidden[-1].last else ""
            which = f", also {goal.command}" if goal in hidden and goal else last
            self._wrapped(f"{_INDENT}... ", f"{count_with_noun(len(hidden), 'more step')} with -v{which}", 1)

    def _prose(self, label: str, text: str, most: int) -> None:
        """Whole sentences, as many as fit in so many lines; a first one that does not fit is cut."""
        room = self._width - len(_INDENT) - 8
        told = inert(text)
        ends = [*(end.start() for end in _SENTENCE.finditer(told)), len(told)]
        fit = [end for end in ends if len(textwrap.wrap(f"{told[:end]} ...", room)) <= most]
        whole = fit[-1] if fit and len(textwrap.wrap(told, room)) > most else len(told)
        self._labelled(label, told if whole == len(told) else f"{told[:whole]} ...", most)

    def _labelled(self, label: str, text: str, most: int) -> None:
        if text:
            self._wrapped(f"{_INDENT}{label:<7} ", text, most)

    def _status(self, cause: Cause, text: str, most: int = 2) -> None:
        word = Status(cause["status"]).word
        self._wrapped(f"{self._paint(cause['status'], word)} ", text, most, indent=len(_INDENT))

    def _wrapped(self, prefix: str, text: str, most: int, indent: int = 0) -> None:
        """A text of at most so many lines behind a prefix; what does not fit ends in dots."""
        indent = indent or len(prefix)
        room = self._width - indent
        words = (short_name(word, room - 4) for word in inert(text).split(" "))
        lines = textwrap.wrap(
            " ".join(words),
            room,
            max_lines=most,
            placeholder=" ...",
            break_long_words=False,
            break_on_hyphens=False,
        )
        first, *rest = lines or [""]
        self.lines += [prefix + first, *(" " * indent + line for line in rest)]

    def _paint(self, status: str, word: str) -> str:
        return f"\x1b[{COLOUR[Status(status)]}m{word}\x1b[0m" if self._colour else word


def _goal(cause: Cause, fix: Fix) -> StepText | None:
    """The step that does what the cause's headline says."""
    return next((step for step in repair_steps(fix) if carries_out(cause["action"], step.command)), None)


def _fitting(steps: Sequence[StepText], room: int, goal: StepText | None) -> Sequence[StepText]:
    """The first steps that fit in so many lines; half of a repair is for -v, unless it comes first."""
    count = used = 0
    for number, step in enumerate(steps):
        new = not number or steps[number - 1].heading != step.heading
        rest = number + 1 < len(steps)
        if (step.last and step != goal) or used + new + 1 + rest > room:
            break
        count = number + 1
        used += new + 1
    shown, rest_of_repair = steps[:count], [step for step in steps[count:] if not step.last]
    looks = next((number for number, step in enumerate(shown) if step.word == REPAIR), count)
    return shown[:looks] if looks and rest_of_repair and goal not in shown else shown
