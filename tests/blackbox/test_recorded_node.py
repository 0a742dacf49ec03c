"""The recording kept beside a hang: it answers whatever our checks would ask without load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from nodedoctor.blackbox.finish import await_recording
from nodedoctor.blackbox.recorded_node import record_node
from nodedoctor.declare.registry import Lane, Probe, probes_of
from nodedoctor.engine import recording
from nodedoctor.engine.plugins import Catalogue, discover
from nodedoctor.model import Observation, Outcome


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observation]:
    path: Path = tmp_path_factory.mktemp("hang") / "node.zip"
    path.write_bytes(asyncio.run(record_node(of_ray=True)))
    kept = recording.load(path)
    assert kept.provenance == "real" and kept.node["hostname"] and kept.when
    return dict(kept.observations)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return discover()


def test_every_probe_of_our_checks_is_answered(seen: dict[str, Observation], catalogue: Catalogue) -> None:
    assert seen.keys() >= frozenset().union(*map(probes_of, catalogue.checks.values()))
    assert seen["host"].outcome is Outcome.OK and "/proc/meminfo" in seen["host"].text


def test_nothing_is_loaded(seen: dict[str, Observation], catalogue: Catalogue) -> None:
    def loads(probe: Probe) -> bool:
        return probe.lane is Lane.GPU_LOAD and probe.plan is not None

    loading = {name for name, probe in catalogue.probes.items() if loads(probe)}
    assert loading and {seen[name].outcome for name in loading} == {Outcome.SKIPPED}


def test_a_cluster_is_asked_for_its_own_jobs_alone(seen: dict[str, Observation], tmp_path: Path) -> None:
    """The question loads all of Ray: beside another job it is left out, and the recording says so."""
    path = tmp_path / "node.zip"
    path.write_bytes(asyncio.run(record_node(of_ray=False)))
    other = dict(recording.load(path).observations)
    assert other.keys() == seen.keys()
    assert other["ray-status"].outcome is Outcome.SKIPPED
    assert "does not run on Ray" in other["ray-status"].note
    assert "does not run on Ray" not in seen["ray-status"].note


async def _fails() -> None:
    raise OSError("no more processes")


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (_fails, ["this node was not recorded: no more processes"]),
        (lambda: asyncio.sleep(60), ["this node was not recorded: it had not ended after 0.1 s"]),
        (lambda: asyncio.sleep(0), []),
    ],
)
def test_a_recording_that_fails_is_told(
    work: Callable[[], Coroutine[None, None, None]], words: list[str]
) -> None:
    async def wait() -> list[str]:
        lines: list[str] = []
        await await_recording(asyncio.create_task(work()), lines.append, 0.1)
        await await_recording(None, lines.append)
        return lines

    assert asyncio.run(wait()) == words
