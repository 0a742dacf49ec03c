"""A driver that hangs and a library that crashes: what was said before counts, and the call is named."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.gpu.gpu import GpuReading
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading, nvml
from nodedoctor.model import Observation, Outcome

Fake = Callable[..., dict[str, str]]
HOLD = child("gpu/nvml", "--hold", packages=True)


@contextmanager
def started(env: dict[str, str], *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """The child with pipes; ended by SIGKILL at the latest."""
    argv = child("gpu/nvml", *args, packages=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env={**os.environ, **env}, stdin=pipe, stdout=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def said_until(process: subprocess.Popen[bytes], word: bytes) -> str:
    """What the child prints until a word appears in it, or until it ends."""
    assert process.stdout is not None
    said = b""
    while word not in said and (more := os.read(process.stdout.fileno(), 65536)):
        said += more
    return said.decode()


def reading(seen: Observation) -> GpuReading:
    parsed = NvmlReading.parse(seen)
    assert isinstance(parsed, NvmlReading)
    return parsed.gpus


@pytest.mark.parametrize(
    ("told", "call", "read", "lost"),
    [
        ({"init_hang": 1}, "nvmlInit", 0, {}),
        ({"gpu5.hang": "ecc"}, "nvmlDeviceGetTotalEccErrors", 5, {5: "NO_ANSWER", 6: "NOT_ASKED"}),
        ({"gpu7.hang": "p2p"}, "nvmlDeviceGetP2PStatus", 8, {}),
    ],
)
def test_a_hang_keeps_what_was_said_and_names_the_call(
    fake_nvml: Fake, told: dict[str, object], call: str, read: int, lost: dict[int, str]
):
    with started(fake_nvml(told), "--hold") as process:
        said = said_until(process, b'"waiting"')
        process.kill()
        assert process.wait() == -signal.SIGKILL
    found = reading(Observation("nvml", Outcome.STUCK, said, note="no answer in 30 s"))
    assert (found.interrupted, len(found.gpus)) == ("stuck", read)
    assert found.interrupted_note == f"nvml: no answer in 30 s; it was in {call}"
    assert {gone.index: gone.error for gone in found.lost if gone.index in lost} == lost
    assert found.counted is None or len(found.gpus) + len(found.lost) == found.counted == 8


def test_the_engine_ends_a_hang(fake_nvml: Fake):
    asked = Command(HOLD, env=fake_nvml({"init_hang": 1}), hold=True)
    seen = asyncio.run(child_process.run("nvml", asked, 0.3))
    assert seen.outcome is Outcome.TIMEOUT
    assert reading(seen).interrupted == "timeout"


@pytest.mark.parametrize("deed", ["segv", "abort"])
@pytest.mark.parametrize("hold", [False, True])
def test_a_crash_keeps_what_was_said_and_names_the_call(fake_nvml: Fake, deed: str, hold: bool):
    env = fake_nvml({f"gpu2.{deed}": "temperature"})
    asked = Command(HOLD if hold else child("gpu/nvml", packages=True), env=env, hold=hold)
    found = reading(asyncio.run(child_process.run("nvml", asked, 60)))
    assert found.interrupted == "crash"
    assert "nvmlDeviceGetTemperature" in found.interrupted_note
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    assert [gone.error for gone in found.lost] == ["CRASH"] + ["NOT_ASKED"] * 5
    assert found.lost[0].text == "nvmlDeviceGetTemperature"


def test_holding_ends_the_output_and_keeps_the_library_open_until_stdin_ends(fake_nvml: Fake, tmp_path: Path):
    trace = tmp_path / "trace"
    with started(fake_nvml({"trace": trace}), "--hold") as process:
        assert process.stdout is not None and process.stdin is not None
        said = process.stdout.read().decode()  # until the end of the output, with the child alive
        assert process.poll() is None
        assert len(reading(Observation("nvml", text=said)).gpus) == 8
        assert trace.read_text() == "load\ninit\n"
        process.stdin.close()
        assert process.wait(60) == 0
    assert trace.read_text() == "load\ninit\n"


def test_holding_a_library_that_did_not_start_is_over_at_once(fake_nvml: Fake):
    with started(fake_nvml({"init_error": 9}), "--hold") as process:
        assert process.wait(60) == 0


def test_a_node_without_nvidia_never_loads_the_library():
    nothing = '{"files": {}, "links": {}, "lists": {}, "errors": {}}'
    plan = nvml(Options(), Observation("pci", text=nothing), Observation("driver-files", text=nothing))
    assert isinstance(plan, Observation)
    assert plan.outcome is Outcome.SKIPPED and "no NVIDIA" in plan.note


def test_where_nobody_could_look_it_is_asked():
    missing = Outcome.MISSING
    plan = nvml(Options(), Observation("pci", missing), Observation("driver-files", missing))
    assert isinstance(plan, Command)
    assert plan.hold and plan.argv == HOLD
