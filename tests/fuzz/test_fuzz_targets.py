"""Every way in takes anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import examples
from functions import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_turn import in_turn
from mutate import HOW, LARGEST, Edit, apply
from targets import BARRED, CORPUS, targets

TARGETS = {target.name: target for target in targets()}
EDITS = st.lists(
    st.builds(Edit, st.sampled_from(HOW), st.integers(0, LARGEST), st.integers(0, 300), st.integers(0, 9999)),
    max_size=5,
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_anything_is_an_answer_or_an_announced_error(name: str, data: st.DataObject) -> None:
    seeds = TARGETS[name].seeds()
    TARGETS[name].take(apply(data.draw(st.sampled_from(seeds)), data.draw(EDITS), seeds))


@pytest.mark.parametrize(
    "file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}"
)
def test_what_once_broke_a_target_is_taken(file: Path) -> None:
    (target,) = [target for name, target in TARGETS.items() if name.replace(" ", "-") == file.parent.name]
    target.take(file.read_bytes())


@in_turn("name", TARGETS)
def test_no_edit_of_a_seed_begins_with_its_loss(name: str) -> None:
    """Edits keep LARGEST bytes: of a longer document only a torn one would ever be tried."""
    assert max(map(len, TARGETS[name].seeds())) <= LARGEST


@pytest.mark.slow
def test_every_function_that_is_left_out_exists() -> None:
    """A name that has moved would be called with any text again."""
    assert set(BARRED) <= {str(reader) for reader in readers()}
