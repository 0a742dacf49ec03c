"""The matrix of ranks: few lines however many ranks there are, and the odd one in its place."""

from __future__ import annotations

from typing import Any

import pytest

from nodedoctor.tui.lines import ranks


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
    made = ranks.seats(job(count, 41, hosts))
    lines = [(para.lead.strip(), para.text) for para in ranks.matrix(made)]
    assert len(lines) == 3
    assert lines[1][0] == ("gpu-005" if hosts else "ranks 40-47")
    assert lines[1][1].startswith("aXaaaaaa") and "rank 41" in lines[1][1]
    assert lines[2][1] == f"aaaaaaaa  x{count // 8 - 6}"
    ((mark, _, _, guilty), (_, _, waited, others)) = ranks.groups(made)
    assert mark == "X" and [seat.rank for seat in guilty] == [41]
    assert waited == "waited in ALLREDUCE number 1187" and len(others) == count - 1


def test_ranks_that_wait_in_different_collectives_have_different_letters():
    states = [
        {"rank": rank, "state": "waited", "op": ("ALLGATHER", "ALLTOALL")[rank % 2], "seq": 700}
        for rank in range(4)
    ]
    made = ranks.seats({"ranks": states, "coverage": {"ranks_missing": [4]}})
    (line,) = ranks.matrix(made)
    assert line.lead.strip() == "ranks 0-4" and line.text.startswith("abab?   rank 4: nothing was read")
    assert [ranks.names(members) for *_, members in ranks.groups(made)] == [
        "rank 4",
        "ranks 0, 2",
        "ranks 1, 3",
    ]
