"""Inputs that never come, never end, or are something else: one line and 64, within a bounded time."""

from __future__ import annotations

import gzip
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor import input_files
from nodedoctor.engine.recording import LARGEST_ALL

REPOSITORY = Path(__file__).parents[1]
HEALTHY = REPOSITORY / "nodedoctor" / "demo" / "healthy"
SICK = REPOSITORY / "nodedoctor" / "demo" / "nvlinks-down"
HANG = 4 * input_files.FIRST
"""Seconds after which a run counts as hanging."""


def start(*words: str | Path, **more: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "nodedoctor", *map(str, words)]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, **more
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, errors = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, errors


def ways(path: Path | str) -> list[Sequence[str | Path]]:
    """Every place where a file can be named that is read by ourselves."""
    return [
        ("compare", path, HEALTHY),
        ("compare", HEALTHY, path),
        ("--replay", path, "--json"),
        ("--expect", str(path), "doctor", "--json"),
        ("--env-file", path, "doctor", "--json"),
        ("expect", "--replay", path),
        ("triage", "--text", path),
        ("triage", "--text", "--node", path, REPOSITORY / "README.md"),
        ("fleet", "--text", "--expect", str(path), "--ssh", "nobody.invalid"),
        ("fleet", "--text", "--ssh", f"@{path}"),
    ]


@pytest.mark.slow
def test_a_pipe_without_a_writer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words, process in [(words, start(*words)) for words in ways(pipe)]:
        code, out, errors = ended(process)
        assert (code, out) == (64, ""), words
        assert str(pipe) in errors and "pipe" in errors and len(errors.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file(path: str) -> None:
    for words, process in [(words, start(*words)) for words in ways(path)]:
        code, out, errors = ended(process)
        assert (code, out, len(errors.splitlines())) == (64, "", 1), words
        assert "a device, not a file" in errors


@pytest.mark.slow
def test_what_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    for words, process in [(words, start(*words)) for words in ways(tmp_path / "absent")]:
        code, out, errors = ended(process)
        assert (code, out, len(errors.splitlines())) == (64, "", 1), words
        assert "o such file" in errors and "Errno" not in errors


@pytest.mark.slow
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LARGEST_ALL + 1)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(bytes(input_files.LARGEST + 1), 9))
    runs = [
        *(start("compare", HEALTHY, path) for path in (large, bomb)),
        *(start("triage", "--text", "--node", path, "README.md") for path in (large, bomb)),
        *(start("--expect", str(path), "doctor", "--json") for path in (large, bomb)),
        start("--replay", large),
        start("fleet", "--text", "--ssh", f"@{large}"),
    ]
    for process in runs:
        code, out, errors = ended(process)
        assert (code, out, len(errors.splitlines())) == (64, "", 1)
        assert "larger than" in errors


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    code, out, errors = ended(start("--root", tmp_path / "absent", "--json"))
    assert (code, out, errors) == (64, "", f"nodedoctor: --root: no folder {tmp_path / 'absent'}\n")


@pytest.mark.slow
def test_packed_reports_are_read_like_plain_ones(tmp_path: Path) -> None:
    packed = tmp_path / "sick.json.gz"
    _, report, _ = ended(start("--replay", SICK, "--json"))
    packed.write_bytes(gzip.compress(report.encode()))
    code, out, _ = ended(start("compare", HEALTHY, packed))
    assert code == 2 and "nvlink.links" in out
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n")
    code, out, errors = ended(start("triage", "--text", log, "--node", packed))
    assert errors == "" and code in (2, 3)
    packed.write_bytes(gzip.compress(report.encode())[:-20])
    code, out, errors = ended(start("compare", HEALTHY, packed))
    assert (code, len(errors.splitlines())) == (64, 1) and f"{packed}: damaged gzip: " in errors


@pytest.mark.slow
def test_what_a_shell_puts_through_pipes_is_read(tmp_path: Path) -> None:
    """As in `compare <(...) <(...)`, with a writer that takes its time."""
    us = f"{sys.executable} -m nodedoctor"
    line = f"{us} compare <(sleep 1; {us} --replay {HEALTHY} --json) <({us} --replay {SICK} --json)"
    done = ended(subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ))  # fmt: skip
    assert done[0] == 2 and "nvlink.links" in done[1]
    line = f"{us} doctor --json --expect <(sleep 1; echo drivr=1)"
    done = ended(subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ))  # fmt: skip
    assert done[0] == 64 and "did you mean driver" in done[2]
    line = f"{us} triage --text --no-node <(sleep 1; echo 'CUDA error: out of memory'; sleep 1)"
    done = ended(subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ))  # fmt: skip
    assert done[0] in (2, 3) and done[2] == ""


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--html", "--junit", "--prometheus", "--record"])
def test_a_pipe_that_nobody_reads_costs_the_file_and_not_the_report(option: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, out, errors = ended(start("doctor", "--json", option, pipe))
    assert (code, len(errors.splitlines())) == (74, 1)
    assert '"doctor.plugins"' in out and str(pipe) in errors


def test_an_output_pipe_with_a_reader_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start("doctor", "--json", "--junit", pipe)
    assert pipe.read_text().startswith("<?xml")
    assert ended(process)[0] == 0


@given(st.binary(max_size=300), st.integers(0, 200))
def test_read_gives_what_is_there_or_says_why_not(tmp_path_factory, data: bytes, largest: int) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    for held in (data, gzip.compress(data)):
        path.write_bytes(held)
        try:
            assert input_files.read(path, largest=largest) == data or held is data
        except OSError as error:
            assert error.strerror and (len(held) > largest or len(data) > largest or held is data)


def test_a_pipe_is_bounded_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def flood() -> None:
        try:
            with pipe.open("wb") as file:
                while True:
                    file.write(bytes(65536))
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=flood)
    writer.start()
    began = time.monotonic()
    with pytest.raises(OSError, match="larger than the 1 MiB"):
        input_files.read(pipe, largest=1 << 20, pipes=True)
    assert time.monotonic() - began < input_files.FIRST
    writer.join(HANG)
    assert not writer.is_alive()


IMPORTED_LATE = (
    "children.search_path",
    "cli.arguments",
    "cli.console",
    "cli.expect",
    "cli.outputs",
    "engine.session",
    "intake.inputs",
    "intake.reader_process",
    "intake.split",
    "pairs.document",
)


@pytest.mark.sampled(6)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root and a user that is not")
@pytest.mark.parametrize(
    "words",
    [
        "compare {0}/a.json {0}/a.json",
        "demo healthy --json --html {0}/sub/a.html",
        "demo healthy --json --debug-log {0}/sub/a.log",
        "--json --checks {0}/sub host",
        "--json --checks {0} host",
        "--replay {0}/a --json",
        "expect --pairs {0}/a.json",
    ],
)
def test_where_we_may_not_look_is_said_in_one_line(words: str, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (tmp_path, tmp_path.parent):
        folder.chmod(0o755)
    argv = words.format(closed).split()
    for name in IMPORTED_LATE:  # before it becomes another user, who may not read this checkout
        importlib.import_module(f"nodedoctor.{name}")
    done = nodedoctor_forked(*argv, cwd=REPOSITORY, user=4321, timeout=HANG)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1), done.stderr
