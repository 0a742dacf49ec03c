"""The journal of a node: a line a run, whole or not there, whatever happens to the folder."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor import journal
from nodedoctor.children.programs import child
from nodedoctor.probes.host.journal import LARGEST

ENTRY = {
    "schema": journal.SCHEMA,
    "tool": "1",
    "time": "2026-11-01T10:00:00Z",
    "command": "run",
    "host": "gpu-01",
    "boot": "a",
    "driver": "580",
    "kernel": "6.8",
    "causes": [{"id": "ib.links@port:mlx5_0/1", "status": "fail", "headline": "down"}],
    "rates": {"p2p (NV18)": 388.0},
}


def append(folder: Path, line: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        list(child("host/journal", str(folder), "append")), input=line, capture_output=True, timeout=30
    )


def entries_in(folder: Path) -> list[Any]:
    done = subprocess.run(list(child("host/journal", str(folder), "read")), capture_output=True, timeout=30)
    return journal.entries_of(done.stdout.decode("utf-8", "replace"))


def line(**changes: object) -> bytes:
    return json.dumps({**ENTRY, **changes}).encode() + b"\n"


def test_a_run_leaves_a_line_that_its_owner_alone_reads(tmp_path: Path):
    for words in (("--text", "doctor"), ("--gate",)):
        nodedoctor_forked(*words, "--journal", str(tmp_path))
    schema = json.loads(nodedoctor_forked("schema", "journal").stdout)
    entries = entries_in(tmp_path)
    for entry in entries:
        jsonschema.validate(entry, schema)
    assert [entry["command"] for entry in entries] == ["run", "gate"]
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


def test_a_cut_last_line_costs_itself_alone(tmp_path: Path):
    append(tmp_path, line())
    with (tmp_path / "journal").open("ab") as file:
        file.write(line()[:40])
    assert append(tmp_path, line(time="2026-11-02T10:00:00Z")).returncode == 0
    assert [entry["time"][:10] for entry in entries_in(tmp_path)] == ["2026-11-01", "2026-11-02"]


def test_two_writers_take_turns(tmp_path: Path):
    argv = list(child("host/journal", str(tmp_path), "append"))
    writers = [subprocess.Popen(argv, stdin=subprocess.PIPE) for _ in range(8)]
    for number, writer in enumerate(writers):
        assert writer.stdin is not None
        writer.stdin.write(line(tool=str(number), host="h" * 60_000))
        writer.stdin.close()
    assert {writer.wait(30) for writer in writers} == {0}
    assert {entry["tool"] for entry in entries_in(tmp_path)} == set("01234567")


def test_a_large_journal_becomes_the_older_one(tmp_path: Path):
    (tmp_path / "journal").write_bytes(line(tool="old") + b" " * (LARGEST - 100) + b"\n")
    append(tmp_path, line(tool="new"))
    assert (tmp_path / "journal").stat().st_size < 1000
    assert [entry["tool"] for entry in entries_in(tmp_path)] == ["old", "new"]


def test_a_folder_that_takes_nothing_costs_a_line_on_stderr(tmp_path: Path):
    done = nodedoctor_forked("--text", "doctor", "--journal", str(tmp_path / "none"))
    assert done.returncode == 0 and "No such file or directory" in done.stderr
    (tmp_path / "journal").symlink_to("/etc/passwd")
    assert append(tmp_path, line()).returncode == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_leaves_no_half_line(tmp_path: Path):
    writer = " ".join(child("host/journal", str(tmp_path), "append"))
    script = (
        f"mount -t tmpfs -o size=16k none {tmp_path} && printf '%s\\n' one > {tmp_path}/journal && "
        f"head -c 30000 /dev/zero | tr '\\0' x | {writer}"
        f"; echo $?; cat {tmp_path}/journal"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "No space left on device\n1\none\n", done.stderr


@given(st.binary(max_size=300))
def test_whatever_stands_in_a_journal_the_good_lines_are_read(tmp_path_factory, garbage: bytes):
    folder = tmp_path_factory.mktemp("journal")
    (folder / "journal").write_bytes(garbage + b"\n" + line())
    assert entries_in(folder)[-1] == ENTRY


@pytest.mark.slow
def test_a_cause_says_in_how_many_earlier_runs_it_was(tmp_path: Path):
    words = ("--json", "--expect", "gpus=8", "doctor", "--journal", str(tmp_path))
    reports = [json.loads(nodedoctor_forked(*words).stdout) for _ in range(3)]
    causes = [report["causes"][0] for report in reports]
    assert {cause["id"] for cause in causes} == {causes[0]["id"]}
    assert "recurs" not in causes[0] and [cause["recurs"]["times"] for cause in causes[1:]] == [1, 2]
    text = nodedoctor_forked("--text", *words[1:]).stdout
    assert f"(in 3 earlier runs since {reports[0]['started'][:10]})" in text.replace("\n", " ")


def test_runs_alike_that_follow_each_other_are_one_line(tmp_path: Path):
    """A year of gates, one an hour, with a fault from one noon to the next in each quarter."""
    hours = [datetime(2026, 1, 1) + timedelta(hours=hour) for hour in range(365 * 24)]
    days = {(month, day) for month in (2, 5, 8, 11) for day in (10, 11)}
    sick = [(hour.month, hour.day) in days and (hour.day == 10) == (hour.hour >= 12) for hour in hours]
    lines = [
        line(time=f"{hour.isoformat()}Z", **({} if ill else {"causes": []}))
        for hour, ill in zip(hours, sick, strict=True)
    ]
    (tmp_path / "journal").write_bytes(b"".join(lines))
    shown = nodedoctor_forked("history", "--journal", str(tmp_path)).stdout.splitlines()
    runs = shown[: shown.index("")]
    assert len(runs) == 1 + 4 * 3
    assert runs[1].startswith("2026-02-10T12:00:00Z") and "(new)" in runs[1]
    assert runs[2].endswith("23 runs until 2026-02-11T11:00:00Z") and "(new)" not in runs[2]
    assert f"{4 * 24} times, 2026-02-10 to 2026-11-11" in shown[len(runs) + 2]


def test_history_shows_what_is_new_and_what_came_back(tmp_path: Path):
    rates = (388.0, 300.0)
    lines = [line(causes=[]), line(boot="b", rates={"p2p (NV18)": rates[1]}), line(boot="b", driver="590")]
    (tmp_path / "journal").write_bytes(b"".join(lines))
    shown = nodedoctor_forked("history", "--journal", str(tmp_path)).stdout
    assert "ib.links@port:mlx5_0/1 (new)  [rebooted]" in shown and "[driver 590]" in shown
    assert "ib.links@port:mlx5_0/1: 2 times" in shown and "388 now, 388 at best, 3 runs: p2p (NV18)" in shown
    (tmp_path / "journal").write_bytes(b"".join([*lines, line(rates={"p2p (NV18)": 200.0})]))
    shown = nodedoctor_forked("history", "--journal", str(tmp_path)).stdout
    assert "200 now, 388 at best, 4 runs, 48% slower than on 2026-11-01: p2p (NV18)" in shown
    assert nodedoctor_forked("history", env={"PATH": os.environ["PATH"]}).returncode == 64
    assert nodedoctor_forked("history", "--journal", "/nowhere").returncode == 64
