"""A check whose answer lies in a file that the test writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from nodedoctor.declare.registry import Command, Options, check, fact, probe
from nodedoctor.model import Finding, Fix, Observation, Unseen
from nodedoctor.steps import repair


@probe("changing")
def ask(options: Options) -> Command:
    """The file that the test names."""
    return Command(("cat", os.environ.get("NODEDOCTOR_TEST_FILE", "/dev/null")))


@probe("steady")
def ask_steady(options: Options) -> Command:
    """Something that is answered once."""
    return Command(("cat", "/proc/sys/kernel/random/uuid"))


@fact("changing")
@dataclass(frozen=True, slots=True)
class Changing:
    """What the file says."""

    text: str

    @classmethod
    def parse(cls, seen: Observation) -> Changing | Unseen:
        """Any text."""
        return cls(seen.text.strip()) if seen.answered else Unseen.of(seen)


@fact("steady")
@dataclass(frozen=True, slots=True)
class Steady:
    """A number that is new whenever it is asked for."""

    text: str

    @classmethod
    def parse(cls, seen: Observation) -> Steady | Unseen:
        """Any text."""
        return cls(seen.text.strip()) if seen.answered else Unseen.of(seen)


@check("changing.file", "The file says well")
def changing(said: Changing) -> Iterator[Finding]:
    """One word."""
    if said.text == "well":
        yield Finding.ok("well")
    else:
        yield Finding.fail(said.text, fix=Fix("Write well into it.", (repair("echo well > file"),), "config"))


@check("changing.steady", "A number")
def steady(said: Steady) -> Iterator[Finding]:
    """The number."""
    yield Finding.ok(said.text)
