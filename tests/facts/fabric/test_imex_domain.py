"""What `nvidia-imex-ctl -N` prints about the trays of a domain, and what is judged of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import replay

from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.fabric.imex_domain import NAME, ImexDomain
from nodedoctor.facts.gpu.board import Board
from nodedoctor.model import Observation, Outcome, Unseen

READY = [(f"10.0.0.{number}", "READY", "580.95.05") for number in range(1, 5)]


def text(
    trays: Sequence[tuple[str, str, str]],
    marks: Mapping[tuple[int, int], str] | None = None,
    state: str = "UP",
) -> str:
    """The tool's output as its first tray sees the others: it stars itself."""
    lines = ["Connectivity Table Legend:", "C - Connected - Ready for operation", "", "Nodes:"]
    for number, (host, status, version) in enumerate(trays):
        own = f"* {host:<15} *" if number == 0 else f"- {host:<15}"
        lines.append(f"Node #{number:<3} {own} - {status:<20} - Version: {version}")
    for row in range(len(trays)):
        cells = ((marks or {}).get((row, column), "C") for column in range(len(trays)))
        lines.append(f"       {row}        {'   '.join(cells)}")
    return "\n".join([*lines, "", f"Domain State: {state}", ""])


def judged(said: str, folder: Path) -> list[tuple[str, str]]:
    report = replay(folder, {NAME: said})
    (result,) = (one for one in report.results if one.check == "fabric.imex-domain")
    return [(finding.status.value, finding.summary) for finding in result.findings]


DOMAINS = {
    "all ready": (text(READY), "pass", "domain UP, 4 trays READY"),
    "one tray gone": (
        text([*READY[:3], ("10.0.0.4", "UNAVAILABLE", "N/A")], {(0, 3): "I"}, "DEGRADED"),
        "warn",
        "domain DEGRADED: 1 tray not ready; not reachable",
    ),
    "one tray behind": (
        text([*READY[:3], ("10.0.0.4", "READY", "580.82.07")], {(0, 3): "!V!", (3, 0): "!V!"}, "DEGRADED"),
        "warn",
        "domain DEGRADED: versions 580.82.07 and 580.95.05; IMEX of another version",
    ),
    "lists differ": (
        text(READY, {(1, 2): "!M!"}, "DEGRADED"),
        "warn",
        "domain DEGRADED: another list of trays in nodes_config.cfg",
    ),
    "down": (
        text([(h, "UNAVAILABLE", v) for h, _, v in READY], state="DOWN"),
        "warn",
        "domain DOWN: 4 trays not ready",
    ),
    "cut": (text(READY).partition("Domain")[0], "unknown", "4 trays READY, domain state unknown"),
    "no daemon": ("Failed to connect to nvidia-imex\n", "unknown", f"{NAME}: the answer could not be read"),
}


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_is_up_when_every_tray_is_ready_and_says_so(domain: str, tmp_path: Path):
    said, status, summary = DOMAINS[domain]
    assert judged(said, tmp_path) == [(status, summary)]


@given(st.text(max_size=400) | st.sampled_from([text(READY)[:cut] for cut in range(0, 700, 7)]))
def test_any_text_is_read_or_refused(said: str):
    seen = Observation(NAME, Outcome.OK, rc=0, text=said)
    found = ImexDomain.parse(seen, Unseen.of(seen), Unseen.of(seen))
    assert isinstance(found, Unseen) or found.nodes


def test_a_part_of_a_tray_that_was_asked_and_did_not_answer_is_no_node_without_a_domain():
    """What decides whether to ask also decides whether silence matters: the model, not the count."""
    part = Board("GB200", None, 2, 2)
    runs = Services((Service("nvidia-imex", "loaded", "active", "running"),))
    late = Observation(NAME, Outcome.TIMEOUT, note="no answer in 8 s")
    found = ImexDomain.parse(late, part, runs)
    assert isinstance(found, Unseen) and found.applies and found.reason == "timeout"
    other = ImexDomain.parse(late, Board("H100 SXM5 80GB", None, 2, 2), runs)
    assert isinstance(other, Unseen) and not other.applies
