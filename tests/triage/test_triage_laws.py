"""What must hold for every log: changes that must not matter, and what less evidence may do to a verdict.

The logs are the cases beside these tests, in the words of the programs that print them, with the truth that
was written down before they were judged; where a folder of other people's logs lies beside the repository,
those too.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodedoctor.record import record
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Verdict

HERE = Path(__file__).parent / "logs" / "cases"
SEED = 20261107

Texts = dict[str, str]


@record
class Case:
    """A log or several, and what ended the job."""

    name: str
    texts: Texts
    accept: tuple[str, ...]
    culprits: frozenset[int]


def _cases(folder: Path, index: str) -> Iterator[Case]:
    for row in map(json.loads, (folder / index).read_text().splitlines()):
        files = row.get("files") or [row["file"]]
        texts = {name: (folder / name).read_text(errors="replace") for name in files}
        yield Case(files[0], texts, tuple(row["accept"]), frozenset(row.get("culprits") or ()))


CASES = list(_cases(HERE, "truth.jsonl"))


def _verdict(texts: Texts, folder: Path) -> Verdict:
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        paths.append(str(path))
    verdict = examine_job(paths).verdict
    for name in texts:
        (folder / name).unlink()
    return verdict


_WHOLE: dict[tuple[tuple[str, str], ...], Verdict] = {}


def _whole(case: Case, folder: Path) -> Verdict:
    """The verdict of a case as it is, judged once for all changes."""
    texts = tuple(case.texts.items())
    if texts not in _WHOLE:
        _WHOLE[texts] = _verdict(case.texts, folder)
    return _WHOLE[texts]


def _ranks(verdict: Verdict) -> set[int]:
    return {who.rank for who in verdict.culprits if who.rank is not None}


def _said(verdict: Verdict) -> tuple[str, str, frozenset[int]]:
    return verdict.outcome, verdict.cause, frozenset(_ranks(verdict))


def _lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n") if line]


# Changes after which the same is true.


def _doubled(texts: Texts) -> Texts:
    return {name: "".join(line + line for line in _lines(text)) for name, text in texts.items()}


def _copied(texts: Texts) -> Texts:
    return {**texts, **{f"copy_of_{name}": text for name, text in texts.items()}}


def _by_rank(texts: Texts) -> Texts:
    """Lines of ranks grouped by rank, at the places where such lines stood."""
    changed = {}
    for name, text in texts.items():
        lines = _lines(text)
        places = [i for i, line in enumerate(lines) if _RANK.match(line)]
        ordered = sorted((lines[i] for i in places), key=lambda line: int(_rank(line)))
        for place, line in zip(places, ordered, strict=True):
            lines[place] = line
        changed[name] = "".join(lines)
    return changed


def _other_hosts(texts: Texts) -> Texts:
    return {name: re.sub(r"\b(gpu|n|node)-?(0?\d{2})\b", r"zebra-\2", text) for name, text in texts.items()}


def _files_backwards(texts: Texts) -> Texts:
    return dict(reversed(texts.items()))


def _syslog(texts: Texts) -> Texts:
    head = "Nov  7 10:41:22 head trainer[4242]: "
    return {name: "".join(head + line for line in _lines(text)) for name, text in texts.items()}


_RANK = re.compile(r"\[rank(\d+)\]:")


def _rank(line: str) -> str:
    found = _RANK.match(line)
    return found[1] if found else ""


SAME: dict[str, Callable[[Texts], Texts]] = {
    "every line twice": _doubled,
    "every file twice": _copied,
    "lines grouped by rank": _by_rank,
    "other names of hosts": _other_hosts,
    "files in another order": _files_backwards,
    "a prefix of syslog": _syslog,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_truth(case: Case, tmp_path: Path) -> None:
    verdict = _whole(case, tmp_path)
    assert verdict.cause in case.accept
    assert _ranks(verdict) <= case.culprits, "a wrong rank is worse than none"
    if "none" not in case.accept:
        assert verdict.outcome in ("failure", "undetermined")
    elif case.accept == ("none",):
        assert verdict.outcome in ("clean", "recovered")


@pytest.mark.slow
@pytest.mark.parametrize("change", SAME)
def test_a_change_that_does_not_matter(change: str, tmp_path: Path) -> None:
    for case in CASES:
        before = _said(_whole(case, tmp_path))
        after = _said(_verdict(SAME[change](case.texts), tmp_path))
        assert after == before, case.name


# Less evidence: the same, or less sure; never somebody else with more than low confidence.


def _without_lines(texts: Texts, share: float, chance: random.Random) -> Texts:
    return {
        name: "".join(line for line in _lines(text) if chance.random() >= share)
        for name, text in texts.items()
    }


def _without_a_rank(texts: Texts, chance: random.Random) -> Texts:
    ranks = sorted({rank for text in texts.values() for line in _lines(text) if (rank := _rank(line))})
    gone = chance.choice(ranks) if ranks else ""
    return {
        name: "".join(line for line in _lines(text) if not gone or _rank(line) != gone)
        for name, text in texts.items()
    }


def _front(texts: Texts, share: float) -> Texts:
    return {name: "".join(_lines(text)[: int(len(_lines(text)) * share)]) for name, text in texts.items()}


def _tail(texts: Texts, share: float) -> Texts:
    return {
        name: "".join(_lines(text)[len(_lines(text)) - int(len(_lines(text)) * share) :])
        for name, text in texts.items()
    }


LESS: dict[str, Callable[[Texts, random.Random], Texts]] = {
    "a tenth of the lines missing": lambda texts, chance: _without_lines(texts, 0.1, chance),
    "a third of the lines missing": lambda texts, chance: _without_lines(texts, 0.33, chance),
    "one rank missing": _without_a_rank,
    "the second half missing": lambda texts, _: _front(texts, 0.5),
    "the end missing": lambda texts, _: _front(texts, 0.8),
    "the first half missing": lambda texts, _: _tail(texts, 0.5),
    "only the end": lambda texts, _: _tail(texts, 0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", LESS)
def test_less_evidence_blames_nobody_else(loss: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    wrong = []
    for case in CASES:
        whole = _whole(case, tmp_path)
        known = {who.rank for who in (*whole.culprits, *whole.parties)} | case.culprits
        less = _verdict(LESS[loss](case.texts, chance), tmp_path)
        if less.confidence != "low" and not _ranks(less) <= known:
            wrong.append((case.name, less.headline))
    assert wrong == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", [c for c in CASES if "none" not in c.accept], ids=lambda case: case.name)
def test_a_death_is_not_erased_by_what_looks_like_progress(case: Case, tmp_path: Path) -> None:
    """Bars that are drawn again and monitors that go on are no progress."""
    noise = (
        "heartbeat: worker alive\n" * 5 + "Train:  42%|####2     | 420/1000 [07:10<10:00,  1.03s/it]\n" * 5
    )
    name = next(reversed(case.texts))
    texts = {**case.texts, name: case.texts[name].rstrip("\n") + "\n" + noise}
    assert _verdict(texts, tmp_path).outcome in ("failure", "undetermined")


def test_ranks_renumbered_are_culprits_renumbered(tmp_path: Path) -> None:
    """Ranks 0 to 7 turned by one place, in every notation that a case uses for them."""
    turned = 0
    for case in CASES:
        ranks = {int(rank) for text in case.texts.values() for rank in re.findall(r"\[rank(\d+)\]:", text)}
        if not case.culprits or not ranks or max(ranks | case.culprits) > 7 or "TP" in str(case.texts):
            continue
        size = max(ranks | case.culprits) + 1
        before = _ranks(_whole(case, tmp_path))
        texts = {name: _turned(text, size) for name, text in case.texts.items()}
        after = _verdict(texts, tmp_path)
        assert _ranks(after) == {(rank + 1) % size for rank in before}, (case.name, after.headline)
        turned += 1
    assert turned > 10


def _turned(text: str, size: int) -> str:
    def one(found: re.Match[str]) -> str:
        rank = int(found["rank"])
        return found["lead"] + str((rank + 1) % size if rank < size else rank)

    return _NOTED.sub(one, text)


_NOTED = re.compile(
    r"(?P<lead>\[rank|\bRank |\brank  ?|local_rank: |  rank      : |GPU |timeout from  rank |rank=)"
    r"(?P<rank>\d+)(?=\D)"
)
