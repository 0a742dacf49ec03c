"""The matrix of ranks: few lines however many ranks there are, and the odd one in its place."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tuidriver import frame, until

from nodedoctor.report import ranks
from nodedoctor.report.job_page import job_page
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import diagnosis
from nodedoctor.tui.lines.ranks import matrix
from nodedoctor.tui.lines.timeline import timeline
from nodedoctor.tui.process import reading
from nodedoctor.tui.screens import triage
from nodedoctor.tui.state import Nothing
from nodedoctor.tui.theme import UNICODE


def job(count: int, dead: int, hosts: bool) -> dict[str, Any]:
    states = [
        {
            "rank": rank,
            "world": "default",
            "host": f"gpu-{rank // 8:03}" if hosts else None,
            "state": "died" if rank == dead else "waited",
            "event": "raised" if rank == dead else "timed_out",
            "op": "" if rank == dead else "ALLREDUCE",
            "seq": None if rank == dead else 1187,
        }
        for rank in range(count)
    ]
    return {"ranks": states, "culprits": [{"rank": dead, "world": "default", "host": None}]}


@pytest.mark.parametrize("hosts", [True, False])
@pytest.mark.parametrize("count", [64, 1024])
def test_alike_hosts_share_a_line_and_the_odd_one_has_its_own(count: int, hosts: bool):
    made = ranks.rank_marks(job(count, 41, hosts))
    lines = [(para.lead.strip(), para.text) for para in matrix(made)]
    assert len(lines) == 3
    assert lines[1][0] == ("gpu-005" if hosts else "ranks 40-47")
    assert lines[1][1].startswith("aXaaaaaa") and "rank 41" in lines[1][1]
    assert lines[2][1] == f"aaaaaaaa  x{count // 8 - 6}"
    ((mark, _, guilty), (_, waited, others)) = ranks.groups(made)
    assert mark == "X" and [seat.rank for seat in guilty] == [41]
    assert waited == "waited in ALLREDUCE number 1187" and len(others) == count - 1


def test_ranks_that_wait_in_different_collectives_have_different_letters():
    states = [
        {"rank": rank, "state": "waited", "op": ("ALLGATHER", "ALLTOALL")[rank % 2], "seq": 700}
        for rank in range(4)
    ]
    made = ranks.rank_marks({"ranks": states, "coverage": {"ranks_missing": [4]}})
    (line,) = matrix(made)
    assert line.lead.strip() == "ranks 0-4" and line.text.startswith("abab?   rank 4: nothing was read")
    assert [ranks.names(members) for *_, members in ranks.groups(made)] == [
        "rank 4",
        "ranks 0, 2",
        "ranks 1, 3",
    ]


def test_ranks_of_a_job_that_hangs_are_grouped_by_what_they_do():
    states = [{"rank": rank, "host": "n1", "state": "unknown", "event": "live_process"} for rank in range(8)]
    standings = [
        {"who": "rank 3", "doing": "in load (data.py:7)", "ranks": [[3, 3]]},
        {"who": "ranks 0-2, 4-7", "doing": "in wait (c10d.py:9)", "ranks": [[0, 2], [4, 7]]},
        {"who": "2 processes", "doing": "asleep", "ranks": []},
    ]
    document = {"ranks": states, "standings": standings}
    (line,) = matrix(made := ranks.rank_marks(document))
    assert line.text.startswith("aaabaaaa")
    assert [(ranks.names(members), meaning) for _, meaning, members in ranks.groups(made)] == [
        ("ranks 0-2, 4-7 on n1", "in wait (c10d.py:9)"),
        ("rank 3 on n1", "in load (data.py:7)"),
    ]
    assert "2 processes: asleep" in [
        entry.row.text for entry in diagnosis.items(document, job_page(document), 80, UNICODE)
    ]


def test_the_whole_timeline_can_be_reached_and_says_where_it_is_cut():
    times = [f"11-14 08:{minute:02}:00.000" for minute in range(12)]
    moments = [
        {"event": "raised", "first": time, "last": time, "count": 1, "ranks": [[at, at]]}
        for at, time in enumerate(times)
    ]
    late = {"event": "timed_out", "first": "11-14 08:30:00.000", "last": "11-14 08:30:01.000"}
    moments.append({**late, "count": 1000, "ranks": [[12, 1011]], "source": "log", "line": 7})
    document = {"moments": moments, "timeline": [{"time": times[0], "rank": 0, "event": "raised"}]}
    drawn = ["".join(text for text, _ in line) for line in timeline(document, 100, UNICODE)]
    assert drawn[-1].strip() == "7 of 13 shown; the rows 'when' have all of them"
    rows = [
        entry
        for entry in diagnosis.items(document, job_page(document), 100, UNICODE)
        if entry.row.word == "when"
    ]
    assert len(rows) == 13 and "ranks 12-1011 timed out" in rows[-1].row.text
    assert (rows[-1].source, rows[-1].line) == ("log", 7)


TIMEOUT = (
    "[rank{rank}]:[E1114 08:34:00.000000000 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=1187, OpType=ALLREDUCE, NumelIn=67108864,"
    " NumelOut=67108864, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)


@pytest.mark.slow
def test_logs_that_still_grow_are_read_again_until_the_job_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(triage, "EVERY_S", 0.2)
    logs = [tmp_path / f"rank_{rank}.log" for rank in range(4)]
    for rank, log in enumerate(logs):
        log.write_text("".join(f"[rank{rank}]: step {step} loss 3.2\n" for step in range(9)))
    shown = []

    async def run() -> None:
        app = NodeDoctor(
            Nothing(), triage=await reading.triage_again([str(tmp_path)]), triage_again=[str(tmp_path)]
        )
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "4 files" in frame(app))
            shown.append(frame(app))
            for rank, log in enumerate(logs[:3]):
                with log.open("a") as file:
                    file.write(TIMEOUT.format(rank=rank))
            with logs[3].open("a") as file:
                file.write("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error.\n")
            await until(pilot, lambda: "shm_or_limits" in frame(app))
            shown.append(frame(app))

    asyncio.run(run())
    assert "read again every" in shown[0] and "> PASS   No failure in what was read" in shown[0]
    assert re.search(r"> FAIL +.*[Rr]ank 3", shown[1]) and "again every" not in shown[1], shown[1]
