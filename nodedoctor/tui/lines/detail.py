"""What the screens say about checks: the row, the panel, the head. Text in, lines out; nothing is drawn here.

Everything from the node passes `inert` on its way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

from nodedoctor.model import WORST_FIRST, Outcome, Status
from nodedoctor.report.document import (
    Cause,
    Finding,
    Fix,
    Probe,
    Result,
    is_blind,
    marked,
    severity,
    severity_of,
    word_of,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.page import FIX, PROOF, SEE_IT, WHY, after_steps, headline, moment, sentence
from nodedoctor.report.steps import StepText, advice, interrupted, repair_steps
from nodedoctor.tui.state import CheckInfo, State, Waiting
from nodedoctor.tui.theme import DANGER, LABEL, QUIET, RUN, STYLE, Para, Part, Row
from nodedoctor.wording import and_more, capitalised

EVIDENCE_LINES = 12
"""Lines of evidence per finding in the panel; the full screen has them all."""
LONGEST = 4000
"""Characters shown of one line of evidence."""

_ADDRESS = re.compile(r"https://[\w./#?=&%+~:-]+")
SLOW = 1.0
"""Seconds from which it is worth a column what a check cost; the Probes screen has all of them."""


def head(state: State, narrowed: str = "", width: int = 1 << 16) -> list[tuple[Part, ...]]:
    """Two lines: what this node is, and its status so far; how the list is filtered, if it is.

    What does not fit is left out whole: half a date or version says less than none.
    """
    answered = [result for result in state.report["results"] if result["check"] not in state.running]
    sickest = max(answered, key=severity_of, default=None)
    parts: list[Part] = []
    if sickest is None or (state.running and not severity_of(sickest).is_problem):
        parts.append(("RUN ", RUN))
    else:
        status = Status(sickest["status"])
        parts.append((status.word, STYLE[status]))
    for status in WORST_FIRST[:-1]:
        count = sum(result["status"] == status.value for result in answered)
        if count:
            parts.append((f"  {count} {status.value}", ""))
    if state.running:
        parts.append((f"  {len(state.running)} running", RUN))
        parts.append((f"   {state.done}/{len(state.report['results'])}", QUIET))
    count = sum(is_certain(cause, state) for cause in state.report["causes"])
    if count:
        parts.insert(1, (f"  {count} cause{'s'[: count > 1]}", LABEL))
    room = width - sum(cell_len(text) for text, _ in parts) - 2
    if narrowed:
        parts.append((f"  [{narrowed}]", LABEL))
    elif when := next((text for text in _time_texts(state) if cell_len(text) <= room), ""):
        parts.append((f"  {when}", QUIET))
    node = headline(state.report["node"]).replace("x NVIDIA ", "x ").replace("   ", "  ")
    while cell_len(node) > width and "  " in node:
        node = node.rpartition("  ")[0]
    return [((node, LABEL),), tuple(parts)]


def is_certain(cause: Cause, state: State) -> bool:
    """Whether more answers cannot change it: a check that still runs counts as unknown so far."""
    failed = cause["status"] == Status.FAIL.value and cause["id"].partition("@")[0] not in state.running
    return failed or not state.running


def row(result: Result, waiting: Waiting | None) -> Row:
    """The line of a check in the list; `waiting` while it has no answer."""
    if waiting is not None:
        text = f"waiting for {waiting.probe}" if waiting.probe else result["title"]
        end = f"{waiting.seconds:.0f} s" if waiting.probe else ""
        return Row(result["check"], "RUN", RUN, result["check"], text, end)
    decisive, status = worst(result), Status(result["status"])
    more = sum(severity(finding).is_problem for finding in result["findings"]) - 1
    notes = sum(finding["note"] for finding in result["findings"] if finding is not decisive)
    text = sentence(decisive) + and_more(more) + (" (see note)" if notes else "")
    body = QUIET if status is Status.SKIP else ""
    end = f"{result['seconds']:.1f} s" if result["seconds"] >= SLOW else ""
    return Row(result["check"], word_of(result), STYLE[status], result["check"], text, end, body)


def detail(
    state: State, result: Result, check: CheckInfo | None, *, full: bool, steps: bool = True
) -> list[Para]:
    """Everything there is to say about a check, the most urgent first; its steps may be shown elsewhere."""
    waiting = state.running.get(result["check"])
    status = Status(result["status"])
    word, style = status.word, STYLE[status]
    if waiting is not None:
        word, style = "RUN", RUN
    paras = [Para(word, f"{result['check']}  ", style)]
    if waiting is not None:
        paras += _waiting_paras(waiting)
    else:
        seen = {seen["name"]: seen for seen in state.report["probes"]}
        paras += _finding_paras(result, seen, full, steps)
    paras.append(Para())
    if result["why"]:
        paras.append(labelled(WHY, capitalised(result["why"])))
    paras.append(labelled("expects", result["title"]))
    if check is not None and check.what:
        paras.append(labelled("looks at", check.what))
    has_disturbance = any(finding["fix"] and finding["fix"]["disturbs"] for finding in result["findings"])
    if check is not None and interrupted(check.disturbs) and not has_disturbance:
        paras.append(labelled("fixing it", f"interrupts {check.disturbs}"))
    return paras


def probe_line(probe: Probe) -> str:
    """How a probe went: outcome unless it simply answered, exit status, seconds."""
    parts = [] if probe["outcome"] == Outcome.OK.value else [probe["outcome"]]
    parts += [f"rc {probe['rc']}"] if probe["rc"] is not None else []
    return "  ".join([*parts, f"{probe['seconds']:.1f} s"])


def _waiting_paras(waiting: Waiting) -> Iterator[Para]:
    if waiting.probe:
        yield Para(f"waiting for {waiting.probe}, {waiting.seconds:.0f} s so far")
    else:
        yield Para("its probes wait for their turn")


def _finding_paras(result: Result, probes: dict[str, Probe], full: bool, steps: bool) -> Iterator[Para]:
    """The findings that are not well with their fixes, then notes, then the rest in a line each."""
    order = sorted(result["findings"], key=lambda finding: -severity(finding))
    shown = [finding for finding in order if severity(finding).is_problem or finding["note"]]
    shown = shown or [worst(result)]
    fix = None
    for number, finding in enumerate(shown):
        if number and shown[number - 1]["evidence"]:
            yield Para()
        yield Para(sentence(finding), style=LABEL if severity(finding).is_problem else "")
        if finding["reason"]:
            yield labelled("reason", finding["reason"])
        if finding["fix"] is not None and finding["fix"] != fix:
            yield Para()
            yield from _fix_paras(finding["fix"], SEE_IT if is_blind(finding) else FIX, steps)
        fix = finding["fix"]
        yield from _evidence_paras(finding, probes, full)
    rest = [finding for finding in order if finding not in shown]
    if rest:
        yield Para()
    for finding in rest:
        status = Status(finding["status"])
        yield Para(sentence(finding), f"{status.word}  ", lead_style=STYLE[status])


def _fix_paras(fix: Fix, label: str, steps: bool) -> Iterator[Para]:
    yield labelled(label, advice(fix))
    for step in repair_steps(fix) if steps else ():
        yield from _step_paras(step)
    yield from (labelled(part.label, part.text) for part in after_steps(fix))


def _step_paras(step: StepText) -> Iterator[Para]:
    """The command beside its role; of a last resort the condition comes first, in a line of its own."""
    under = " " * 10
    if step.last:
        yield Para()
        yield Para(step.heading, under, style="bold red")
        yield Para(step.command, f"{under}$ ", "red", "bold red", verbatim=True)
        return
    yield Para(step.command, f"{lead_of(step.word)}$ ", "bold cyan", "cyan", verbatim=True)
    if step.detail:
        yield Para(step.detail, f"{under}  ", DANGER if step.interrupts else QUIET)


def _evidence_paras(finding: Finding, probes: dict[str, Probe], full: bool) -> Iterator[Para]:
    probe = None
    for evidence in finding["evidence"]:
        if evidence["probe"] != probe:
            how = f"  {probe_line(probes[evidence['probe']])}" if evidence["probe"] in probes else ""
            yield Para(f"{inert(evidence['probe'])}{how}", lead_of(PROOF), QUIET)
        probe = evidence["probe"]
        lines = inert_lines(evidence["text"].strip("\n"))
        shown = lines if full else lines[:EVIDENCE_LINES]
        for line in shown:
            more = f" ... {len(line) - LONGEST} more characters" if len(line) > LONGEST else ""
            yield Para(
                line[:LONGEST] + more, " " * 10 + marked(evidence, [""])[0], lead_style=QUIET, verbatim=True
            )
        if len(shown) < len(lines):
            yield Para(f"... {len(lines) - len(shown)} more lines: enter", " " * 10 + "| ", QUIET, QUIET)


def labelled(label: str, text: str) -> Para:
    """A paragraph behind a label, as wide as all labels; an address is a link."""
    link = f"link {text}" if _ADDRESS.fullmatch(text) else ""
    return Para(inert(text), lead_of(label), link, verbatim=bool(link))


def lead_of(label: str) -> str:
    """A label as wide as all labels."""
    return f"{label:<9} "


def _time_texts(state: State) -> tuple[str, ...]:
    """Seconds of a live run; of a recording, when it was made: the most telling wording first."""
    if state.report["source"] == "live":
        return (f"{state.report['seconds']:.1f} s",)
    when = moment(state.report)
    day = when.rsplit(" ", 2)[0]
    return (when, day, "recorded") if when.endswith(" UTC") else (when,)
