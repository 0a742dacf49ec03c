"""What makes a check stable: an output of real hardware that it has judged."""

from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.tested_hardware import outputs, seen_on, without_hardware

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


def test_of_a_check_in_preview_nothing_was_seen():
    assert seen_on("gpu.levels") == ()
    assert CHECKS["gpu.levels"].stage == "preview"
    assert any("H100" in row.hardware for row in seen_on("nvlink.errors"))
