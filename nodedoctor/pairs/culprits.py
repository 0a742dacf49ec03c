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


def fit(measured: Sequence[Measurement], groups: Mapping[str, str], lost_nodes: Iterable[str] = ()) -> Fit:
    """What the measurements say; `groups` has known leaves of nodes, `lost_nodes` stopped answering."""
    return _Work(measured, groups, frozenset(lost_nodes)).fit()


class _Work:
    """One fit under way."""

    def __init__(
        self, measured: Sequence[Measurement], groups: Mapping[str, str], lost_nodes: frozenset[str]
    ) -> None:
        self.groups, self.gone = groups, lost_nodes
        self.measured = measured
        live = [one for one in measured if lost_nodes.isdisjoint(one.pair)]
        self.by_pair: dict[Pair, list[Measurement]] = defaultdict(list)
        for measurement in live:
            self.by_pair[measurement.pair].append(measurement)
        self.reference, self.scatter = rate_of_a_good_pair(live)
        self.slow_below = self._slow_bound(SCATTER)
        self.lossy_above = loss_of_a_bad_pair(live)
        trips = [measurement.rtt_us for measurement in live if measurement.rtt_us is not None]
        usual = median(trips) if trips else 0.0
        self.late_above = max(LATE_TIMES * usual, usual + LATE_LEAST_US) if trips else None
        self.slow_nodes = self._slow_nodes()
        self.bad: dict[Pair, Fault] = {}
        self.good: set[Pair] = set()
        self.doubted: set[Pair] = set()
        self._sort_pairs()
        self.partners: dict[str, set[str]] = defaultdict(set)
        self.friends: dict[str, set[str]] = defaultdict(set)
        for one in self.by_pair:
            for name, partner in (one, one[::-1]):
                if one in self.good:
                    self.friends[name].add(partner)
                elif one in self.bad:
                    self.partners[name].add(partner)
        self.culprits: list[Culprit] = []
        self.explained: set[Pair] = set()

    def fit(self) -> Fit:
        """Groups first, then nodes, then paths: each explains what it can, and the next what is left."""
        for name in sorted(self.gone):
            measurements = tuple(measurement for measurement in self.measured if name in measurement.pair)
            self.culprits.append(Culprit("node", name, (name,), "lost", "high", None, measurements))
        unmeasured = Counter(fault for fault in self.bad.values() if fault in UNMEASURED)
        if len(self.by_pair) > 1 and unmeasured.total() * 2 > len(self.by_pair):
            most = unmeasured.most_common(1)[0][0]
            return Fit(self.reference, self.slow_below, self.lossy_above, tuple(self.culprits), closed=most)
        self._blame_leaves()
        self._blame_islands()
        self._blame_nodes()
        self._blame_listeners()
        self._blame_paths()
        confirmed = tuple(sorted(self.doubted - self.explained))
        return Fit(
            self.reference,
            self.slow_below,
            self.lossy_above,
            tuple(self.culprits),
            tuple(self._open_pairs()),
            confirmed,
            late_above=self.late_above,
        )

    def _slow_bound(self, deviations: float) -> float:
        return max(0.0, min(SLOW_BELOW, 1 - deviations * self.scatter))

    def _slow_nodes(self) -> frozenset[str]:
        """Nodes whose median over all partners is low beyond what chance does to a median of so many.

        Their pairs need not be below the wider bound of a single pair. The standard error of a median is
        1.25 of that of a mean.
        """
        rates: dict[str, list[float]] = defaultdict(list)
        for nodes, measurements in self.by_pair.items():
            for measurement in measurements:
                for name in nodes if measurement.gbps is not None and not measurement.fault else ():
                    rates[name].append((measurement.gbps or 0.0) / (self.reference or 1.0))
        return frozenset(
            name
            for name, shares in rates.items()
            if len(shares) >= ENOUGH
            and median(shares) < min(SLOW_BELOW, 1 - SCATTER_ALONE * 1.25 * self.scatter / len(shares) ** 0.5)
        )

    def _sort_pairs(self) -> None:
        """Good and bad pairs, by the majority of their measurements; wrong bytes need no majority."""
        for nodes, measurements in self.by_pair.items():
            faults = [fault for measurement in measurements if (fault := self._measured_fault(measurement))]
            if "corrupt" in faults:
                self.bad[nodes] = "corrupt"
            elif len(faults) * 2 > len(measurements):
                self.bad[nodes] = Counter(faults).most_common(1)[0][0]
            elif len(faults) * 2 == len(measurements):
                self.doubted.add(nodes)
            else:
                self.good.add(nodes)

    def _measured_fault(self, measurement: Measurement) -> Fault | None:
        """What is wrong with a measurement: of a low rate and loss what leaves less of the good."""
        if measurement.fault:
            return measurement.fault
        bound = self.slow_below if self.slow_nodes.isdisjoint(measurement.pair) else SLOW_BELOW
        rate = measurement.gbps / self.reference if measurement.gbps is not None and self.reference else 1.0
        loss = (
            measurement.loss if measurement.loss is not None and measurement.loss > self.lossy_above else 0.0
        )
        if rate < bound and rate < 1 - loss:
            return "slow"
        if loss:
            return "loss"
        if (
            measurement.rtt_us is not None
            and self.late_above is not None
            and measurement.rtt_us > self.late_above
        ):
            return "late"
        return None

    def _blame_leaves(self) -> None:
        """Groups known from the topology: bad with the others, well inside."""
        members: dict[str, set[str]] = defaultdict(set)
        for name, leaf in self.groups.items():
            members[leaf].add(name)
        if len(members) < 2:
            return
        for leaf, names in sorted(members.items()):
            self._blame_group(
                leaf, names, {name for group, more in members.items() if group != leaf for name in more}
            )
        between: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for nodes in self.by_pair:
            a, b = (self.groups.get(name, "") for name in nodes)
            if a and b and a != b and nodes not in self.explained:
                between[pair(a, b)].append(nodes)
        for (a, b), pairs in sorted(between.items()):
            bad = [nodes for nodes in pairs if nodes in self.bad]
            ends = [{nodes[0] for nodes in bad} | {nodes[1] for nodes in bad}][0]
            has_friends = all(self.friends[name] for name in ends)
            if has_friends and len(ends) >= 2 * ENOUGH and len(bad) >= (1 - STRAY) * len(pairs):
                self._add_culprit("path", f"{a}:{b}", tuple(sorted(ends)), bad)

    def _blame_islands(self) -> None:
        """Groups seen in the pairs alone: nodes joined by good pairs, bad with the largest such set."""
        remaining, islands = set(self.friends), []
        while remaining:
            island, edge = set(), [min(remaining)]
            while edge:
                name = edge.pop()
                if name not in island:
                    island.add(name)
                    edge += self.friends[name] - island
            remaining -= island
            islands.append(island)
        islands.sort(key=len, reverse=True)
        for island in islands[1:]:
            if len(island) >= 2:
                self._blame_group(_group_name(island), island, islands[0])

    def _blame_group(self, where: str, names: set[str], others: set[str]) -> None:
        """Name a group if it is well inside and bad with the others, and is the smaller side."""
        if len(names) < 2 or len(names) > len(others):
            return
        inside = [nodes for nodes in self.by_pair if names.issuperset(nodes)]
        across = [
            nodes
            for nodes in self.by_pair
            if nodes not in self.explained and len(names & set(nodes)) == 1 and len(others & set(nodes)) == 1
        ]
        bad = [nodes for nodes in across if nodes in self.bad]
        good = self._clearly_well([nodes for nodes in inside if nodes in self.good], bad)
        here = {name for nodes in bad for name in nodes if name in names}
        there = {name for nodes in bad for name in nodes if name in others}
        if (
            good
            and len(good) >= (1 - STRAY) * len(inside)
            and len(bad) >= max(ENOUGH, (1 - STRAY) * len(across))
            and len(here) >= 2
            and len(there) >= 2
            and any(self.friends[name] & others for name in there)
        ):
            self._add_culprit("group", where, tuple(sorted(names)), bad)

    def _blame_nodes(self) -> None:
        """Nodes that are bad with everybody, the one with most bad pairs first."""
        while True:
            ranked = sorted(self.partners, key=lambda name: (-len(self._unexplained_partners(name)), name))
            for name in ranked:
                bad = self._unexplained_partners(name)
                slow = [pair(name, partner) for partner in bad]
                good = self._clearly_well([pair(name, partner) for partner in self.friends[name]], slow)
                clean = [partner for partner in bad if self.friends[partner]]
                if len(clean) >= 2 and len(good) <= STRAY * len(bad):
                    self._add_culprit("node", name, (name,), slow, len(clean))
                    break
            else:
                return

    def _clearly_well(self, good: Sequence[Pair], bad: Sequence[Pair]) -> list[Pair]:
        """The good pairs whose rate is nearer to the reference than to that of the bad ones.

        With a node at 0.7 of the rate some pairs are above the bound by chance, and so may be that of two.
        """
        slow = [rate for nodes in bad if self.bad[nodes] == "slow" for rate in self._pair_rates(nodes)]
        if not slow or not self.reference:
            return list(good)
        middle = (self.reference + median(slow)) / 2
        return [nodes for nodes in good if median(self._pair_rates(nodes) or [self.reference]) > middle]

    def _pair_rates(self, nodes: Pair) -> list[float]:
        return [measurement.gbps for measurement in self.by_pair[nodes] if measurement.gbps is not None]

    def _blame_listeners(self) -> None:
        """Nodes that can connect and cannot be connected to: of a pair the first listens."""
        for name in sorted(self.partners):
            listening = [nodes for nodes in self.by_pair if nodes[0] == name and nodes not in self.explained]
            closed = [nodes for nodes in listening if self.bad.get(nodes) in CONNECTING]
            if len(closed) >= 2 and len(closed) == len(listening):
                self._add_culprit("node", name, (name,), closed, len(closed))

    def _unexplained_partners(self, name: str) -> list[str]:
        return [partner for partner in self.partners[name] if pair(name, partner) not in self.explained]

    def _blame_paths(self) -> None:
        """Bad pairs of nodes that are well with others, once they were bad twice.

        Of two nodes alone nothing else can be named; with nothing to compare it with, loss is less sure.
        """
        alone = len(self.by_pair) == 1
        for nodes in sorted(self.bad):
            if nodes in self.explained:
                continue
            times = len(self.by_pair[nodes])
            sure = self.bad[nodes] == "corrupt" or (times >= ENOUGH and self._far_below(nodes))
            if sure and (alone or all(self.friends[name] for name in nodes)):
                uncompared = alone and self.bad[nodes] == "loss"
                self._add_culprit(
                    "path", f"{nodes[0]}:{nodes[1]}", nodes, [nodes], 2 if uncompared else times
                )
            else:
                self.doubted.add(nodes)

    def _far_below(self, nodes: Pair) -> bool:
        """Whether a pair is bad enough to be blamed alone."""
        if self.bad[nodes] != "slow" or not self.reference:
            return True
        return median(self._pair_rates(nodes)) < self._slow_bound(SCATTER_ALONE) * self.reference

    def _add_culprit(
        self,
        kind: Literal["node", "path", "group"],
        where: str,
        names: tuple[str, ...],
        pairs: Sequence[Pair],
        weight: int = ENOUGH,
    ) -> None:
        measurements = tuple(measurement for nodes in pairs for measurement in self.by_pair[nodes])
        rates = [measurement.gbps for measurement in measurements if measurement.gbps is not None]
        share = median(rates) / self.reference if rates and self.reference else None
        faults = Counter(self.bad[nodes] for nodes in pairs)
        if share is not None and share >= SLOW_BELOW and faults["loss"]:
            del faults["slow"]  # some of few pairs are slow by chance
        fault = faults.most_common(1)[0][0]
        sure: Confidence = "high" if weight >= ENOUGH else "medium" if weight == 2 else "low"
        self.culprits.append(Culprit(kind, where, names, fault, sure, share, measurements))
        self.explained.update(pairs)

    def _open_pairs(self) -> Iterable[Pair]:
        """The pairs that decide most: doubted ones again, and suspects with good nodes and each other."""
        wanted: dict[Pair, None] = {}
        culprit_nodes = {name for one in self.culprits if one.kind == "node" for name in one.names}
        suspects = sorted(
            name for name in self.partners if len(self._suspect_partners(name)) and name not in self.gone
        )
        group_nodes = {name for one in self.culprits if one.kind == "group" for name in one.names}
        near = [name for name in suspects if name not in group_nodes and not self.friends[name]]
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
        sound = [name for name in sound if name not in culprit_nodes and not self._suspect_partners(name)]
        for place, name in enumerate(suspects):
            met = (self.partners[name] | self.friends[name]).intersection(sound)
            fresh = [partner for partner in sound if partner not in met and partner != name]
            lacking = max(0, ENOUGH - len(met))
            wanted.update(
                (pair(name, fresh[(place * ENOUGH + i) % len(fresh)]), None) for i in range(lacking) if fresh
            )
        for one in sorted({*self.bad, *self.doubted} - self.explained):
            if len(self.by_pair[one]) < ENOUGH:
                wanted[one] = None
        return wanted

    def _suspect_partners(self, name: str) -> list[str]:
        """Bad partners of a node that has few good ones, whatever explains them."""
        bad = self.partners[name]
        return sorted(bad) if len(self.friends[name]) <= STRAY * len(bad) else []


def _group_name(names: Iterable[str]) -> str:
    from nodedoctor.nodeset import fold

    return fold(names)
