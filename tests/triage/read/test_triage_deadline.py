"""`triage --deadline` ends, with what is at the end of a log: what ended a job is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from say import judged, raised, steps

from nodedoctor.triage.job import examine_job

BUSY = "2026-11-20 10:00:01,123 - app - ERROR - request {n} failed: ValueError: could not parse {n}\n"
FULL = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/job/train.py", line 3, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)


def _triage(log: Path, *words: str) -> dict[str, object]:
    argv = [sys.executable, "-m", "nodedoctor", "triage", "--json", "--no-node", *words, str(log)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=300)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_log_that_is_read_in_time_is_judged_as_without_a_limit(tmp_path: Path) -> None:
    text = steps(1, 9) + raised(2, "ValueError: x")
    (tmp_path / "some.log").write_text(text)
    whole = judged(tmp_path, text).verdict
    limited = examine_job([str(tmp_path / "some.log")], seconds=300).verdict
    assert (limited.cause, limited.confidence) == (whole.cause, whole.confidence)
    assert not any("--deadline" in note for note in limited.coverage.notes)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "who looks at the verdict would be ended"


@pytest.mark.slow
def test_of_a_long_log_the_end_is_judged_with_low_confidence(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    with log.open("w") as file:
        file.writelines(BUSY.format(n=number) for number in range(1_000_000))
        file.write(FULL)
    found = _triage(log, "--deadline", "10")
    assert (found["cause"], found["confidence"]) == ("peer_cuda_oom", "low")
    assert found["evidence"][0]["line"] is None  # type: ignore[index]  # to count it is to read all of the log
    notes = found["coverage"]["notes"]  # type: ignore[index]
    assert any("KiB were read in time" in note for note in notes), notes
    assert any(note.startswith("--deadline 10") for note in notes), notes
