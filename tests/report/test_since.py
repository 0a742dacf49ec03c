"""`causes[].since`: the time of the first dated quote, and null where no quote has a year."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded

from nodedoctor.facts.kernel.lines import edges
from nodedoctor.report import json as report_json

NODES = Path(__file__).parents[1] / "nodes"


@pytest.mark.parametrize(
    ("line", "boot", "iso"),
    [
        ("2026-11-19T03:12:20.500000+0100 a kernel: x", None, "2026-11-19T02:12:20Z"),
        ("[Mon Nov 17 05:14:00 2026] x", None, "2026-11-17T05:14:00"),
        ("[  112.0] x", 1790000000.0, "2026-09-21T14:15:12Z"),
        ("[  112.0] x", None, None),
        ("Mar 27 17:40:36 a kernel: x", None, None),
        ("x", 1790000000.0, None),
    ],
)
def test_the_time_of_a_line_in_iso(line: str, boot: float | None, iso: str | None):
    first, last = edges(line, boot)
    assert first.iso == last.iso == iso


@pytest.mark.parametrize(
    ("node", "since"),
    [
        ("log-gpu-lost-switch-echoes", "2026-11-19T03:12:20Z"),
        ("b200-link-broken-and-access-refused", "2026-09-21T14:15:00Z"),
        ("log-oom-in-the-cgroup-of-a-job", "2026-11-17T04:00:01"),
        ("pasted-log-gsp-crash", None),
    ],
)
def test_a_cause_began_with_its_first_dated_quote(node: str, since: str | None):
    document = report_json.document(recorded.judged(NODES / node))
    assert document["causes"][0]["since"] == since
