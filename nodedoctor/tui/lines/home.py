"""The rows of the first screen: the causes, then everything else folded, a line for each kind.

What follows from a cause, what could not be judged, what passed and what does not apply are one line each
until somebody opens them; a filter or a subject lists its checks flat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from nodedoctor.knowledge.ownership import owner_column
from nodedoctor.model import Status
from nodedoctor.report.document import Cause, Result, severity, severity_of, worst
from nodedoctor.report.page import action_of, headline_of, healthy_headline, root
from nodedoctor.tui.lines import detail
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, RUN, STYLE, Glyphs, Row

WELL = "well"
"""Key of the first row while there is no cause."""
CAUSE = "cause "
FOLD = "fold "
SYMPTOMS = "symptoms "
"""Begins the key of the fold of what follows from a cause."""
_NO_OWNER = " " * 5
"""As wide as the longest owner, so that headlines stay where they are when owners come."""
_BESIDE = 17
"""Cells of a row beside the headline: cursor, status, owner and the blanks between them."""
SLOW = 2.0
"""Seconds from which a check that waits for a probe is named."""

Fits = Callable[[Result], bool]


def rows(state: State, opened: Collection[str], glyphs: Glyphs, room: int) -> list[Row]:
    """Causes, each with what follows from it, problems of their own, then the folds; `opened` are open."""
    groups, shown = folds(state), list[Row]()
    for cause in causes(state):
        shown.append(_cause_row(cause, room, done=not state.running))
        key = SYMPTOMS + cause["id"]
        if key in groups:
            shown += _fold_rows(key, groups.pop(key), opened, state, glyphs)
    shown += [detail.row(result, None) for result in groups.pop(_OWN, ())]
    shown = shown or [_healthy_lead(state)]
    shown += [detail.row(result, state.running[result["check"]]) for result in groups.pop(_SLOW, ())]
    for key, results in groups.items():
        shown += _fold_rows(key, results, opened, state, glyphs)
    return shown


def _fold_rows(
    key: str, results: Sequence[Result], opened: Collection[str], state: State, glyphs: Glyphs
) -> list[Row]:
    """The line of a fold, and its checks where it is open."""
    is_open = FOLD + key in opened
    checks = [detail.row(result, state.running.get(result["check"])) for result in results if is_open]
    return [_fold_row(key, results, is_open, glyphs), *checks]


def flat(state: State, fits: Fits) -> list[Row]:
    """The checks that fit, problems first, causes before what follows from them."""
    order = [cause["id"].partition("@")[0] for cause in state.report["causes"]]
    results = sorted(state.report["results"], key=lambda result: _sort_key(result, state, order))
    return [detail.row(result, state.running.get(result["check"])) for result in results if fits(result)]


def causes(state: State) -> list[Cause]:
    """The causes that more answers cannot change."""
    return [cause for cause in state.report["causes"] if detail.is_certain(cause, state)]


def cause_of(state: State, key: str) -> Cause | None:
    """The cause that a row shows."""
    return next((cause for cause in state.report["causes"] if key == CAUSE + cause["id"]), None)


def result_of(state: State, key: str) -> Result | None:
    """The check that a row shows; of a cause, the one that found it."""
    cause = cause_of(state, key)
    origin = root(state.report, cause) if cause else None
    check = origin[0] if origin else key
    return next((result for result in state.report["results"] if result["check"] == check), None)


def key_of(state: State, check: str) -> tuple[str, str]:
    """The row of a check, and the fold it is in, if it is in one."""
    for cause in causes(state):
        origin = root(state.report, cause)
        if origin and origin[0] == check:
            return CAUSE + cause["id"], ""
    groups = folds(state).items()
    fold = next((key for key, results in groups if any(r["check"] == check for r in results)), "")
    return check, "" if fold in (_OWN, _SLOW) else FOLD + fold


def folds(state: State) -> dict[str, list[Result]]:
    """Checks by what they are beside the causes, in the order of the screen; empty groups left out."""
    certain = causes(state)
    symptoms = [SYMPTOMS + cause["id"] for cause in certain]
    groups: dict[str, list[Result]] = {key: [] for key in (_ROOT, _OWN, _SLOW, *symptoms, *_TITLES)}
    roots = {origin[0] for cause in certain if (origin := root(state.report, cause))}
    explained = {id: cause["id"] for cause in reversed(certain) for id in (cause["id"], *cause["explains"])}
    for result in sorted(state.report["results"], key=lambda r: (-severity_of(r), r["check"])):
        groups[_group_key(result, state, roots, explained)].append(result)
    return {key: results for key, results in groups.items() if results and key != _ROOT}


def _group_key(result: Result, state: State, roots: Collection[str], explained: Mapping[str, str]) -> str:
    waiting = state.running.get(result["check"])
    if waiting is not None:
        return _SLOW if waiting.probe and waiting.seconds >= SLOW else "running"
    if result["check"] in roots:
        return _ROOT
    if not severity_of(result).is_problem:
        waived = worst(result)["waived"] is not None and result["status"] not in ("pass", "skip")
        return "waived" if waived else "skip" if result["status"] == "skip" else "pass"
    bad = [finding for finding in result["findings"] if severity(finding).is_problem]
    sources = [explained.get(finding["id"]) or finding["because_of"] for finding in bad]
    if all(sources):
        cause = next((source for source in sources if source in explained.values()), None)
        return "unknown" if result["status"] == "unknown" or cause is None else SYMPTOMS + cause
    return "unknown" if result["status"] == "unknown" else _OWN


_OWN, _SLOW, _ROOT = "own", "slow", "root"
_TITLES: Mapping[str, tuple[str, str, str]] = {
    "symptoms": ("", "check follows from it", "checks follow from it"),
    "running": ("RUN", "check is running", "checks are running"),
    "unknown": (Status.UNKNOWN.word, "check not judged", "checks not judged"),
    "waived": ("", "check waived", "checks waived"),
    "pass": (Status.PASS.word, "check passed", "checks passed"),
    "skip": (Status.SKIP.word, "check does not apply here", "checks do not apply here"),
}
_STYLES = {
    "running": RUN,
    "unknown": STYLE[Status.UNKNOWN],
    "pass": STYLE[Status.PASS],
    "skip": STYLE[Status.SKIP],
}


def title_of(key: str, count: int) -> str:
    """`3 checks passed`."""
    _, singular, many = _TITLES[key.partition(" ")[0]]
    return f"{count} {singular if count == 1 else many}"


def _fold_row(key: str, results: Sequence[Result], is_open: bool, glyphs: Glyphs) -> Row:
    mark = glyphs.open if is_open else glyphs.shut
    kind = key.partition(" ")[0]
    text = f"{mark} {title_of(key, len(results))}"
    if kind in ("symptoms", "waived"):
        text += ": " + ", ".join(result["check"] for result in results)
    return Row(FOLD + key, _TITLES[kind][0], _STYLES.get(kind, QUIET), "", text, body=QUIET, owner=_NO_OWNER)


def _cause_row(cause: Cause, room: int, *, done: bool) -> Row:
    """The headline, with what to do where there is room for all of it.

    Owner and action may change with every answer: they are named when all checks are `done`.
    """
    status = Status(cause["status"])
    text = headline_of(cause)
    action = action_of(cause) if done else ""
    if action and len(text) + len(action) + 2 <= room - _BESIDE:
        text = f"{text}; {action}"
    owner = owner_column(cause["owner"]) if done else _NO_OWNER
    return Row(CAUSE + cause["id"], status.word, STYLE[status], "", text, body=LABEL, owner=owner)


def _healthy_lead(state: State) -> Row:
    """The first row while nothing is wrong: how many checks have answered, then that all is well."""
    total = len(state.report["results"])
    if state.running:
        text = f"{state.done} of {total} checks have answered, nothing wrong so far"
        return Row(WELL, "RUN", RUN, "", text, body=LABEL)
    status = Status(state.report["verdict"])
    text = healthy_headline(state.report).partition(": ")[2]
    return Row(WELL, status.word, STYLE[status], "", text[:1].upper() + text[1:], body=LABEL)


def _sort_key(result: Result, state: State, order: Sequence[str]) -> tuple[int, bool, int, str]:
    """Problems, causes before what follows from them; then what still runs, as it may yet become one."""
    check, bad = result["check"], severity_of(result)
    runs = check in state.running
    place = order.index(check) if check in order else len(order)
    return (-2 if runs else -bad, not runs, place, check)
