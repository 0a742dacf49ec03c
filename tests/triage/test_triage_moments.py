"""The timeline in groups: many ranks that report the same are one row, and the odd one is another."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from say import caught, steps

from nodedoctor.report.moments import moments
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Event, Identity, Place
from nodedoctor.triage.verdict.document import MOST, TIMELINE, TOGETHER, group_moments, make_document

TIMES = st.none() | st.floats(0, 1000)
EVENTS = st.lists(st.tuples(st.sampled_from(["raised", "timed_out", "exited"]), TIMES), max_size=200)


@given(EVENTS)
def test_every_event_is_in_one_moment_of_its_kind(reports: list[tuple[str, float | None]]):
    reports = sorted(reports, key=lambda one: one[1] or 0.0)
    events = [
        (kind, Event(kind, Place("log", at), Identity(rank=at), time, ""))
        for at, (kind, time) in enumerate(reports)
    ]
    found = group_moments(events)
    assert sorted(e.place.offset for group in found for e in group) == list(range(len(reports)))
    assert all(len({event.what for event in group}) == 1 for group in found)
    for group in found if len(found) < MOST else ():
        for one, other in itertools.pairwise(group):
            assert one.time is None or other.time is None or other.time - one.time <= TOGETHER


def test_a_thousand_ranks_that_time_out_are_one_moment_with_all_of_them(tmp_path: Path):
    for rank in range(64):
        late = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n"
        (tmp_path / f"rank_{rank}.log").write_text(steps(1, 4) + (late if rank == 41 else caught(rank)))
    examined = examine_job([str(tmp_path)])
    found = make_document(examined.verdict, examined.lines.line_of)
    (waited,) = (one for one in moments(found) if one.event == "timed_out")
    assert (waited.count, waited.who) == (63, "ranks 0-40, 42-63")
    assert waited.source.endswith("rank_0.log") and waited.line == len(steps(1, 4).splitlines()) + 1
    assert len(found["timeline"]) == TIMELINE
    assert found["timeline_more"] + TIMELINE == sum(one.count for one in moments(found))


def test_a_document_without_moments_has_those_of_its_timeline():
    timeline = [
        {"time": f"11-14 08:34:0{rank}.000", "rank": rank, "event": "timed_out"} for rank in (2, 0, 1)
    ]
    found = moments({"timeline": [*timeline, {"time": None, "rank": None, "event": "raised"}]})
    assert [(one.who, one.count, one.first) for one in found] == [
        ("ranks 0-2", 3, "11-14 08:34:02.000"),
        ("", 1, ""),
    ]
