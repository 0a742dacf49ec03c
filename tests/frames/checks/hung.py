"""Eight questions that no one answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodedoctor.declare.registry import Command, Options, check, fact, probe
from nodedoctor.model import Finding, Observation, Unseen


def _hanging(number: int) -> None:
    @probe(f"hung-{number}", timeout=600)
    def ask(options: Options) -> Command:
        """A child that sleeps."""
        return Command(("sleep", "600"))

    @fact(f"hung-{number}", name=f"hung-{number}")
    @dataclass(frozen=True, slots=True)
    class Hung:
        """An answer that never comes."""

        @classmethod
        def parse(cls, seen: Observation) -> Hung | Unseen:
            """Nothing came."""
            return Unseen.of(seen)

    def judge(hung: Hung) -> Iterator[Finding]:
        """Whether it answers."""
        yield Finding.ok("it answered")

    judge.__annotations__["hung"] = Hung
    globals()[f"ask_{number}"], globals()[f"Hung{number}"] = ask, Hung
    globals()[f"judge_{number}"] = check(f"hung.driver-{number}", f"Driver {number} answers")(judge)


for _number in range(8):
    _hanging(_number)
