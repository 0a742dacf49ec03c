"""What the pairs say together: a pair is as good as the worse of its nodes and the path between them.

So a slow node is slow with everybody, a slow path joins two nodes that are well with others, and nodes behind
a slow link are well among themselves and slow with the rest. Nothing is concluded from one measurement:
what was odd once is measured again, and only a majority of measurements makes a pair bad.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from nodedoctor.pairs.bounds import (
    LATE_LEAST_US,
    LATE_TIMES,
    SCATTER,
    SCATTER_ALONE,
    SLOW_BELOW,
    loss_of_a_bad_pair,
    rate_of_a_good_pair,
)
from nodedoctor.pairs.model import CONNECTING, UNMEASURED, Culprit, Fault, Fit, Measurement, Pair, pair

ENOUGH = 3
"""Partners that are well elsewhere and bad with a node, for it to be named with high confidence."""
STRAY = 0.25
"""Share of a bad node's pairs that may look good by chance."""
AMONG = 12
"""Suspects that are all measured with each other; of more, only those next to each other."""

Confidence = Literal["high", "medium", "low"]


def fit(measured: Sequence[Measurement], groups: Mapping[str, str], gone: Iterable[str] = ()) -> Fit:
    """What the measurements say; `groups` is the leaf of each node if known, `gone` who stopped answering."""
    return _Work(measured, groups, frozenset(gone)).fit()


