"""Which pairs are measured when: rounds of disjoint pairs, and how long they take.

Everything here is pure. The same planner drives real nodes and the simulations of the tests.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Mapping, Sequence

from nodedoctor.pairs.culprits import fit
from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.model import Fit, Measurement, Mode, Pair, Round, What, pair
from nodedoctor.record import record

ALL_UP_TO = 32
"""Nodes up to which all pairs are measured by default: 31 rounds, three minutes."""
SAMPLED = 8
"""Rounds of a sample. Our choice: a slow node is then slow with eight others, and at any size the good pairs
hang together (a random graph of degree 8)."""
LOOKS_AGAIN = 4
"""Times that doubts are measured again; each takes a few rounds. Our choice, from the simulations."""
ROUNDS_AGAIN = 16
"""Rounds of one such time at most."""
ROUNDS_OF_A_TRY = 3
"""Rounds of disjoint pairs that a ring takes; two where its nodes are even in number."""
MINUTES = 15.0
"""What a plan may take by default at any size."""


@record
class Plan:
    """What will be done: printed before anything runs.

    `rounds` are those of the beginning; `again` is how many more may follow to settle doubts.
    """

    mode: Mode
    nodes: tuple[str, ...]
    rounds: tuple[Round, ...]
    seconds: float
    again: int
    what: What = "tcp"

    @property
    def round_s(self) -> float:
        """Seconds of one round."""
        return self.seconds + METHODS[self.what].setup_s

    @property
    def expected_s(self) -> float:
        """Seconds when every node is well."""
        return len(self.rounds) * self.round_s

    @property
    def longest_s(self) -> float:
        """Seconds with all doubts settled."""
        return (len(self.rounds) + self.again) * self.round_s

    @property
    def pairs(self) -> int:
        """How many different pairs the first rounds measure."""
        return len({ends for pairs in self.rounds for ends in pairs})


def plan(nodes: Sequence[str], mode: Mode | None, seconds: float, what: What = "tcp", seed: int = 0) -> Plan:
    """The plan for some nodes; without a mode all pairs up to 32 nodes and a sample above.

    Without a mode the plan is cut so that it takes 15 minutes at most.
    """
    chosen = mode or ("all" if len(nodes) <= ALL_UP_TO else "sample")
    rounds = _mode_rounds(tuple(nodes), chosen, seed)
    again = LOOKS_AGAIN * ROUNDS_AGAIN
    if chosen == "bisect":
        again += ROUNDS_OF_A_TRY * tries_at_most(len(nodes))
    if mode is None:
        room = int(MINUTES * 60 / (seconds + METHODS[what].setup_s))
        rounds = rounds[: max(1, room // 2)] if len(rounds) > room else rounds
        again = max(0, min(again, room - len(rounds)))
    return Plan(chosen, tuple(nodes), rounds, seconds, again, what)


def all_rounds(nodes: Sequence[str]) -> tuple[Round, ...]:
    """Every pair once, in as few rounds as there can be (the circle method of tournaments)."""
    return tuple(_one_round(nodes, number) for number in range(_how_many(nodes)))


def _how_many(nodes: Sequence[str]) -> int:
    """Rounds in which every pair can be measured once."""
    return len(nodes) - 1 + len(nodes) % 2 if len(nodes) > 1 else 0


def _one_round(nodes: Sequence[str], number: int) -> Round:
    """One of them: the first node keeps its seat, the others have moved on by as many."""
    first, *others = [*nodes, None] if len(nodes) % 2 else nodes
    offset = len(others) - number
    seats = [first, *others[offset:], *others[:offset]]
    half = len(seats) // 2
    sides = zip(seats[:half], reversed(seats[half:]), strict=True)
    return tuple(pair(a, b) for a, b in sides if a is not None and b is not None)


def ring(nodes: Sequence[str]) -> Round:
    """Every node with the next, the last with the first."""
    if len(nodes) < 2:
        return ()
    following = (*nodes[1:], nodes[0])
    return tuple(dict.fromkeys(pair(a, b) for a, b in zip(nodes, following, strict=True)))


def packed(pairs: Iterable[Pair]) -> tuple[Round, ...]:
    """Pairs in rounds in which no node is twice, in the order given as far as that goes."""
    rounds: list[list[Pair]] = []
    busy: list[set[str]] = []
    for ends in pairs:
        for place, busy_nodes in enumerate(busy):  # noqa: B007
            if busy_nodes.isdisjoint(ends):
                break
        else:
            place = len(busy)
            rounds.append([])
            busy.append(set())
        rounds[place].append(ends)
        busy[place].update(ends)
    return tuple(map(tuple, rounds))


def _mode_rounds(nodes: tuple[str, ...], mode: Mode, seed: int) -> tuple[Round, ...]:
    if mode == "all":
        return all_rounds(nodes)
    if mode in ("ring", "bisect"):
        return packed(ring(nodes))
    mixed = list(nodes)
    chance = random.Random(seed)  # the same nodes give the same plan, so that two runs can be compared
    chance.shuffle(mixed)
    every = _how_many(mixed)
    return tuple(_one_round(mixed, n) for n in sorted(chance.sample(range(every), min(SAMPLED, every))))


def doubts(
    plan: Plan,
    measured: Sequence[Measurement],
    groups: Mapping[str, str],
    lost_nodes: Iterable[str],
    spent: int,
) -> tuple[Fit, tuple[Round, ...]]:
    """What the measurements say so far, and the rounds that would settle its doubts; none when it is over.

    Nodes in no doubt are busy as well, as in the first rounds: what shares less with others is faster, and
    a node that only the first rounds measured would look slow beside it.
    """
    fit_now = fit(measured, groups, lost_nodes)
    room = min(ROUNDS_AGAIN, plan.again - spent)
    blamed = {name for culprit in fit_now.culprits if culprit.kind == "node" for name in culprit.names}
    sound = [name for name in plan.nodes if name not in blamed]
    rounds = packed(fit_now.next)[: max(0, room)]
    return fit_now, tuple(
        (*pairs, *_idle_pairs(pairs, sound, spent + number)) for number, pairs in enumerate(rounds)
    )


def _idle_pairs(busy: Round, nodes: Iterable[str], number: int) -> Round:
    """Pairs of the nodes that a round leaves idle, others in each round."""
    busy_nodes = {name for ends in busy for name in ends}
    idle = [name for name in nodes if name not in busy_nodes]
    return _one_round(idle, number % _how_many(idle)) if len(idle) > 1 else ()


def smallest_failing(nodes: Sequence[str]) -> Generator[tuple[str, ...], bool, tuple[str, ...]]:
    """Halve a set of nodes that fails together until the smallest set that still fails is left.

    Yields sets to be tried and is sent whether each failed; returns the smallest. Fewer than two nodes are
    never tried: they have no partner. The algorithm is QuickXplain (Junker, AAAI 2004), which needs
    about 2 k log2(n / k) tries for k culprits and also finds two nodes that fail only with each other.
    """
    return (yield from _smallest_failing((), tuple(nodes), False))


def tries_at_most(nodes: int) -> int:
    """Tries that halving takes for two nodes that fail only together."""
    return 4 * (nodes.bit_length() + 1)


def _smallest_failing(
    background: tuple[str, ...], candidates: tuple[str, ...], has_delta: bool
) -> Generator[tuple[str, ...], bool, tuple[str, ...]]:
    if has_delta and len(background) > 1 and (yield background):
        return ()
    if len(candidates) < 2:
        return candidates
    first, second = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
    from_second = yield from _smallest_failing((*background, *first), second, True)
    return (
        *(yield from _smallest_failing((*background, *from_second), first, bool(from_second))),
        *from_second,
    )
