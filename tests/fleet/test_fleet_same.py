"""Reports of one machine become one node, and what --save wrote of a node is read back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.fleet.compare.duplicates import drop_duplicates
from nodedoctor.fleet.model import Fleet, Node, Problem
from nodedoctor.fleet.reports.saved import saved_text, unanswered
from nodedoctor.model import Severity, Status

moments = st.sampled_from(
    ["", "soon", "2026-11-20T09:00:00Z", "2026-11-20T09:00:30Z", "2026-11-21T09:00:00Z"]
)
problems = st.sampled_from([(), (Problem("a.b", "", Status.FAIL, "s"),)])
reports = st.builds(
    Node,
    host=st.sampled_from(["a", "b", "a+2"]),
    state=st.sampled_from(["answered", "unreadable"]),
    started=moments,
    verdict=st.just(Status.PASS),
    problems=problems,
    hostname=st.sampled_from(["", "a"]),
    boot_id=st.sampled_from(["", "x", "y"]),
    uptime=st.sampled_from([0.0, 100.0, 1e6]),
    serials=st.sampled_from([(), ("1", "2"), ("2", "3"), ("9",)]),
    report=st.sampled_from(["d/a.json", "d/a.json.gz", "e/a.json", "b.json"]),
)


@given(st.lists(reports, max_size=10))
def test_no_name_is_lost_or_made_up_or_in_both_lists(listed: list[Node]):
    made = list(drop_duplicates(listed))
    assert len({node.host for node in made}) == len(made) <= len(listed)
    fleet = Fleet("0", "reports", "", 0.0, tuple(made))
    names = {node.host for node in listed}
    assert {*fleet.passing, *fleet.failing} == names and not {*fleet.passing} & {*fleet.failing}
    assert sorted(map(str, drop_duplicates(reversed(listed)))) == sorted(map(str, made)) or _ties(listed)


def _ties(listed: list[Node]) -> bool:
    """Whether two reports of a name cannot be told apart by time, weight and place."""
    keys = [(node.host, node.started, node.severity, node.report) for node in listed]
    return len(set(keys)) < len(keys) or bool({"", "soon"} <= {node.started for node in listed})


def test_the_worst_of_one_moment_counts():
    well = Node("a", started="2026-11-20T09:00:00Z", report="a.json", verdict=Status.PASS)
    sick = Node("a", started=well.started, report="b.json", problems=(Problem("a.b", "", Status.FAIL, "s"),))
    (found,) = drop_duplicates([well, sick])
    assert found.severity is Severity.FAIL and found.note == "1 other report of the same moment was left out"


def test_a_node_that_answers_nothing_now_does_not_pass_by_an_old_report():
    old = Node("a", started="2026-11-20T09:00:00Z", verdict=Status.PASS, report="old/a.json")
    mute = Node("a", "silent", note="no answer", started="2026-11-21T09:00:00Z", report="new/a.json")
    (found,) = drop_duplicates([old, mute])
    assert (found.state, found.note) == ("silent", "no answer; 1 older report of it was left out")


@given(st.sampled_from(["silent", "unable", "unreachable", "unreadable"]), st.text(min_size=1, max_size=99))
def test_a_node_without_a_report_is_read_back(state: str, note: str):
    node = Node("root@gpu-1", state, note=note, seconds=2.5)  # type: ignore[arg-type]
    again = unanswered(saved_text(node, "2026-11-21T09:00:00Z"))
    assert again is not None
    assert (again.host, again.state, again.note, again.seconds) == (node.host, state, note, 2.5)


@given(st.text(), st.booleans())
def test_any_text_is_read_or_is_none(text: str, begun: bool):
    whole = saved_text(Node("a", "silent", note="n"), "now")
    assert unanswered(text) is None
    assert unanswered(whole[: len(text)] + text if begun else whole.replace("silent", "answered")) is None