class _Work:
    """One fit under way."""

    def __init__(
        self, measured: Sequence[Measurement], groups: Mapping[str, str], gone: frozenset[str]
    ) -> None:
        self.groups, self.gone = groups, gone
        self.measured = measured
        live = [one for one in measured if gone.isdisjoint(one.pair)]
        self.by_pair: dict[Pair, list[Measurement]] = defaultdict(list)
        for each in live:
            self.by_pair[each.pair].append(each)
        self.reference, self.scatter = rate_of_a_good_pair(live)
        self.slow_below = self._bound(SCATTER)
        self.lossy_above = loss_of_a_bad_pair(live)
        trips = [each.rtt_us for each in live if each.rtt_us is not None]
        usual = median(trips) if trips else 0.0
        self.late_above = max(LATE_TIMES * usual, usual + LATE_LEAST_US) if trips else None
        self.slow_nodes = self._slow_nodes()
        self.bad: dict[Pair, Fault] = {}
        self.good: set[Pair] = set()
        self.doubted: set[Pair] = set()
        self._sort()
        self.partners: dict[str, set[str]] = defaultdict(set)
        self.friends: dict[str, set[str]] = defaultdict(set)
        for one in self.by_pair:
            for name, other in (one, one[::-1]):
                if one in self.good:
                    self.friends[name].add(other)
                elif one in self.bad:
                    self.partners[name].add(other)
        self.culprits: list[Culprit] = []
        self.explained: set[Pair] = set()

    def fit(self) -> Fit:
        """Groups first, then nodes, then paths: each explains what it can, and the next what is left."""
        for name in sorted(self.gone):
            seen = tuple(one for one in self.measured if name in one.pair)
            self.culprits.append(Culprit("node", name, (name,), "lost", "high", None, seen))
        unmeasured = Counter(fault for fault in self.bad.values() if fault in UNMEASURED)
        if len(self.by_pair) > 1 and unmeasured.total() * 2 > len(self.by_pair):
            most = unmeasured.most_common(1)[0][0]
            return Fit(self.reference, self.slow_below, self.lossy_above, tuple(self.culprits), closed=most)
        self._leaves()
        self._islands()
        self._nodes()
        self._listeners()
        self._paths()
        confirmed = tuple(sorted(self.doubted - self.explained))
        return Fit(
            self.reference,
            self.slow_below,
            self.lossy_above,
            tuple(self.culprits),
            tuple(self._open()),
            confirmed,
            late_above=self.late_above,
        )

    def _bound(self, deviations: float) -> float:
        return max(0.0, min(SLOW_BELOW, 1 - deviations * self.scatter))

    def _slow_nodes(self) -> frozenset[str]:
        """Nodes whose median over all partners is low beyond what chance does to a median of so many.

        Their pairs need not be below the wider bound of a single pair. The standard error of a median is
        1.25 of that of a mean.
        """
        rates: dict[str, list[float]] = defaultdict(list)
        for one, seen in self.by_pair.items():
            for each in seen:
                for name in one if each.gbps is not None and not each.fault else ():
                    rates[name].append((each.gbps or 0.0) / (self.reference or 1.0))
        return frozenset(
            name
            for name, shares in rates.items()
            if len(shares) >= ENOUGH
            and median(shares) < min(SLOW_BELOW, 1 - SCATTER_ALONE * 1.25 * self.scatter / len(shares) ** 0.5)
        )

    def _sort(self) -> None:
        """Good and bad pairs, by the majority of their measurements; wrong bytes need no majority."""
        for one, seen in self.by_pair.items():
            faults = [fault for each in seen if (fault := self._fault(each))]
            if "corrupt" in faults:
                self.bad[one] = "corrupt"
            elif len(faults) * 2 > len(seen):
                self.bad[one] = Counter(faults).most_common(1)[0][0]
            elif len(faults) * 2 == len(seen):
                self.doubted.add(one)
            else:
                self.good.add(one)

    def _fault(self, one: Measurement) -> Fault | None:
        """What is wrong with a measurement: of a low rate and loss what leaves less of the good."""
        if one.fault:
            return one.fault
        bound = self.slow_below if self.slow_nodes.isdisjoint(one.pair) else SLOW_BELOW
        rate = one.gbps / self.reference if one.gbps is not None and self.reference else 1.0
        lost = one.loss if one.loss is not None and one.loss > self.lossy_above else 0.0
        if rate < bound and rate < 1 - lost:
            return "slow"
        if lost:
            return "loss"
        if one.rtt_us is not None and self.late_above is not None and one.rtt_us > self.late_above:
            return "late"
        return None

    def _leaves(self) -> None:
        """Groups known from the topology: bad with the others, well inside."""
        members: dict[str, set[str]] = defaultdict(set)
        for name, leaf in self.groups.items():
            members[leaf].add(name)
        if len(members) < 2:
            return
        for leaf, names in sorted(members.items()):
            self._group(
                leaf, names, {name for other, more in members.items() if other != leaf for name in more}
            )
        between: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for one in self.by_pair:
            a, b = (self.groups.get(name, "") for name in one)
            if a and b and a != b and one not in self.explained:
                between[pair(a, b)].append(one)
        for (a, b), pairs in sorted(between.items()):
            bad = [one for one in pairs if one in self.bad]
            ends = [{one[0] for one in bad} | {one[1] for one in bad}][0]
            well = all(self.friends[name] for name in ends)
            if well and len(ends) >= 2 * ENOUGH and len(bad) >= (1 - STRAY) * len(pairs):
                self._add("path", f"{a}:{b}", tuple(sorted(ends)), bad)

    def _islands(self) -> None:
        """Groups seen in the pairs alone: nodes joined by good pairs, bad with the largest such set."""
        left, islands = set(self.friends), []
        while left:
            island, edge = set(), [min(left)]
            while edge:
                name = edge.pop()
                if name not in island:
                    island.add(name)
                    edge += self.friends[name] - island
            left -= island
            islands.append(island)
        islands.sort(key=len, reverse=True)
        for island in islands[1:]:
            if len(island) >= 2:
                self._group(_group_name(island), island, islands[0])

    def _group(self, where: str, names: set[str], others: set[str]) -> None:
        """Name a group if it is well inside and bad with the others, and is the smaller side."""
        if len(names) < 2 or len(names) > len(others):
            return
        inside = [one for one in self.by_pair if names.issuperset(one)]
        across = [
            one
            for one in self.by_pair
            if one not in self.explained and len(names & set(one)) == 1 and len(others & set(one)) == 1
        ]
        bad = [one for one in across if one in self.bad]
        well = self._clearly_well([one for one in inside if one in self.good], bad)
        here = {name for one in bad for name in one if name in names}
        there = {name for one in bad for name in one if name in others}
        if (
            well
            and len(well) >= (1 - STRAY) * len(inside)
            and len(bad) >= max(ENOUGH, (1 - STRAY) * len(across))
            and len(here) >= 2
            and len(there) >= 2
            and any(self.friends[name] & others for name in there)
        ):
            self._add("group", where, tuple(sorted(names)), bad)

    def _nodes(self) -> None:
        """Nodes that are bad with everybody, the one with most bad pairs first."""
        while True:
            ranked = sorted(self.partners, key=lambda name: (-len(self._against(name)), name))
            for name in ranked:
                bad = self._against(name)
                slow = [pair(name, other) for other in bad]
                well = self._clearly_well([pair(name, other) for other in self.friends[name]], slow)
                clean = [other for other in bad if self.friends[other]]
                if len(clean) >= 2 and len(well) <= STRAY * len(bad):
                    self._add("node", name, (name,), slow, len(clean))
                    break
            else:
                return

    def _clearly_well(self, good: Sequence[Pair], bad: Sequence[Pair]) -> list[Pair]:
        """The good pairs whose rate is nearer to the reference than to that of the bad ones.

        With a node at 0.7 of the rate some pairs are above the bound by chance, and so may be that of two.
        """
        slow = [rate for one in bad if self.bad[one] == "slow" for rate in self._rates(one)]
        if not slow or not self.reference:
            return list(good)
        middle = (self.reference + median(slow)) / 2
        return [one for one in good if median(self._rates(one) or [self.reference]) > middle]

    def _rates(self, one: Pair) -> list[float]:
        return [each.gbps for each in self.by_pair[one] if each.gbps is not None]

    def _listeners(self) -> None:
        """Nodes that can connect and cannot be connected to: of a pair the first listens."""
        for name in sorted(self.partners):
            listening = [one for one in self.by_pair if one[0] == name and one not in self.explained]
            closed = [one for one in listening if self.bad.get(one) in CONNECTING]
            if len(closed) >= 2 and len(closed) == len(listening):
                self._add("node", name, (name,), closed, len(closed))

    def _against(self, name: str) -> list[str]:
        return [other for other in self.partners[name] if pair(name, other) not in self.explained]

    def _paths(self) -> None:
        """Bad pairs of nodes that are well with others, once they were bad twice.

        Of two nodes alone nothing else can be named; with nothing to compare it with, loss is less sure.
        """
        alone = len(self.by_pair) == 1
        for one in sorted(self.bad):
            if one in self.explained:
                continue
            times = len(self.by_pair[one])
            sure = self.bad[one] == "corrupt" or (times >= ENOUGH and self._far_below(one))
            if sure and (alone or all(self.friends[name] for name in one)):
                uncompared = alone and self.bad[one] == "loss"
                self._add("path", f"{one[0]}:{one[1]}", one, [one], 2 if uncompared else times)
            else:
                self.doubted.add(one)

    def _far_below(self, one: Pair) -> bool:
        """Whether a pair is bad enough to be blamed alone."""
        if self.bad[one] != "slow" or not self.reference:
            return True
        return median(self._rates(one)) < self._bound(SCATTER_ALONE) * self.reference

    def _add(
        self,
        kind: Literal["node", "path", "group"],
        where: str,
        names: tuple[str, ...],
        pairs: Sequence[Pair],
        weight: int = ENOUGH,
    ) -> None:
        seen = tuple(each for one in pairs for each in self.by_pair[one])
        rates = [each.gbps for each in seen if each.gbps is not None]
        share = median(rates) / self.reference if rates and self.reference else None
        faults = Counter(self.bad[one] for one in pairs)
        if share is not None and share >= SLOW_BELOW and faults["loss"]:
            del faults["slow"]  # some of few pairs are slow by chance
        fault = faults.most_common(1)[0][0]
        sure: Confidence = "high" if weight >= ENOUGH else "medium" if weight == 2 else "low"
        self.culprits.append(Culprit(kind, where, names, fault, sure, share, seen))
        self.explained.update(pairs)

    def _open(self) -> Iterable[Pair]:
        """The pairs that decide most: doubted ones again, and suspects with good nodes and each other."""
        wanted: dict[Pair, None] = {}
        named = {name for one in self.culprits if one.kind == "node" for name in one.names}
        suspects = sorted(
            name for name in self.partners if len(self._suspicious(name)) and name not in self.gone
        )
        settled = {name for one in self.culprits if one.kind == "group" for name in one.names}
        near = [name for name in suspects if name not in settled and not self.friends[name]]
        among = (
            [pair(a, b) for place, a in enumerate(near) for b in near[place + 1 :]]
            if len(near) <= AMONG
            else [pair(a, b) for step in (1, 2) for a, b in zip(near, near[step:], strict=False)]
        )
        wanted.update(dict.fromkeys(one for one in among if one not in self.by_pair))
        islands = [culprit.names for culprit in self.culprits if culprit.kind == "group"]
        for place, names in enumerate(islands):
            others = [*near, *(name for more in islands[place + 1 :] for name in more[:ENOUGH])]
            joints = [
                pair(name, names[(i + k) % len(names)]) for i, name in enumerate(others) for k in (0, 1)
            ]
            wanted.update(dict.fromkeys(one for one in joints if one not in self.by_pair))
        for leaf in sorted({self.groups[name] for name in near if name in self.groups}):
            inside = sorted(name for name in near if self.groups.get(name) == leaf)
            wanted.update(
                (pair(a, b), None)
                for place, a in enumerate(inside)
                for b in inside[place + 1 : place + 3]
                if pair(a, b) not in self.by_pair
            )
        sound = [name for name in sorted(self.friends) if name not in self.partners or self.friends[name]]
        sound = [name for name in sound if name not in named and not self._suspicious(name)]
        for place, name in enumerate(suspects):
            met = (self.partners[name] | self.friends[name]).intersection(sound)
            fresh = [other for other in sound if other not in met and other != name]
            lacking = max(0, ENOUGH - len(met))
            wanted.update(
                (pair(name, fresh[(place * ENOUGH + i) % len(fresh)]), None) for i in range(lacking) if fresh
            )
        for one in sorted({*self.bad, *self.doubted} - self.explained):
            if len(self.by_pair[one]) < ENOUGH:
                wanted[one] = None
        return wanted

    def _suspicious(self, name: str) -> list[str]:
        """Bad partners of a node that has few good ones, whatever explains them."""
        bad = self.partners[name]
        return sorted(bad) if len(self.friends[name]) <= STRAY * len(bad) else []


def _group_name(names: Iterable[str]) -> str:
    from nodedoctor.nodeset import fold

    return fold(names)
