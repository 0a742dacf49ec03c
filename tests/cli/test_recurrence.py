"""A fault of a GPU that no reboot has cured, told from the journal: what counts, and what never does."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemas import assert_fits_schema

from nodedoctor import demo, journal
from nodedoctor.engine.session import Request, Session
from nodedoctor.recurrence import BOOTS, DAYS, with_recurrences
from nodedoctor.report import brief, gate, html, saved, text
from nodedoctor.report import json as report_json
from nodedoctor.report.gate import STRICTEST, gate_of
from nodedoctor.report.page import cause_pages

STARTED = datetime(2026, 11, 14, 9, 11)
ERROR = (
    "2026-11-14T07:00:00,000000+00:00 NVRM: Xid (PCI:0000:2a:00): 62, pid='<unknown>', name=<unknown>, "
    "04c5(11f0) 00000000 00000000"
)
SCHEMA = json.loads((Path(report_json.__file__).parent / "schemas" / "report.schema.json").read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A node whose second GPU has stopped its power management since the last boot."""
    folder = tmp_path_factory.mktemp("node") / "node"
    shutil.copytree(Path(demo.__file__).parent / "healthy", folder)
    log = folder / "probes" / "kernel-log.txt"
    said = json.loads(log.read_text())
    log.write_text(json.dumps({**said, "text": f"{said['text']}{ERROR}\n"}))
    found = report_json.document(asyncio.run(Session(Request(replay=folder)).diagnosis().run()))
    made: dict[str, Any] = copy.deepcopy(dict(found))
    made["node"] = {**made["node"], "boot_id": "now"}
    (cause,) = made["causes"]
    assert cause["id"] == "kernel.xid@gpu:1" and cause["action"] == "reset-gpu", cause
    return made


