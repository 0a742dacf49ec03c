"""Causes in the order in which they hurt: what keeps jobs away, then down and slow before a difference."""

from __future__ import annotations

from pathlib import Path

import recorded
from in_turn import in_turn

from nodedoctor.knowledge.gates import gates, is_harmless, strictness
from nodedoctor.model import Cause

NODES = Path(__file__).parents[1] / "nodes"
NAMES = sorted(path.parent.name for path in NODES.glob("*/manifest.json"))


def causes(name: str, *, preview: bool = True) -> tuple[Cause, ...]:
    return recorded.judged(NODES / name, preview=preview).causes


@in_turn("name", NAMES)
def test_of_equals_what_keeps_jobs_away_comes_first(name: str) -> None:
    ranks = [
        (cause.status.value == "warn", strictness(cause.schedulable), is_harmless(cause.id))
        for cause in causes(name)
        if cause.status.value != "unknown"
    ]
    assert ranks == sorted(ranks)


def test_a_port_that_is_down_comes_before_one_at_half_rate_and_firmware_last() -> None:
    ids = [cause.id for cause in causes("ib-rails-down-init-narrow")]
    assert ids[-1].startswith("ib.firmware")
    assert ids.index("ib.ports@port:mlx5_2/1") < ids.index("ib.width@port:mlx5_6/1")


def test_a_gpu_that_draws_a_third_comes_before_an_odd_firmware() -> None:
    ids = [cause.id for cause in causes("h100-one-odd-in-each")]
    assert ids.index("gpu.levels@gpu:6") < ids.index("gpu.identity@gpu:2/vbios")


def test_a_dead_disk_is_one_cause() -> None:
    explained = {cause.id: cause.explains for cause in causes("log-disk-array-and-processor-fail")}
    assert explained["kernel.storage@disk:nvme2/dead"] == (
        "kernel.storage@disk:nvme2n1/io-error",
        "kernel.storage@disk:nvme2n1/read-only",
    )


@in_turn("name", NAMES)
def test_what_keeps_no_job_away_asks_for_no_other_node(name: str) -> None:
    for preview in (False, True):
        for cause in causes(name, preview=preview):
            assert (cause.schedulable, cause.action) != ("yes", "replace-node"), cause.id


def test_no_row_that_keeps_jobs_away_is_harmless() -> None:
    assert not [row.id for row in gates() if row.harmless and row.schedulable != "yes"]
