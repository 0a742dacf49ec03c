"""What changed alike in two reports, as one entry: all values of one GPU, all checks with one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nodedoctor.grouping import group_by
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record
from nodedoctor.report.comparison import Change, Direction, FactChange, told
from nodedoctor.report.document import worst

_VARYING = re.compile(r"\[[^\[\]]*\]|\d+")
"""What names of the same fact of several devices differ in: what is in brackets, and numbers."""
DEVICES_SHOWN = 3
"""Devices of one entry that are named; ours."""
_PART = re.compile(r"[^.\[\]]+|\[[^\[\]]*\]")


@record
class ChangeGroup:
    """Checks that ended alike before and alike after, for the same reason."""

    summary: str
    changes: tuple[Change, ...]

    @property
    def way(self) -> Direction:
        """Whether that is worse or better."""
        return self.changes[0].way

    @property
    def words(self) -> str:
        """`PASS -> FAIL`."""
        return self.changes[0].words

    @property
    def name(self) -> str:
        """The check, or how many."""
        return self.changes[0].check if len(self.changes) == 1 else f"{len(self.changes)} checks"


@record
class FactGroup:
    """Values of one device, or of many, that changed together: `topology.links.GPU3.GPU*`."""

    name: str
    facts: tuple[FactChange, ...]

    @property
    def same_values(self) -> bool:
        """Whether all of them had one value and have another."""
        return len({(fact.before, fact.after) for fact in self.facts}) == 1

    @property
    def words(self) -> str:
        """`NV18 -> NV16 (14 values)`, or each value by its own name."""
        if self.same_values:
            many = f" ({len(self.facts)} values)" if len(self.facts) > 1 else ""
            return self.facts[0].words + many
        return ", ".join(f"{self._own_name(fact)} {fact.words}" for fact in self.facts)

    def _own_name(self, fact: FactChange) -> str:
        return fact.name.removeprefix(self.name).lstrip(".") or fact.name


def change_groups(changes: Iterable[Change]) -> list[ChangeGroup]:
    """Changes with the same reason as one, in the order of the first of each."""
    same = group_by(changes, lambda change: (change.way, change.words, _change_reason(change)))
    return [
        ChangeGroup(told(changes_alike[0]) if len(changes_alike) == 1 else reason, tuple(changes_alike))
        for (_, _, reason), changes_alike in same.items()
    ]


def fact_groups(facts: Iterable[FactChange]) -> list[FactGroup]:
    """Facts that changed alike as one, then the different values of one device, in the order of names."""
    same = group_by(facts, lambda fact: (_VARYING.sub("*", fact.name), fact.before, fact.after))
    many = [FactGroup(_name_pattern(equal), tuple(equal)) for equal in same.values() if len(equal) > 1]
    alone = [equal[0] for equal in same.values() if len(equal) == 1]
    return sorted([*_merge_groups(many), *_of_devices(alone)], key=lambda group: group.facts[0].name)


def _change_reason(change: Change) -> str:
    """What a change rests on: the one thing that was not seen, else what the later result says."""
    if change.after is not None and (without := worst(change.after).get("judged_without")):
        return f"judged without {without}"
    return told(change)


def _name_pattern(facts: Sequence[FactChange]) -> str:
    """The name of facts whose names differ in devices or numbers: a star for those that are many."""
    names = [_VARYING.findall(fact.name) for fact in facts]
    shown = [_common_part(column) for column in zip(*names, strict=True)]
    own = frozenset.intersection(*(frozenset(part.strip("[]") for part in name) for name in names))
    own = own.difference(part.strip("[]") for part in shown)
    if own and "*" in shown:  # the one GPU that all pairs have
        shown[shown.index("*")] = min(own)
    parts = iter(shown)
    return _VARYING.sub(lambda _: next(parts), facts[0].name)


def _common_part(parts: Sequence[str]) -> str:
    distinct = sorted(set(parts), key=natural_key)
    if not parts[0].startswith("["):
        return distinct[0] if len(distinct) == 1 else "*"
    return (
        f"[{', '.join(part.strip('[]') for part in distinct)}]" if len(distinct) <= DEVICES_SHOWN else "[*]"
    )


def _merge_groups(groups: Sequence[FactGroup]) -> list[FactGroup]:
    """Groups with the same values whose names differ in a middle part only, as one."""
    same: dict[tuple[object, ...], list[FactGroup]] = {}
    for group in groups:
        parts, first = _PART.findall(group.name), group.facts[0]
        same.setdefault((parts[0], parts[-1], len(parts), first.before, first.after), []).append(group)
    merged = []
    for equal in same.values():
        columns = zip(*(_PART.findall(group.name) for group in equal), strict=True)
        name = ".".join(column[0] if len(set(column)) == 1 else "*" for column in columns).replace(".[", "[")
        merged.append(FactGroup(name, tuple(fact for group in equal for fact in group.facts)))
    return merged


def _of_devices(facts: Sequence[FactChange]) -> list[FactGroup]:
    """The values of one device, which its brackets name, as one; so are those that only one side knows."""
    same: dict[tuple[str, bool, bool], list[FactChange]] = {}
    for fact in facts:
        device = fact.name[: fact.name.rfind("]") + 1]
        if device or None not in (fact.before, fact.after):
            key = device or fact.name, False, False
        else:
            key = fact.name.partition(".")[0], fact.before is None, fact.after is None
        same.setdefault(key, []).append(fact)
    return [
        FactGroup(name if len(values) > 1 else values[0].name, tuple(values))
        for (name, _, _), values in same.items()
    ]
