"""Checks by subject: what the panel of each shows, and which checks it narrows the list to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from rich.cells import cell_len

from nodedoctor.model import Status
from nodedoctor.record import record, replace
from nodedoctor.report.document import (
    Cause,
    Finding,
    Result,
    is_blind,
    preview_mark,
    problems_first,
    severity,
)
from nodedoctor.report.inert import inert
from nodedoctor.report.page import first_command, sentence
from nodedoctor.tui.lines.subject_facts import facts_of
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import QUIET, RUN, STYLE, Para, Part

_SUBJECTS = (
    ("Driver", "DRV", ("driver",)),
    ("GPUs", "GPU", ("gpu", "thermal", "power", "clock", "compute")),
    ("Memory", "MEM", ("memory",)),
    ("NVLink", "NVL", ("nvlink", "fabric", "p2p", "topo", "bandwidth")),
    ("PCIe", "PCI", ("pcie",)),
    ("InfiniBand", "IB", ("ib", "nic")),
    ("Network", "NET", ("net",)),
    ("Host", "HOST", ("limits", "host", "env")),
    ("Stack", "STK", ("stack",)),
    ("Container", "CTR", ("container",)),
    ("Ray/Slurm", "RAY", ("ray", "slurm", "collective")),
    ("Kernel log", "LOG", ("kernel",)),
)
OTHER = "Other"
"""The panel of checks with a subject of their own, such as those of plug-ins."""
SHORT = {**{name: short for name, short, _ in _SUBJECTS}, OTHER: "OTH"}
"""The subjects, and their names where there is little room."""
_STATUSES = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.PASS)
_MARK = {Status.FAIL: "X", Status.WARN: "!", Status.UNKNOWN: "?", Status.PASS: ""}
_TALLEST, _LONGEST = 3, 2
"""Lines of the worst finding and of its command at most."""


@record
class Panel:
    """One subject: worst status (None: no answer yet), counts, what is wrong, what to type, facts.

    `is_sick` is false where nothing is to be done: what could only not be seen, `blind` in a word or two, and
    what `follows` from another subject. `also` are its other problems.
    """

    name: str
    code: str
    status: Status | None
    counts: tuple[tuple[Status, int], ...] = ()
    running: int = 0
    is_sick: bool = False
    worst: str = ""
    blind: str = ""
    command: str = ""
    follows: str = ""
    also: tuple[tuple[Status, str], ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether any of its checks applies to this node, as far as is known."""
        return bool(self.counts or self.running)

    def title(self, width: int) -> list[Part]:
        """Counts in words, or as figures where there is less room."""
        if not self.is_here:
            return [(" not here", QUIET)]
        words = [(f" {count} {status.value}", STYLE[status]) for status, count in self.counts]
        words += [(f" {self.running} running", RUN)] if self.running else []
        if sum(len(text) for text, _ in words) <= width:
            return words
        return [(" ", ""), *self.figures()]

    def figures(self, brief: bool = False) -> list[Part]:
        """`2X/9` where two of nine failed, `11` where all passed, `8+3..` while three are running."""
        total = sum(count for _, count in self.counts)
        parts: list[Part] = []
        if self.counts:
            status, worst = self.counts[0]
            parts.append((f"{worst}{_MARK[status]}", STYLE[status]))
            parts += [(f"/{total}", QUIET)] if worst < total and not brief else []
        more = f"{'+' * bool(parts)}{self.running}.."
        return [*parts, *([(more, RUN)] if self.running else [])]

    def lines(self, width: int, height: int) -> list[tuple[Part, ...]]:
        """What is inside the borders, at most so many lines."""
        if not self.is_sick:
            return [line for para in self._fact_paras(width, height) for line in para.lines(width)][:height]
        tall = max(1, min(_TALLEST, height - bool(self.command)))
        shown = list(Para(self.worst, most=tall).lines(width))
        if self.command and (rest := height - len(shown)) > 0:
            command = Para(self.command, "$ ", "bold cyan", "cyan", most=min(_LONGEST, rest))
            shown += command.lines(width)
        for status, text in self.also:
            shown += Para(text, f"{status.word} ", lead_style=STYLE[status], most=1).lines(width)
        return shown[:height]

    def _fact_paras(self, width: int, height: int) -> Iterator[Para]:
        """What was read of it, then why something could not be judged, whole or in a word."""
        if self.follows:
            text = f"follows from {self.follows}"
            short = cell_len(text) > width and height < _TALLEST
            yield Para(text.removeprefix("follows ") if short else text, most=max(height - 1, 1))
        facts = [fact for fact in self.facts if cell_len(fact) <= width]
        yield from (Para(fact, style=QUIET) for fact in facts)
        room = max(height - len(facts), 1)
        if self.worst and not self.follows:
            reason = Para(self.worst, style=QUIET)
            yield reason if len(list(reason.lines(width))) <= room else Para(self.blind, style=QUIET)
        elif not facts and not self.running and not self.follows:
            yield Para("nothing wrong" if self.counts else "does not apply", style=QUIET)


