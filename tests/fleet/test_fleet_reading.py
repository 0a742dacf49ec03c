"""The answer of one node: a report, whatever stands around it, or the reason why there is none."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodedoctor.fleet.document import entry, node_of
from nodedoctor.fleet.model import Fleet, Node
from nodedoctor.fleet.reports.reading import LONGEST, node
from nodedoctor.model import Observation, Outcome, Status

NODES = Path(__file__).parents[1] / "nodes"
HEALTHY = "../../nodedoctor/demo/healthy"
RECORDED = [HEALTHY, *sorted(folder.name for folder in NODES.iterdir())]


@cache
def report(name: str) -> str:
    """What `nodedoctor --json` prints for a recorded node."""
    return nodedoctor_forked("--json", "--replay", str(NODES / name)).stdout


def seen(text: str = "", rc: int | None = 0, note: str = "", outcome: Outcome = Outcome.OK) -> Observation:
    return Observation("ssh", outcome, text, rc, seconds=3.0, note=note)


def answered(text: str, host: str = "gpu-1") -> Node:
    found = node(host, seen(text))
    assert found.state == "answered", found.note
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_lines_passed_over_change_nothing(name: str):
    """Our own layout is skimmed, any other parsed whole: both must say the same."""
    told = json.loads(report(name))
    shuffled = {key: told[key] for key in reversed(told)}
    whole = answered(json.dumps(told, indent=2))
    skimmed = answered(report(name))
    last = answered(json.dumps(shuffled))
    for other in (whole, last):
        assert {**entry(other), "note": ""} == {**entry(skimmed), "note": ""}
        assert other.statuses == skimmed.statuses
    assert skimmed.verdict is Status(told["verdict"])
    assert skimmed.counts == {status: n for status, n in told["counts"].items() if n}
    wrong = {f["id"] for r in told["results"] for f in r["findings"] if f["status"] in ("warn", "fail")}
    assert {problem.id for problem in skimmed.problems} >= wrong


def test_what_the_healthy_node_says():
    found = answered(report(HEALTHY))
    assert found.gpus == 8 and found.problems == () and found.verdict is Status.PASS
    assert found.traits["gpus"] == "8" and found.traits["gpu"].startswith("NVIDIA H100")
    assert found.traits["driver"] and found.traits["links"] == "18"
    assert found.readings["gpu-memory"] > 80_000


def test_a_node_survives_the_way_through_our_reader():
    found = answered(report("h100-off-the-bus"))
    told = json.loads(json.dumps(entry(found)))
    assert found.problems
    assert {**entry(node_of(told, found.statuses))} == told


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("Authorized use only.\n\nSee {policy: 7}\n", "", "a banner of 2 lines before"),
        ('motd {"schema": "x"} {\n', "", "a banner of 1 line before"),
        ("", "\nlogout\nbye\n", "2 lines after"),
        ("hello\n", "bye", "before the report: it breaks scp and Slurm too; 1 line after"),
    ],
)
def test_banners_are_passed_over_and_named(before: str, after: str, said: str):
    found = answered(before + report(HEALTHY) + after)
    assert said in found.note
    assert found.traits == answered(report(HEALTHY)).traits


def test_another_name_is_noted_and_the_given_one_kept():
    text = json.dumps({**json.loads(report(HEALTHY)), "node": {"hostname": "ip-10-0-0-7", "boot_id": "b"}})
    assert answered(text, "gpu-1").note == "calls itself ip-10-0-0-7"
    assert answered(text, "gpu-1").host == "gpu-1"
    for same in ("root@ip-10-0-0-7", "IP-10-0-0-7.cluster.example", "10.0.0.7", "fe80::1%eth0"):
        assert answered(text, same).note == ""


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.99])
def test_a_report_cut_off_says_where(share: float):
    text = report(HEALTHY)
    found = node("gpu-1", seen(text[: int(len(text) * share)]))
    assert found.state == "unreadable"
    assert found.note.startswith(f"cut off after {int(len(text) * share)} bytes, in the middle of ")


UNREACHABLE = [
    ("ssh: Could not resolve hostname gpu-1: Name or service not known", "Could not resolve hostname"),
    ("ssh: connect to host gpu-1 port 22: Connection refused", "Connection refused"),
    ("ssh: connect to host gpu-1 port 22: Connection timed out", "timed out"),
    ("Authorized users only!\nroot@gpu-1: Permission denied (publickey).\n", "Permission denied (publickey)"),
    ("No ED25519 host key is known for gpu-1 and ...\nHost key verification failed.", "not known"),
    ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "has changed"),
    ("client_loop: send disconnect: Broken pipe", "send disconnect"),
    ("kex_exchange_identification: Connection closed by remote host", "Connection closed"),
]


@pytest.mark.parametrize(("note", "said"), UNREACHABLE)
def test_ssh_gives_its_own_reason(note: str, said: str):
    found = node("gpu-1", seen(rc=255, note=note))
    assert (found.state, found.verdict) == ("unreachable", None)
    assert said in found.note and "\n" not in found.note


UNABLE = [
    (127, "sh: 1: python3: not found", "no Python 3 there"),
    (127, "bash: line 1: python3: command not found", "no Python 3 there"),
    (127, "/usr/bin/env: 'python3': No such file or directory", "no Python 3 there"),
    (127, "sh: nodedoctor: not found", "nodedoctor is not installed there; bring it along with --pyz"),
    (1, "/usr/bin/python3: No module named nodedoctor", "not installed there"),
    (127, "no nodedoctor here: not on PATH (/bin)", "bring it along with --pyz"),
    (127, "no Python 3.10 here, and no nodedoctor: python3 is 3.6.8", "python3 is 3.6.8"),
    (1, '  File "x.py", line 3\n    match a:\nSyntaxError: invalid syntax', "its Python is too old"),
    (1, "cat: write error: No space left on device", "no space left there"),
    (64, "nodedoctor: no check 'x'", "does not understand what was asked: nodedoctor: no check 'x'"),
    (70, "nodedoctor: this is a bug in nodedoctor", "stopped with a bug"),
    (137, "", "ended there by signal 9"),
    (126, "sh: 1: nodedoctor: Permission denied", "Permission denied"),
]


@pytest.mark.parametrize(("rc", "note", "said"), UNABLE)
def test_a_node_that_could_not_run_it_says_what_is_missing(rc: int, note: str, said: str):
    found = node("gpu-1", seen(rc=rc, note=note))
    assert found.state == "unable" and said in found.note


UNREADABLE = [
    ("", "the answer is empty"),
    ("  \n\n", "the answer is empty"),
    ("hello world\n", "not a report; it begins 'hello world'"),
    ('{"a": 1}', "does not say nodedoctor.report/1"),
    ('{"schema": "nodedoctor.report/2", "a": 1}', "it is nodedoctor.report/2"),
    ('{"schema": "nodedoctor.triage/1", "a": 1}', "it is nodedoctor.triage/1"),
    ('{"schema": "nodedoctor.report/1", "a": nope}', "no valid JSON"),
    ("[" * 100_000, "not a report"),
    ("\0\1\2" * 100, "not a report"),
]


@pytest.mark.parametrize(("text", "said"), UNREADABLE)
def test_what_is_no_report_is_named(text: str, said: str):
    found = node("gpu-1", seen(text))
    assert found.state == "unreadable" and said in found.note and "\n" not in found.note


def test_silence_says_how_far_it_came():
    nothing = node("gpu-1", seen(rc=None, outcome=Outcome.TIMEOUT, note="no answer in 3 s: pid 7"))
    assert (nothing.state, nothing.note) == ("silent", "no answer in 3 s; not a byte came")
    text = report(HEALTHY)[:60_000]
    half = node("gpu-1", seen(text, rc=None, outcome=Outcome.STUCK))
    assert half.state == "silent" and "cut off after 60000 bytes, in the middle of" in half.note
    late = node("gpu-1", seen(report(HEALTHY), rc=None, outcome=Outcome.TIMEOUT))
    assert late.state == "answered" and "connection did not end" in late.note
    given_up = node("gpu-1", seen(rc=124))
    assert given_up.state == "silent" and "had not ended there" in given_up.note


def test_a_failing_node_answers_whatever_its_exit_code():
    assert node("gpu-1", seen(report("h100-off-the-bus"), rc=2)).verdict is Status.FAIL


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
keys = st.sampled_from(
    ["gpus", "nvlinks", "counters", "hcas", "ports", "links", "soft", "rlimits", "packages", "variables"]
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_values_of_any_type_never_raise(data: st.DataObject):
    """A healthy report in which some facts, results and keys were replaced by anything."""
    told = json.loads(report(HEALTHY))
    for name in data.draw(st.lists(st.sampled_from(sorted(told["facts"])), max_size=5)):
        told["facts"][name] = data.draw(values)
    for name in data.draw(st.lists(st.sampled_from(sorted(set(told) - {"schema"})), max_size=3)):
        told[name] = data.draw(values)
    found = node("gpu-1", seen(json.dumps(told)))
    assert found.state == "answered" or found.note.startswith("a report that holds no results")
    json.dumps(entry(found), allow_nan=False)


@given(st.dictionaries(st.sampled_from(["gpus", "rdma", "libraries", "limits", "driver"]), values))
def test_facts_of_any_shape_never_raise(facts: dict[str, Any]):
    lines = ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in facts.items())
    text = (
        '{"schema": "nodedoctor.report/1",\n"node": {},\n'
        '"results": [\n {"check": "a.b", "status": "pass"}\n],\n"probes": [],\n'
        f'"facts": {{\n{lines}\n}}}}'
    )
    assert node("gpu-1", seen(text)).state == "answered"


@given(st.text(), st.integers(-20, 300) | st.none(), st.text(), st.sampled_from(Outcome))
def test_any_answer_gives_a_node_with_a_reason(text: str, rc: int | None, note: str, outcome: Outcome):
    found = node("gpu-1", seen(text, rc, note, outcome))
    assert found.state != "answered" and found.note


def changed(**keys: Any) -> str:
    return json.dumps({**json.loads(report(HEALTHY)), **keys})


@pytest.mark.parametrize("results", [[], {"a": 1}, None, "x", [[]], [{"status": "pass"}]])
def test_a_report_in_which_nothing_was_judged_is_none(results: Any):
    found = node("gpu-1", seen(changed(results=results)))
    assert (found.state, found.verdict) == ("unreadable", None)
    assert found.note == "a report that holds no results: nothing was judged there"


def test_all_skipped_is_neither_well_nor_sick():
    skipped = [{"check": "a.b", "status": "skip", "findings": [{"status": "skip", "summary": "no GPU"}]}]
    found = answered(changed(results=skipped, verdict="skip"))
    assert (found.verdict, found.severity, found.judged) == (Status.SKIP, 0, False)
    fleet = Fleet("0", "ssh", "", 1.0, (found,))
    assert (fleet.verdict, fleet.passing, fleet.failing, fleet.unjudged) == (Status.SKIP, (), (), ("gpu-1",))


def test_findings_count_and_not_what_the_report_says_of_itself():
    sick = json.loads(report("../../nodedoctor/demo/nvlinks-down"))
    found = answered(json.dumps({**sick, "verdict": "pass", "counts": {}}))
    assert found.verdict is Status.FAIL and "its verdict is pass, by its findings it is fail" in found.note
    mute = [{"check": "a.b", "status": "fail", "findings": "gone"}, {"check": "c.d", "status": "evil"}]
    said = {
        problem.check: (problem.severity, problem.summary)
        for problem in answered(changed(results=mute)).problems
    }
    assert said["a.b"] == (5, "its status is fail, and no finding says why")
    assert said["c.d"] == (4, "its status is evil, and no finding says why")


def test_what_is_cut_says_so():
    finding = {"status": "fail", "summary": "word " * 1000, "fix": {"text": "do " * 5000}}
    results = [{"check": "a.b", "title": "t", "status": "fail", "findings": [finding] * 300}]
    found = answered(changed(results=results, verdict="fail"))
    assert found.problems[0].summary.endswith("w ...") and len(found.problems[0].summary) <= LONGEST
    assert found.problems[0].fix.endswith(" ...")
    assert f"300 problems, of which the worst {len(found.problems)} are kept" in found.note
    for problem in answered(report("../../nodedoctor/demo/raylet-1024-files")).problems:
        assert not problem.summary.endswith("...")  # ours are shorter


def test_a_flood_is_called_one():
    flood = Observation("ssh", Outcome.TIMEOUT, "y\n" * 1000, None, seconds=8.0, truncated=True)
    found = node("gpu-1", flood)
    assert found.state == "unreadable"
    assert found.note.startswith("a flood and no report: more than 4 MiB came in 8 s, at last 'y'")
