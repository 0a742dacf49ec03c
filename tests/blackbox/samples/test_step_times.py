"""When ranks come to their steps, by what they print: by its own times, else by when it was seen to come."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodedoctor.blackbox.samples.sample import OutputPart, RankSample, Sample, parse
from nodedoctor.blackbox.samples.step_times import StepTimes
from nodedoctor.children.programs import child

RANKS = tuple(RankSample(100 + rank, 1, rank, 4, rank) for rank in range(4))
STEP, LATE = 0.5, 0.3
LINES = {
    "launcher": "[rank{rank}]: step {step} loss 1.0",
    "local": "[default{rank}]:step {step} loss 1.0",
    "field": "rank={rank} step={step}",
    "text": "[rank {rank}] Epoch 1 step {step}/300",
    "srun": "{rank}: step {step} loss 1.0",
    "actor": "(Trainer pid={pid}, ip=192.0.2.1) step {step}",
    "words": "step: {step} | rank: {rank} | loss: 0.3",
}


def moments(late: int, steps: int = 30) -> list[tuple[float, int, int]]:
    """When which rank prints which step."""
    return sorted(
        (STEP * step + 0.01 * (rank + step) % 0.02 + (LATE if rank == late else 0.0), rank, step)
        for step in range(steps)
        for rank in range(4)
    )


def late_rank(*parts: OutputPart) -> int | None:
    times = StepTimes()
    sample = Sample(1.0, 1.0, (1,), RANKS, parts)
    times.feed(sample)
    found = times.late(sample)
    return found[0] if found is not None else None


def shared(line: str, late: int, *, writers: tuple[int, ...] = (100, 101, 102, 103)) -> OutputPart:
    """All ranks in one file, whose growth was seen line by line."""
    text, grown = "", []
    for moment, rank, step in moments(late):
        text += line.format(rank=rank, pid=100 + rank, step=step) + "\n"
        grown.append((len(text.encode()), moment))
    return OutputPart("/job/out.log", text, 0, writers, tuple(grown))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("late", [0, 2])
def test_ranks_are_known_by_what_is_in_front_of_their_lines_or_in_them(line: str, late: int) -> None:
    assert late_rank(shared(line, late)) == late
    assert late_rank(shared(line, late=9)) is None


def test_what_a_launcher_passes_on_is_known_to_a_tenth_of_a_second_only() -> None:
    near = shared("rank={rank} step={step}", 1, writers=(7,))
    assert late_rank(near) == 1
    closer = OutputPart(
        near.path, near.text, 0, (7,), tuple((size, 0.4 * moment) for size, moment in near.grown)
    )
    assert late_rank(closer) is None
    assert late_rank(OutputPart(near.path, near.text, 0, (100, 101, 102, 103), closer.grown)) == 1


def test_a_file_for_each_rank_needs_no_prefix() -> None:
    parts = []
    for rank in range(4):
        text, grown = "", []
        for moment, who, step in moments(3):
            if who == rank:
                text += f"step {step} loss 1.0\n"
                grown.append((len(text), moment))
        parts.append(OutputPart(f"/job/{rank}.log", text, 0, (100 + rank,), tuple(grown)))
    assert late_rank(*parts) == 3
    assert late_rank(*parts[:3]) is None, "of one rank nothing is known"


def test_times_of_the_lines_need_nobody_who_looks() -> None:
    rows = [
        f"2026-01-05 10:00:{moment:06.3f} [rank {rank}] step {step} loss 1.0".replace(".", ",", 1)
        for moment, rank, step in moments(2)
    ]
    assert late_rank(OutputPart("/job/out.log", "\n".join(rows))) == 2
    whole = [row[:19] + row[23:] for row in rows]
    assert late_rank(OutputPart("/job/out.log", "\n".join(whole))) is None, "whole seconds are too coarse"


def test_steps_that_come_together_have_no_times() -> None:
    """Ranks whose output is buffered: several steps at once, each rank's at another moment."""
    part = shared("[rank {rank}] step {step}", 2)
    blocks = OutputPart(part.path, part.text, 0, part.writers, part.grown[7::8])
    assert late_rank(blocks) is None


def test_nobody_is_named_where_two_jobs_print_or_a_rank_has_no_number() -> None:
    part = shared("rank={rank} step={step}", 2)
    times = StepTimes()
    for others in ((RankSample(900, 1, 0, 1, 0, job="other"),), (RankSample(900, 1),)):
        sample = Sample(1.0, 1.0, (1,), (*RANKS, *others), (part,))
        times.feed(sample)
        assert times.late(sample) is None


def test_the_sampler_sees_when_a_file_grows(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "for step in range(8):\n"
        "    print('step', step, time.monotonic(), flush=True)\n"
        "    time.sleep(0.15)\n"
        "time.sleep(60)"
    )
    with open(tmp_path / "out.log", "wb") as out:
        job = subprocess.Popen([sys.executable, "-c", program], stdout=out)
    wanted = json.dumps({"pids": [job.pid], "seconds": 0.4, "grain": 0.01})
    sampler = subprocess.Popen(child("job/sampler", wanted), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    seen: dict[int, tuple[float, float]] = {}
    try:
        assert sampler.stdout is not None
        ends = time.monotonic() + 20
        while len(seen) < 5 and time.monotonic() < ends:
            sample = parse(sampler.stdout.readline().decode())
            assert sample is not None
            for part in sample.output:
                assert part.writers == (job.pid,)
                sizes = dict(part.grown)
                size = 0
                for row in part.text.splitlines(keepends=True):
                    size += len(row)
                    if size in sizes:
                        _, step, moment = row.split()
                        seen[int(step)] = (float(moment), sizes[size])
    finally:
        for process in (sampler, job):
            process.kill()
            process.communicate()
    assert len(seen) >= 5
    behind = sorted(found - printed for printed, found in seen.values())
    assert behind[0] >= 0 and behind[len(behind) // 2] < 0.1
