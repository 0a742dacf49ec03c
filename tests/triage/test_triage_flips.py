"""Changed logs: what does not matter, done to every case, turns round at most three verdicts in a hundred.

`test_triage_laws` holds each change alone; here formats, harmless lines and both together meet every case: a
few of them in each run of the fast tests, thousands among the slow ones.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from formats import LOSSLESS
from test_triage_laws import CASES, Case

from nodedoctor.triage.job import examine_job

HARMLESS = [
    block.strip("\n")
    for name in ("known", "kept_apart")
    for block in (Path(__file__).parent / "patterns" / f"harmless_{name}.txt").read_text().split("%%\n")
    if block.strip()
]
FLIPS = 0.03
"""Share of changed logs whose verdict may turn round."""
FEW, MANY = 50, 3000
"""Changed logs that the fast and the slow tests judge."""

Change = Callable[[list[str], random.Random], bytes]


def _front(lines: list[str], chance: random.Random) -> list[str]:
    return [*chance.choice(HARMLESS).split("\n"), *lines]


def _within(lines: list[str], chance: random.Random) -> list[str]:
    """Harmless lines between two others, and never inside a traceback."""
    places = [
        index
        for index, line in enumerate(lines)
        if index and not line[:1].isspace() and ":   " not in line and "Traceback" not in lines[index - 1]
        and not lines[index - 1][:1].isspace() and ":   " not in lines[index - 1]
    ]  # fmt: skip
    place = chance.choice(places or [0])
    return [*lines[:place], *chance.choice(HARMLESS).split("\n"), *lines[place:]]


def _behind(lines: list[str], chance: random.Random) -> list[str]:
    return [*lines, *chance.choice(HARMLESS).split("\n")]


def _stamped(lines: list[str], chance: random.Random) -> list[str]:
    return ["2026-10-02 07:41:22,123 " + chance.choice(HARMLESS).split("\n")[0], *lines]


MIXED: dict[str, Callable[[list[str], random.Random], list[str]]] = {
    "nothing": lambda lines, _: lines,
    "a harmless line in front": _front,
    "a harmless line within": _within,
    "a harmless line behind": _behind,
    "a harmless line with a time of its own": _stamped,
}


def _changed() -> Iterator[tuple[str, str]]:
    yield from ((mixed, "plain") for mixed in MIXED if mixed != "nothing")
    yield from (("nothing", name) for name in LOSSLESS)
    yield from zip(sorted(MIXED) * len(LOSSLESS), sorted(LOSSLESS), strict=False)


WAYS = sorted(set(_changed()))
ALL = [(case, way) for case in CASES if len(case.texts) == 1 for way in WAYS]


def _said(path: Path) -> tuple[bool, str, frozenset[int]]:
    """What must stay: whether something failed, of what, and who is blamed; not how sure it is."""
    verdict = examine_job([str(path)]).verdict
    ranks = frozenset(who.rank for who in verdict.culprits if who.rank is not None)
    return verdict.outcome in ("clean", "recovered"), verdict.cause, ranks


def _flips(chosen: list[tuple[Case, tuple[str, str]]], folder: Path) -> list[str]:
    found: list[str] = []
    plain: dict[str, tuple[bool, str, frozenset[int]]] = {}
    path = folder / "job.log"
    for case, (mixed, form) in chosen:
        (content,) = case.texts.values()
        if case.name not in plain:
            path.write_text(content)
            plain[case.name] = _said(path)
        chance = random.Random(zlib.crc32(f"{case.name}{mixed}{form}".encode()))
        lines = MIXED[mixed](content.rstrip("\n").split("\n"), chance)
        data = LOSSLESS[form](lines) if form != "plain" else "".join(line + "\n" for line in lines).encode()
        path.write_bytes(data)
        if _said(path) != plain[case.name]:
            found.append(f"{case.name}: {mixed}, {form}")
    return found


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_changed_logs_say_the_same(number: int, tmp_path: Path) -> None:
    chosen = random.Random(20261122).sample(ALL, number)
    found = _flips(chosen, tmp_path)
    assert len(found) <= FLIPS * number, f"{len(found)} of {number}: {found}"


TEES = ["[rank0]: ", "[rank0]:", "[default0]:", "[default0]: "]
"""What a pipe through which all ranks print may put in front of every line."""
_OF_A_RANK = re.compile(r"\s|Traceback|\[rank\d")
"""How logs begin in front of whose lines torch itself may have put a rank."""


def _teed(text: str, tee: str) -> str:
    return "".join(f"{tee}{line}\n" if line else "\n" for line in text.rstrip("\n").split("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("tee", TEES)
def test_one_rank_in_front_of_every_line_says_nothing(tee: str, tmp_path: Path) -> None:
    """Logs of a few lines and those of a traceback aside: there it is what torch prints of that rank."""
    path = tmp_path / "job.log"
    flips = []
    asked = 0
    for case in CASES:
        text = next(iter(case.texts.values()))
        if len(case.texts) > 1 or text.count("\n") < 4 or _OF_A_RANK.match(text):
            continue
        path.write_text(text)
        plain = _said(path)
        path.write_text(_teed(text, tee))
        asked += 1
        if _said(path) != plain:
            flips.append(case.name)
    assert flips == []
    assert asked > 20


CUTS: dict[str, Callable[[list[str], int], tuple[list[str], list[str]]]] = {
    "the last tenth": lambda lines, tenth: (lines[:-tenth], lines[-tenth:]),
    "the first tenth": lambda lines, tenth: (lines[tenth:], lines[:tenth]),
}


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_changes_a_verdict_only_with_its_evidence(cut: str, tmp_path: Path) -> None:
    """Without a part that shows nothing of it, a verdict stays or gets weaker: nobody else, nothing else."""
    path = tmp_path / "job.log"
    wrong = []
    for case in CASES:
        lines = next(iter(case.texts.values())).rstrip("\n").split("\n")
        if len(case.texts) > 1 or len(lines) < 10:
            continue
        path.write_text("\n".join(lines) + "\n")
        whole = examine_job([str(path)]).verdict
        kept, gone = CUTS[cut](lines, max(1, len(lines) // 10))
        edge = len(("\n".join(kept if cut == "the last tenth" else gone) + "\n").encode())
        first, last = (edge, 1 << 62) if cut == "the last tenth" else (0, edge)
        if any(first <= event.place.offset < last for event in whole.evidence):
            continue
        before = _said(path)
        path.write_text("\n".join(kept) + "\n")
        _, cause, ranks = _said(path)
        if cause not in (before[1], "undetermined") or not ranks <= before[2]:
            wrong.append((case.name, before, cause, ranks))
    assert wrong == []
