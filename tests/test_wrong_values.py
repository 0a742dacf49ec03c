"""One value of a document is wrong, the rest is right: what is read, judged and shown is still a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from targets import NODES, TARGETS_OF_JSON, printed, session_of, targets
from wrong_values import IN_TEXT, NESTS, WRONG, distinct, numbers, put

from nodedoctor.json_shapes import DEEPEST, loaded

JUDGED = ("raylet-1024-files", "dgx-a100-whole-boot-log-healthy", "h100-broadcom-rails-healthy")
"""Recorded nodes that have every probe between them, and most of its values."""
TRIES = 8
"""Wrong values of each probe: judging and showing a node takes a tenth of a second."""
DOORS = {target.name: target for target in targets() if target.name in TARGETS_OF_JSON}


@cache
def probes() -> dict[str, tuple[int, str]]:
    """For each probe one of these nodes, by its place, and what it printed."""
    found: dict[str, tuple[int, str]] = {}
    for name in JUDGED:
        place = next(place for place, node in enumerate(NODES) if node.name == name)
        snapshot = session_of(NODES[place]).snapshot
        assert snapshot is not None
        for probe, seen in snapshot.observations.items():
            if seen.answered and seen.text.strip():
                found.setdefault(probe, (place, seen.text))
    return found


def wrong(text: str) -> Iterator[str]:
    """What a probe printed, each time with one place wrong; every way of being wrong comes in its turn."""
    try:
        document = json.loads(text)
    except ValueError:
        for turn, number in enumerate(numbers(text)):
            yield text[: number.start()] + IN_TEXT[turn % len(IN_TEXT)] + text[number.end() :]
    else:
        for turn, path in enumerate(distinct(document).values()):
            yield put(document, path, WRONG[turn * 7 % len(WRONG)])


@pytest.mark.slow
@pytest.mark.parametrize("probe", sorted(probes()))
def test_values_of_every_probe(probe: str) -> None:
    place, text = probes()[probe]
    every = list(wrong(text))
    for given in every[:: max(1, len(every) // TRIES)]:
        printed(probe, [NODES[place]], b"\0\0" + given.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
def test_some_values_of_some_probes() -> None:
    for turn, (probe, (place, text)) in enumerate(sorted(probes().items())[::4]):
        every = list(wrong(text))
        given = every[turn * 11 % len(every)] if every else ""
        printed(probe, [NODES[place]], b"\0\0" + given.encode("utf-8", "surrogatepass"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("share", [20, 100])
@pytest.mark.parametrize("values", [NESTS, WRONG], ids=["nests", "wrong values"])
@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_value_in_a_document_from_outside(door: str, values: tuple[str, ...], share: int) -> None:
    """Most nests are not too deep for `json`: whoever walks through the value would be the one to fall."""
    (document, *_) = documents(door)
    every = list(distinct(document).values())
    for turn, path in enumerate(every[:: max(1, len(every) // share)]):
        given = put(document, path, values[turn * 7 % len(values)])
        DOORS[door].take(given.encode("utf-8", "surrogatepass"))


def documents(door: str) -> Iterator[Any]:
    for seed in DOORS[door].seeds():
        with suppress(ValueError):  # a pickle
            yield json.loads(seed)


@pytest.mark.parametrize(
    ("opens", "inside", "closes"), [("[", "", "]"), ('{"a":', "1", "}"), ('[{"a":', "[]", "}]")]
)
def test_json_from_outside_is_as_deep_as_real_documents_at_most(opens: str, inside: str, closes: str) -> None:
    each = opens.count("[") + opens.count("{")
    most = (DEEPEST - inside.count("[")) // each
    assert loaded(opens * most + inside + closes * most) is not None
    for depth in (most + 1, 100, 300, 990, 5000, 100_000):
        text = opens * depth + inside + closes * depth
        for given in (text, text.encode(), f'{{"beside": "[{{", "it": {text}}}'):
            with pytest.raises(ValueError, match="nested too deeply"):
                loaded(given)


def test_brackets_in_texts_nest_nothing() -> None:
    assert loaded(json.dumps("[{" * 1000)) == "[{" * 1000
    assert loaded(json.dumps(["[" * 1000, [{}] * 1000]))[1] == [{}] * 1000
