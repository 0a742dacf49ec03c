"""What a log or dump of a few bytes may cost: a note, and nothing of the other sources."""

from __future__ import annotations

import json
import pickle
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from say import culprits, judged
from test_triage_flight import behind, dump, entry, write

from nodedoctor.triage.flight.dump import read_dump
from nodedoctor.triage.flight.unpickle import PickleRefused
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.model import Coverage, Place
from nodedoctor.triage.patterns import read_events

DIGITS = "9" * 5000
INIT = "h:1:1 [0] NCCL INFO comm 0x1 rank {rank} nranks {size} cudaDev 0 busId 1b000 - Init START\n"
BOOM = "[rank1]: ValueError: x\n"

MESSAGES = (
    INIT.format(rank="{n}", size="{n}"),
    "Duplicate GPU detected : rank {n} and rank {n} both on CUDA device 1000\n",
    "E1121 10:30:00.000000 3 t/api.py:882] failed (exitcode: -{n}) local_rank: {n} (pid: {n}) of binary: p\n",
    "Failures:\n[0]:\n  rank      : {n} (local_rank: {n})\n  exitcode  : -{n} (pid: {n})\n",
    "process rank {n} with PID {n} on node n1 exited on signal {n}.\n",
    "srun: error: n1: task {n}: Exited with exit code {n}\n",
    "-- Process {n} terminated with the following error:\nTraceback (most recent call last):\n"
    '  File "a.py", line {n}, in f\nValueError: x\n',
    "waiting for clients. {n}/{n} clients joined\n",
    "op.preamble.length <= op.nbytes. {n} vs {n}\n",
    "NVRM: Xid (PCI:0000:1b:00): {n}, pid={n}, GPU has fallen off the bus.\n",
    "pid={n}, memory used={n}.5GB) was running\n",
    "   {n} {n}.5 ray::Worker\n",
    "world_size={n}\n",
    "[rank{n}]:[E1121 10:20:30.5 P.cpp:632] [Rank {n}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn={n}, NumelOut={n}, Timeout(ms)={n}) ran for {n} ms\n",
    "(Worker pid={n}) x [repeated {n}x across cluster]\n",
    "The missing ranks: {n}\n",
    "h:{n}:{n} [{n}] NCCL WARN x\n",
    "{n} ranks have launched up to operation {n}\n",
)
"""A line of each kind that has numbers in it."""


