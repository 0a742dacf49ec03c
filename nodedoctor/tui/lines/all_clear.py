"""The page of a node without a cause: what was looked at, what was not measured, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from textual.geometry import Size

from nodedoctor.model import Status
from nodedoctor.report.document import Report, Result, worst
from nodedoctor.report.page import healthy_headline, sentence
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, RUN, STYLE, Para, height

_LONGEST_REASON = 3
"""Lines of one reason why checks did not judge."""
_FEW = 3
"""Checks of one reason that are named."""
_OF_PROBE = re.compile(r"(\S+): (.+)")
"""A reason that begins with the name of a probe."""
Reason = tuple[list[str], str]
"""Why some checks did not judge: the checks, and the reason."""
_BESIDE = 99
"""Cells from which commands are beside the keys."""
_KEY = "bold cyan"
_MEASURED = ("bandwidth", "collective", "compute", "deep")
"""Subjects of checks that put load on the node, and so run only when they are asked for."""


def all_clear(state: State, of_fleet: bool, room: Size | None) -> list[Para]:
    """What a node without a cause gets: what was looked at, what was not measured, what to do next.

    On a page of a small `room` less is said of what was not measured; what to do next stays in view.
    """
    report = state.report
    status = Status(report["verdict"])
    counts = report["counts"]
    head = healthy_headline(report).partition(": ")[2]
    paras = [Para(head, f"{status.word}  ", LABEL, STYLE[status])]
    if state.running:
        longest = sorted(state.asking.items(), key=lambda item: (-int(item[1]), item[0]))
        paras = [Para(f"{state.done} of {len(report['results'])} checks have answered", style=LABEL), Para()]
        return [
            *paras,
            *(Para(name, f"{f'{seconds:.0f} s':>8}  ", lead_style=RUN) for name, seconds in longest),
        ]
    text = f"{counts['pass']} checks passed, {counts['skip']} do not apply here"
    paras += [Para(text, " " * 6), Para()]
    next_steps = [Para(), *_next_paras(report, of_fleet, room.width if room else 0)]
    reasons = _group_reasons(report["results"])
    paras.append(Para("Not measured", style=LABEL))
    for shown in (reasons, _merge_single(reasons)):
        for most in range(_LONGEST_REASON, 0, -1):
            page = [*paras, *_list_reasons(shown, most), *next_steps]
            if room is None or height(page, room.width) <= room.height:
                return page
    return page


def _list_reasons(reasons: Sequence[Reason], most: int) -> list[Para]:
    """A paragraph for each reason, with the checks that have it or how many they are."""
    paras = []
    for checks, text in reasons:
        who = checks[0] if len(checks) == 1 else f"{len(checks)} checks"
        names = f": {', '.join(checks)}" if 1 < len(checks) <= _FEW else ""
        paras.append(Para(text + names, f"  {who:<10}  ", most=most))
    return paras


def _merge_single(reasons: Sequence[Reason]) -> list[Reason]:
    """Those of one check each as one, except nodedoctor's own checks."""
    single = [checks[0] for checks, _ in reasons if len(checks) == 1 and not _of_doctor(checks)]
    if len(single) < 2:
        return list(reasons)
    rest = [(checks, text) for checks, text in reasons if checks[0] not in single]
    return [*rest, (single, "each for a reason of its own; the row above opens them")]


def _of_doctor(checks: Sequence[str]) -> bool:
    return checks[0].startswith("doctor.")


def _next_paras(report: Report, of_fleet: bool, width: int) -> Iterator[Para]:
    """What to do next; nothing about GPUs where none was seen. Keys and commands side by side if they fit."""
    yield Para("Next", style=LABEL)
    has_gpus = bool(report["node"].get("gpus"))
    keys = (
        *((("3", "watch the GPUs while a job runs"),) if has_gpus else ()),
        *((("2", "look at the links of GPUs and adapters"),) if has_gpus else ()),
        ("s", "save as reference; d compares later"),
        *((("esc", "back to the fleet"),) if of_fleet else ()),
    )
    commands = (
        *((("nodedoctor --deep", "measure speed, on an idle node"),) if has_gpus else ()),
        ("nodedoctor expect", "write down what it has"),
        ("nodedoctor fleet --slurm", "compare the nodes of a job"),
    )
    typed = [f"{command:<24}  {text}" for command, text in commands]
    if width < _BESIDE:
        yield from (Para(text, f"  {key:<3} ", lead_style=_KEY) for key, text in keys)
        yield from (Para(text, f"  {'$':<3} ", lead_style=_KEY, verbatim=True) for text in typed)
        return
    for at in range(max(len(keys), len(typed))):
        key, text = keys[at] if at < len(keys) else ("", "")
        command = typed[at] if at < len(typed) else ""
        yield Para(
            parts=((f"  {key:<3} ", _KEY), (f"{text:<40}", ""), ("$ " * bool(command), _KEY), (command, ""))
        )


def _group_reasons(results: Sequence[Result]) -> list[Reason]:
    """Why checks did not judge, each reason once with its checks; nodedoctor's own checks first.

    `nvml: not in this recording` and the same of another probe are one reason with two probes.
    """
    by_text: dict[str, list[str]] = {}
    for result in results:
        measured = result["check"].partition(".")[0] in _MEASURED and result["status"] == "skip"
        if result["status"] == "unknown" or measured:
            by_text.setdefault(sentence(worst(result)), []).append(result["check"])
    probes: dict[str, dict[str, list[str]]] = {}
    for text, checks in by_text.items():
        if match := _OF_PROBE.fullmatch(text):
            probes.setdefault(match[2], {})[match[1]] = checks
    shared = {reason: by_probe for reason, by_probe in probes.items() if len(by_probe) > 1}
    reasons: list[Reason] = [
        (checks, text)
        for text, checks in by_text.items()
        if not ((match := _OF_PROBE.fullmatch(text)) and match[2] in shared)
    ]
    for reason, by_probe in shared.items():
        counts = sorted((-len(checks), probe) for probe, checks in by_probe.items())
        text = f"{reason}: {', '.join(f'{probe} {-count}' for count, probe in counts)}"
        reasons.append(([check for checks in by_probe.values() for check in checks], text))
    return sorted(reasons, key=lambda r: (not (_of_doctor(r[0]) and len(r[0]) == 1), -len(r[0]), r[1]))
