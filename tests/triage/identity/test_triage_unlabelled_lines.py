"""Whether lines bear a label their share decides: other speakers among them change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import culprits
from test_triage_several_numbers import CALLED, UNNAMED

from nodedoctor.triage.job import examine_job

TRACE = 'Traceback (most recent call last):\n  File "/job/{file}.py", line 4, in f\n    g()\nKeyError: "x"\n'
OTHERS = {
    "a handled traceback": TRACE.format(file="data") + "WARNING continuing without it\n",
    "a quoted traceback": json.dumps({"level": "warning", "message": "skipped", "exc": TRACE}) + "\n",
    "a launcher": "launching 8 workers\n",
    "a library": "INFO data cache is ready\n",
    "several": "launching 8 workers\nINFO data cache is ready, 4411 shards\nusing 3 of 5 mirrors\n",
}
FURTHER = [
    "[{rank}/8] ", "[proc {rank}] ", "r{rank}| ", "[rank{rank}@node{node}] ", "rank-{rank} ~ ", "{rank}: ",
    "[rank {rank} (dp={dp} tp={tp})] ", "[2026-10-03 05:00:00][rank{rank}][INFO] ", "RANK_{rank} | ",
    "[rank{rank}]: ", "gpu-{node}/{local} rank{rank}: ", "17909990{rank}0.113 rank={rank} ",
]  # fmt: skip
LINES = {
    "traceback": TRACE.format(file="train").splitlines(),
    "one line": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"],
}
WORLD, PER_NODE, STEPS = 8, 4, 9
PLACES = (0, 40, WORLD * STEPS)


def labelled(prefix: str, guilty: int, end: list[str]) -> list[str]:
    """Steps of all ranks, then the error of one, which the others hear of."""

    def front(rank: int) -> str:
        node, local = divmod(rank, PER_NODE)
        return prefix.format(rank=rank, node=node, local=local, tp=rank % 2, dp=rank // 2)

    lines = [f"{front(rank)}step {n} loss: 2.{n}\n" for n in range(STEPS) for rank in range(WORLD)]
    lines += [f"{front(guilty)}{line}\n" for line in end]
    closed = "NCCL error: remote process exited or there was a network error"
    closed = f"torch.distributed.DistBackendError: {closed}"
    return lines + [f"{front(rank)}{closed}\n" for rank in range(WORLD) if rank != guilty]


def named(folder: Path, lines: list[str]) -> tuple[str, list[int | None]]:
    path = folder / "job.log"
    path.write_text("".join(lines))
    examined = examine_job([str(path)])
    return examined.verdict.cause, culprits(examined)


@pytest.mark.parametrize("end", LINES)
@pytest.mark.parametrize("prefix", CALLED + UNNAMED + FURTHER)
def test_other_speakers_unlearn_no_label(prefix: str, end: str, tmp_path: Path) -> None:
    lines = labelled(prefix, 5, LINES[end])
    plain = named(tmp_path, lines)
    assert plain[1] == [5]
    for turn, (other, text) in enumerate(OTHERS.items(), len(prefix)):
        place = PLACES[turn % len(PLACES)]
        assert named(tmp_path, [*lines[:place], text, *lines[place:]]) == plain, (other, place)


@pytest.mark.parametrize("prefix", CALLED + UNNAMED + FURTHER)
def test_a_number_behind_a_label_is_not_of_it(prefix: str, tmp_path: Path) -> None:
    lines = labelled(prefix, 5, LINES["traceback"])
    plain = named(tmp_path, lines)
    front = prefix.format(rank=4, node=1, local=0, tp=0, dp=2)
    texts = ("sleeping 2s", "8 files read", "rank 4 of 8 is ready", "-- 12")
    for turn, text in enumerate(texts, len(prefix)):
        place = PLACES[turn % len(PLACES)]
        assert named(tmp_path, [*lines[:place], f"{front}{text}\n", *lines[place:]]) == plain, (text, place)
