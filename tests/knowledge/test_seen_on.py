"""What makes a check stable: an output of real hardware that it has judged."""

import json

from forked import nodedoctor_forked

from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.tested_hardware import awaited, missing_for, outputs, seen_on, without_hardware

CHECKS = discover().checks


def test_a_check_is_stable_exactly_when_it_was_seen_on_a_real_or_pasted_output():
    stable = {check.id for check in CHECKS.values() if check.stage == "stable"}
    seen = {id for row in outputs() for id in row.checks}
    anywhere = {id for row in without_hardware() for id in row.checks}
    assert stable == seen | anywhere
    assert not seen & anywhere


def test_rows_name_what_there_is():
    probes = {*discover().probes, "live"}
    for row in outputs():
        assert row.provenance in ("real", "pasted"), row
        assert row.hardware and row.shows and row.source and row.checks, row
        assert row.output in probes, row
        assert set(row.checks) <= CHECKS.keys(), row


def test_every_check_in_preview_has_one_row_that_says_what_is_missing_and_no_other_has():
    named = [check for row in awaited() for check in row.checks]
    assert sorted(named) == sorted(check.id for check in CHECKS.values() if check.stage == "preview")
    assert len({row.needs for row in awaited()}) == len(awaited())


def test_the_list_of_checks_shows_it_within_its_width():
    shown = nodedoctor_forked("list", "checks").stdout
    words = " ".join(shown.split())
    assert all(f"not seen yet: {missing_for(check)}" in words for row in awaited() for check in row.checks)
    assert max(map(len, shown.splitlines())) <= 100
    listed = {row["id"]: row for row in json.loads(nodedoctor_forked("list", "checks", "--json").stdout)}
    assert all(bool(row["missing"]) is (row["stage"] == "preview") for row in listed.values())


def test_of_a_check_in_preview_nothing_was_seen():
    assert seen_on("gpu.levels") == ()
    assert CHECKS["gpu.levels"].stage == "preview"
    assert any("H100" in row.hardware for row in seen_on("nvlink.errors"))
