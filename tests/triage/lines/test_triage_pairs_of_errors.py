"""Lines of `key=value` whose exception is a value of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged

STEP = "ts=2026-10-03T07:00:{n:02}Z level=info rank={rank} event=step n={n} loss=1.{n}\n"
ERROR = (
    'ts=2026-10-03T07:{minute}:11Z level=error rank={rank} {before}{name}="{error}" file=metrics.py line=31\n'
)
WAITED = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation"
)
BEFORE = ("event=exception ", 'msg="step failed" ')


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["exc", "exception", "exc_info"])
def test_the_exception_among_the_values_has_its_rank(
    name: str, before: str, rank: int, tmp_path: Path
) -> None:
    log = "".join(STEP.format(rank=r, n=n) for n in range(9) for r in range(4))
    log += ERROR.format(minute="00", rank=rank, before=before, name=name, error="ZeroDivisionError: by zero")
    for other in {0, 1, 2, 3} - {rank}:
        waited = f"{WAITED} to complete"
        log += ERROR.format(minute=30, rank=other, before=before, name=name, error=waited)
    examined = judged(tmp_path, log)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [rank])
