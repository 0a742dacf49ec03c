"""Whatever a probe prints, every parser and every check survives it, and every view can show the result."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodedoctor.demo import DEMOS, folder
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.engine.sources import Recorded
from nodedoctor.model import Expect, Moment, Observation, Report
from nodedoctor.report import json as report_json
from nodedoctor.report import text

NODES = [folder(name) for name in DEMOS]
NODES += sorted(path.parent for path in (Path(__file__).parent / "nodes").glob("*/manifest.json"))

ODD = st.sampled_from([None, [], {}, -1, "x", "", 1e99, True, "9" * 5000, [None], {"": {}}, "\x1b[1m"])
WHOLE = (
    st.sampled_from(["", "[]", "null", "3", '"x"', "{", '{"files": 3}', "\x00\x1b[31m\n", "Failed\n"])
    | st.text()
)


@pytest.fixture(scope="module")
def sessions():
    return {node: Session(Request(replay=node)) for node in NODES}


def damaged(value: Any, data: st.DataObject) -> Any:
    """The same document with one value, somewhere in it, replaced by an odd one."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 4)):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 4)):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], damaged(value[at], data), *value[at + 1 :]]
    return data.draw(ODD)


def mutated(printed: str, data: st.DataObject) -> str:
    """What a probe printed: cut off, replaced, turned round, or wrong in one place."""
    how = data.draw(st.sampled_from(["cut", "whole", "reverse", "twice", "wrong"]))
    if how == "cut":
        return printed[: data.draw(st.integers(0, len(printed)))]
    if how == "reverse":
        return printed[::-1]
    if how == "twice":
        return printed * 2
    try:
        document = json.loads(printed)
    except ValueError:
        how = "whole"
    return data.draw(WHOLE) if how == "whole" else json.dumps(damaged(document, data))


def judged(session: Session, seen: dict[str, Observation]) -> Report:
    given = {**session.diagnosis()._given, Expect: Expect()}
    assert Moment in given

    async def run() -> Report:
        node = {"hostname": "h", "boot_id": None}
        return await Diagnosis(session.checks, Recorded(seen), given, label="replay", node=node).run()

    return asyncio.run(run())


@pytest.mark.slow
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_text_breaks_anything(sessions, data):
    session = sessions[data.draw(st.sampled_from(NODES))]
    assert session.snapshot is not None
    seen = dict(session.snapshot.observations)
    for name in data.draw(st.lists(st.sampled_from(sorted(seen)), min_size=1, max_size=3, unique=True)):
        seen[name] = replace(seen[name], text=mutated(seen[name].text, data))
    report = judged(session, seen)
    raised = [
        f.summary for r in report.results for f in r.findings if "raised" in f.summary and f.reason == "crash"
    ]
    assert not raised
    document = report_json.document(report)
    assert json.loads(report_json.render(document)) == document
    assert any(line.startswith("h") for line in text.render(document).splitlines()[:2])
