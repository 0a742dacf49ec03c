"""What is gone neither heals nor accuses: because of a deleted member no failure passes and none comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_unseen import HEALTH, NODES
from wrong_values import Place, places

from nodedoctor.declare.registry import Check, probes_of
from nodedoctor.engine.session import Request, Session
from nodedoctor.json_shapes import is_whole
from nodedoctor.model import Observation, Status
from nodedoctor.probes.plain_json import with_count
from nodedoctor.record import replace

FEWEST = 5
"""Deletions of each answer in a plain run."""


class Failing:
    """A recorded node that fails, judged again with another answer of one probe, by the checks that fail."""

    def __init__(self, folder: Path) -> None:
        self.session = Session(Request(replay=folder, preview=True))
        assert self.session.snapshot is not None
        self.snapshot = self.session.snapshot
        statuses = self._statuses(list(self.session.checks))
        self.failing = [check for check in self.session.checks if statuses[check.id] is Status.FAIL]

    def documents(self) -> dict[str, Any]:
        """The answers of our own children on which a failure rests, by probe."""
        asked = {name for check in self.failing for name in probes_of(check)}
        found = {}
        for name, seen in self.snapshot.observations.items():
            if name in asked and seen.answered and seen.text.startswith("{"):
                try:
                    found[name] = json.loads(seen.text)
                except ValueError:
                    continue
        return found

    def healed(self, probe: str, document: Any) -> list[str]:
        """The failures that are none any more when a probe answers this."""
        chosen = [check for check in self.failing if probe in probes_of(check)]
        seen = replace(self.snapshot.observations[probe], text=json.dumps(document))
        statuses = self._statuses(chosen, **{probe: seen})
        return [f"{name} {status.value}" for name, status in statuses.items() if status in HEALTH]

    def alarms(self, probe: str, document: Any) -> set[str]:
        """The checks that warn or fail when a probe answers this."""
        chosen = [check for check in self.session.checks if probe in probes_of(check)]
        seen = replace(self.snapshot.observations[probe], text=json.dumps(document))
        statuses = self._statuses(chosen, **{probe: seen})
        return {name for name, status in statuses.items() if status in (Status.WARN, Status.FAIL)}

    def _statuses(self, checks: list[Check], **changed: Observation) -> dict[str, Status]:
        seen = {**self.snapshot.observations, **changed}
        self.session.snapshot = replace(self.snapshot, observations=seen)
        report = asyncio.run(self.session.diagnosis(checks).run())
        return {result.check: result.status for result in report.results}


@cache
def node(folder: Path) -> Failing:
    return Failing(folder)


def without(document: Any, place: Place) -> Any:
    """The document without the member at a place."""
    first, *rest = place
    if rest:
        inner = without(document[first], tuple(rest))
        if isinstance(document, dict):
            return {**document, first: inner}
        return [*document[:first], inner, *document[first + 1 :]]
    if isinstance(document, dict):
        return {key: value for key, value in document.items() if key != first}
    return [*document[:first], *document[first + 1 :]]


def deletions(document: Any) -> Iterator[Place]:
    """Every member of a document, but the number of them."""
    return (place for _, place in places(document) if place and place != ("members",))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folder", NODES, ids=lambda path: path.name)
@settings(max_examples=examples(FEWEST))
@given(data=st.data())
def test_no_deletion_from_an_answer_of_this_version_heals(folder: Path, data: st.DataObject) -> None:
    """Members of an answer, of one place or of several."""
    failing = node(folder)
    for probe, recorded in failing.documents().items():
        document = with_count({key: value for key, value in recorded.items() if key != "members"})
        assert failing.healed(probe, document) == []
        for _ in range(data.draw(st.integers(1, 3))):
            document = without(document, data.draw(st.sampled_from(list(deletions(document)))))
            if not list(deletions(document)):
                break
        assert not is_whole(document)
        assert failing.healed(probe, document) == [], probe


@pytest.mark.sampled(4)
@pytest.mark.parametrize("folder", NODES, ids=lambda path: path.name)
@settings(max_examples=examples(FEWEST))
@given(data=st.data())
def test_no_deletion_of_a_key_from_an_answer_of_an_older_version_passes(
    folder: Path, data: st.DataObject
) -> None:
    """Of lists that carry no length only NVML's GPUs are counted; every object has the keys of its kind."""
    failing = node(folder)
    for probe, recorded in failing.documents().items():
        document = {key: value for key, value in recorded.items() if key != "members"}
        keys = [place for place in deletions(document) if isinstance(place[-1], str)]
        gpus = [("gpus", at) for at in range(len(document.get("gpus", ())))] if probe == "nvml" else []
        if keys:
            place = data.draw(st.sampled_from([*keys, *gpus]))
            healed = failing.healed(probe, without(document, place))
            assert [one for one in healed if one.endswith(" pass")] == [], (probe, place)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("folder", NODES, ids=lambda path: path.name)
@settings(max_examples=examples(FEWEST))
@given(data=st.data())
def test_a_device_that_cannot_be_read_is_not_missing(folder: Path, data: st.DataObject) -> None:
    """It may be the GPU, NVSwitch or adapter that seems to lack: no check fails, and none is healed."""
    made = node(folder)
    seen = made.snapshot.observations.get("pci")
    if seen is None or not seen.text.startswith("{"):
        return
    document = {key: value for key, value in json.loads(seen.text).items() if key != "members"}
    files = ("/vendor", "/device", "/class")
    if ids := [place for place in deletions(document) if str(place[-1]).endswith(files)]:
        place = data.draw(st.sampled_from(ids))
        assert made.alarms("pci", without(document, place)) <= made.alarms("pci", document), place
        assert made.healed("pci", without(document, place)) == [], place
