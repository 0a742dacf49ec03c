"""What the tables of rules say that a rule needs, it needs: without such an event it has no evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_triage_laws import CASES, Case

from nodedoctor.triage.identity.assign import assign_by_source
from nodedoctor.triage.read.parallel import read_all
from nodedoctor.triage.read.reader import SourceReading
from nodedoctor.triage.read.sources import find_sources
from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.timeline.recovery.set_aside import LOG_RULES
from nodedoctor.triage.verdict.causes import RULES


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def reading(request: pytest.FixtureRequest, tmp_path: Path) -> SourceReading:
    case: Case = request.param
    for name, text in case.texts.items():
        (tmp_path / name).write_text(text)
    reading = SourceReading()
    read_all(find_sources([str(tmp_path)]).sources, reading)
    return reading


@pytest.mark.sampled(6)
def test_a_rule_without_what_it_needs_has_no_evidence(reading: SourceReading) -> None:
    events = assign_by_source(reading.events, reading.speakers)
    timeline = build_timeline(events)
    for rule, kinds in RULES.items():
        if timeline.has_any(kinds):
            continue
        try:
            found = [candidate for candidate in rule(timeline) if candidate.evidence]
        except (IndexError, ValueError):  # it takes the first of what it needs: such a rule is not asked
            found = []
        assert not found, rule
    present = {event.kind for event in events}
    for log_rule in LOG_RULES:
        if present.isdisjoint(log_rule.kinds):
            assert log_rule.find(events) == events, log_rule.reason
