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

import pytest
from forked import nodedoctor_forked
from schemas import assert_fits_schema

from nodedoctor.fleet.gather import gather
from nodedoctor.fleet.model import Fleet, FleetRequest
from nodedoctor.fleet.reports.files import Reports

HERE = Path(__file__).parents[1]
SCHEMA = json.loads((HERE.parent / "nodedoctor" / "report" / "schemas" / "fleet.schema.json").read_text())


@cache
def healthy() -> str:
    return run("demo", "healthy", "--json").stdout


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*words, **options)


def fleet(*words: str, rc: int | None = None) -> dict[str, Any]:
    done = run("fleet", "--json", *words)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert_fits_schema(document, "fleet")
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
    assert told["gpu-a3-016"][1].startswith("a banner of 2 lines before the report")
    assert told["packed"] == ("answered", "")
    said = {
        "cut": "cut.json: cut off after",
        "other": "it is nodedoctor.report/2",
        "empty": "the answer is empty",
        "binary": "not a report",
        "broken": "Compressed file ended",
        "sparse": "larger than the 64 MiB",
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


def report(
    path: Path, name: str, started: str, *, boot: str = "", up: float = 9e5, demo: str = "healthy"
) -> None:
    """A report of that node and moment."""
    told = json.loads(healthy() if demo == "healthy" else run("demo", demo, "--json").stdout)
    told["node"].update(hostname=name, boot_id=boot or None)
    told["facts"]["machine"]["uptime_seconds"] = up
    text = json.dumps({**told, "started": started})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def lists(folder: Path, tmp_path: Path) -> tuple[list[str], list[str]]:
    """What --passing and --failing hold."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    fleet("--reports", str(folder), "--passing", str(good), "--failing", str(bad))
    return good.read_text().split(), bad.read_text().split()


@pytest.mark.slow
def test_the_newest_report_of_a_node_counts(tmp_path: Path):
    folder = tmp_path / "reports"
    (folder / "before").mkdir(parents=True)
    report(folder / "n1.json", "n1", "2026-11-20T09:00:00Z")
    report(folder / "a-n2.json", "n2", "2026-11-19T09:00:00Z")
    report(folder / "before" / "n2.json", "n2", "2026-11-18T09:00:00Z", boot="earlier")
    for ending in ("json", "json.gz"):
        report(
            folder / f"n2.{ending}", "n2", "2026-11-20T09:00:00Z", boot="later", up=3600, demo="nvlinks-down"
        )
    document = fleet("--reports", str(folder), rc=2)
    told = notes(document)
    assert set(told) == {"n1", "n2"} and told["n2"][1] == "2 older reports of it were left out"
    assert "same-name" not in {oddity["key"] for oddity in document["oddities"]}
    assert lists(folder, tmp_path) == (["n1"], ["n2"])


@pytest.mark.slow
def test_two_machines_of_one_name_stay_two_and_one_that_fails_bars_it(tmp_path: Path):
    folder = tmp_path / "reports"
    folder.mkdir()
    report(folder / "a.json", "n2", "2026-11-20T09:00:00Z", boot="one", demo="nvlinks-down")
    report(folder / "b.json", "n2", "2026-11-20T09:30:00Z", boot="two")  # both were up at nine
    document = fleet("--reports", str(folder), rc=2)
    told = notes(document)
    assert set(told) == {"n2", "n2+2"}
    assert told["n2+2"][1] == f"another machine by the name n2, of {folder / 'a.json'}"
    assert "same-name" in {oddity["key"] for oddity in document["oddities"]}
    assert (document["passing"], document["failing"]) == ("", "n2")
    assert lists(folder, tmp_path) == ([], ["n2"])
    text = run("fleet", "--reports", str(folder)).stdout
    assert "PASS but another machine has its name, and fails: n2" in text


def test_other_gpus_are_another_machine(tmp_path: Path):
    report(tmp_path / "a.json", "n", "2026-11-20T09:00:00Z")
    report(tmp_path / "b.json", "n", "2026-11-10T09:00:00Z")
    text = (tmp_path / "b.json").read_text()
    assert '"serial": "16550' in text
    (tmp_path / "b.json").write_text(text.replace('"serial": "16550', '"serial": "99990'))
    assert set(notes(fleet("--reports", str(tmp_path)))) == {"n", "n+2"}


def test_a_damaged_report_is_nobodys_older_one(tmp_path: Path):
    report(tmp_path / "n.json.gz", "n", "2026-11-20T09:00:00Z")
    (tmp_path / "n.json").write_text(healthy()[:5000])
    document = fleet("--reports", str(tmp_path), rc=3)
    assert (document["passing"], document["failing"]) == ("", "n")


@pytest.mark.slow
def test_a_node_that_skipped_everything_is_in_neither_list(tmp_path: Path):
    folder = tmp_path / "reports"
    folder.mkdir()
    report(folder / "n1.json", "n1", "2026-11-20T09:00:00Z")
    skipped = [{"check": "gpu.x", "title": "t", "status": "skip", "findings": []}]
    told = {**json.loads((folder / "n1.json").read_text()), "results": skipped, "verdict": "skip"}
    told["node"]["hostname"] = "n2"
    (folder / "n2.json").write_text(json.dumps(told))
    assert lists(folder, tmp_path) == (["n1"], [])
    assert fleet("--reports", str(folder), rc=0)["unjudged"] == "n2"
    text = run("fleet", "--reports", str(folder)).stdout
    assert text.startswith("PASS 2 nodes (reports): 1 pass, 1 skip")
    assert "SKIP every check was skipped, neither passing nor failing: n2" in text


def test_hostile_names_stay_names(tmp_path: Path):
    name = "\\u001b[2J gpu,[1-9]\\n<script>"
    (tmp_path / "x.json").write_text(healthy().replace("gpu-a3-016", name))
    (node,) = fleet("--reports", str(tmp_path))["nodes"]
    assert node["host"] == "x" and "which is no name of a node" in node["note"]
    done = run("fleet", "--text", "--reports", str(tmp_path))
    assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["--exclude-all", "../../x", "-oProxyCommand=x", "", ";"])
def test_names_that_commands_would_take_for_something_else_are_in_no_list(tmp_path: Path, name: str):
    folder = tmp_path / "reports"
    folder.mkdir()
    report(folder / "n7.json", name, "2026-11-20T09:00:00Z")
    report(folder / "--all.json", name, "2026-11-21T09:00:00Z", demo="nvlinks-down")
    assert lists(folder, tmp_path) == (["n7"], ["all"])


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


@pytest.mark.slow
def test_exit_codes(folder: Path):
    assert run("fleet", "--reports", str(folder)).returncode == 0
    assert run("fleet", "--fail-on", "warn", "--reports", str(folder)).returncode == 1
    failed = run("demo", "nvlinks-down", "--json").stdout
    (folder / "bad.json").write_text(failed)
    assert run("fleet", "--reports", str(folder)).returncode == 2
    assert run("fleet", "--exit-zero", "--reports", str(folder)).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reports", "/nowhere/at/all"], "/nowhere/at/all: no such file or folder"),
        ([], "one of --ssh --slurm --ray --kube --reports is required"),
        (["--reports", ".", "--ssh", "a"], "not allowed with --"),
        (["--reports", ".", "--peers"], "--peers is for nodes that are asked now"),
        (["--slurm", "nvlink"], "--slurm nvlink: put CHECK before --slurm"),
        (["--ray", "nvlink"], "--ray nvlink: put CHECK before --ray"),
        (["--ssh", "gpu-[1-"], "a bracket that does not close"),
        (["--ssh", "a", "nvlnik"], "did you mean nvlink"),
        (["--ssh", "a", "--since", "soon"], "--since: expected a number"),
        (["--ssh", "@/nowhere"], "--ssh @/nowhere: No such file"),
        (["--ssh", "a", "--expect", "gpos=8"], "did you mean gpus"),
        (["--reports", ".", "--failing", "/nowhere/x"], "--failing: no folder /nowhere"),
        (
            ["--reports", ".", "--passing", "p", "--failing", "./p"],
            "--passing and --failing name the same file",
        ),
        (["--reports", ".", "--html", "p", "--failing", "p"], "--failing and --html name the same file"),
        (
            ["--ssh", "a", "--deadline", "0"],
            "--deadline: expected seconds, more than 0 and up to 86400, not '0'",
        ),
        (["--ssh", "a", "--deadline", "nan"], "up to 86400, not 'nan'"),
        (["--ssh", "a", "--width", "x"], "--width: wants a number of nodes from 1 to 4096, not 'x'"),
        (["--ssh=-oProxyCommand=x"], "'-oProxyCommand=x' is no name or address of a node"),
        (["--ssh", "../x"], "'../x' is no name or address of a node"),
        (["--ssh", "a,;"], "';' is no name or address of a node"),
        (["--ssh", "a\nb\x1bm"], "is no name or address of a node"),
    ],
)
def test_errors_of_use_are_one_line(words: list[str], said: str, tmp_path: Path):
    done = run("fleet", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_bad_line_in_a_list_of_nodes_is_named(tmp_path: Path):
    for number, line in enumerate(("\0", "gpu-\x1b[31m2", "--all", "gpu-[1-"), 2):
        (tmp_path / "hosts").write_text("gpu-1\n" * (number - 1) + f"{line}\ngpu-3\n")
        done = run("fleet", "--ssh", f"@{tmp_path / 'hosts'}")
        assert done.returncode == 64 and done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
        assert f"hosts, line {number}: " in done.stderr


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
    cause = lines.index("FAIL PROV  GPU 3 lost 2 NVLinks; request a replacement [nvlink.links]")
    assert lines[cause + 1 : cause + 3] == [
        "     3 nodes sick-[7-9], first on sick-7:",
        "     $ nvidia-smi nvlink -s -i 3",
    ]
    assert done.stdout.count("lost 2 NVLinks") == 1 and "PASS 4 nodes gpu-[001-004]" in done.stdout
    assert all(len(line) <= 100 for line in lines)
    quiet = run("fleet", "-q", "--reports", str(folder)).stdout
    assert "PASS" not in quiet and "nvlink.links" in quiet


@pytest.mark.slow
def test_pages_for_people_and_ci(folder: Path, tmp_path: Path):
    (folder / "bad.json").write_text(run("demo", "nvlinks-down", "--json").stdout)
    page, cases = tmp_path / "fleet.html", tmp_path / "fleet.xml"
    fleet("--reports", str(folder), "--html", str(page), "--junit", str(cases), rc=2)
    assert "nvlink.links" in page.read_text() and "gpu-005" in page.read_text()
    suites = ElementTree.parse(cases).getroot()
    assert {suite.get("name") for suite in suites} >= {"fleet", "gpu-001", "gpu-005"}


def children(pid: int) -> Iterator[int]:
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it ended since its parent told of it
        return
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
        asking = asyncio.create_task(gather(Reports([str(path)]), FleetRequest(deadline=deadline)))
        while disturb and not asking.done():
            await asyncio.sleep(0.005)
            if disturb and (found := readers()):
                os.kill(found[0], disturb)
                break
        return (await asking).fleet

    return asyncio.run(both())


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert_fits_schema(document, "fleet")
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
