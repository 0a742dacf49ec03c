"""A made-up cluster whose faults are known, measured by the planner that drives real nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping

from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.model import Fit, Measurement, Mode, Pair
from nodedoctor.pairs.schedule import Plan, doubts, plan

LEAF = 16


class World:
    """`nodes` names, `share`, `paths` and `leaves` what some have of the rate."""

    def __init__(self, count: int, *, noise: float = 0.05, seed: int = 0, leaf: int = LEAF) -> None:
        self.nodes = tuple(f"gpu-{number:03}" for number in range(count))
        self.leaf = {name: f"leaf-{place // leaf:02}" for place, name in enumerate(self.nodes)}
        self.noise = noise
        self.chance = random.Random(seed)
        self.share: dict[str, float] = {}
        self.paths: dict[Pair, float] = {}
        self.lossy: dict[Pair, float] = {}
        self.leaves: dict[str, float] = {}
        self.late: set[str] = set()
        self.corrupt: set[str] = set()
        self.closed: set[str] = set()
        self.dies: dict[str, int] = {}
        self.gone: set[str] = set()

    def measure(self, one: Pair, place: int) -> Measurement | None:
        for name in one:
            if self.dies.get(name, place + 1) <= place:
                self.gone.add(name)
        if self.gone & set(one):
            return Measurement(one, fault="hang", round=place)
        if self.closed & set(one):
            return Measurement(one, fault="filtered", round=place)
        a, b = (self.leaf[name] for name in one)
        crossing = min(self.leaves.get(a, 1), self.leaves.get(b, 1)) if a != b else 1
        share = min(*(self.share.get(name, 1) for name in one), self.paths.get(one, 1), crossing)
        noisy = share * max(0.01, self.chance.gauss(1, self.noise))
        loss = max(0.0, self.chance.gauss(0.0005, 0.0003)) + self.lossy.get(one, 0)
        fault = "corrupt" if self.corrupt & set(one) else None
        trip = 40 * max(0.3, self.chance.gauss(1, 0.3)) + (900 if self.late & set(one) else 0)
        return Measurement(one, 200 * noisy, fault, loss, trip, place)  # type: ignore[arg-type]

    def run(
        self, mode: Mode | None = None, *, topology: bool = False, seconds: float = 3
    ) -> tuple[Plan, Fit, list[Measurement], int]:
        """The whole plan and its doubts; the fit, all measurements and the rounds it took."""
        groups: Mapping[str, str] = self.leaf if topology else {}
        planned = plan(self.nodes, mode, seconds, seed=self.chance.randrange(1000))
        measured: list[Measurement] = []
        rounds, spent = list(planned.rounds), 0
        place = 0
        while rounds:
            for each in rounds:
                here = [one for one in each if not self.gone & set(one)]
                measured += [found for one in here if (found := self.measure(one, place))]
                place += 1
            seen, again = doubts(planned, measured, groups, self.gone, spent)
            rounds = list(again)
            spent += len(rounds)
        return planned, seen, measured, place


def minutes(rounds: int, seconds: float = 3) -> float:
    return rounds * (seconds + METHODS["tcp"].setup_s) / 60
