"""Two reports of a node, or of two nodes: which results got worse or better, and which facts differ.

Made for "it worked before the upgrade": values that change by themselves (temperatures, counters) are left
out, what somebody decided (versions, counts, settings) is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from nodedoctor.model import Severity, Status
from nodedoctor.record import record
from nodedoctor.report.document import (
    Finding,
    Report,
    Result,
    counted,
    full_summary,
    is_blind,
    severity,
    severity_of,
    worst,
)
from nodedoctor.report.saved import read
from nodedoctor.wording import about

Direction = Literal["worse", "better", "other"]
_KEYS = ("name", "uuid", "bus_id", "address", "index", "device", "interface", "link", "pid", "path", "id")
"""What tells the elements of a list apart: the first that all of them have, each another one."""
SHORT = 60
"""Characters of a value that is shown whole; of a longer list only what differs. Ours."""

_RESTLESS = frozenset(
    """
    age aggregate argv available begins ber bytes c clock clocks counter counters dirty ends energy errors
    evidence fan files free gained inodes line lines load mhz open packets percent pid pids power pressure
    processes pstate replays rx seconds seen started swap temperature text throttle tx uptime used
    utilization volatile w when
    """.split()  # noqa: SIM905
)
"""Words in the keys of facts whose values differ between any two moments of a healthy node."""


@record
class Change:
    """One check that ended differently. A status is None where the check was not run."""

    check: str
    before: Result | None
    after: Result | None
    way: Direction

    @property
    def words(self) -> str:
        """`PASS -> FAIL`."""
        return f"{word(self.before)} -> {word(self.after)}"


@record
class FactChange:
    """One value of one fact that differs; None on the side where there is none."""

    name: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """`550.54.15 -> 570.86.10`."""
        return f"{self.before or '(none)'} -> {self.after or '(none)'}"


@record
class Comparison:
    """What differs between two reports, the worst first."""

    changes: tuple[Change, ...]
    facts: tuple[FactChange, ...]

    @property
    def worse(self) -> bool:
        """True when at least one result got worse."""
        return any(change.way == "worse" for change in self.changes)


def compare(before: Report, after: Report) -> Comparison:
    """Compare two reports."""
    old, new = results(before), results(after)
    pairs = ((check, old.get(check), new.get(check)) for check in sorted({*old, *new}))
    changes = [Change(check, b, a, _change_direction(b, a)) for check, b, a in pairs if _results_differ(b, a)]
    order = {"worse": 0, "other": 1, "better": 2}
    changes.sort(key=lambda change: (order[change.way], -severity_of(change.after or _empty_result())))
    facts = sorted(
        _changes_between(before["facts"], after["facts"]), key=lambda fact: (fact.name, fact.before is None)
    )
    return Comparison(tuple(changes), tuple(facts))


def results(report: Report) -> dict[str, Result]:
    """The results of a report by check."""
    return {result["check"]: result for result in report["results"]}


def heading(report: Report) -> str:
    """Which node, and when."""
    host = report["node"].get("hostname") or "unnamed node"
    return f"{host} {report['started'][:16].replace('T', ' ')}".strip()


def told(change: Change) -> str:
    """What the later result says about it (the earlier one, where there is no later).

    Where both are called the same, it is what one of them has and the other has not.
    """
    before, after = change.before or _empty_result(), change.after or _empty_result()
    if change.before and change.after and before["status"] == after["status"]:
        for way, result, baseline in (("also", after, before), ("no longer", before, after)):
            if news := _worse_findings(result, baseline):
                return f"{way} {_describe_result(max(news, key=severity))}"
    return _describe_result(worst(change.after or before))


def _describe_result(finding: Finding) -> str:
    return about(finding["subject"] or "", full_summary(finding))


def _results_differ(before: Result | None, after: Result | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before["status"] != after["status"] or _subject_severities(before) != _subject_severities(after)


def _change_direction(before: Result | None, after: Result | None) -> Direction:
    """Worse when something is known to be sick that was not; not seeing it any more proves nothing."""
    if before is None or after is None or is_blind(worst(after)):
        return "other"
    if _worse_findings(after, before):
        return "worse"
    return "better" if _subject_severities(before) and not is_blind(worst(before)) else "other"


def _worse_findings(result: Result, baseline: Result) -> list[Finding]:
    """The problems whose subject is less bad, or no problem, in the other result; previews do not count."""
    severities = _subject_severities(baseline)
    return [f for f in result["findings"] if counted(f) > severities.get(f["subject"], Severity.PASS)]


def _subject_severities(result: Result) -> dict[str | None, Severity]:
    """How bad each subject is, for those that are not well."""
    bad: dict[str | None, Severity] = {}
    for finding in result["findings"]:
        if severity(finding).is_problem:
            bad[finding["subject"]] = max(bad.get(finding["subject"], Severity.SKIP), severity(finding))
    return bad


def word(result: Result | None) -> str:
    """The status on one side."""
    return Status(result["status"]).word if result else "none"


def side(result: Result | None) -> str | None:
    """The status on one side, as documents have it; None where the check was not run."""
    return result["status"] if result else None


def _empty_result() -> Result:
    entry = {"check": "", "findings": [{"status": "skip", "summary": "not looked at"}]}
    return read({"results": [entry]})["results"][0]


def _changes_between(before: Any, after: Any, name: str = "") -> Iterator[FactChange]:
    """Every settled value that differs with its path (`driver.version`, `gpus[3].vbios`).

    What is on one side only is one change, however much there is in it.
    """
    if before in _NOTHING or after in _NOTHING:
        if before not in _NOTHING or after not in _NOTHING:
            yield FactChange(name, _brief_value(before), _brief_value(after))
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            if _RESTLESS.isdisjoint(str(key).split("_")):
                inner = f"{name}.{key}" if name else str(key)
                yield from _changes_between(before.get(key), after.get(key), inner)
    elif isinstance(before, list) and isinstance(after, list) and _has_parts([*before, *after]):
        old, new = _by_name(before, after), _by_name(after, before)
        for key in {*old, *new}:
            yield from _changes_between(
                old.get(key), new.get(key), f"{name}[{_element_label(key, old, new)}]"
            )
    elif before != after:
        yield FactChange(name, *_both_sides(before, after))


_NOTHING: tuple[Any, ...] = (None, "", [], {})


def _by_name(values: list[Any], others: list[Any]) -> dict[Any, Any]:
    """Elements by what tells them apart on both sides and occurs on both, or by their place."""
    for key in _KEYS:
        mine, theirs = _unique_names(values, key), _unique_names(others, key)
        if mine & theirs:
            return {value[key]: value for value in values}
    return dict(enumerate(values))


def _element_label(key: Any, *sides: dict[Any, Any]) -> Any:
    """What a person calls an element: GPU 3 by its index, and not by its UUID."""
    element = next((side[key] for side in sides if key in side), None)
    index = element.get("index") if isinstance(element, dict) else None
    return index if type(index) is int else key


def _unique_names(values: list[Any], key: str) -> set[str | int]:
    """What the elements of a list have under a key, each another one; nothing where that is not so."""
    values_there = [value.get(key) if isinstance(value, dict) else None for value in values]
    names = {name for name in values_there if isinstance(name, str | int)}
    return names if None not in values_there and len(names) == len(values_there) else set()


def _has_parts(values: list[Any]) -> bool:
    return any(isinstance(value, dict | list) for value in values)


def _both_sides(before: Any, after: Any) -> tuple[str | None, str | None]:
    """Two values in a few words; of long lists what only one of them has."""
    old, new = _brief_value(before), _brief_value(after)
    if (
        not (isinstance(before, list) and isinstance(after, list))
        or max(len(old or ""), len(new or "")) <= SHORT
    ):
        return old, new
    removed = [value for value in before if value not in after]
    added = [value for value in after if value not in before]
    if len(removed) == len(before) or not (removed or added):
        return old, new
    unchanged = f"({len(before) - len(removed)} alike)"
    return ", ".join([*map(str, removed), unchanged]), ", ".join([*map(str, added), unchanged])


def _brief_value(value: Any) -> str | None:
    """A value in a few words; None for nothing."""
    if value in _NOTHING:
        return None
    if isinstance(value, dict):
        shown = ", ".join(f"{key} {text}" for key, inner in value.items() if (text := _brief_value(inner)))
        return (
            shown if 0 < len(shown) <= SHORT else "(1 value)" if len(value) == 1 else f"({len(value)} values)"
        )
    if isinstance(value, list) and _has_parts(value):
        only = _brief_value(value[0]) if len(value) == 1 else None
        return only or f"({len(value)} entries)"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