def earlier(report: dict[str, Any], on_boot: str, days: float, **changes: Any) -> dict[str, Any]:
    """What an earlier run with the same cause has left in the journal."""
    when = (STARTED - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = journal.entry_of({**report, "started": when}, "gate", {})
    return {**entry, "boot": on_boot, **changes}


def twice_before(report: dict[str, Any], **changes: Any) -> list[Any]:
    return [earlier(report, "a", 4, **changes), earlier(report, "b", 2, **changes)]


def judged(report: dict[str, Any], entries: list[Any]) -> Any:
    found = with_recurrences(report, entries)  # type: ignore[arg-type]
    assert_fits_schema(found, "report")
    return found


def test_the_third_boot_with_a_fault_of_a_gpu_asks_for_another_one(report: dict[str, Any]):
    found = judged(report, twice_before(report))
    (cause,) = found["causes"]
    assert (cause["recurs"]["boots"], cause["recurs"]["times"]) == (BOOTS, 2)
    assert (cause["owner"], cause["action"], cause["schedulable"]) == ("provider", "replace-node", "no")
    assert cause["reason"].endswith("; request a replacement")
    line = gate.render(found, gate_of(found))
    assert line.startswith("provider: GPU 1: Xid 62") and "; request a replacement" in line
    assert f"(on 3 boots in {DAYS} days, 2 reboots between)" in line
    again = saved.read(json.loads(report_json.render(found)))
    assert again["causes"] == found["causes"]
    for view in (brief.render(found), text.render(found), html.render(found)):
        words = " ".join(view.split())
        assert "Request a replacement: it came back after every reboot" in words
        assert f"on 3 boots in {DAYS} days, 2 reboots between" in words
        assert "new jobs may start here" not in words
    (page,) = cause_pages(found)
    assert page.closing[0].label == "ticket"


def unchanged(found: Any, report: dict[str, Any]) -> bool:
    (cause,), (before,) = found["causes"], report["causes"]
    return all(cause[key] == before[key] for key in ("owner", "action", "schedulable", "reason"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "changes",
    [
        {"boot": "now"},  # one fault, seen by three runs
        {"boot": None},
        {"time": "2026-11-01T00:00:00Z"},  # long ago
        {"time": "2027-11-13T00:00:00Z"},  # by a clock that was wrong
        {"time": "1970-01-01T00:00:10Z"},
        {"time": "yesterday"},
        {"serials": {}},
        {"serials": {"gpu:1": "another"}},  # which has been replaced since
        {"causes": []},
        {"causes": [{"id": "kernel.xid@gpu:1", "status": "fail", "headline": "GPU 1: Xid 79: lost"}]},
        {"causes": [{"id": "kernel.xid@gpu:2", "status": "fail", "headline": "GPU 2: Xid 62: x"}]},
        {"causes": [{"id": "kernel.xid@gpu:1", "status": "pass", "headline": "GPU 1: Xid 62: x"}]},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_what_is_another_fault_another_gpu_or_another_time_does_not_count(
    report: dict[str, Any], changes: dict[str, Any]
):
    assert not unchanged(judged(report, twice_before(report)), report)
    assert unchanged(judged(report, twice_before(report, **changes)), report)


def test_a_second_boot_is_told_and_changes_nothing(report: dict[str, Any]):
    found = judged(report, twice_before(report)[1:])
    assert found["causes"][0]["recurs"]["boots"] == 2 and unchanged(found, report)
    assert f"(on 2 boots in {DAYS} days, 1 reboot between)" in gate.render(found, gate_of(found))


def test_what_all_gpus_share_and_what_may_be_software_is_not_replaced(report: dict[str, Any]):
    two = {"subjects": ["gpu:0", "gpu:1"]}
    driver = {"headline": "GPU 1: Xid 119: The driver got no answer of the GSP"}  # whose firmware it may be
    program = {"headline": "GPU 1: Xid 13: an error of a program"}
    remapped = {"headline": "GPU 1: Xid 63: A bad memory row was marked"}
    for changes in (two, driver, program, remapped, {"preview": True}, {"id": "memory.ecc@gpu:1"}):
        other = {**report, "causes": [{**report["causes"][0], **changes}]}
        assert unchanged(judged(other, twice_before(other)), other), changes


def test_an_error_that_keeps_no_job_away_drains_the_node_when_it_comes_back(report: dict[str, Any]):
    changes = {"headline": "GPU 1: Xid 94: An uncorrectable memory error was contained", "status": "warn"}
    for before, after in (("yes", "drain-when-idle"), ("drain-when-idle", "no"), ("no", "no")):
        other = {**report, "causes": [{**report["causes"][0], **changes, "schedulable": before}]}
        (cause,) = judged(other, twice_before(other))["causes"]
        assert (cause["schedulable"], cause["action"]) == (after, "replace-node")


def test_stand_ins_of_a_redacted_report_are_no_serial_numbers(report: dict[str, Any]):
    assert journal.entry_of(report, "gate", {}, with_serials=False)["serials"] == {}
    found = with_recurrences(report, twice_before(report), with_serials=False)  # type: ignore[arg-type]
    assert unchanged(found, report)


ENTRIES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.floats(-3.0, 12.0), st.booleans(), st.booleans()), max_size=8
)


@pytest.mark.slow
@given(data=st.data(), made=ENTRIES)
def test_less_journal_never_makes_a_node_sicker(report: dict[str, Any], data: st.DataObject, made: list[Any]):
    entries = [
        earlier(
            report,
            boot,
            days,
            **({} if same else {"serials": {"gpu:1": "another"}}),
            **({} if sick else {"causes": []}),
        )
        for boot, days, same, sick in made
    ]
    kept = [entry for entry in entries if data.draw(st.booleans())]
    more, less = judged(report, entries), judged(report, kept)
    order = [STRICTEST.index(gate_of(found)["exit"]) for found in (more, less, report)]  # type: ignore[arg-type]
    assert order == sorted(order)
    if less["causes"][0]["action"] == "replace-node":
        assert more["causes"][0]["action"] == "replace-node"


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["time", "boot", "causes", "serials", "rates"]),
            st.none() | st.integers() | st.text(max_size=8) | st.lists(st.integers()) | st.just({"gpu:1": 7}),
        )
    )
)
def test_a_damaged_journal_costs_nothing(report: dict[str, Any], entries: list[Any]):
    lines = "\n".join(json.dumps({**entry, "schema": journal.SCHEMA}) for entry in entries)
    found = judged(report, [*journal.entries_of(lines)])
    assert unchanged(found, report) and gate_of(found) == gate_of(report)  # type: ignore[arg-type]
