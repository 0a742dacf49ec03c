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


@pytest.mark.sampled(6)
@pytest.mark.parametrize("end", LINES)
@pytest.mark.parametrize("prefix", CALLED + UNNAMED + FURTHER)
def test_other_speakers_unlearn_no_label(prefix: str, end: str, tmp_path: Path) -> None:
    lines = labelled(prefix, 5, LINES[end])
    plain = named(tmp_path, lines)
    assert plain[1] == [5]
    for turn, (other, text) in enumerate(OTHERS.items(), len(prefix)):
        place = PLACES[turn % len(PLACES)]
        assert named(tmp_path, [*lines[:place], text, *lines[place:]]) == plain, (other, place)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("prefix", CALLED + UNNAMED + FURTHER)
def test_a_number_behind_a_label_is_not_of_it(prefix: str, tmp_path: Path) -> None:
    lines = labelled(prefix, 5, LINES["traceback"])
    plain = named(tmp_path, lines)
    front = prefix.format(rank=4, node=1, local=0, tp=0, dp=2)
    texts = ("sleeping 2s", "8 files read", "rank 4 of 8 is ready", "-- 12")
    for turn, text in enumerate(texts, len(prefix)):
        place = PLACES[turn % len(PLACES)]
        assert named(tmp_path, [*lines[:place], f"{front}{text}\n", *lines[place:]]) == plain, (text, place)


ALONE = [
    *CALLED,
    *UNNAMED,
    *FURTHER,
    "r0{rank} | ",
    "[gpu{rank}] ",
    "worker{rank}> ",
    "R{rank}/8 ",
    "(pid 41{rank}) ",
]
SUBJECTS = (
    "cache",
    "tokenizer",
    "model",
    "optimizer",
    "sampler",
    "profiler",
    "scheduler",
    "mesh",
    "writer",
    "store",
)
SPEECH = [f"{subject} is {state}\n" for subject in SUBJECTS for state in ("built", "ready")]
STEP_LINES = [line for n, said in enumerate(SPEECH) for line in (f"step {n} loss: 2.{n}\n", said)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("prefix", ALONE)
def test_a_label_on_a_traceback_alone_costs_no_more_than_the_rank(prefix: str, tmp_path: Path) -> None:
    """Few lines have it, so it is no label of the log; it is in front of all of the traceback."""

    def trace(rank: int) -> list[str]:
        front = prefix.format(rank=rank, node=rank // 4, local=rank % 4, tp=rank % 2, dp=rank // 2)
        return [f"{front}{line}\n" for line in LINES["traceback"]]

    cause, ranks = named(tmp_path, STEP_LINES + trace(5))
    assert cause == "user_code_exception" and set(ranks) <= {5, None}
    chained = [
        f"{line}\n"
        for line in ("", "During handling of the above exception, another exception occurred:", "")
    ]
    chained = [trace(5)[0].partition("Traceback")[0] + line for line in chained]
    cause, ranks = named(tmp_path, STEP_LINES + trace(5) + chained + trace(5))
    assert cause == "user_code_exception" and set(ranks) <= {5, None}
    mixed = [line for both in zip(trace(5), trace(6), strict=True) for line in both]
    cause, ranks = named(tmp_path, STEP_LINES + mixed)
    assert cause == "user_code_exception" and set(ranks) <= {5, 6, None}


@pytest.mark.parametrize("prefix", ALONE)
def test_what_handles_a_traceback_may_have_its_label(prefix: str, tmp_path: Path) -> None:
    front = prefix.format(rank=5, node=1, local=1, tp=1, dp=2)
    lines = [f"{front}WARNING: loading a sample failed, ignored:\n"]
    lines += [f"{front}{line}\n" for line in LINES["traceback"]]
    assert named(tmp_path, STEP_LINES[:20] + lines + STEP_LINES[20:])[0] == "none"
