"""Checks by subject: what the panels beside the list show of each, and which checks they narrow it to."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache

from nodedoctor.model import Status
from nodedoctor.record import record
from nodedoctor.report.document import Result, is_blind, problems_first, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.page import sentence
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, RUN, STYLE, Glyphs, Part, fit

_SUBJECTS = (
    ("Driver", ("driver",)),
    ("GPUs", ("gpu", "thermal", "power", "clock", "compute")),
    ("Memory", ("memory",)),
    ("NVLink", ("nvlink", "fabric", "p2p", "topo", "bandwidth")),
    ("PCIe", ("pcie",)),
    ("InfiniBand", ("ib", "nic")),
    ("Network", ("net",)),
    ("Limits", ("limits", "host", "env")),
    ("Stack", ("stack",)),
    ("Container", ("container",)),
    ("Ray/Slurm", ("ray", "slurm", "collective")),
    ("Kernel log", ("kernel",)),
)
OTHER = "Other"
"""The panel of checks with a subject of their own, such as those of plug-ins."""
_NAMED = 4
"""Lines of a panel from which it names the checks that passed."""
_COUNTED = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS)


@record
class Panel:
    """One subject: its worst status (None: no answer yet), counts, the worst line, what to type.

    `passed` names its checks that passed, where there is room and nothing worse to say.
    """

    name: str
    status: Status | None
    counts: tuple[tuple[Status, int], ...] = ()
    running: int = 0
    worst: str = ""
    command: str = ""
    passed: tuple[str, ...] = ()

    def lines(self, width: int, height: int, glyphs: Glyphs, *, here: bool, focus: bool) -> list[list[Part]]:
        """The panel in exactly so many lines: a rule with name and counts, the worst line, the command."""
        counts: list[Part] = [(f" {count} {status.word}", STYLE[status]) for status, count in self.counts]
        counts += [(f" {self.running} RUN", RUN)] if self.running else []
        while len(counts) > 1 and len(self.name) + 4 + sum(len(text) for text, _ in counts) > width:
            counts.pop()
        counts = counts or [(" not here", QUIET)]
        taken = len(self.name) + 3 + sum(len(text) for text, _ in counts)
        style = LABEL + (" reverse" if here and focus else "")
        head: list[Part] = [
            (">" if here else glyphs.rule, LABEL if here else QUIET),
            (f" {self.name} ", style),
            (glyphs.rule * max(width - taken, 1), QUIET),
            *counts,
        ]
        rest: list[list[Part]] = []
        if self.worst:
            folded = _folded(self.worst, width - 1, max(height - 1 - bool(self.command), 1), glyphs)
            rest += [[(f" {line}", "")] for line in folded]
        elif self.status is Status.PASS and not self.running and height >= _NAMED:
            folded = _folded(", ".join(self.passed), width - 1, height - 2, glyphs)
            rest += [[(f" {line}", QUIET)] for line in folded]
        elif self.status in (Status.PASS, Status.SKIP) and not self.running:
            rest.append([(" nothing wrong" if self.status is Status.PASS else " does not apply", QUIET)])
        if self.command:
            rest.append([(" $ ", "bold cyan"), (fit(self.command, width - 4, glyphs.more), "cyan")])
        return [head, *rest, *([] for _ in range(height))][:height]


def panels(state: State) -> list[Panel]:
    """Every subject, and the checks of none of them when one of those has a problem."""
    made = [_panel(name, state) for name, _ in _SUBJECTS]
    other = _panel(OTHER, state)
    return [*made, other] if other.worst else made


@cache
def subject_of(check: str) -> str:
    """The panel a check is in."""
    prefix = check.partition(".")[0]
    return next((name for name, prefixes in _SUBJECTS if prefix in prefixes), OTHER)


def _panel(name: str, state: State) -> Panel:
    mine = [result for result in state.report["results"] if subject_of(result["check"]) == name]
    answered = problems_first(result for result in mine if result["check"] not in state.running)
    counts = tuple(
        (status, count)
        for status in _COUNTED
        if (count := sum(result["status"] == status.value for result in answered))
    )
    running = len(mine) - len(answered)
    status = Status(answered[0]["status"]) if answered else None
    line, command = _worst(answered)
    passed = tuple(sorted(result["check"] for result in answered if result["status"] == Status.PASS.value))
    return Panel(name, status, counts, running, line, command, passed)


def _worst(results: Sequence[Result]) -> tuple[str, str]:
    """The worst line and what to type first, nothing where nothing is wrong; a root before what follows."""
    bad = [finding for result in results for finding in result["findings"] if severity(finding).is_problem]
    first = min(bad, key=lambda finding: (-severity(finding), bool(finding["because_of"])), default=None)
    if first is None:
        return "", ""
    steps = first["fix"]["steps"] if first["fix"] and not is_blind(first) else ()
    safe = [step["command"] for step in steps if step["role"] in ("look", "repair")]
    return sentence(first), inert(safe[0]) if safe else ""


def _folded(text: str, width: int, most: int, glyphs: Glyphs) -> list[str]:
    lines = textwrap.wrap(text, max(width, 8), break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], fit(" ".join(lines[most - 1 :]), width, glyphs.more)]
    return lines
