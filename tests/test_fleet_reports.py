"""`nodedoctor fleet --reports`: every file is read or named, nothing hangs, scripts get one document."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from nodedoctor.fleet.gather import gather
from nodedoctor.fleet.model import Errand, Fleet
from nodedoctor.fleet.reports import Reports

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parent / "nodedoctor" / "report" / "fleet.schema.json").read_text())


@cache
def healthy() -> str:
    return run("demo", "healthy", "--json").stdout


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nodedoctor", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, **options)


def fleet(*words: str, rc: int | None = None) -> dict[str, Any]:
    done = run("fleet", "--json", *words)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    if rc is not None:
        assert done.returncode == rc
    return document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Reports of five nodes; the fifth has another driver."""
    for number in range(1, 6):
        text = healthy().replace("gpu-a3-016", f"gpu-{number:03d}")
        (tmp_path / f"report{number}.json").write_text(
            text if number < 5 else text.replace("580.95.05", "550.1")
        )
    return tmp_path


def notes(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {node["host"]: (node["state"], node["note"]) for node in document["nodes"]}


def test_the_odd_one_is_named(folder: Path):
    document = fleet("--reports", str(folder), rc=0)
    assert document["counts"]["answered"] == document["counts"]["pass"] == 5
    assert [(o["key"], o["odd"]) for o in document["oddities"]] == [("driver", "gpu-005")]
    assert document["oddities"][0]["majority"]["nodes"] == "gpu-[001-004]"
    assert document["verdict"] == "warn" and document["passing"] == "gpu-[001-005]"
    assert {node["report"] for node in document["nodes"]} == {str(file) for file in folder.iterdir()}


def test_malformed_files_are_named_and_the_others_read(folder: Path):
    text = healthy()
    (folder / "cut.json").write_text(text[: len(text) // 2])
    (folder / "other.json").write_text('{"schema": "nodedoctor.report/2"}')
    (folder / "empty.json").touch()
    (folder / "binary.json").write_bytes(os.urandom(5000))
    (folder / "banner.json").write_text("Welcome!\n{ all yours }\n" + text)
    (folder / "packed.json.gz").write_bytes(gzip.compress(text.replace("gpu-a3-016", "packed").encode()))
    (folder / "broken.json.gz").write_bytes(gzip.compress(text.encode())[:1000])
    with (folder / "sparse.json").open("wb") as file:
        file.truncate(1 << 30)
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "around").symlink_to(".")
    (folder / "gone.json").symlink_to("nowhere")
    (folder / "ignored.txt").write_text("notes")
    told = notes(fleet("--reports", str(folder), rc=3))
    assert told.pop("gpu-001") == ("answered", "")
    assert told["gpu-a3-016"][1].startswith("a banner of 2 lines stood before the report")
    assert told["packed"] == ("answered", "")
    said = {
        "cut": "cut.json: cut off after",
        "other": "it is nodedoctor.report/2",
        "empty": "the answer is empty",
        "binary": "not a report",
        "broken": "Compressed file ended",
        "sparse": "1024 MiB, more than the 64 MiB",
        "pipe": "a pipe, not a file",
        "loop": "Too many levels of symbolic links",
        "gone": "No such file",
    }
    for host, why in said.items():
        assert told[host][0] == "unreadable" and why in told[host][1], told[host]
    assert len(told) == 4 + 2 + len(said)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_named(folder: Path):
    (folder / "report1.json").chmod(0)
    assert notes(fleet("--reports", str(folder)))["report1"] == (
        "unreadable",
        "report1.json: Permission denied",
    )


def test_two_reports_of_one_machine_are_two_nodes_and_said_to_be_one(folder: Path):
    for file in folder.iterdir():
        number = file.stem[-1]
        file.write_text(file.read_text().replace('"boot_id": null', f'"boot_id": "boot-{number}"', 1))
    (folder / "again.json").write_text((folder / "report1.json").read_text())
    document = fleet("--reports", str(folder))
    assert {"gpu-001", "gpu-001+2"} <= set(notes(document))
    assert "same-machine" in {oddity["key"] for oddity in document["oddities"]}


def test_hostile_names_stay_names(tmp_path: Path):
    name = "\\u001b[2J gpu,[1-9]\\n<script>"
    (tmp_path / "x.json").write_text(healthy().replace("gpu-a3-016", name))
    (node,) = fleet("--reports", str(tmp_path))["nodes"]
    assert node["host"] == "2J_gpu_1-9_script"
    done = run("fleet", "--text", "--reports", str(tmp_path))
    assert "\x1b" not in done.stdout


def test_files_of_any_name_are_read(tmp_path: Path):
    names = [b"a b\n'$(x)'.json", b"\xff\xfe.json", b"-rf.json", b"..json", "\u202egpu.json".encode()]
    for number, name in enumerate(names):
        text = "" if number % 2 else healthy().replace("gpu-a3-016", f"gpu-{number}")
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text(text)
    (tmp_path / ".hidden.json").write_text("left out")
    document = fleet("--reports", str(tmp_path), rc=3)
    assert document["counts"]["answered"] == 3 and document["counts"]["unreadable"] >= 1
    assert document["counts"]["nodes"] == len(names) - 1  # "..json" is hidden, too


def test_lists_for_schedulers(folder: Path, tmp_path: Path):
    (folder / "report2.json").write_text("")
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    fleet("--reports", str(folder), "--passing", str(good), "--failing", str(bad), rc=3)
    assert good.read_text() == "gpu-001\ngpu-003\ngpu-004\ngpu-005\n"
    assert bad.read_text() == "report2\n"


def test_exit_codes(folder: Path):
    assert run("fleet", "--reports", str(folder)).returncode == 0
    assert run("fleet", "--fail-on", "warn", "--reports", str(folder)).returncode == 1
    failed = run("demo", "nvlinks-down", "--json").stdout
    (folder / "bad.json").write_text(failed)
    assert run("fleet", "--reports", str(folder)).returncode == 2
    assert run("fleet", "--exit-zero", "--reports", str(folder)).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reports", "/nowhere/at/all"], "/nowhere/at/all: no such file or folder"),
        ([], "one of the arguments --ssh --slurm --ray --reports is required"),
        (["--reports", ".", "--ssh", "a"], "not allowed with argument"),
        (["--reports", ".", "--peers"], "--peers is for nodes that are asked now"),
        (["--slurm", "nvlink"], "--slurm nvlink: a CHECK stands before --slurm"),
        (["--ray", "nvlink"], "--ray nvlink: a CHECK stands before --ray"),
        (["--ssh", "gpu-[1-"], "a bracket that does not close"),
        (["--ssh", "a", "nvlnik"], "did you mean nvlink"),
        (["--ssh", "a", "--since", "soon"], "--since wants a number"),
        (["--ssh", "@/nowhere"], "--ssh @/nowhere: No such file"),
        (["--ssh", "a", "--expect", "gpos=8"], "did you mean gpus"),
        (["--reports", ".", "--failing", "/nowhere/x"], "--failing: no folder /nowhere"),
    ],
)
def test_errors_of_use_are_one_line(words: list[str], said: str, tmp_path: Path):
    done = run("fleet", *words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
    assert (done.returncode, done.stdout) == (64, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_folder_without_reports_is_said(tmp_path: Path):
    done = run("fleet", "--reports", str(tmp_path))
    assert done.returncode == 64 and "no reports" in done.stderr


def test_the_text_tells_each_problem_once(folder: Path):
    sick = run("demo", "nvlinks-down", "--json").stdout
    for number in (7, 8, 9):
        (folder / f"s{number}.json").write_text(
            sick.replace(json.loads(sick)["node"]["hostname"], f"sick-{number}")
        )
    (folder / "cut.json").write_text(healthy()[:9000])
    done = run("fleet", "--reports", str(folder))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FAIL 9 nodes (reports): 3 fail, 1 unreadable, 5 pass")
    assert sum(line.startswith("FAIL nvlink.links") for line in lines) == 1
    assert "3 nodes sick-[7-9]" in done.stdout and "PASS 4 nodes gpu-[001-004]" in done.stdout
    assert all(len(line) <= 100 for line in lines)
    quiet = run("fleet", "-q", "--reports", str(folder)).stdout
    assert "PASS" not in quiet and "nvlink.links" in quiet


def test_pages_for_people_and_ci(folder: Path, tmp_path: Path):
    (folder / "bad.json").write_text(run("demo", "nvlinks-down", "--json").stdout)
    page, cases = tmp_path / "fleet.html", tmp_path / "fleet.xml"
    fleet("--reports", str(folder), "--html", str(page), "--junit", str(cases), rc=2)
    assert "nvlink.links" in page.read_text() and "gpu-005" in page.read_text()
    suites = ElementTree.parse(cases).getroot()
    assert {suite.get("name") for suite in suites} >= {"fleet", "gpu-001", "gpu-005"}


def children(pid: int) -> Iterator[int]:
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(int, told):
        yield child
        yield from children(child)


def readers() -> list[int]:
    """The processes that read report files for us."""
    found = []
    for child in children(os.getpid()):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"read_reports.py" in command and b"--list" not in command:
            found.append(child)
    return found


def gathered(path: Path, deadline: float, disturb: signal.Signals | None) -> Fleet:
    """The fleet of a folder; the first reader that is seen gets a signal."""

    async def both() -> Fleet:
        asking = asyncio.create_task(gather(Reports([str(path)]), Errand(deadline=deadline)))
        while disturb and not asking.done():
            await asyncio.sleep(0.005)
            if disturb and (found := readers()):
                os.kill(found[0], disturb)
                break
        return (await asking).fleet

    return asyncio.run(both())


@pytest.mark.parametrize("disturb", [signal.SIGSTOP, signal.SIGKILL])
def test_a_reader_that_hangs_or_dies_costs_one_file(folder: Path, disturb: signal.Signals):
    """A stopped process stands in for one that a dead file system keeps in the kernel."""
    began = time.monotonic()
    found = gathered(folder, 3.0, disturb)
    assert time.monotonic() - began < 60
    lost = [node for node in found.nodes if node.state != "answered"]
    assert len(found.nodes) == 5 and len(lost) <= 1
    for node in lost:
        assert node.report.startswith(str(folder)) and node.note


def test_a_file_that_takes_too_long_is_named_and_the_others_too(folder: Path):
    """With no time at all every file is late, and still each is named once and the run ends."""
    found = gathered(folder, 0.001, None)
    assert len(found.nodes) == 5
    assert {node.state for node in found.nodes} <= {"silent", "answered"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_reports_what_came(tmp_path: Path, number: signal.Signals):
    for file in range(300):
        (tmp_path / f"{file}.json").write_text(healthy().replace("gpu-a3-016", f"gpu-{file}"))
    argv = [sys.executable, "-m", "nodedoctor", "fleet", "--json", "--reports", str(tmp_path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while (
        not any(b"0.json" in _command(child) for child in children(process.pid)) and time.monotonic() < until
    ):
        time.sleep(0.005)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert process.returncode == 128 + number
    assert document["counts"]["nodes"] == 300
    silent = [node for node in document["nodes"] if node["state"] == "silent"]
    assert silent and all(node["note"] == "interrupted before it answered" for node in silent)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_schema_is_offered():
    assert json.loads(run("schema", "fleet").stdout) == SCHEMA