def panels(state: State) -> list[Panel]:
    """Every subject, and the checks of none of them when one of those has a problem."""
    panels = [_subject_panel(name, code, state) for name, code, _ in _SUBJECTS]
    rest = _subject_panel(OTHER, SHORT[OTHER], state)
    return [*panels, rest] if rest.worst else panels


@cache
def subject_of(check: str) -> str:
    """The panel a check is in."""
    prefix = check.partition(".")[0]
    return next((name for name, _, prefixes in _SUBJECTS if prefix in prefixes), OTHER)


def _subject_panel(name: str, code: str, state: State) -> Panel:
    mine = [result for result in state.report["results"] if subject_of(result["check"]) == name]
    answered = problems_first(result for result in mine if result["check"] not in state.running)
    counts = tuple(
        (status, count)
        for status in _STATUSES
        if (count := sum(result["status"] == status.value for result in answered))
    )
    panel = Panel(
        name,
        code,
        Status(answered[0]["status"]) if answered else None,
        counts,
        running=len(mine) - len(answered),
        facts=facts_of(name, state.report),
    )
    return _with_problems(panel, answered, state)


def _with_problems(panel: Panel, results: Sequence[Result], state: State) -> Panel:
    """The panel with its problems: a cause before what follows from it, in the words of the causes."""
    causes = {cause["id"]: cause for cause in state.report["causes"]}
    bad = [finding for result in results for finding in result["findings"] if severity(finding).is_problem]
    place = list(causes).index
    bad.sort(
        key=lambda f: (-severity(f), bool(f["because_of"]), place(f["id"]) if f["id"] in causes else 999)
    )
    if not bad:
        return panel
    first, cause = bad[0], causes.get(bad[0]["id"])
    above = causes.get(first["because_of"] or "")
    texts = [_text_of(finding, causes.get(finding["id"])) for finding in bad]
    others = [
        (Status(finding["status"]), text)
        for finding, text in zip(bad[1:], texts[1:], strict=True)
        if text != texts[0] and not is_blind(finding)
    ]
    return replace(
        panel,
        is_sick=not (is_blind(first) or above),
        worst=texts[0],
        blind="not permitted" if first["reason"] == "denied" else "not read",
        command=first_command(cause) if cause else _first_step(first),
        follows=_cause_source(above, panel.name) if above else "",
        also=tuple(dict.fromkeys(others)),
    )


def _cause_source(cause: Cause, name: str) -> str:
    """Where a cause is: its subject, or its headline where it has no other one."""
    subject = subject_of(cause["id"].partition("@")[0])
    return inert(cause["headline"]) if subject in (OTHER, name) else subject


def _text_of(finding: Finding, cause: Cause | None) -> str:
    """The headline of the cause that a finding is, else its own sentence."""
    return inert(cause["headline"]) + preview_mark(cause) if cause else sentence(finding)


def _first_step(finding: Finding) -> str:
    steps = finding["fix"]["steps"] if finding["fix"] and not is_blind(finding) else ()
    safe = [step["command"] for step in steps if step["role"] in ("look", "repair")]
    return inert(safe[0]) if safe else ""
