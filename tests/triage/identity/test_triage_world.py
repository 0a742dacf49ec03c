"""The size of a job, its nodes, and why a rank is believed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from say import raised

from nodedoctor.triage.identity.world import RankLocation, is_one_node, short_host, world_size
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Event, Identity, Place
from nodedoctor.triage.patterns.progress import WorldSize


def sizes(*named: int, ranks: tuple[int, ...] = ()) -> list[Event[object]]:
    """Lines that name a world's size, and lines of ranks."""
    place = Place("a.log", 0)
    told: list[Event[object]] = [Event(WorldSize(n), place, Identity(), None, "") for n in named]
    return told + [Event(None, place, Identity(rank=rank), None, "") for rank in ranks]


@pytest.mark.parametrize(
    ("events", "size"),
    [
        (sizes(), None),
        (sizes(8, 8, 2), 8),
        (sizes(8, 2), 8),
        (sizes(2, 2, 8), 2),
        (sizes(8, ranks=(7,)), 8),
        (sizes(8, ranks=(8,)), None),
    ],
)
def test_world_size_most_lines_name(events: list[Event[object]], size: int | None):
    assert world_size(events) == size


@pytest.mark.parametrize(
    ("seats", "world", "alone"),
    [
        ([RankLocation(local_rank=3)], 8, True),
        ([RankLocation(local_rank=3)], 16, False),
        ([RankLocation(local_rank=rank) for rank in range(16)], 16, True),
        ([RankLocation(9, 1)], None, False),
        ([RankLocation(host="gpu-1"), RankLocation(host="gpu-1.cluster")], 8, True),
        ([RankLocation(host="gpu-1"), RankLocation(host="gpu-2")], 8, False),
    ],
)
def test_one_node_until_a_second_one_shows(seats: list[RankLocation], world: int | None, alone: bool):
    assert is_one_node(seats, world, ()) == alone


def test_short_host_names():
    names = ("GPU-1.cluster.local", "1gpu.cluster", "10.0.0.5", "fe80::1", "localhost", "")
    assert [short_host(name) for name in names] == ["gpu-1", "1gpu", "10.0.0.5", "fe80::1", "localhost", ""]


def test_the_debug_log_says_why_a_rank_is_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "job.log").write_text(raised(1, "ValueError: x"))
    with caplog.at_level(logging.DEBUG, "nodedoctor.triage.identity.assign"):
        examine_job([str(tmp_path / "job.log")])
    assert any(text.endswith("rank 1 is known by its line") for text in caplog.messages)
    caplog.clear()
    log = tmp_path / "rank_3.log"
    log.write_text("Traceback (most recent call last):\nValueError: boom\n")
    with caplog.at_level(logging.DEBUG, "nodedoctor.triage.identity.assign"):
        examine_job([str(log)])
    assert f"{log}: rank 3 is known by the file's name" in caplog.messages