def small(*words: str, seconds: int = 20, memory: int = 700 << 20) -> subprocess.CompletedProcess[str]:
    """Triage with little memory and little time."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    argv = [sys.executable, "-m", "nodedoctor", "triage", "--json", "--no-node", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, preexec_fn=limited)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("digits", [DIGITS, "9" * 19, "9999999"])
def test_no_number_ends_the_reading(message: str, digits: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, message.replace("{n}", digits), BOOM)
    assert examined.verdict.coverage.notes == ()
    assert len(json.dumps(examined.verdict.coverage.ranks_missing)) < 1000
    assert {who.rank for who in examined.verdict.culprits} <= {0, 1, None}


@given(
    st.sampled_from(MESSAGES), st.lists(st.integers(min_value=-1, max_value=10**30), min_size=9, max_size=9)
)
def test_identities_are_those_of_a_job(message: str, numbers: list[int]) -> None:
    identities_are_small(message, numbers)


@pytest.mark.parametrize("number", [1 << 20, (1 << 22) + 1, 999_999, 9_999_999, 10**10])
def test_identities_just_too_large_are_none(number: int) -> None:
    """Numbers at the bounds, of as many digits as real ones have: few are drawn at random."""
    for message in MESSAGES:
        identities_are_small(message, [number] * 9)


def identities_are_small(message: str, numbers: list[int]) -> None:
    """A rank below 2**20 and a pid of at most 2**22, whatever stands in their place."""
    for number in numbers:
        message = message.replace("{n}", str(number), 1)
    lines = [line for raw in message.split("\n") for line in parse_line(raw, Place("x", 0))]
    for event in read_events(lines):
        assert event.who.rank is None or 0 <= event.who.rank < 1 << 20
        assert event.who.pid is None or 0 <= event.who.pid <= 1 << 22


@pytest.mark.slow
def test_a_world_of_a_million_is_told_in_ranges(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(INIT.format(rank=1, size=1 << 20) for _ in range(3)) + BOOM)
    done = small(str(path))
    assert done.returncode == 2 and len(done.stdout) < 200_000
    coverage = json.loads(done.stdout)["coverage"]
    assert coverage["ranks_expected"] == 1 << 20
    assert coverage["ranks_missing_spans"] == [[0, 0], [2, (1 << 20) - 1]]
    assert len(coverage["ranks_missing"]) == 4096


def test_missing_ranks_of_any_world() -> None:
    some = Coverage(ranks_seen=(1, 3), ranks_expected=5)
    assert some.ranks_missing == (0, 2, 4)
    assert len(Coverage(ranks_expected=10**12).ranks_missing) == 1 << 20


BOMBS = {
    "memo": b"\x80\x02]q\x00r" + struct.pack("<I", 0x0FFFFFF0) + b"K\x01.",
    "memo at once": b"\x80\x02r" + struct.pack("<I", 0x0FFFFFF0) + b"K\x01.",
    "empty records": b"\x80\x02}X\x07\x00\x00\x00entries](" + b"}" * 3_000_000 + b"es.",
    "references": b"\x80\x02}(X\x07\x00\x00\x00entries](}X\x05\x00\x00\x00stateX\x01\x00\x00\x00asq\x07"
    + b"h\x07" * 5_000_000 + b"eu.",
    "lists in lists": b"\x80\x02}(X\x07\x00\x00\x00entries](}(X\x06\x00\x00\x00seq_idK\x01"
    b"X\x0b\x00\x00\x00input_sizes]q\x01(K\x01K\x01e"
    + b"".join(b"](" + b"h%c" % (i + 1) * 9 + b"eq%c" % (i + 2) for i in range(60))
    + b"ueu.",
    "a long number": b"\x80\x02}(X\x07\x00\x00\x00entries](}(X\x06\x00\x00\x00seq_id\x8b"
    + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + b"ueu.",
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_note_and_costs_the_others_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "trace_rank_7").write_bytes(BOMBS[name])
    (tmp_path / "job.log").write_text(BOOM)
    done = small(str(tmp_path))
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert document["culprits"][0]["rank"] == 1
    assert any("trace_rank_7" in note for note in document["coverage"]["notes"])


@pytest.mark.slow
def test_groups_that_share_one_list_of_ranks(tmp_path: Path) -> None:
    """65536 groups that refer to the same 100 000 ranks: what the file does not hold is not built."""
    ranks = list(range(100_000))
    config = {str(group): {"ranks": ranks} for group in range(65536)}
    path = tmp_path / "trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [entry(1)], "pg_config": config}, 2))
    done = small(str(path))
    assert done.returncode == 3, done.stderr
    assert "ranks" in json.loads(done.stdout)["coverage"]["notes"][0]


def test_counters_far_apart(tmp_path: Path) -> None:
    """The recorder's counters may lie: a range between them is never built."""
    records = [entry(seq) for seq in range(300)] + [entry(1 << 62, state="started"), entry(1)]
    path = tmp_path / "trace_rank_0"
    path.write_bytes(pickle.dumps(dump(records, [0, 1]), 2))
    assert small(str(path)).returncode in (2, 3)


@pytest.mark.parametrize("entries", [3, "abc", {"a": 1}, None, [1, 2], ["x"]])
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_entries_that_are_none_do_not_mean_that_the_recorder_was_off(
    entries: Any, form: str, tmp_path: Path
) -> None:
    document = dump([], [0, 1]) | {"entries": entries}
    with pytest.raises(PickleRefused, match="entries"):
        read_dump(
            str(Path(write(tmp_path, {0: document}, form)) / ("trace_rank_0" + ".json" * (form == "json")))
        )
    notes = examine_job([str(tmp_path)]).verdict.coverage.notes
    assert notes and not any("was off" in note for note in notes)


def test_a_long_number_in_a_dump_leaves_its_other_records(tmp_path: Path) -> None:
    dumps = behind(4, 2)
    for rank, document in dumps.items():
        text = json.dumps(document)
        text = text.replace('"op_id": 1,', f'"op_id": {DIGITS},', 1)
        (tmp_path / f"trace_rank_{rank}.json").write_text(text)
    assert culprits(examine_job([str(tmp_path)])) == [2]


def test_records_without_a_number_are_not_calm(tmp_path: Path) -> None:
    write(tmp_path, {rank: dump([entry(1), entry(10**30)], [0, 1]) for rank in (0, 1)})
    verdict = examine_job([str(tmp_path)]).verdict
    assert verdict.outcome == "undetermined"
    assert any("1 of its 2 records" in note for note in verdict.coverage.notes)


def test_some_of_the_dumps_are_not_calm(tmp_path: Path) -> None:
    calm = {rank: dump([entry(1), entry(2)], [0, 1, 2, 3]) for rank in range(4)}
    assert examine_job([write(tmp_path, calm)]).verdict.outcome == "clean"
    (tmp_path / "trace_rank_2").unlink()
    assert examine_job([str(tmp_path)]).verdict.outcome == "undetermined"
