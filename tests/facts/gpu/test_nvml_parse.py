"""Documents of the NVML child that are cut off, damaged or nonsense: a reading or a reason, no exception."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
from examples import examples
from fakes import nvml_env, write_config
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.gpu.nvml.gpu import ranges
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.model import Observation, Outcome, Unseen

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
OUTCOMES = st.sampled_from(Outcome)


@pytest.fixture(scope="module")
def document(nvml_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the child says of a node with two GPUs."""
    config = {"gpus": 2, "links": 2, "processes": "42:300", "program.42": "python3"}
    env = nvml_env(nvml_folder, write_config(tmp_path_factory.mktemp("conf") / "conf", config))
    asked = Command(child("gpu/nvml", packages=True), env=env)
    return asyncio.run(child_process.run("nvml", asked, 60)).text


def sound(seen: Observation) -> NvmlReading | Unseen:
    parsed = NvmlReading.parse(seen)
    assert isinstance(parsed, NvmlReading | Unseen)
    if isinstance(parsed, NvmlReading):
        json.dumps(asdict(parsed), allow_nan=False)
    return parsed


@given(st.text(), OUTCOMES, st.text())
def test_any_text_is_read_or_unseen(text: str, outcome: Outcome, note: str):
    sound(Observation("nvml", outcome, text, note=note))


@given(st.fixed_dictionaries({}, optional={key: JSON for key in ("init", "system", "gpus", "peers", "slow")}))
def test_any_document_is_read_or_unseen(said: dict[str, Any]):
    sound(Observation("nvml", text=json.dumps(said)))


@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_value_may_be_nonsense(document: str, data: st.DataObject):
    said = json.loads(document)
    place: Any = said
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if not place[key] or not isinstance(place[key], dict | list) or data.draw(st.integers(0, 4)) == 0:
            place[key] = data.draw(JSON)
            break
        place = place[key]
    sound(Observation("nvml", text=json.dumps(said)))


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_document_cut_off_anywhere_keeps_its_whole_gpus(document: str, data: st.DataObject):
    cut = data.draw(st.integers(0, len(document) - 3))
    parsed = sound(Observation("nvml", Outcome.TIMEOUT, document[:cut], note="no answer"))
    assert isinstance(parsed, NvmlReading)
    assert parsed.gpus.interrupted == "timeout"
    starts = [document.index(f'{{"index": {index}, "values"') for index in (0, 1)]
    ends = [document.rindex("}", start, document.index("\n", start)) for start in starts]
    assert len(parsed.gpus.gpus) == sum(cut > end for end in ends)
    if parsed.gpus.counted is not None:
        assert len(parsed.gpus.gpus) + len(parsed.gpus.lost) == parsed.gpus.counted


def test_a_pasted_document_without_its_end_says_so(document: str):
    parsed = sound(Observation("nvml", text=document[: document.index('"peers"')]))
    assert isinstance(parsed, NvmlReading)
    assert (parsed.gpus.interrupted, len(parsed.gpus.gpus)) == ("unparsable", 2)
    assert parsed.gpus.gpus[0].peers is None and parsed.gpus.gpus[0].errors["peers"] == "NOT_ASKED"


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "Segmentation fault", '{"gpus": []}'])
def test_what_is_no_document_is_unparsable(text: str):
    why = sound(Observation("nvml", text=text))
    assert isinstance(why, Unseen) and why.reason == "unparsable"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.MISSING, "missing-tool"),
        (Outcome.DENIED, "denied"),
        (Outcome.SKIPPED, "not-visible-here"),
    ],
)
def test_what_was_not_asked_is_unseen(outcome: Outcome, reason: str):
    why = sound(Observation("nvml", outcome))
    assert isinstance(why, Unseen) and why.reason == reason


@given(st.sets(st.integers(0, 200)))
def test_affinity_is_ranges_of_bits(bits: set[int]):
    mask = sum(1 << bit for bit in bits)
    words = [mask >> 64 * place & (1 << 64) - 1 for place in range(4)]
    told = ranges(words)
    spans = [tuple(map(int, part.split("-"))) for part in told.split(",")] if told else []
    assert {bit for span in spans for bit in range(span[0], span[-1] + 1)} == bits
    assert spans == sorted(spans)
